#include "gpu/worker/peer_client.hpp"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"

namespace troupe::gpu {
namespace {

absl::StatusOr<transport::UniqueFd> Ask(const PinnedSource& source) {
  absl::StatusOr<transport::UniqueFd> descriptor = source.channel->Ask(source.memory);
  if (descriptor.ok()) return descriptor;
  return absl::UnavailableError(
      absl::StrCat("GPU ", source.gpu, " has not pinned it any more: ", descriptor.status().message()));
}

}  // namespace

absl::StatusOr<PinnedSource> ReadPinned(std::uint32_t gpu, const proto::PinnedMemory& pinned, Bytes size,
                                        const WorkerLimits& limits) {
  const auto& ranges = pinned.ranges();
  if (static_cast<std::size_t>(ranges.size()) > limits.pinned_ranges) {
    return absl::InvalidArgumentError(absl::StrCat("GPU ", gpu, " offers ", ranges.size(),
                                                   " ranges, at most ", limits.pinned_ranges, " are taken"));
  }
  PinnedSource source{gpu, pinned.memory(), {}, nullptr};
  Bytes left = size;  // never below zero, whatever lengths are claimed
  for (const proto::PinnedMemory::Range& range : ranges) {
    const Bytes length(range.length());
    if (length == Bytes(0) || length > left) {
      return absl::InvalidArgumentError(absl::StrCat("GPU ", gpu, " offers a range of ", range.length(),
                                                     " bytes where ", left.count(), " of ", size.count(),
                                                     " are missing: take it from the host"));
    }
    source.parts.push_back({Bytes(range.offset()), length});
    left = left - length;
  }
  if (left > Bytes(0)) {
    return absl::InvalidArgumentError(absl::StrCat("GPU ", gpu, " offers ", (size - left).count(),
                                                   " bytes of what has ", size.count(),
                                                   ": take it from the host"));
  }
  return source;
}

void PeerClient::Open(const PinnedSource& source, Opened then) {
  thread_.Post([this, source, then = std::move(then)] {
    const auto open = [&]() -> absl::StatusOr<std::shared_ptr<const PeerMemory>> {
      TROUPE_ASSIGN_OR_RETURN(transport::UniqueFd descriptor, Ask(source));
      return device_.OpenPeer(source.gpu, {std::move(descriptor), source.parts});
    };
    then(open());
  });
}

void PeerClient::Confirm(const PinnedSource& source, Confirmed then) {
  thread_.Post([source, then = std::move(then)] { then(Ask(source).status()); });
}

}  // namespace troupe::gpu
