// LOCAL SOCKETS: processes of one machine that are configured with loopback addresses reach each other over
// abstract Unix sockets instead of TCP: '\0troupe/HOST:PORT'. The kernel says there which user the other end
// runs as, so that no other user of the machine can take part; over TCP it says nothing. No TCP port is
// opened. The names belong to a network namespace, as TCP ports do, and vanish with their process.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "transport/memory_file.hpp"

namespace troupe::actors {

// localhost, 127.0.0.0/8 and ::1 (in brackets or not). Names are not looked up.
[[nodiscard]] bool IsLoopback(const std::string& host);

// A socket that listens, and its port (0 is chosen by the system). AlreadyExists when the name is taken.
absl::StatusOr<std::pair<transport::UniqueFd, std::uint16_t>> ListenLocal(const std::string& host,
                                                                          std::uint16_t port);
// Unavailable when nothing listens there; PermissionDenied when what listens is another user's.
absl::StatusOr<transport::UniqueFd> DialLocal(const std::string& host, std::uint16_t port);

// OK when the process at the other end runs as our own user or as root; else PermissionDenied.
[[nodiscard]] absl::Status CheckLocalUser(int socket);
// "user 1000, process 4711".
[[nodiscard]] std::string LocalPeer(int socket);
// "user/1000", for audit lines; "" when the kernel does not know.
[[nodiscard]] std::string LocalUserName(int socket);
[[nodiscard]] bool IsLocalSocket(int socket);

}  // namespace troupe::actors
