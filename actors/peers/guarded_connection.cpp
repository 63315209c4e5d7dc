#include "actors/peers/guarded_connection.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <caf/io/basp_broker.hpp>
#include <caf/io/middleman.hpp>
#include <caf/io/network/default_multiplexer.hpp>
#include <caf/io/network/doorman_impl.hpp>
#include <caf/io/network/stream_impl.hpp>
#include <caf/send.hpp>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "actors/peers/dial.hpp"
#include "actors/peers/frame_guard.hpp"
#include "actors/peers/local_socket.hpp"
#include "actors/peers/tls_greeting.hpp"
#include "actors/peers/write_bound.hpp"
#include "base/status.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::actors {

namespace {

namespace net = caf::io::network;
using caf::io::receive_policy;

constexpr std::size_t kStep = 256u << 10;  // a payload up to this size is allocated as it is claimed

std::string PeerOf(net::native_socket fd) {
  if (IsLocalSocket(fd)) return LocalPeer(fd);
  const auto host = net::remote_addr_of_fd(fd);
  const auto port = net::remote_port_of_fd(fd);
  return host && port ? absl::StrCat(*host, ":", *port) : "an unknown address";
}

// One connection before CAF has it.
struct Connection {
  FrameGuard::Side side;
  PeerTransport transport;
  std::shared_ptr<const Peer> peer;
  PeerConnections::Ticket ticket;  // invalid for a connection that was dialled
  PeerCertificates::Entry certificate;
};

// How CAF's stream reads and writes: plain or through TLS, with the guard in between.
class GuardedStream {
 public:
  GuardedStream(const PeerNetwork& network, Connection connection, WriteBound& bound)
      : network_(network),
        guard_(connection.side, connection.peer->roles, network.identities->own()),
        peer_(std::move(connection.peer)),
        transport_(std::move(connection.transport)),
        ticket_(std::move(connection.ticket)),
        certificate_(std::move(connection.certificate)),
        bound_(bound) {}

  net::rw_state read_some(std::size_t& result, net::native_socket fd, void* to, std::size_t size) {
    const auto state = transport_.ReadSome(result, fd, to, size);
    if (state != net::rw_state::success) TellFailure();
    if (state != net::rw_state::success || result == 0) return state;
    const bool known = guard_.handshaken();
    auto status = guard_.See({static_cast<const char*>(to), result});
    if (status.ok() && guard_.handshaken() && !known) status = Enter();
    if (status.ok()) return state;
    Refuse(absl::IsPermissionDenied(status) ? "not_allowed" : "broken_frame", status);
    ::shutdown(fd, SHUT_RDWR);  // what waits to be written ends too
    return net::rw_state::failure;
  }
  net::rw_state write_some(std::size_t& result, net::native_socket fd, const void* from, std::size_t size) {
    const auto state = transport_.WriteSome(result, fd, from, size);
    if (state == net::rw_state::success) bound_.Wrote(result, size - result);
    return state;
  }
  [[nodiscard]] bool must_read_more(net::native_socket, std::size_t) const {
    return transport_.MustReadMore();
  }

 private:
  // Before the broker hears of the handshake, and so before any message.
  absl::Status Enter() {
    TROUPE_ASSIGN_OR_RETURN(entry_, PeerIdentities::Enter(network_.identities, guard_.node(), peer_));
    ticket_.Finish();
    return absl::OkStatus();
  }
  // The other end has said why it does not take our certificate: in TLS 1.3 a client hears that when it
  // reads.
  void TellFailure() {
    if (const auto failure = transport_.TakeFailure(); !failure.ok()) Refuse("certificate", failure);
  }
  void Refuse(const std::string& reason, const absl::Status& why) {
    network_.connections->Refuse(reason, peer_->ToString(), std::string(why.message()),
                                 transport::SteadyNow());
  }

  const PeerNetwork network_;  // before what refers to its parts
  FrameGuard guard_;
  const std::shared_ptr<const Peer> peer_;
  PeerTransport transport_;
  PeerIdentities::Entry entry_;
  PeerConnections::Ticket ticket_;
  PeerCertificates::Entry certificate_;
  WriteBound& bound_;
};

class Scribe final : public caf::io::scribe {
 public:
  Scribe(net::default_multiplexer& loop, net::native_socket fd, const PeerNetwork& network,
         Connection connection)
      : caf::io::scribe(net::conn_hdl_from_socket(fd)),
        connections_(network.connections),
        bound_(connections_->unwritten()),
        stream_(loop, fd, network, std::move(connection), bound_) {}

  void configure_read(receive_policy::config config) override {
    left_ = 0;
    // The broker asks for exactly one header or one payload.
    if (config.first == caf::io::receive_policy_flag::exactly && config.second > kStep) {
      left_ = config.second;
      config.second = kStep;
    }
    stream_.configure_read(config);
    if (!std::exchange(launched_, true)) stream_.start(this);
  }

  bool consume(caf::execution_unit* context, const void* data, std::size_t size) override {
    if (left_ == 0) return scribe::consume(context, data, size);
    const auto* begin = static_cast<const char*>(data);
    gathered_.insert(gathered_.end(), begin, begin + size);
    left_ -= size;
    if (left_ > 0) {
      stream_.configure_read(receive_policy::exactly(std::min(left_, std::max(kStep, gathered_.size()))));
      return !detached();
    }
    stream_.rd_buf() = std::exchange(gathered_, {});
    return scribe::consume(context, stream_.rd_buf().data(), stream_.rd_buf().size());
  }

  void ack_writes(bool enable) override { stream_.ack_writes(enable); }
  std::vector<char>& wr_buf() override { return stream_.wr_buf(); }
  std::vector<char>& rd_buf() override { return stream_.rd_buf(); }
  void graceful_shutdown() override {
    stream_.graceful_shutdown();
    detach(&stream_.backend(), false);
  }
  // CAF's heartbeats come by here as well, so a peer that does not read is found without a further timer.
  void flush() override {
    const auto queued = stream_.wr_buf().size();
    stream_.flush(this);
    bound_.Queued(queued, stream_.wr_buf().size() < queued);
    const auto status = closed_ ? absl::OkStatus() : bound_.Check(transport::SteadyNow());
    if (status.ok()) return;
    closed_ = true;
    connections_->Refuse("unread", PeerOf(stream_.fd()), std::string(status.message()),
                         transport::SteadyNow());
    ::shutdown(stream_.fd(), SHUT_RDWR);
  }
  std::string addr() const override {
    auto host = net::remote_addr_of_fd(stream_.fd());
    return host ? *host : std::string();
  }
  std::uint16_t port() const override {
    const auto port = net::remote_port_of_fd(stream_.fd());
    return port ? *port : std::uint16_t{0};
  }
  void add_to_loop() override { stream_.activate(this); }
  void remove_from_loop() override { stream_.passivate(); }

 private:
  const std::shared_ptr<PeerConnections> connections_;
  WriteBound bound_;
  bool launched_ = false;
  bool closed_ = false;   // by the bound
  std::size_t left_ = 0;  // of a payload that is gathered
  std::vector<char> gathered_;
  net::stream_impl<GuardedStream> stream_;
};

class Doorman final : public net::doorman_impl {
 public:
  Doorman(net::default_multiplexer& loop, net::native_socket fd, std::uint16_t port,
          const PeerNetwork& network)
      : net::doorman_impl(loop, fd), port_(port), network_(network) {}

  // CAF finds what is published by it, and would ask the socket, which has none when it is a Unix socket.
  std::uint16_t port() const override { return port_; }

  bool new_connection() override {
    transport::UniqueFd socket(acceptor_.accepted_socket());
    if (detached()) return false;
    const bool local = IsLocalSocket(socket.get());
    const auto address = PeerOf(socket.get());
    if (const auto status = local ? CheckLocalUser(socket.get()) : absl::OkStatus(); !status.ok()) {
      Refuse("other_user", address, status);
      return true;
    }
    auto ticket = network_.connections->Accept(socket.get(), address, transport::SteadyNow());
    if (!ticket.valid()) return true;
    static_cast<void>(net::keepalive(socket.get(), true));
    if (!local && network_.credentials != nullptr) {
      Greet(std::move(socket), address, std::move(ticket));
      return true;
    }
    auto peer = std::make_shared<const Peer>(local ? LocalPeerOf(socket.get()) : UnaskedPeer(address));
    return Admit(std::move(socket),
                 {FrameGuard::Side::kAccepted, PeerTransport(), std::move(peer), std::move(ticket), {}});
  }

  void graceful_shutdown() override {
    for (const auto& [greeting, owned] : greetings_) greeting->Cancel();
    net::doorman_impl::graceful_shutdown();
  }

 private:
  void Greet(transport::UniqueFd socket, const std::string& address, PeerConnections::Ticket ticket) {
    // The port stays until the greeting is over.
    auto greeting = std::make_unique<TlsGreeting>(acceptor_.backend(), std::move(socket),
                                                  *network_.credentials->Current(), std::move(ticket),
                                                  [self = caf::intrusive_ptr<Doorman>(this), address](
                                                      TlsGreeting* ended, TlsGreeting::Greeted greeted) {
                                                    const auto owned = self->greetings_.extract(ended);
                                                    self->Greeted(address, std::move(greeted));
                                                  });
    auto* begun = greeting.get();
    greetings_.emplace(begun, std::move(greeting));
    begun->Begin();
  }

  void Greeted(const std::string& address, TlsGreeting::Greeted greeted) {
    auto identity = greeted.status.ok() ? security::PeerIdentity(greeted.tls.get()) : greeted.status;
    // A connection that ends before its handshake is not refused: a scanner of ports makes such connections, too.
    if (absl::IsUnavailable(identity.status()) || detached()) return;
    if (!identity.ok()) return Refuse("certificate", address, identity.status());
    const auto peer = std::make_shared<const Peer>(CertifiedPeer(*identity, address));
    auto certificate = PeerCertificates::Add(network_.certificates, greeted.socket.get(),
                                             security::CertificateOf(greeted.tls.get()), peer);
    Admit(std::move(greeted.socket), {FrameGuard::Side::kAccepted, PeerTransport(std::move(greeted.tls)),
                                      peer, std::move(greeted.ticket), std::move(certificate)});
  }

  bool Admit(transport::UniqueFd socket, Connection connection) {
    auto& loop = acceptor_.backend();
    auto scribe = caf::make_counted<Scribe>(loop, socket.Release(), network_, std::move(connection));
    const auto handle = scribe->hdl();
    parent()->add_scribe(std::move(scribe));
    return doorman::new_connection(&loop, handle);
  }

  void Refuse(const std::string& reason, const std::string& address, const absl::Status& why) {
    network_.connections->Refuse(reason, address, std::string(why.message()), transport::SteadyNow());
  }

  const std::uint16_t port_;
  const PeerNetwork network_;
  std::map<TlsGreeting*, std::unique_ptr<TlsGreeting>> greetings_;  // whose handshakes are under way
};

// A socket that listens, and its port.
absl::StatusOr<std::pair<transport::UniqueFd, std::uint16_t>> ListenAt(caf::actor_system& system,
                                                                       const std::string& host,
                                                                       std::uint16_t port) {
  if (IsLoopback(host)) return ListenLocal(host, port);
  // With the last argument a restart does not wait until connections of the old process are forgotten.
  const auto socket = net::new_tcp_acceptor_impl(port, host.empty() ? nullptr : host.c_str(), true);
  if (!socket) return absl::UnavailableError(system.render(socket.error()));
  transport::UniqueFd fd(*socket);
  const auto real = net::local_port_of_fd(fd.get());
  if (!real) return absl::UnavailableError(system.render(real.error()));
  return std::pair(std::move(fd), *real);
}

net::default_multiplexer& LoopOf(caf::actor_system& system) {
  return dynamic_cast<net::default_multiplexer&>(system.middleman().backend());
}

}  // namespace

caf::io::scribe_ptr GuardedScribe(caf::actor_system& system, const PeerNetwork& network, Dialled dialled) {
  const int socket = dialled.socket.Release();
  static_cast<void>(net::keepalive(socket, true));
  auto certificate =
      dialled.certificate.certificate == nullptr
          ? PeerCertificates::Entry()
          : PeerCertificates::Add(network.certificates, socket, std::move(dialled.certificate), dialled.peer);
  return caf::make_counted<Scribe>(LoopOf(system), socket, network,
                                   Connection{FrameGuard::Side::kDialled,
                                              std::move(dialled.transport),
                                              dialled.peer,
                                              {},
                                              std::move(certificate)});
}

absl::StatusOr<std::uint16_t> ListenGuarded(caf::actor_system& system, const PeerNetwork& network,
                                            caf::strong_actor_ptr actor, std::set<std::string> interface,
                                            const std::string& host, std::uint16_t port) {
  TROUPE_ASSIGN_OR_RETURN(auto listening, ListenAt(system, host, port));
  const auto real = listening.second;
  caf::io::doorman_ptr doorman =
      caf::make_counted<Doorman>(LoopOf(system), listening.first.Release(), real, network);
  caf::anon_send(Greeter(system), caf::publish_atom::value, std::move(doorman), real, std::move(actor),
                 std::move(interface));
  return real;
}

}  // namespace troupe::actors
