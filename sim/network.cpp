#include "sim/network.hpp"

#include <algorithm>
#include <caf/actor_proxy.hpp>
#include <caf/all.hpp>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "actors/core/time.hpp"
#include "actors/interfaces/cluster_manager.hpp"
#include "actors/interfaces/front.hpp"
#include "actors/interfaces/node_controller.hpp"
#include "actors/interfaces/router.hpp"
#include "actors/interfaces/workflow_run.hpp"
#include "base/random.hpp"

namespace troupe::sim {

namespace {

// An actor that is nothing but what it does with a message: it runs in the sender's step.
class Ear final : public caf::actor_proxy {
 public:
  using Heard = std::function<void(caf::strong_actor_ptr sender, caf::message_id id, caf::message content)>;
  Ear(caf::actor_config& config, Heard heard) : caf::actor_proxy(config), heard_(std::move(heard)) {}

  void enqueue(caf::mailbox_element_ptr element, caf::execution_unit*) override {
    if (!heard_) return;  // as over a lost connection: also a request gets no answer
    auto content = element->move_content_to_message();
    heard_(std::move(element->sender), element->mid, std::move(content));
  }
  void kill_proxy(caf::execution_unit* unit, caf::error reason) override {
    heard_ = nullptr;
    cleanup(std::move(reason), unit);
  }

 private:
  Heard heard_;
};

caf::strong_actor_ptr MakeEar(caf::actor_system& system, Ear::Heard heard) {
  caf::actor_config config;
  return caf::make_actor<Ear, caf::strong_actor_ptr>(system.next_actor_id(), system.node(), &system, config,
                                                     std::move(heard));
}

// It hears nothing more, and its monitors are told.
void End(const caf::strong_actor_ptr& ear, const caf::error& reason) {
  static_cast<Ear*>(ear->get())->kill_proxy(nullptr, reason);
}

using Members = std::pair<std::string, std::string>;  // from, to

}  // namespace

class Network::Core : public std::enable_shared_from_this<Core> {
 public:
  Core(caf::actor_system& system, NetworkOptions options)
      : system_(system), options_(options), random_(options.seed) {}

  // Behind the constructor: the ear needs no more than `this`, which Clear outlives.
  void Open() {
    alarm_ = MakeEar(
        system_, [this](const caf::strong_actor_ptr&, caf::message_id, const caf::message&) { RunDue(); });
  }

  actors::LocalPeerDirectory& DirectoryOf(const std::string& member) {
    auto& directory = directories_[member];
    if (directory != nullptr) return *directory;
    directory = std::make_unique<actors::LocalPeerDirectory>();
    for (const auto& [address, published] : published_) Announce(member, address);
    return *directory;
  }

  void Publish(const std::string& member, const caf::strong_actor_ptr& actor,
               std::set<std::string> interface) {
    published_[member] = {actor, std::move(interface)};
    for (const auto& [other, directory] : directories_) Announce(other, member);
  }

  void Retract(const std::string& member) {
    published_.erase(member);
    if (const auto own = directories_.find(member); own != directories_.end())
      own->second->Retract(member, "it has stopped");
  }

  void Block(const std::string& from, const std::string& to) {
    auto& way = ways_[{from, to}];
    if (++way.blocked > 1) return;
    way.since = Now();
    At(Now() + options_.connection_timeout, [this, from, to, since = way.since] {
      const auto& late = ways_[{from, to}];
      if (late.blocked > 0 && late.since == since) Lose(from, to, "nothing came through for the time-out");
    });
  }

  void Unblock(const std::string& from, const std::string& to) {
    auto& way = ways_[{from, to}];
    if (way.blocked == 0 || --way.blocked > 0) return;
    for (auto& letter : std::exchange(way.held, {})) Leave(from, to, std::move(letter));
    for (const auto& end : std::exchange(way.ends, {})) end();
    Reconnect(from, to);
  }

  void Lose(const std::string& a, const std::string& b, const std::string& reason) {
    if (Lost(a, b)) return;
    ++counts_.lost;
    lost_[Sorted(a, b)] = Now();
    for (const auto& way : {Members{a, b}, Members{b, a}}) {
      counts_.dropped += ways_[way].held.size();
      ways_[way].held.clear();
      ways_[way].ends.clear();
      ++ways_[way].connection;
    }
    EndProxies([&](const Proxy& proxy) {
      return (proxy.at == a && proxy.home == b) || (proxy.at == b && proxy.home == a);
    });
    for (const auto& [member, peer] : {Members{a, b}, Members{b, a}})
      if (const auto it = directories_.find(member); it != directories_.end())
        it->second->Retract(peer, reason);  // nothing when the proxy's end has said so
    At(Now() + options_.reconnect, [this, a, b] { Reconnect(a, b); });
  }

  void Clear() {
    published_.clear();
    for (auto& [member, directory] : directories_) directory->Clear();
    due_.clear();
    ways_.clear();
    auto proxies = std::exchange(proxies_, {});
    for (auto& proxy : proxies) End(proxy.ear, caf::exit_reason::user_shutdown);
    if (alarm_) End(alarm_, caf::exit_reason::user_shutdown);
    alarm_ = nullptr;
  }

  void Slow(const std::string& from, const std::string& to, Duration extra) {
    ways_[{from, to}].extra = extra;
  }

  Counts counts_;
  NetworkTap* tap_ = nullptr;

 private:
  struct Published {
    caf::strong_actor_ptr actor;
    std::set<std::string> interface;
  };
  struct Letter {
    caf::strong_actor_ptr sender, receiver;  // both as they are at home
    caf::message_id id;
    caf::message content;
  };
  struct Way {
    std::uint32_t blocked = 0;
    Time since{};      // blocked
    Time last{};       // what was sent before arrives before
    Duration extra{};  // of the delay
    std::uint64_t connection = 0;
    std::vector<Letter> held;
    std::vector<std::function<void()>> ends;  // of actors, that cannot be told of
  };
  // What `at` has of an actor that lives at `home`.
  struct Proxy {
    std::string at, home;
    caf::strong_actor_ptr actor;
    caf::strong_actor_ptr ear;
  };

  [[nodiscard]] Time Now() { return actors::Now(&system_); }
  [[nodiscard]] static Members Sorted(const std::string& a, const std::string& b) {
    return a < b ? Members{a, b} : Members{b, a};
  }
  [[nodiscard]] bool Lost(const std::string& a, const std::string& b) const {
    return lost_.contains(Sorted(a, b));
  }

  void At(Time when, std::function<void()> then) {
    due_.emplace(when, std::move(then));
    system_.clock().schedule_message(
        caf::actor_clock::time_point(when.time_since_epoch()), alarm_,
        caf::make_mailbox_element(nullptr, caf::make_message_id(), {}, caf::ok_atom::value));
  }
  void RunDue() {
    while (!due_.empty() && due_.begin()->first <= Now()) {
      const auto then = std::move(due_.begin()->second);
      due_.erase(due_.begin());
      then();
    }
  }

  void Announce(const std::string& member, const std::string& address) {
    const auto& published = published_.at(address);
    if (member != address && Lost(member, address)) return;
    directories_.at(member)->Publish(address, ProxyOf(member, address, published.actor), published.interface);
  }

  // What `at` holds of `actor`, which lives at `home`.
  caf::strong_actor_ptr ProxyOf(const std::string& at, const std::string& home,
                                const caf::strong_actor_ptr& actor) {
    if (at == home || actor == nullptr) return actor;
    const auto same = [&](const Proxy& proxy) { return proxy.at == at && proxy.actor == actor; };
    if (const auto it = std::ranges::find_if(proxies_, same); it != proxies_.end()) return it->ear;
    auto ear = MakeEar(system_, [this, at, home, actor](caf::strong_actor_ptr sender, caf::message_id id,
                                                        caf::message content) {
      Send(at, home, {std::move(sender), actor, id, std::move(content)});
    });
    proxies_.push_back({at, home, actor, ear});
    const auto address = caf::actor_cast<caf::actor_addr>(actor);
    caf::actor_cast<caf::actor>(actor)->attach_functor(
        [weak = weak_from_this(), at, home, address](const caf::error& reason) {
          if (const auto core = weak.lock()) core->HomeEnded(at, home, address, reason);
        });
    return ear;
  }

  // Its connection tells of its end, as fast as messages go: not while nothing comes through.
  void HomeEnded(const std::string& at, const std::string& home, const caf::actor_addr& address,
                 const caf::error& reason) {
    if (!alarm_) return;
    if (Way& way = ways_[{home, at}]; way.blocked > 0) {
      way.ends.push_back([this, at, home, address, reason] { HomeEnded(at, home, address, reason); });
      return;
    }
    At(Now() + options_.delay, [this, at, home, address, reason] {
      EndProxies(
          [&](const Proxy& proxy) {
            return proxy.at == at && proxy.home == home &&
                   caf::actor_cast<caf::actor_addr>(proxy.actor) == address;
          },
          reason);
    });
  }

  template <class Which>
  void EndProxies(Which which, const caf::error& reason = caf::exit_reason::remote_link_unreachable) {
    std::vector<Proxy> ended;
    std::ranges::copy_if(proxies_, std::back_inserter(ended), which);
    std::erase_if(proxies_, which);
    for (auto& proxy : ended) End(proxy.ear, reason);
  }

  void Send(const std::string& from, const std::string& to, Letter letter) {
    if (Lost(from, to)) {
      ++counts_.dropped;
      return;
    }
    if (tap_ != nullptr) tap_->Sent({from, to, letter.sender, letter.receiver, letter.id}, letter.content);
    Leave(from, to, std::move(letter));
  }

  void Leave(const std::string& from, const std::string& to, Letter letter) {
    Way& way = ways_[{from, to}];
    if (way.blocked > 0) {
      way.held.push_back(std::move(letter));
      return;
    }
    Duration delay = options_.delay + way.extra;
    if (options_.jitter > Duration())
      delay += Duration(
          static_cast<Duration::rep>(random_.Below(static_cast<std::uint64_t>(options_.jitter.count()) + 1)));
    way.last = std::max(way.last, Now() + delay);
    At(way.last, [this, from, to, connection = way.connection, letter = std::move(letter)]() mutable {
      Arrive(from, to, connection, std::move(letter));
    });
  }

  void Arrive(const std::string& from, const std::string& to, std::uint64_t connection, Letter letter) {
    if (ways_[{from, to}].connection != connection) {
      ++counts_.dropped;
      return;
    }
    ++counts_.delivered;
    if (tap_ != nullptr) tap_->Arrives({from, to, letter.sender, letter.receiver, letter.id}, letter.content);
    Translate<actors::NodeControllerActor>(from, to, letter.content);
    Translate<actors::RouterActor>(from, to, letter.content);
    Translate<actors::CreditSinkActor>(from, to, letter.content);
    Translate<actors::WorkflowRunActor>(from, to, letter.content);
    Translate<actors::FrontActor>(from, to, letter.content);
    letter.receiver->enqueue(
        caf::make_mailbox_element(Seen(from, to, letter.sender), letter.id, {}, std::move(letter.content)),
        nullptr);
  }

  // What `to` holds of a handle that `from` had: its own actor, or a proxy.
  caf::strong_actor_ptr Seen(const std::string& from, const std::string& to,
                             const caf::strong_actor_ptr& handle) {
    if (handle == nullptr) return nullptr;
    for (const Proxy& proxy : proxies_)
      if (proxy.at == from && proxy.ear == handle) return ProxyOf(to, proxy.home, proxy.actor);
    return ProxyOf(to, from, handle);
  }

  // Handles travel beside a message, behind it (CONTRIBUTING: adding a message).
  template <class Handle>
  void Translate(const std::string& from, const std::string& to, caf::message& content) {
    for (std::size_t i = 1; i < content.size(); ++i) {
      if (!content.match_element<Handle>(i)) continue;
      auto& handle = content.get_mutable_as<Handle>(i);
      handle = caf::actor_cast<Handle>(
          Seen(from, to, caf::actor_cast<caf::strong_actor_ptr>(std::as_const(handle))));
    }
  }

  void Reconnect(const std::string& a, const std::string& b) {
    const auto it = lost_.find(Sorted(a, b));
    if (it == lost_.end() || ways_[{a, b}].blocked > 0 || ways_[{b, a}].blocked > 0) return;
    if (Now() < it->second + options_.reconnect) return;  // it is tried again then
    lost_.erase(it);
    for (const auto& [member, peer] : {Members{a, b}, Members{b, a}})
      if (directories_.contains(member) && published_.contains(peer)) Announce(member, peer);
  }

  caf::actor_system& system_;
  const NetworkOptions options_;
  Random random_;
  caf::strong_actor_ptr alarm_;
  std::multimap<Time, std::function<void()>> due_;
  std::map<std::string, std::unique_ptr<actors::LocalPeerDirectory>> directories_;  // by member
  std::map<std::string, Published> published_;                                      // by member
  std::map<Members, Way> ways_;
  std::map<Members, Time> lost_;  // connections, each once; since when
  std::vector<Proxy> proxies_;
};

Network::Network(caf::actor_system& system, NetworkOptions options)
    : core_(std::make_shared<Core>(system, options)) {
  core_->Open();
}

Network::~Network() {
  Clear();
}

actors::LocalPeerDirectory& Network::DirectoryOf(const std::string& member) {
  return core_->DirectoryOf(member);
}

void Network::Publish(const std::string& member, const caf::strong_actor_ptr& actor,
                      std::set<std::string> interface) {
  core_->Publish(member, actor, std::move(interface));
}

void Network::Retract(const std::string& member) {
  core_->Retract(member);
}

void Network::Partition(const std::string& from, const std::string& to, bool one_way) {
  core_->Block(from, to);
  if (!one_way) core_->Block(to, from);
}

void Network::Heal(const std::string& from, const std::string& to, bool one_way) {
  core_->Unblock(from, to);
  if (!one_way) core_->Unblock(to, from);
}

void Network::Cut(const std::string& a, const std::string& b) {
  core_->Lose(a, b, "the connection was lost");
}

void Network::Slow(const std::string& from, const std::string& to, Duration extra) {
  core_->Slow(from, to, extra);
}

void Network::SetTap(NetworkTap* tap) {
  core_->tap_ = tap;
}

const Network::Counts& Network::counts() const {
  return core_->counts_;
}

void Network::Clear() {
  core_->Clear();
}

}  // namespace troupe::sim
