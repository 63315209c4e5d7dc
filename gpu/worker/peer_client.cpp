#include "gpu/worker/peer_client.hpp"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"

namespace troupe::gpu {
namespace {

absl::StatusOr<transport::UniqueFd> Ask(const LentModel& lent) {
  absl::StatusOr<transport::UniqueFd> descriptor = lent.channel->Ask(lent.memory);
  if (descriptor.ok()) return descriptor;
  return absl::UnavailableError(
      absl::StrCat("GPU ", lent.gpu, " lends the model no more: ", descriptor.status().message()));
}

}  // namespace

absl::StatusOr<LentModel> ReadLent(const proto::SwapInOrder& order, Bytes weights,
                                   const WorkerLimits& limits) {
  const auto& ranges = order.lent().ranges();
  if (static_cast<std::size_t>(ranges.size()) > limits.lent_ranges) {
    return absl::InvalidArgumentError(absl::StrCat("GPU ", order.from_gpu(), " lends ", ranges.size(),
                                                   " ranges, at most ", limits.lent_ranges, " are taken"));
  }
  LentModel lent{order.from_gpu(), order.lent().memory(), {}, nullptr};
  Bytes left = weights;  // never below zero, whatever lengths are claimed
  for (const proto::LentMemory::Range& range : ranges) {
    const Bytes length(range.length());
    if (length == Bytes(0) || length > left) {
      return absl::InvalidArgumentError(absl::StrCat(
          "GPU ", order.from_gpu(), " lends a range of ", range.length(), " bytes where ", left.count(),
          " of the model's ", weights.count(), " are missing: swap it in from the host"));
    }
    lent.parts.push_back({Bytes(range.offset()), length});
    left = left - length;
  }
  if (left > Bytes(0)) {
    return absl::InvalidArgumentError(absl::StrCat("GPU ", order.from_gpu(), " lends ",
                                                   (weights - left).count(), " bytes of a model of ",
                                                   weights.count(), ": swap it in from the host"));
  }
  return lent;
}

void PeerClient::Open(const LentModel& lent, Opened then) {
  thread_.Post([this, lent, then = std::move(then)] {
    const auto open = [&]() -> absl::StatusOr<std::shared_ptr<const PeerMemory>> {
      TROUPE_ASSIGN_OR_RETURN(transport::UniqueFd descriptor, Ask(lent));
      return device_.OpenPeer(lent.gpu, {std::move(descriptor), lent.parts});
    };
    then(open());
  });
}

void PeerClient::Confirm(const LentModel& lent, Confirmed then) {
  thread_.Post([lent, then = std::move(then)] { then(Ask(lent).status()); });
}

}  // namespace troupe::gpu
