#include "gpu/worker/adoption.hpp"

#include "absl/strings/str_cat.h"

namespace troupe::gpu {

absl::Status AdoptionGate::Admit(std::uint64_t epoch) const {
  if (epoch < highest_) {
    return absl::FailedPreconditionError(absl::StrCat("daemon epoch ", epoch, " is older than ", highest_,
                                                      ", which has adopted this worker before"));
  }
  if (adopted_ && epoch == highest_) {
    return absl::FailedPreconditionError(
        absl::StrCat("this worker is adopted already, by daemon epoch ", highest_));
  }
  return absl::OkStatus();
}

void AdoptionGate::Adopted(std::uint64_t epoch) {
  adopted_ = true;
  highest_ = epoch;
}

}  // namespace troupe::gpu
