// Unix sockets that carry short messages together with file descriptors: how processes of a host find each
// other.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "transport/memory_file.hpp"

namespace troupe::transport {

struct SocketLimits {
  static constexpr Bytes kMessage = KiB(64);  // one message; larger ones are refused by the sender
  static constexpr int kDescriptors = 16;     // with one message
  static constexpr int kBacklog = 64;         // connections that wait to be accepted
};

// One message: its bytes and the descriptors that came with it (close-on-exec, owned).
struct SocketMessage {
  std::string bytes;
  std::vector<UniqueFd> descriptors;
};

// A connected SOCK_SEQPACKET socket: message boundaries are kept. The other end runs as the same user or
// as root, as the kernel says when it was connected. One thread at a time; poll fd() to wait in an event
// loop.
class UnixConnection {
 public:
  UnixConnection() = default;
  // Takes a connected socket. PermissionDenied when the other end runs as another user, root excepted.
  static absl::StatusOr<UnixConnection> Adopt(UniqueFd socket);
  // Two connected ends in this process, for tests and for children that inherit one.
  static absl::StatusOr<std::pair<UnixConnection, UnixConnection>> Pair();

  [[nodiscard]] int fd() const { return socket_.get(); }
  [[nodiscard]] bool valid() const { return socket_.valid(); }
  [[nodiscard]] int peer_pid() const { return peer_pid_; }
  // DeadlineExceeded when the peer does not read in time, Unavailable when it is gone.
  absl::Status Send(std::string_view bytes, std::span<const int> descriptors, Duration timeout);
  // DeadlineExceeded when nothing comes in time, Unavailable when the peer has closed. A timeout of zero only
  // looks.
  absl::StatusOr<SocketMessage> Receive(Duration timeout);

 private:
  UniqueFd socket_;
  int peer_pid_ = 0;
};

// A listening socket at a path, mode 0600; the destructor removes the path. A path left by a dead process is
// replaced; a path that still answers is AlreadyExists. Any thread, one at a time.
class UnixListener {
 public:
  UnixListener() = default;
  UnixListener(UnixListener&&) noexcept = default;
  UnixListener& operator=(UnixListener&& other) noexcept;
  ~UnixListener();
  static absl::StatusOr<UnixListener> Listen(const std::string& path);

  [[nodiscard]] int fd() const { return socket_.get(); }
  [[nodiscard]] const std::string& path() const { return path_; }
  absl::StatusOr<UnixConnection> Accept(Duration timeout);

 private:
  UniqueFd socket_;
  std::string path_;
};

// NotFound when no process listens at the path.
absl::StatusOr<UnixConnection> ConnectUnix(const std::string& path, Duration timeout);

}  // namespace troupe::transport
