#include "actors/peers/guarded_connection.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <caf/io/basp_broker.hpp>
#include <caf/io/middleman.hpp>
#include <caf/io/network/default_multiplexer.hpp>
#include <caf/io/network/doorman_impl.hpp>
#include <caf/io/network/stream_impl.hpp>
#include <caf/policy/tcp.hpp>
#include <caf/send.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "actors/peers/dial.hpp"
#include "actors/peers/frame_guard.hpp"
#include "actors/peers/local_socket.hpp"
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

// How CAF's stream reads and writes: TCP, with the guard in between.
class GuardedTcp {
 public:
  GuardedTcp(std::shared_ptr<PeerConnections> connections, FrameGuard::Side side,
             PeerConnections::Ticket ticket, WriteBound& bound)
      : connections_(std::move(connections)), guard_(side), ticket_(std::move(ticket)), bound_(bound) {}

  net::rw_state read_some(std::size_t& result, net::native_socket fd, void* to, std::size_t size) {
    const auto state = caf::policy::tcp::read_some(result, fd, to, size);
    if (state != net::rw_state::success || result == 0) return state;
    const auto status = guard_.See({static_cast<const char*>(to), result});
    if (status.ok()) {
      if (guard_.handshaken()) ticket_.Finish();
      return state;
    }
    connections_->Refuse("broken_frame", PeerOf(fd), std::string(status.message()), transport::SteadyNow());
    ::shutdown(fd, SHUT_RDWR);  // what waits to be written ends too
    return net::rw_state::failure;
  }
  net::rw_state write_some(std::size_t& result, net::native_socket fd, const void* from, std::size_t size) {
    const auto state = caf::policy::tcp::write_some(result, fd, from, size);
    if (state == net::rw_state::success) bound_.Wrote(result, size - result);
    return state;
  }
  static constexpr bool must_read_more(net::native_socket, std::size_t) { return false; }

 private:
  const std::shared_ptr<PeerConnections> connections_;  // before the ticket
  FrameGuard guard_;
  PeerConnections::Ticket ticket_;  // invalid for a connection that was dialled
  WriteBound& bound_;
};

class Scribe final : public caf::io::scribe {
 public:
  Scribe(net::default_multiplexer& loop, net::native_socket fd, std::shared_ptr<PeerConnections> connections,
         FrameGuard::Side side, PeerConnections::Ticket ticket)
      : caf::io::scribe(net::conn_hdl_from_socket(fd)),
        connections_(std::move(connections)),
        bound_(connections_->unwritten()),
        stream_(loop, fd, connections_, side, std::move(ticket), bound_) {}

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
  net::stream_impl<GuardedTcp> stream_;
};

class Doorman final : public net::doorman_impl {
 public:
  Doorman(net::default_multiplexer& loop, net::native_socket fd, std::uint16_t port,
          std::shared_ptr<PeerConnections> connections)
      : net::doorman_impl(loop, fd), port_(port), connections_(std::move(connections)) {}

  // CAF finds what is published by it, and would ask the socket, which has none when it is a Unix socket.
  std::uint16_t port() const override { return port_; }

  bool new_connection() override {
    transport::UniqueFd socket(acceptor_.accepted_socket());
    if (detached()) return false;
    if (const auto status = CheckUser(socket.get()); !status.ok()) {
      connections_->Refuse("other_user", PeerOf(socket.get()), std::string(status.message()),
                           transport::SteadyNow());
      return true;
    }
    auto ticket = connections_->Accept(socket.get(), PeerOf(socket.get()), transport::SteadyNow());
    if (!ticket.valid()) return true;
    auto& loop = acceptor_.backend();
    static_cast<void>(net::keepalive(socket.get(), true));
    auto scribe = caf::make_counted<Scribe>(loop, socket.Release(), connections_, FrameGuard::Side::kAccepted,
                                            std::move(ticket));
    const auto handle = scribe->hdl();
    parent()->add_scribe(std::move(scribe));
    return doorman::new_connection(&loop, handle);
  }

 private:
  static absl::Status CheckUser(int socket) {
    return IsLocalSocket(socket) ? CheckLocalUser(socket) : absl::OkStatus();
  }

  const std::uint16_t port_;
  const std::shared_ptr<PeerConnections> connections_;
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

caf::io::scribe_ptr GuardedScribe(caf::actor_system& system, std::shared_ptr<PeerConnections> connections,
                                  transport::UniqueFd socket) {
  static_cast<void>(net::keepalive(socket.get(), true));
  return caf::make_counted<Scribe>(LoopOf(system), socket.Release(), std::move(connections),
                                   FrameGuard::Side::kDialled, PeerConnections::Ticket());
}

absl::StatusOr<std::uint16_t> ListenGuarded(caf::actor_system& system,
                                            std::shared_ptr<PeerConnections> connections,
                                            caf::strong_actor_ptr actor, std::set<std::string> interface,
                                            const std::string& host, std::uint16_t port) {
  TROUPE_ASSIGN_OR_RETURN(auto listening, ListenAt(system, host, port));
  const auto real = listening.second;
  caf::io::doorman_ptr doorman =
      caf::make_counted<Doorman>(LoopOf(system), listening.first.Release(), real, std::move(connections));
  caf::anon_send(Greeter(system), caf::publish_atom::value, std::move(doorman), real, std::move(actor),
                 std::move(interface));
  return real;
}

}  // namespace troupe::actors
