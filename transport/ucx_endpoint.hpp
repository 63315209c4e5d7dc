// Bytes of slices between hosts, over UCX active messages with rendezvous. UCX's own types stay in the
// source. What travels is not encrypted; a reader has to know the endpoint's token, which is a part of its
// address: references carry it, and daemons tell each other references over authenticated connections only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "proto/tensor.pb.h"
#include "transport/socket_refusals.hpp"

namespace troupe::transport {

// Where the bytes that others ask for come from.
struct PinnedBytes {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> pin;  // held until they have been sent
};
using SliceSource = std::function<absl::StatusOr<PinnedBytes>(const proto::ArenaRef&)>;

// Listens for fetches of other hosts and fetches from them. One progress thread of its own, which sleeps on
// UCX's event descriptor: started by Start, joined by the destructor, which fails what is pending with
// Cancelled. All members from any thread. A peer that dies fails its pending fetches with Unavailable; the
// next fetch connects anew.
class UcxEndpoint {
 public:
  struct Options {
    std::string bind = "127.0.0.1:0";  // port 0: the system chooses
    std::string transports;            // UCX_TLS; "": UCX decides ("tcp,self" in tests)
    std::size_t pending = 256;         // fetches at once; ResourceExhausted beyond
    // UCX listens for data on every network interface. True: only on that of `bind`, unless the machine has
    // RDMA devices, which this would exclude.
    bool only_interface_of_bind = false;
    std::shared_ptr<SocketRefusals> refusals{};  // null: counted, and not shown
  };
  using Done = std::function<void(absl::Status)>;

  static absl::StatusOr<std::unique_ptr<UcxEndpoint>> Start(Options options, SliceSource source);
  virtual ~UcxEndpoint() = default;
  // "ip:port/token" for ArenaRef::endpoint. Not for logs.
  [[nodiscard]] virtual const std::string& address() const = 0;
  // Fetches that were refused because they did not know the token.
  [[nodiscard]] virtual std::uint64_t strangers() const = 0;
  // Fills `destination` (kept alive by `keeper` until UCX lets go of it, which may be after `done`) with the
  // slice's bytes. `done` is called once, on the progress thread, and must not block. `destination` is
  // ref.length() bytes.
  virtual void Fetch(const proto::ArenaRef& ref, std::span<std::byte> destination,
                     std::shared_ptr<void> keeper, Duration timeout, Done done) = 0;
};

}  // namespace troupe::transport
