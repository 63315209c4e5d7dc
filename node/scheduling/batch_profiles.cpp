#include "node/scheduling/batch_profiles.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace troupe::node {

std::size_t BatchProfiles::IndexOf(std::uint32_t rows) {
  if (!std::has_single_bit(rows)) return kSizes;
  return std::min<std::size_t>(std::countr_zero(rows), kSizes);
}

void BatchProfiles::Prepared(ModelId model, GpuIndex gpu, std::uint32_t rows, Bytes activation) {
  const std::size_t at = IndexOf(rows);
  if (at == kSizes) return;
  Size& size = models_[model].sizes[at];
  size.activation = std::max(size.activation, activation);
  if (std::ranges::find(size.gpus, gpu) == size.gpus.end()) size.gpus.push_back(gpu);
}

void BatchProfiles::ForgetGpu(GpuIndex gpu) {
  for (auto& [model, profile] : models_)
    for (Size& size : profile.sizes) std::erase(size.gpus, gpu);
}

void BatchProfiles::Refuse(ModelId model) {
  models_[model].refused = true;
}

void BatchProfiles::Observe(ModelId model, std::uint32_t rows, Duration computed, KindId kind) {
  const auto found = models_.find(model);
  const std::size_t at = IndexOf(rows);
  if (found == models_.end() || at == kSizes || computed <= Duration()) return;
  Times& times = found->second.times.At(kind);
  SizeTime& size = times.sizes[at];
  size.last = ++times.runs;
  // Not of one row, of which there is always a request now and then.
  for (std::size_t other = 1; other < kSizes; ++other)
    if (times.runs - times.sizes[other].last >= kForget)
      times.sizes[other].seen = std::min(times.sizes[other].seen, kBelievedRuns - 1);
  if (!std::exchange(size.warm, true)) return;
  size.run.Observe(computed);
  ++size.seen;
}

std::vector<BatchSize> BatchProfiles::SizesOn(ModelId model, const Place& place, std::uint32_t most) const {
  static const Times kNone;
  std::vector<BatchSize> sizes;
  const auto found = models_.find(model);
  if (found == models_.end() || found->second.refused) return sizes;
  for (std::size_t at = 0; at < kSizes && std::uint32_t{1} << at <= most; ++at) {
    const Size& size = found->second.sizes[at];
    const Times* const times = found->second.times.Find(place.kind);
    const SizeTime& time = (times == nullptr ? kNone : *times).sizes[at];
    const bool planned = std::ranges::find(size.gpus, place.gpu) != size.gpus.end();
    BatchSize& look = sizes.emplace_back();
    look.rows = std::uint32_t{1} << at;
    look.prepared = planned && size.activation <= place.one + place.room;
    look.seen = time.seen;
    if (time.run.known()) look.run = time.run.Or(Duration());
  }
  return sizes;
}

Bytes BatchProfiles::ActivationOf(ModelId model, std::uint32_t rows) const {
  const auto found = models_.find(model);
  const std::size_t at = IndexOf(rows);
  return found == models_.end() || at == kSizes ? Bytes() : found->second.sizes[at].activation;
}

}  // namespace troupe::node
