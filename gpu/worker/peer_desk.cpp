#include "gpu/worker/peer_desk.hpp"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"

namespace troupe::gpu {
namespace {

absl::StatusOr<transport::UniqueFd> Ask(const LentModel& lent) {
  absl::StatusOr<transport::UniqueFd> descriptor = lent.channel->Ask(lent.weights);
  if (descriptor.ok()) return descriptor;
  return absl::UnavailableError(
      absl::StrCat("GPU ", lent.gpu, " lends the model no more: ", descriptor.status().message()));
}

}  // namespace

void PeerDesk::Open(const LentModel& lent, Opened then) {
  thread_.Post([this, lent, then = std::move(then)] {
    const auto open = [&]() -> absl::StatusOr<std::shared_ptr<const PeerMemory>> {
      TROUPE_ASSIGN_OR_RETURN(transport::UniqueFd descriptor, Ask(lent));
      return device_.OpenPeer(
          lent.gpu, {std::move(descriptor), Bytes(lent.weights.offset()), Bytes(lent.weights.length())});
    };
    then(open());
  });
}

void PeerDesk::Confirm(const LentModel& lent, Confirmed then) {
  thread_.Post([lent, then = std::move(then)] { then(Ask(lent).status()); });
}

}  // namespace troupe::gpu
