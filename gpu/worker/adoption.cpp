#include "gpu/worker/adoption.hpp"

#include "absl/strings/str_cat.h"

namespace troupe::gpu {

absl::Status AdoptionGate::Admit(std::uint64_t epoch, bool assigns) const {
  if (epoch < highest_) {
    return absl::FailedPreconditionError(absl::StrCat("daemon epoch ", epoch, " is older than ", highest_,
                                                      ", which has adopted this worker before"));
  }
  if (adopted_ && epoch == highest_ && !assigns) {
    return absl::FailedPreconditionError(
        absl::StrCat("this worker is adopted already, by daemon epoch ", highest_));
  }
  return absl::OkStatus();
}

absl::Status ServedKey::Admit(const std::string& key, bool used) const {
  if (key == key_) return absl::OkStatus();
  if (!key_.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("this worker serves '", key_, "' until its end; start another one for '", key, "'"));
  }
  if (used) {
    return absl::FailedPreconditionError(
        absl::StrCat("this worker has served functions of every key; start another one for '", key, "'"));
  }
  return absl::OkStatus();
}

void AdoptionGate::Adopted(std::uint64_t epoch) {
  adopted_ = true;
  highest_ = epoch;
}

}  // namespace troupe::gpu
