#include "actors/peers/network_peer_directory.hpp"

#include <algorithm>
#include <caf/event_based_actor.hpp>
#include <caf/io/middleman.hpp>
#include <caf/io/middleman_actor.hpp>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "actors/core/continuations.hpp"
#include "actors/core/time.hpp"
#include "actors/peers/probe.hpp"

namespace troupe::actors {

namespace {

constexpr Duration kProbeLimit = std::chrono::milliseconds(500);
constexpr Duration kConnectLimit = std::chrono::seconds(3);
constexpr Duration kFirstPause = std::chrono::milliseconds(50);
constexpr Duration kLongestPause = std::chrono::seconds(2);

using watch_atom = caf::atom_constant<caf::atom("watch")>;
using forget_atom = caf::atom_constant<caf::atom("forget")>;

struct Watching {
  PeerWatcherActor watcher;
  std::set<std::string> interface;
};

// Lives for as long as somebody watches its address.
class PeerWatch : public caf::event_based_actor {
 public:
  PeerWatch(caf::actor_config& config, std::string address, std::string host, std::uint16_t port,
            WorkPool& pool)
      : caf::event_based_actor(config),
        address_(std::move(address)),
        host_(std::move(host)),
        port_(port),
        pool_(pool) {}

  const char* name() const override { return "peer_watch"; }

  caf::behavior make_behavior() override {
    set_down_handler([this](caf::down_msg& down) { Down(down); });
    Probe();
    return {
        [this](watch_atom, const PeerWatcherActor& watcher, const std::set<std::string>& interface) {
          watching_.push_back({watcher, interface});
          monitor(watcher);
          if (peer_) Announce(watching_.back());
        },
        [this](forget_atom, const PeerWatcherActor& watcher) {
          std::erase_if(watching_, [&](const Watching& w) { return w.watcher == watcher; });
        },
        [this](const proto::Continue& message) { continuations_.Resume(message); },
        [this](const proto::Tick&) { Probe(); },
    };
  }

  void on_exit() override {
    continuations_.Clear();
    watching_.clear();
    peer_ = nullptr;
  }

 private:
  void Probe() {
    auto done = continuations_.Make<bool>(this, [this](const absl::StatusOr<bool>& listening) {
      if (listening.ok()) return Connect();
      Pause();
    });
    const auto status = pool_.Post([done, host = host_, port = port_] {
      const auto probed = ProbeTcp(host, port, kProbeLimit);
      done(probed.ok() ? absl::StatusOr<bool>(true) : absl::StatusOr<bool>(probed));
    });
    if (!status.ok()) done(status);
  }

  void Connect() {
    request(home_system().middleman().actor_handle(), kConnectLimit, caf::connect_atom::value, host_, port_)
        .then(
            [this](const caf::node_id&, const caf::strong_actor_ptr& peer,
                   const std::set<std::string>& offered) {
              if (!peer) return Pause();
              peer_ = peer;
              offered_ = offered;
              pause_ = kFirstPause;
              ++connection_;
              monitor(caf::actor_cast<caf::actor>(peer_));
              for (const auto& watching : watching_) Announce(watching);
            },
            [this](const caf::error&) { Pause(); });
  }

  void Pause() {
    After(this, pause_, proto::Tick());
    pause_ = std::min(pause_ * 2, kLongestPause);
  }

  void Announce(const Watching& watching) {
    if (!std::includes(offered_.begin(), offered_.end(), watching.interface.begin(),
                       watching.interface.end()))
      return;
    proto::PeerUp up;
    up.set_address(address_);
    up.set_connection(connection_);
    send(watching.watcher, std::move(up), peer_);
  }

  void Down(const caf::down_msg& down) {
    if (peer_ && down.source == caf::actor_cast<caf::actor_addr>(peer_)) {
      peer_ = nullptr;
      proto::PeerLost lost;
      lost.set_address(address_);
      lost.set_reason(
          absl::StrCat("the connection to ", address_, " went down: ", caf::to_string(down.reason)));
      for (const auto& watching : watching_) send(watching.watcher, lost);
      return Pause();
    }
    std::erase_if(watching_, [&](const Watching& w) {
      return caf::actor_cast<caf::actor_addr>(w.watcher) == down.source;
    });
  }

  const std::string address_;
  const std::string host_;
  const std::uint16_t port_;
  WorkPool& pool_;
  Continuations continuations_;
  std::vector<Watching> watching_;
  caf::strong_actor_ptr peer_;
  std::set<std::string> offered_;
  std::uint64_t connection_ = 0;
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

NetworkPeerDirectory::~NetworkPeerDirectory() {
  Clear();
}

void NetworkPeerDirectory::Watch(const std::string& address, std::set<std::string> interface,
                                 PeerWatcherActor watcher) {
  const std::lock_guard lock(mutex_);
  if (local_.contains(address)) return here_.Watch(address, std::move(interface), std::move(watcher));
  auto& watch = watches_[address];
  if (!watch) {
    const auto parts = ParseAddress(address);
    if (!parts.ok()) return;  // nobody will ever be there; addresses of members were checked when they joined
    watch = system_.spawn<PeerWatch>(address, parts->first, parts->second, std::ref(pool_));
  }
  caf::anon_send(watch, watch_atom::value, std::move(watcher), std::move(interface));
}

void NetworkPeerDirectory::Forget(const std::string& address, const PeerWatcherActor& watcher) {
  const std::lock_guard lock(mutex_);
  here_.Forget(address, watcher);
  const auto it = watches_.find(address);
  if (it != watches_.end()) caf::anon_send(it->second, forget_atom::value, watcher);
}

void NetworkPeerDirectory::PublishHere(const std::string& address, caf::strong_actor_ptr actor,
                                       std::set<std::string> interface) {
  const std::lock_guard lock(mutex_);
  local_.insert(address);
  here_.Publish(address, std::move(actor), std::move(interface));
}

void NetworkPeerDirectory::Clear() {
  const std::lock_guard lock(mutex_);
  here_.Clear();
  for (auto& [address, watch] : watches_) caf::anon_send_exit(watch, caf::exit_reason::user_shutdown);
  watches_.clear();
}

}  // namespace troupe::actors
