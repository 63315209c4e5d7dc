#include "gpu/worker/pin_table.hpp"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"

namespace troupe::gpu {

void PinTable::Pin(const ChannelPtr& channel, const proto::PinOrder& order, Reply reply) {
  absl::StatusOr<Held> held = order.has_tensor() ? HoldTensor(order.tensor()) : HoldModel(order.digest());
  if (!held.ok()) return reply.Fail(held.status());
  held->channel = channel;
  proto::WorkerOutcome outcome;
  proto::PinOutcome& pinned = *outcome.mutable_pin();
  if (const absl::Status shown = Show(held->range, *channel, *pinned.mutable_memory()); !shown.ok()) {
    held->release();
    return reply.Fail(shown);
  }
  pinned.set_pin(pinned.memory().memory().arena());
  pins_.emplace(pinned.pin(), *std::move(held));
  reply.Done(std::move(outcome));
}

absl::StatusOr<PinTable::Held> PinTable::HoldModel(const std::string& digest) {
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
  const ModelTable::Hold hold = table.Acquire(digest);
  return Held{hold.weights, [this, digest, hold] { residency_.Release(digest, hold); }, nullptr};
}

absl::StatusOr<PinTable::Held> PinTable::HoldTensor(const proto::KeptTensor& tensor) {
  TROUPE_ASSIGN_OR_RETURN(const TensorStore::Input input,
                          tensors_.Use({tensor.number(), Bytes(tensor.offset()), Bytes(tensor.length())}));
  if (!input.on_device) {
    tensors_.Leave(tensor.number());
    return absl::FailedPreconditionError(absl::StrCat(
        "tensor ", tensor.number(), " has left the device, whose memory was needed: it can be exported"));
  }
  return Held{*input.on_device, [this, number = tensor.number()] { tensors_.Leave(number); }, nullptr};
}

absl::Status PinTable::Show(const DeviceRange& held, transport::LocalChannel& channel,
                            proto::PinnedMemory& shown) {
  TROUPE_ASSIGN_OR_RETURN(SharedRange range, device_.Share(held));
  if (range.parts.size() > limits_.pinned_ranges) {
    return absl::FailedPreconditionError(absl::StrCat("it lies in ", range.parts.size(), " ranges, at most ",
                                                      limits_.pinned_ranges,
                                                      " are copied: take it from the host"));
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
  held.release();
}

void PinTable::UnpinAll() {
  while (!pins_.empty()) Unpin(pins_.begin()->first);
}

}  // namespace troupe::gpu
