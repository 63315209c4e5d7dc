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
#include "actors/peers/message_rights.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::actors {

namespace {

constexpr DialLimits kDialLimits = {.connect = std::chrono::milliseconds(500),
                                    .greet = std::chrono::seconds(2)};
constexpr Duration kGreetLimit = std::chrono::seconds(3);
constexpr Duration kFirstPause = std::chrono::milliseconds(50);
constexpr Duration kLongestPause = std::chrono::seconds(2);

// Keeps one address published in the directory's table while an actor listens there.
class PeerWatch : public caf::event_based_actor {
 public:
  // `host` and `port` are those of `address`.
  struct Target {
    std::string address;
    std::string host;
    std::uint16_t port = 0;
  };
  PeerWatch(caf::actor_config& config, Target target, WorkPool& pool, std::weak_ptr<LocalPeerDirectory> table,
            PeerNetwork network)
      : caf::event_based_actor(config),
        target_(std::move(target)),
        pool_(pool),
        table_(std::move(table)),
        network_(std::move(network)) {}

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
  using Line = std::shared_ptr<Dialled>;  // a continuation's value is copied

  void DialPeer() {
    auto done = continuations_.Make<Line>(this, [this](const absl::StatusOr<Line>& line) {
      if (line.ok()) return Greet(std::move(**line));
      if (absl::IsPermissionDenied(line.status())) Refuse("other_user", line.status());
      if (absl::IsUnauthenticated(line.status())) Refuse("certificate", line.status());
      Pause();
    });
    const auto status =
        pool_.Post([done, host = target_.host, port = target_.port, credentials = network_.credentials] {
          auto line = Dial(host, port, kDialLimits, credentials.get());
          done(line.ok() ? absl::StatusOr<Line>(std::make_shared<Dialled>(*std::move(line)))
                         : absl::StatusOr<Line>(line.status()));
        });
    if (!status.ok()) done(status);
  }

  void Refuse(const std::string& reason, const absl::Status& why) {
    network_.connections->Refuse(reason, target_.address, std::string(why.message()), transport::SteadyNow());
  }

  void Greet(Dialled dialled) {
    auto line = dialled.socket.Duplicate();
    if (!line.ok()) return Pause();
    line_ = *std::move(line);
    const auto peer = dialled.peer;
    request(Greeter(home_system()), kGreetLimit, caf::connect_atom::value,
            GuardedScribe(home_system(), network_, std::move(dialled)), target_.port)
        .then([this, peer](const caf::node_id&, const caf::strong_actor_ptr& actor,
                           const std::set<std::string>& offered) { Greeted(*peer, actor, offered); },
              [this](const caf::error&) {
                HangUp();
                Pause();
              });
  }

  void Greeted(const Peer& peer, const caf::strong_actor_ptr& actor, const std::set<std::string>& offered) {
    if (const auto status = CheckInterface(offered, peer); !status.ok()) {
      Refuse("not_allowed", status);
      HangUp();
      return Pause();
    }
    line_.Reset();
    if (!actor) return Pause();
    peer_ = actor;
    pause_ = kFirstPause;
    monitor(caf::actor_cast<caf::actor>(peer_));
    if (const auto table = table_.lock()) table->Publish(target_.address, peer_, offered);
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
      table->Retract(target_.address, absl::StrCat("the connection to ", target_.address,
                                                   " went down: ", caf::to_string(down.reason)));
    }
    Pause();
  }

  const Target target_;
  WorkPool& pool_;
  const std::weak_ptr<LocalPeerDirectory> table_;
  const PeerNetwork network_;
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
    return absl::InvalidArgumentError(
        absl::StrCat("'", address, "' is not a valid address: write HOST:PORT"));
  }
  return std::pair(address.substr(0, colon), static_cast<std::uint16_t>(port));
}

// The connected peers. The table's callbacks may outlive the directory, so this is shared.
struct NetworkPeerDirectory::Connections {
  // The address has no watcher any more: no connection is kept up.
  void Idle(const std::string& address) {
    const std::lock_guard lock(mutex);
    const auto it = watches.find(address);
    if (it == watches.end() || table->Watched(address)) return;
    caf::anon_send_exit(it->second, caf::exit_reason::user_shutdown);
    watches.erase(it);
    table->Retract(address, "it has no watcher");
  }

  std::shared_ptr<LocalPeerDirectory> table;
  std::mutex mutex;                           // taken before the table's
  std::set<std::string> local;                // addresses of this process; guarded by mutex
  std::map<std::string, caf::actor> watches;  // guarded by mutex
};

NetworkPeerDirectory::NetworkPeerDirectory(caf::actor_system& system, WorkPool& pool,
                                           std::shared_ptr<const security::Credentials> credentials)
    : system_(system),
      pool_(pool),
      network_(system.node(), std::move(credentials)),
      connections_(std::make_shared<Connections>()) {
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
  if (!parts.ok()) return;  // no peer can ever be there; addresses of members were checked when they joined
  connections_->watches[address] =
      system_.spawn<PeerWatch>(PeerWatch::Target{address, parts->first, parts->second}, std::ref(pool_),
                               std::weak_ptr<LocalPeerDirectory>(connections_->table), network_);
}

void NetworkPeerDirectory::Forget(const std::string& address, const PeerWatcherActor& watcher) {
  connections_->table->Forget(address, watcher);
}

void NetworkPeerDirectory::PublishHere(const std::string& address, caf::strong_actor_ptr actor,
                                       std::set<std::string> interface) {
  const std::lock_guard lock(connections_->mutex);
  connections_->local.insert(address);
  // A watcher from before the address was known to be ours looked for it on the network.
  if (const auto it = connections_->watches.find(address); it != connections_->watches.end()) {
    caf::anon_send_exit(it->second, caf::exit_reason::user_shutdown);
    connections_->watches.erase(it);
  }
  connections_->table->Publish(address, std::move(actor), std::move(interface));
}

absl::StatusOr<std::uint16_t> NetworkPeerDirectory::Listen(caf::strong_actor_ptr actor,
                                                           std::set<std::string> interface,
                                                           const std::string& host, std::uint16_t port) {
  return ListenGuarded(system_, network_, std::move(actor), std::move(interface), host, port);
}

void NetworkPeerDirectory::CloseRefused() {
  if (network_.credentials == nullptr) return;
  network_.certificates->CloseRefused(*network_.credentials->Current(), *network_.connections,
                                      transport::SteadyNow());
}

void NetworkPeerDirectory::Clear() {
  const std::lock_guard lock(connections_->mutex);
  connections_->table->Clear();
  for (auto& [address, watch] : connections_->watches)
    caf::anon_send_exit(watch, caf::exit_reason::user_shutdown);
  connections_->watches.clear();
}

}  // namespace troupe::actors
