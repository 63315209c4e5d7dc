#include "actors/peers/write_bound.hpp"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace troupe::actors {

void WriteBound::Update(std::uint64_t writing, std::uint64_t queued) {
  *all_ += writing + queued - unwritten();  // modulo 2^64, so that less is more
  writing_ = writing;
  queued_ = queued;
  if (unwritten() == 0) waits_ = false;
}

void WriteBound::Queued(std::uint64_t queued, bool swapped) {
  swapped ? Update(queued, 0) : Update(writing_, queued);
}

void WriteBound::Wrote(std::uint64_t taken, std::uint64_t left) {
  taken_ += taken;
  // CAF goes on with what was queued meanwhile.
  left > 0 ? Update(left, queued_) : Update(queued_, 0);
}

absl::Status WriteBound::Check(Time now) {
  if (unwritten() > kMost) {
    return absl::ResourceExhaustedError(
        absl::StrCat(unwritten(), " bytes wait until it reads them, and at most ", kMost, " may"));
  }
  if (unwritten() == 0) return absl::OkStatus();
  if (!waits_) {
    waits_ = true;
    since_ = now;
    taken_ = 0;
  }
  const Duration patience = *all_ > kShort ? kShortPatience : kPatience;
  if (now - since_ < patience) return absl::OkStatus();
  const double least = kSlowest * std::chrono::duration<double>(patience).count();
  if (static_cast<double>(taken_) < least) {
    return absl::ResourceExhaustedError(absl::StrCat("it read ", taken_, " bytes within ",
                                                     FormatDuration(now - since_), ", while ", unwritten(),
                                                     " more waited for it"));
  }
  since_ = now;
  taken_ = 0;
  return absl::OkStatus();
}

}  // namespace troupe::actors
