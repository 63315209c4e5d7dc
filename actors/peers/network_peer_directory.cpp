#include "actors/peers/network_peer_directory.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <caf/event_based_actor.hpp>
#include <caf/io/middleman.hpp>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "actors/core/continuations.hpp"
#include "actors/core/time.hpp"
#include "actors/peers/dial.hpp"
#include "actors/peers/guarded_connection.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::actors {

namespace {

constexpr Duration kDialLimit = std::chrono::milliseconds(500);
constexpr Duration kGreetLimit = std::chrono::seconds(3);
constexpr Duration kFirstPause = std::chrono::milliseconds(50);
constexpr Duration kLongestPause = std::chrono::seconds(2);

// Keeps one address published in the directory's table while somebody listens there.
class PeerWatch : public caf::event_based_actor {
 public:
  PeerWatch(caf::actor_config& config, std::string address, std::string host, std::uint16_t port,
            WorkPool& pool, std::weak_ptr<LocalPeerDirectory> table,
            std::shared_ptr<PeerConnections> connections)
      : caf::event_based_actor(config),
        address_(std::move(address)),
        host_(std::move(host)),
        port_(port),
        pool_(pool),
        table_(std::move(table)),
        connections_(std::move(connections)) {}

  const char* name() const override { return "peer_watch"; }

  caf::behavior make_behavior() override {
    set_down_handler([this](caf::down_msg& down) { Down(down); });
    DialPeer();
    return {
        [this](const proto::Continue& message) { continuations_.Resume(message); },
        [this](const proto::Tick&) { DialPeer(); },
    };
  }

  void on_exit() override {
    continuations_.Clear();
    HangUp();
    peer_ = nullptr;
  }

 private:
  using Socket = std::shared_ptr<transport::UniqueFd>;  // a continuation's value is copied

  void DialPeer() {
    auto done = continuations_.Make<Socket>(this, [this](const absl::StatusOr<Socket>& socket) {
      if (!socket.ok()) {
        if (absl::IsPermissionDenied(socket.status()))
          connections_->Refuse("other_user", address_, std::string(socket.status().message()),
                               transport::SteadyNow());
        return Pause();
      }
      Greet(std::move(**socket));
    });
    const auto status = pool_.Post([done, host = host_, port = port_] {
      auto socket = Dial(host, port, kDialLimit);
      done(socket.ok() ? absl::StatusOr<Socket>(std::make_shared<transport::UniqueFd>(*std::move(socket)))
                       : absl::StatusOr<Socket>(socket.status()));
    });
    if (!status.ok()) done(status);
  }

  void Greet(transport::UniqueFd socket) {
    auto line = socket.Duplicate();
    if (!line.ok()) return Pause();
    line_ = *std::move(line);
    request(Greeter(home_system()), kGreetLimit, caf::connect_atom::value,
            GuardedScribe(home_system(), connections_, std::move(socket)), port_)
        .then(
            [this](const caf::node_id&, const caf::strong_actor_ptr& peer,
                   const std::set<std::string>& offered) {
              line_.Reset();
              if (!peer) return Pause();
              peer_ = peer;
              pause_ = kFirstPause;
              monitor(caf::actor_cast<caf::actor>(peer_));
              if (const auto table = table_.lock()) table->Publish(address_, peer_, offered);
            },
            [this](const caf::error&) {
              HangUp();
              Pause();
            });
  }

  // CAF would wait for the greeting for ever.
  void HangUp() {
    if (line_.valid()) static_cast<void>(::shutdown(line_.get(), SHUT_RDWR));
    line_.Reset();
  }

  void Pause() {
    After(this, pause_, proto::Tick());
    pause_ = std::min(pause_ * 2, kLongestPause);
  }

  void Down(const caf::down_msg& down) {
    if (!peer_ || down.source != caf::actor_cast<caf::actor_addr>(peer_)) return;
    peer_ = nullptr;
    if (const auto table = table_.lock()) {
      table->Retract(address_, absl::StrCat("the connection to ", address_,
                                            " went down: ", caf::to_string(down.reason)));
    }
    Pause();
  }

  const std::string address_;
  const std::string host_;
  const std::uint16_t port_;
  WorkPool& pool_;
  const std::weak_ptr<LocalPeerDirectory> table_;
  const std::shared_ptr<PeerConnections> connections_;
  Continuations continuations_;
  transport::UniqueFd line_;  // the connection's second descriptor, until the peer has greeted
  caf::strong_actor_ptr peer_;
  Duration pause_ = kFirstPause;
};

}  // namespace

absl::StatusOr<std::pair<std::string, std::uint16_t>> ParseAddress(const std::string& address) {
  const auto colon = address.rfind(':');
  unsigned port = 0;
  if (colon == std::string::npos || colon == 0 || !absl::SimpleAtoi(address.substr(colon + 1), &port) ||
      port == 0 || port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat("'", address, "' is no address: write HOST:PORT"));
  }
  return std::pair(address.substr(0, colon), static_cast<std::uint16_t>(port));
}

// Who is connected. The table's callbacks may outlive the directory, so this is shared.
struct NetworkPeerDirectory::Connections {
  // Nobody watches the address any more: no connection is kept up.
  void Idle(const std::string& address) {
    const std::lock_guard lock(mutex);
    const auto it = watches.find(address);
    if (it == watches.end() || table->Watched(address)) return;
    caf::anon_send_exit(it->second, caf::exit_reason::user_shutdown);
    watches.erase(it);
    table->Retract(address, "nobody watches it");
  }

  std::shared_ptr<LocalPeerDirectory> table;
  std::mutex mutex;                           // taken before the table's
  std::set<std::string> local;                // addresses of this process; guarded by mutex
  std::map<std::string, caf::actor> watches;  // guarded by mutex
};

NetworkPeerDirectory::NetworkPeerDirectory(caf::actor_system& system, WorkPool& pool)
    : system_(system), pool_(pool), connections_(std::make_shared<Connections>()) {
  connections_->table = std::make_shared<LocalPeerDirectory>(
      [weak = std::weak_ptr<Connections>(connections_)](const std::string& address) {
        if (const auto connections = weak.lock()) connections->Idle(address);
      });
}

NetworkPeerDirectory::~NetworkPeerDirectory() {
  Clear();
}

void NetworkPeerDirectory::Watch(const std::string& address, std::set<std::string> interface,
                                 PeerWatcherActor watcher) {
  // Not under the lock: a watcher that has ended already is forgotten at once, which takes it.
  connections_->table->Watch(address, std::move(interface), std::move(watcher));
  const std::lock_guard lock(connections_->mutex);
  if (connections_->local.contains(address) || connections_->watches.contains(address)) return;
  if (!connections_->table->Watched(address)) return;
  const auto parts = ParseAddress(address);
  if (!parts.ok()) return;  // nobody will ever be there; addresses of members were checked when they joined
  connections_->watches[address] =
      system_.spawn<PeerWatch>(address, parts->first, parts->second, std::ref(pool_),
                               std::weak_ptr<LocalPeerDirectory>(connections_->table), accepted_);
}

void NetworkPeerDirectory::Forget(const std::string& address, const PeerWatcherActor& watcher) {
  connections_->table->Forget(address, watcher);
}

void NetworkPeerDirectory::PublishHere(const std::string& address, caf::strong_actor_ptr actor,
                                       std::set<std::string> interface) {
  const std::lock_guard lock(connections_->mutex);
  connections_->local.insert(address);
  // Whoever watched it before it was known to be ours looked for it on the network.
  if (const auto it = connections_->watches.find(address); it != connections_->watches.end()) {
    caf::anon_send_exit(it->second, caf::exit_reason::user_shutdown);
    connections_->watches.erase(it);
  }
  connections_->table->Publish(address, std::move(actor), std::move(interface));
}

absl::StatusOr<std::uint16_t> NetworkPeerDirectory::Listen(caf::strong_actor_ptr actor,
                                                           std::set<std::string> interface,
                                                           const std::string& host, std::uint16_t port) {
  return ListenGuarded(system_, accepted_, std::move(actor), std::move(interface), host, port);
}

void NetworkPeerDirectory::Clear() {
  const std::lock_guard lock(connections_->mutex);
  connections_->table->Clear();
  for (auto& [address, watch] : connections_->watches)
    caf::anon_send_exit(watch, caf::exit_reason::user_shutdown);
  connections_->watches.clear();
}

}  // namespace troupe::actors
