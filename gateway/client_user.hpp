// CLIENT USER: as which user of this machine the client of a connection runs. The kernel says so, which knows
// the client's end of a TCP connection when both ends are on this machine; nothing that the client sends
// changes it. It decides whose shared memory a client may name (shared_memory.hpp).
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <mutex>
#include <optional>

#include "absl/status/statusor.h"

namespace troupe::gateway {

// One end of a TCP connection, in network order as the kernel keeps it.
struct TcpEnd {
  std::array<std::uint8_t, 16> address{};  // of IPv4 the first four bytes
  std::uint16_t port = 0;                  // in the host's order
};

// The two ends as the server sees them.
struct TcpEnds {
  bool is_v6 = false;
  TcpEnd local;
  TcpEnd remote;
};

// The user that made the socket at the remote end. PermissionDenied when no established connection of this
// machine (of this network namespace) has that end: the client is on another machine, or has gone.
[[nodiscard]] absl::StatusOr<uid_t> UserAtRemoteEnd(const TcpEnds& ends);

// Of one connection: the kernel is asked at the first Get, because only clients with shared memory need it.
// Thread-safe.
class ClientUser {
 public:
  explicit ClientUser(const TcpEnds& ends) : ends_(ends) {}
  [[nodiscard]] absl::StatusOr<uid_t> Get();

 private:
  const TcpEnds ends_;
  std::mutex mutex_;
  std::optional<uid_t> user_;  // guarded by mutex_
};

}  // namespace troupe::gateway
