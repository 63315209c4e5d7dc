// REMOTE ENDPOINT: bytes of slices between hosts. Two forms: StreamEndpoint (TCP, with TLS where daemons have
// certificates) and UcxEndpoint (UCX, for networks with RDMA devices).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "proto/tensor.pb.h"

namespace troupe::transport {

// Where the bytes that others ask for come from.
struct PinnedBytes {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> pin;  // held until they have been sent
};
// Called on the endpoint's thread; must not block.
using SliceSource = std::function<absl::StatusOr<PinnedBytes>(const proto::ArenaRef&)>;

// Listens for fetches of other hosts and fetches from them, on one thread of its own, which the destructor
// joins; what is pending then fails with Cancelled. All members may be called from any thread. A peer that
// dies fails its pending fetches with Unavailable; the next fetch connects anew.
class RemoteEndpoint {
 public:
  using Done = std::function<void(absl::Status)>;

  virtual ~RemoteEndpoint() = default;
  // For ArenaRef::endpoint: how, where and with which token others fetch (FormatEndpointAddress). Not for
  // logs.
  [[nodiscard]] virtual const std::string& address() const = 0;
  // Fetches that were refused because their reader did not know the token, or because its certificate was
  // revoked since it had connected.
  [[nodiscard]] virtual std::uint64_t strangers() const = 0;
  // Fills `destination`, which is ref.length() bytes, with the slice's bytes. `keeper` is held for as long as
  // the endpoint may write there, which may be after `done`. `done` is called once, on the endpoint's thread
  // or in this call, and must not block.
  virtual void Fetch(const proto::ArenaRef& ref, std::span<std::byte> destination,
                     std::shared_ptr<void> keeper, Duration timeout, Done done) = 0;
};

}  // namespace troupe::transport
