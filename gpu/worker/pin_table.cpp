#include "gpu/worker/pin_table.hpp"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"

namespace troupe::gpu {

void PinTable::Pin(const std::shared_ptr<transport::LocalChannel>& channel, const std::string& digest,
                   Reply reply) {
  absl::StatusOr<proto::PinOutcome> pinned = Make(channel, digest);
  if (!pinned.ok()) return reply.Fail(pinned.status());
  proto::WorkerOutcome outcome;
  *outcome.mutable_pin() = *std::move(pinned);
  reply.Done(std::move(outcome));
}

absl::StatusOr<proto::PinOutcome> PinTable::Make(const std::shared_ptr<transport::LocalChannel>& channel,
                                                 const std::string& digest) {
  ModelTable& table = residency_.table();
  switch (table.StateOf(digest)) {
    case ModelTable::State::kAbsent:
      return absl::NotFoundError(
          absl::StrCat("model ", digest, " is not on this device: it cannot be copied from here"));
    case ModelTable::State::kLoading:
      return absl::FailedPreconditionError(
          absl::StrCat("model ", digest, " is being swapped in: it can be copied when it is there"));
    case ModelTable::State::kResident:
    case ModelTable::State::kRunning:
      break;
  }
  Held held{digest, table.Acquire(digest), channel};
  proto::PinOutcome outcome;
  const absl::Status shown = Show(held.hold.weights, *channel, *outcome.mutable_weights());
  if (!shown.ok()) {
    residency_.Release(digest, held.hold);
    return shown;
  }
  outcome.set_pin(outcome.weights().memory().arena());
  pins_.emplace(outcome.pin(), std::move(held));
  return outcome;
}

absl::Status PinTable::Show(const DeviceRange& weights, transport::LocalChannel& channel,
                            proto::PinnedMemory& shown) {
  TROUPE_ASSIGN_OR_RETURN(SharedRange range, device_.Share(weights));
  if (range.parts.size() > limits_.pinned_ranges) {
    return absl::FailedPreconditionError(absl::StrCat("the model lies in ", range.parts.size(),
                                                      " ranges, at most ", limits_.pinned_ranges,
                                                      " are copied: swap it in from the host"));
  }
  for (const SharedRange::Part& part : range.parts) {
    proto::PinnedMemory::Range& added = *shown.add_ranges();
    added.set_offset(part.offset.count());
    added.set_length(part.size.count());
  }
  TROUPE_ASSIGN_OR_RETURN(*shown.mutable_memory(), channel.HandOut(std::move(range.descriptor)));
  return absl::OkStatus();
}

// The memory is withdrawn first: a destination that asks later learns that the pin has ended.
void PinTable::Unpin(std::uint64_t id) {
  const auto found = pins_.find(id);
  if (found == pins_.end()) return;
  const Held held = std::move(found->second);
  pins_.erase(found);
  held.channel->Withdraw(id);
  residency_.Release(held.digest, held.hold);
}

void PinTable::UnpinAll() {
  while (!pins_.empty()) Unpin(pins_.begin()->first);
}

}  // namespace troupe::gpu
