#include "actors/peers/local_peer_directory.hpp"

#include <algorithm>
#include <caf/actor.hpp>
#include <caf/actor_addr.hpp>
#include <caf/send.hpp>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "actors/peers/earlier_peer.hpp"

namespace troupe::actors {

namespace {

struct Watching {
  PeerWatcherActor watcher;
  std::set<std::string> interface;
  bool announced = false;  // hears when what is published now is lost
};

struct Published {
  caf::strong_actor_ptr actor;
  std::set<std::string> interface;
};

}  // namespace

struct LocalPeerDirectory::Table {
  explicit Table(std::function<void(const std::string&)> idle) : on_idle(std::move(idle)) {}

  // --- under the lock ---

  void Announce(const std::string& address, Watching& watching) {
    const auto it = published.find(address);
    if (it == published.end()) return;
    const auto& offered = it->second.interface;
    const auto& wanted = watching.interface;
    if (!std::ranges::includes(offered, wanted) && !OfOneKind(offered, wanted)) return;
    watching.announced = true;
    proto::PeerUp up;
    up.set_address(address);
    up.set_connection(++connections);
    caf::anon_send(watching.watcher, std::move(up), AskedForWhatItOffers(it->second.actor, offered, wanted));
  }

  // What stood there is handed out: its last reference must not go under the lock.
  Published Lose(const std::string& address, const std::string& reason) {
    auto node = published.extract(address);
    if (node.empty()) return {};
    proto::PeerLost lost;
    lost.set_address(address);
    lost.set_reason(reason);
    const auto all = watching.find(address);
    if (all != watching.end()) {
      for (auto& one : all->second)
        if (std::exchange(one.announced, false)) caf::anon_send(one.watcher, lost);
    }
    return std::move(node.mapped());
  }

  // --- without ---

  void PeerEnded(const std::string& address, const caf::actor_addr& peer, const caf::error& reason) {
    Published old;
    const std::lock_guard lock(mutex);
    const auto it = published.find(address);
    if (it == published.end() || caf::actor_cast<caf::actor_addr>(it->second.actor) != peer) return;
    old = Lose(address, absl::StrCat("it ended: ", caf::to_string(reason)));
  }

  // Of one address, or (empty) of all.
  void Drop(const std::string& only, const caf::actor_addr& watcher) {
    std::vector<std::string> idle;
    std::vector<Watching> dropped;
    {
      const std::lock_guard lock(mutex);
      for (auto it = watching.begin(); it != watching.end();) {
        auto& all = it->second;
        const auto mine = [&](const Watching& one) {
          return caf::actor_cast<caf::actor_addr>(one.watcher) == watcher;
        };
        if (only.empty() || only == it->first) {
          std::copy_if(all.begin(), all.end(), std::back_inserter(dropped), mine);
          std::erase_if(all, mine);
        }
        if (all.empty()) {
          idle.push_back(it->first);
          it = watching.erase(it);
        } else {
          ++it;
        }
      }
      if (only.empty()) heard_of.erase(watcher);
    }
    if (on_idle)
      for (const auto& address : idle) on_idle(address);
  }

  const std::function<void(const std::string&)> on_idle;
  std::mutex mutex;
  std::map<std::string, Published> published;             // guarded by mutex
  std::map<std::string, std::vector<Watching>> watching;  // guarded by mutex; never an empty list
  std::set<caf::actor_addr> heard_of;                     // watchers whose end will be told; guarded by mutex
  std::uint64_t connections = 0;                          // guarded by mutex
};

LocalPeerDirectory::LocalPeerDirectory(std::function<void(const std::string&)> on_idle)
    : table_(std::make_shared<Table>(std::move(on_idle))) {}

LocalPeerDirectory::~LocalPeerDirectory() = default;

void LocalPeerDirectory::Watch(const std::string& address, std::set<std::string> interface,
                               PeerWatcherActor watcher) {
  const auto watcher_address = caf::actor_cast<caf::actor_addr>(watcher);
  bool is_new = false;
  {
    const std::lock_guard lock(table_->mutex);
    auto& all = table_->watching[address];
    all.push_back({watcher, std::move(interface)});
    table_->Announce(address, all.back());
    is_new = table_->heard_of.insert(watcher_address).second;
  }
  // Outside of the lock: for an actor that has ended already it runs at once.
  if (!is_new) return;
  watcher->attach_functor([weak = std::weak_ptr<Table>(table_), watcher_address] {
    if (const auto table = weak.lock()) table->Drop("", watcher_address);
  });
}

void LocalPeerDirectory::Forget(const std::string& address, const PeerWatcherActor& watcher) {
  table_->Drop(address, caf::actor_cast<caf::actor_addr>(watcher));
}

bool LocalPeerDirectory::Watched(const std::string& address) const {
  const std::lock_guard lock(table_->mutex);
  return table_->watching.contains(address);
}

void LocalPeerDirectory::Publish(const std::string& address, caf::strong_actor_ptr actor,
                                 std::set<std::string> interface) {
  Published old;
  {
    const std::lock_guard lock(table_->mutex);
    const auto it = table_->published.find(address);
    if (it != table_->published.end() && it->second.actor == actor) return;
    old = table_->Lose(address, "another took its place");
    table_->published[address] = {actor, std::move(interface)};
    const auto all = table_->watching.find(address);
    if (all != table_->watching.end())
      for (auto& watching : all->second) table_->Announce(address, watching);
  }
  const auto peer = caf::actor_cast<caf::actor_addr>(actor);
  caf::actor_cast<caf::actor>(actor)->attach_functor(
      [weak = std::weak_ptr<Table>(table_), address, peer](const caf::error& reason) {
        if (const auto table = weak.lock()) table->PeerEnded(address, peer, reason);
      });
}

void LocalPeerDirectory::Retract(const std::string& address, const std::string& reason) {
  Published old;
  const std::lock_guard lock(table_->mutex);
  old = table_->Lose(address, reason);
}

void LocalPeerDirectory::Clear() {
  std::map<std::string, Published> published;
  std::map<std::string, std::vector<Watching>> watching;
  const std::lock_guard lock(table_->mutex);
  published.swap(table_->published);
  watching.swap(table_->watching);
}

}  // namespace troupe::actors
