#include "transport/unix_socket.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "base/status.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::transport {
namespace {

constexpr int kSocketType = SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK;

absl::StatusOr<sockaddr_un> AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path) || path.find('\0') != std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat("socket path '", path, "' has ", path.size(),
                                                   " bytes: must be 1 to ", sizeof(address.sun_path) - 1,
                                                   "; choose a shorter run directory"));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

// Waits until the socket is ready. False when the deadline passes first.
absl::StatusOr<bool> AwaitReady(int fd, short events, Time deadline) {
  for (;;) {
    pollfd entry{fd, events, 0};
    const int ready = poll(&entry, 1, PollMillis(deadline));
    if (ready > 0) return true;
    if (ready == 0) return false;
    if (errno != EINTR) return ErrnoStatus(errno, "waiting for a socket");
  }
}

bool WouldBlock(int error) {
  return error == EAGAIN || error == EWOULDBLOCK;
}

// Room for the descriptors of one message; aligned as the kernel wants it.
struct ControlBuffer {
  alignas(cmsghdr) char bytes[CMSG_SPACE(sizeof(int) * SocketLimits::kDescriptors)] = {};
};

void AttachDescriptors(msghdr& header, ControlBuffer& control, std::span<const int> descriptors) {
  if (descriptors.empty()) return;
  header.msg_control = control.bytes;
  header.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
  cmsghdr* rights = CMSG_FIRSTHDR(&header);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(descriptors.size_bytes());
  std::memcpy(CMSG_DATA(rights), descriptors.data(), descriptors.size_bytes());
}

std::vector<UniqueFd> TakeDescriptors(msghdr& header) {
  std::vector<UniqueFd> taken;
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      taken.emplace_back(fd);
    }
  }
  return taken;
}

// Binds, and removes an old socket only when its process is dead. `status` tells which.
absl::Status BindFresh(int fd, const sockaddr_un& address, const std::string& path) {
  const auto* name = reinterpret_cast<const sockaddr*>(&address);
  if (bind(fd, name, sizeof(address)) == 0) return absl::OkStatus();
  if (errno != EADDRINUSE) return ErrnoStatus(errno, absl::StrCat("binding socket ", path));
  struct stat info {};
  if (lstat(path.c_str(), &info) == 0 && !S_ISSOCK(info.st_mode)) {
    return absl::AlreadyExistsError(
        absl::StrCat(path, " exists and is not a socket; remove it or choose another path"));
  }
  absl::StatusOr<UnixConnection> living = ConnectUnix(path, std::chrono::seconds(1));
  if (!absl::IsNotFound(living.status())) {
    return absl::AlreadyExistsError(
        absl::StrCat("another process listens at ", path, "; stop it or choose another run directory"));
  }
  if (unlink(path.c_str()) != 0 && errno != ENOENT) {
    return ErrnoStatus(errno, absl::StrCat("removing the stale socket ", path));
  }
  if (bind(fd, name, sizeof(address)) == 0) return absl::OkStatus();
  return ErrnoStatus(errno, absl::StrCat("binding socket ", path));
}

}  // namespace

absl::StatusOr<UnixConnection> UnixConnection::Adopt(UniqueFd socket) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return ErrnoStatus(errno, "asking for the user at the other end of a socket");
  }
  if (peer.uid != geteuid() && peer.uid != 0) {
    return absl::PermissionDeniedError(absl::StrCat("process ", peer.pid, " of user ", peer.uid,
                                                    " is at the other end of a socket; user ", geteuid(),
                                                    " or root was expected"));
  }
  UnixConnection connection;
  connection.socket_ = std::move(socket);
  connection.peer_pid_ = peer.pid;
  return connection;
}

absl::StatusOr<std::pair<UnixConnection, UnixConnection>> UnixConnection::Pair() {
  int ends[2] = {-1, -1};
  if (socketpair(AF_UNIX, kSocketType, 0, ends) != 0) return ErrnoStatus(errno, "making a pair of sockets");
  UniqueFd first(ends[0]);
  UniqueFd second(ends[1]);
  TROUPE_ASSIGN_OR_RETURN(UnixConnection left, Adopt(std::move(first)));
  TROUPE_ASSIGN_OR_RETURN(UnixConnection right, Adopt(std::move(second)));
  return std::make_pair(std::move(left), std::move(right));
}

absl::Status UnixConnection::Send(std::string_view bytes, std::span<const int> descriptors,
                                  Duration timeout) {
  // An empty SEQPACKET message reads as the end of the stream at the other side.
  if (bytes.empty() || Bytes(bytes.size()) > SocketLimits::kMessage ||
      descriptors.size() > SocketLimits::kDescriptors) {
    return absl::InvalidArgumentError(absl::StrCat(
        "socket message of ", bytes.size(), " bytes and ", descriptors.size(), " descriptors: must be 1 to ",
        SocketLimits::kMessage.count(), " bytes and at most ", SocketLimits::kDescriptors, " descriptors"));
  }
  const Time deadline = SteadyNow() + timeout;
  ControlBuffer control;
  iovec data{const_cast<char*>(bytes.data()), bytes.size()};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  AttachDescriptors(header, control, descriptors);
  for (;;) {
    if (sendmsg(fd(), &header, MSG_NOSIGNAL) >= 0) return absl::OkStatus();
    if (errno == EINTR) continue;
    if (errno == EPIPE || errno == ECONNRESET)
      return absl::UnavailableError("the other end of a socket has closed");
    if (!WouldBlock(errno)) return ErrnoStatus(errno, "sending on a socket");
    TROUPE_ASSIGN_OR_RETURN(const bool ready, AwaitReady(fd(), POLLOUT, deadline));
    if (!ready) {
      return absl::DeadlineExceededError(
          absl::StrCat("process ", peer_pid_, " did not read its socket within ", FormatDuration(timeout)));
    }
  }
}

absl::StatusOr<SocketMessage> UnixConnection::Receive(Duration timeout) {
  const Time deadline = SteadyNow() + timeout;
  SocketMessage message;
  message.bytes.resize(SocketLimits::kMessage.count());
  ControlBuffer control;
  iovec data{message.bytes.data(), message.bytes.size()};
  for (;;) {
    msghdr header{};
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    header.msg_control = control.bytes;
    header.msg_controllen = sizeof(control.bytes);
    const ssize_t got = recvmsg(fd(), &header, MSG_CMSG_CLOEXEC);
    if (got >= 0) {
      message.descriptors = TakeDescriptors(header);
      if ((header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
        return absl::DataLossError(absl::StrCat(
            "process ", peer_pid_, " sent a socket message beyond the limits of ",
            SocketLimits::kMessage.count(), " bytes and ", SocketLimits::kDescriptors, " descriptors"));
      }
      if (got == 0) return absl::UnavailableError(absl::StrCat("process ", peer_pid_, " closed its socket"));
      message.bytes.resize(static_cast<std::size_t>(got));
      return message;
    }
    if (errno == EINTR) continue;
    if (errno == ECONNRESET)
      return absl::UnavailableError(absl::StrCat("process ", peer_pid_, " closed its socket"));
    if (!WouldBlock(errno)) return ErrnoStatus(errno, "receiving from a socket");
    TROUPE_ASSIGN_OR_RETURN(const bool ready, AwaitReady(fd(), POLLIN, deadline));
    if (!ready) {
      return absl::DeadlineExceededError(
          absl::StrCat("nothing from process ", peer_pid_, " within ", FormatDuration(timeout)));
    }
  }
}

UnixListener& UnixListener::operator=(UnixListener&& other) noexcept {
  std::swap(socket_, other.socket_);
  std::swap(path_, other.path_);
  return *this;
}

UnixListener::~UnixListener() {
  if (socket_.valid()) unlink(path_.c_str());
}

absl::StatusOr<UnixListener> UnixListener::Listen(const std::string& path) {
  TROUPE_ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(path));
  UniqueFd socket(::socket(AF_UNIX, kSocketType, 0));
  if (!socket.valid()) return ErrnoStatus(errno, "making a Unix socket");
  // The path takes its mode from the socket: it is set before bind, so that no other user can connect in
  // between.
  if (fchmod(socket.get(), S_IRUSR | S_IWUSR) != 0) return ErrnoStatus(errno, "setting a socket's mode");
  TROUPE_RETURN_IF_ERROR(BindFresh(socket.get(), address, path));
  UnixListener listener;
  listener.socket_ = std::move(socket);
  listener.path_ = path;
  if (listen(listener.fd(), SocketLimits::kBacklog) != 0) {
    return ErrnoStatus(errno, absl::StrCat("listening at ", path));
  }
  return listener;
}

absl::StatusOr<UnixConnection> UnixListener::Accept(Duration timeout) {
  const Time deadline = SteadyNow() + timeout;
  for (;;) {
    UniqueFd accepted(accept4(fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (accepted.valid()) return UnixConnection::Adopt(std::move(accepted));
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (!WouldBlock(errno)) return ErrnoStatus(errno, absl::StrCat("accepting at ", path_));
    TROUPE_ASSIGN_OR_RETURN(const bool ready, AwaitReady(fd(), POLLIN, deadline));
    if (!ready) {
      return absl::DeadlineExceededError(
          absl::StrCat("no process connected to ", path_, " within ", FormatDuration(timeout)));
    }
  }
}

absl::StatusOr<UnixConnection> ConnectUnix(const std::string& path, Duration timeout) {
  TROUPE_ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(path));
  UniqueFd socket(::socket(AF_UNIX, kSocketType, 0));
  if (!socket.valid()) return ErrnoStatus(errno, "making a Unix socket");
  const Time deadline = SteadyNow() + timeout;
  for (;;) {
    if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) {
      return UnixConnection::Adopt(std::move(socket));
    }
    if (errno == EINTR) continue;
    if (errno == ECONNREFUSED || errno == ENOENT) {
      return absl::NotFoundError(
          absl::StrCat("no process listens at ", path, " (", std::strerror(errno), ")"));
    }
    if (!WouldBlock(errno)) return ErrnoStatus(errno, absl::StrCat("connecting to ", path));
    // The backlog is full. A Unix socket has no event for that, so look again in a moment.
    if (SteadyNow() >= deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat("the process at ", path, " did not accept within ", FormatDuration(timeout)));
    }
    usleep(1000);
  }
}

}  // namespace troupe::transport
