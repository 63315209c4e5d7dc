#include "actors/peers/local_socket.hpp"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"

namespace troupe::actors {

namespace {

constexpr int kAttempts = 16;  // at a port that the system chooses

// One spelling of an address, so that both ends mean the same name.
std::string Canonical(const std::string& host) {
  if (host == "localhost") return "127.0.0.1";
  if (host == "[::1]") return "::1";
  return host;
}

std::pair<sockaddr_un, socklen_t> NameOf(const std::string& host, std::uint16_t port) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  // The first byte stays zero: that makes the name abstract.
  const auto text = absl::StrCat("troupe/", Canonical(host), ":", port);
  const auto size = std::min(text.size(), sizeof name.sun_path - 1);
  std::copy_n(text.begin(), size, name.sun_path + 1);
  return {name, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + size)};
}

absl::StatusOr<transport::UniqueFd> NewSocket() {
  transport::UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid())
    return absl::ResourceExhaustedError(absl::StrCat("cannot make a Unix socket: ", std::strerror(errno)));
  return fd;
}

// A number that no process uses as a TCP port at the moment. 0: the system has none.
std::uint16_t ChoosePort() {
  const transport::UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof name;
  auto* generic = reinterpret_cast<sockaddr*>(&name);
  if (!fd.valid() || bind(fd.get(), generic, size) != 0 || getsockname(fd.get(), generic, &size) != 0)
    return 0;
  return ntohs(name.sin_port);
}

absl::StatusOr<ucred> OtherEnd(int socket) {
  ucred user{};
  socklen_t size = sizeof user;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &user, &size) == 0) return user;
  return absl::UnavailableError(
      absl::StrCat("the kernel does not name the user at the other end: ", std::strerror(errno)));
}

}  // namespace

bool IsLoopback(const std::string& host) {
  const auto text = Canonical(host);
  in_addr four{};
  in6_addr six{};
  if (inet_pton(AF_INET, text.c_str(), &four) == 1) return ntohl(four.s_addr) >> 24 == 127;
  return inet_pton(AF_INET6, text.c_str(), &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six);
}

absl::StatusOr<std::pair<transport::UniqueFd, std::uint16_t>> ListenLocal(const std::string& host,
                                                                          std::uint16_t port) {
  for (int attempt = 0; attempt < (port == 0 ? kAttempts : 1); ++attempt) {
    const auto real = port == 0 ? ChoosePort() : port;
    TROUPE_ASSIGN_OR_RETURN(auto fd, NewSocket());
    const auto [name, size] = NameOf(host, real);
    if (real != 0 && bind(fd.get(), reinterpret_cast<const sockaddr*>(&name), size) == 0 &&
        listen(fd.get(), SOMAXCONN) == 0)
      return std::pair(std::move(fd), real);
  }
  return absl::AlreadyExistsError(std::strerror(errno));
}

absl::StatusOr<transport::UniqueFd> DialLocal(const std::string& host, std::uint16_t port) {
  TROUPE_ASSIGN_OR_RETURN(auto fd, NewSocket());
  const auto [name, size] = NameOf(host, port);
  // A full queue of connections is an error here (EAGAIN), so that it never blocks.
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&name), size) != 0)
    return absl::UnavailableError(std::strerror(errno));
  TROUPE_RETURN_IF_ERROR(CheckLocalUser(fd.get()));
  return fd;
}

absl::Status CheckLocalUser(int socket) {
  TROUPE_ASSIGN_OR_RETURN(const auto user, OtherEnd(socket));
  if (user.uid == geteuid() || user.uid == 0) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat("the process ", user.pid, " at the other end runs as user ",
                                                  user.uid, ", and this one as user ", geteuid(),
                                                  ": on one machine all programs of a cluster have to ",
                                                  "run as the same user (root may connect to them)"));
}

std::string LocalPeer(int socket) {
  const auto user = OtherEnd(socket);
  if (!user.ok()) return "an unknown process";
  return absl::StrCat("user ", user->uid, ", process ", user->pid);
}

std::string LocalUserName(int socket) {
  const auto user = OtherEnd(socket);
  return user.ok() ? absl::StrCat("user/", user->uid) : std::string();
}

bool IsLocalSocket(int socket) {
  int domain = 0;
  socklen_t size = sizeof domain;
  return getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX;
}

}  // namespace troupe::actors
