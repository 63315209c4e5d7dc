#include "actors/peers/tls_greeting.hpp"

#include <sys/socket.h>

#include <array>
#include <caf/io/network/default_multiplexer.hpp>
#include <cerrno>
#include <string_view>
#include <utility>

namespace troupe::actors {

namespace net = caf::io::network;

TlsGreeting::TlsGreeting(net::default_multiplexer& loop, transport::UniqueFd socket,
                         const security::Snapshot& credentials, PeerConnections::Ticket ticket,
                         std::function<void(TlsGreeting*, Greeted)> over)
    : net::event_handler(loop, socket.Release()),
      acceptance_(credentials, fd_),
      ticket_(std::move(ticket)),
      over_(std::move(over)) {}

void TlsGreeting::handle_event(net::operation what) {
  if (what == net::operation::propagate_error)
    return End(lingering_ ? acceptance_.status() : absl::UnavailableError("the connection was closed"));
  Step();
}

void TlsGreeting::Step() {
  if (ended_) return;
  if (lingering_) return Drain();
  switch (acceptance_.Step()) {
    case TlsAcceptance::Next::kRead:
      return Want(true, false);
    case TlsAcceptance::Next::kWrite:
      return Want(false, true);
    case TlsAcceptance::Next::kOver:
      return absl::IsUnauthenticated(acceptance_.status()) ? Linger() : End(acceptance_.status());
  }
}

void TlsGreeting::Linger() {
  // An alert of TLS, in plain: it needs TLS. FrameGuard of the other end knows it.
  constexpr std::string_view kNeedsTls("\x15\x03\x01\x00\x02\x02\x46", 7);
  if (!acceptance_.speaks_tls())
    static_cast<void>(::send(fd(), kNeedsTls.data(), kNeedsTls.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
  lingering_ = true;
  ::shutdown(fd(), SHUT_WR);
  Want(true, false);
}

void TlsGreeting::Drain() {
  std::array<char, 4096> ignored;
  const auto got = ::recv(fd(), ignored.data(), ignored.size(), MSG_DONTWAIT);
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) End(acceptance_.status());
}

void TlsGreeting::Want(bool read, bool write) {
  const auto set = [this](bool on, net::operation what) {
    on ? backend().add(what, fd(), this) : backend().del(what, fd(), this);
  };
  set(read, net::operation::read);
  set(write, net::operation::write);
}

void TlsGreeting::End(absl::Status status) {
  if (std::exchange(ended_, true)) return;
  Want(false, false);
  // What is posted runs after the loop has let go of the socket.
  backend().post([this, status = std::move(status)] {
    Greeted greeted{transport::UniqueFd(std::exchange(fd_, net::invalid_native_socket)), acceptance_.Take(),
                    std::move(ticket_), status};
    const auto over = std::move(over_);
    over(this, std::move(greeted));
  });
}

}  // namespace troupe::actors
