#include "actors/peers/dial.hpp"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <caf/io/basp_broker.hpp>
#include <caf/io/middleman.hpp>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/peers/local_socket.hpp"
#include "base/status.hpp"

namespace troupe::actors {

namespace {

absl::StatusOr<transport::UniqueFd> DialOne(const addrinfo& target, Duration limit) {
  transport::UniqueFd fd(
      socket(target.ai_family, target.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, target.ai_protocol));
  if (!fd.valid()) return absl::UnavailableError(std::strerror(errno));
  if (connect(fd.get(), target.ai_addr, target.ai_addrlen) == 0) return fd;
  if (errno != EINPROGRESS) return absl::UnavailableError(std::strerror(errno));
  pollfd waiting{fd.get(), POLLOUT, 0};
  const int milliseconds =
      static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(limit).count());
  if (poll(&waiting, 1, milliseconds) <= 0)
    return absl::UnavailableError(absl::StrCat("no answer within ", FormatDuration(limit)));
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) return absl::UnavailableError(std::strerror(error));
  return fd;
}

absl::StatusOr<transport::UniqueFd> DialTcp(const std::string& host, std::uint16_t port, Duration limit) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found); error != 0)
    return absl::UnavailableError(absl::StrCat("cannot resolve '", host, "': ", gai_strerror(error)));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  absl::StatusOr<transport::UniqueFd> last = absl::UnavailableError("no address");
  for (const addrinfo* target = found; target != nullptr && !last.ok(); target = target->ai_next)
    last = DialOne(*target, limit);
  return last;
}

}  // namespace

absl::StatusOr<Dialled> Dial(const std::string& host, std::uint16_t port, const DialLimits& limits,
                             const security::Credentials* credentials) {
  Dialled dialled;
  if (IsLoopback(host)) {
    TROUPE_ASSIGN_OR_RETURN(dialled.socket, DialLocal(host, port));
    dialled.peer = std::make_shared<const Peer>(LocalPeerOf(dialled.socket.get()));
    return dialled;
  }
  const auto address = absl::StrCat(host, ":", port);
  TROUPE_ASSIGN_OR_RETURN(dialled.socket, DialTcp(host, port, limits.connect));
  if (credentials == nullptr) {
    dialled.peer = std::make_shared<const Peer>(UnaskedPeer(address));
    return dialled;
  }
  TROUPE_ASSIGN_OR_RETURN(auto tls,
                          TlsConnect(*credentials->Current(), dialled.socket.get(), host, limits.greet));
  TROUPE_ASSIGN_OR_RETURN(const auto identity, security::PeerIdentity(tls.get()));
  dialled.peer = std::make_shared<const Peer>(CertifiedPeer(identity, address));
  dialled.certificate = security::CertificateOf(tls.get());
  dialled.transport = PeerTransport(std::move(tls));
  return dialled;
}

caf::actor Greeter(caf::actor_system& system) {
  return system.middleman().named_broker<caf::io::basp_broker>(caf::atom("BASP"));
}

}  // namespace troupe::actors
