#include "gpu/sharing/gpu_time.hpp"

#include <algorithm>

namespace troupe::gpu {

Duration GpuTime::Part::Of(Duration computed) const {
  if (computed_ <= Duration::zero()) return computed;
  const double part = static_cast<double>(had_.count()) / static_cast<double>(computed_.count());
  return std::min(computed,
                  Duration(static_cast<Duration::rep>(static_cast<double>(computed.count()) * part)));
}

void GpuTime::Advance(Time now) {
  if (now <= last_) return;
  if (const std::uint32_t runs = here_ + others_; runs > 0) clock_ += (now - last_) / runs;
  last_ = now;
}

void GpuTime::Begin(Part& part, Time now) {
  Advance(now);
  part.computes_ = true;
  part.since_ = now;
  part.shown_ = clock_;
  ++here_;
}

void GpuTime::End(Part& part, Time now) {
  if (!part.computes_) return;
  Advance(now);
  part.computes_ = false;
  part.computed_ += now - part.since_;
  part.had_ += clock_ - part.shown_;
  --here_;
}

void GpuTime::SetOthers(std::uint32_t runs, Time now) {
  Advance(now);
  others_ = runs;
}

}  // namespace troupe::gpu
