#include "actors/peers/probe.hpp"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "transport/memory_file.hpp"

namespace troupe::actors {

namespace {

absl::Status ConnectTo(const addrinfo& target, Duration limit) {
  const transport::UniqueFd fd(
      socket(target.ai_family, target.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, target.ai_protocol));
  if (!fd.valid()) return absl::UnavailableError(std::strerror(errno));
  if (connect(fd.get(), target.ai_addr, target.ai_addrlen) == 0) return absl::OkStatus();
  if (errno != EINPROGRESS) return absl::UnavailableError(std::strerror(errno));
  pollfd waiting{fd.get(), POLLOUT, 0};
  const int milliseconds =
      static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(limit).count());
  if (poll(&waiting, 1, milliseconds) <= 0)
    return absl::UnavailableError(absl::StrCat("no answer within ", FormatDuration(limit)));
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  return error == 0 ? absl::OkStatus() : absl::UnavailableError(std::strerror(error));
}

}  // namespace

absl::Status ProbeTcp(const std::string& host, std::uint16_t port, Duration limit) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found); error != 0)
    return absl::UnavailableError(absl::StrCat("cannot resolve '", host, "': ", gai_strerror(error)));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  absl::Status last = absl::UnavailableError("no address");
  for (const addrinfo* target = found; target != nullptr && !last.ok(); target = target->ai_next)
    last = ConnectTo(*target, limit);
  return last;
}

}  // namespace troupe::actors
