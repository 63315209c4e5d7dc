#include "sim/chaos/wait_watch.hpp"

#include <algorithm>
#include <caf/send.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/core/time.hpp"
#include "node/events.hpp"

namespace troupe::sim {

namespace {

using std::chrono::milliseconds;

constexpr Duration kLook = milliseconds(20);
constexpr Duration kDrop = milliseconds(1);

bool IsDecision(const proto::Tick& tick) {
  return tick.what() == static_cast<std::uint32_t>(node::Timer::kExpire);
}

}  // namespace

void WaitWatch::Begin() {
  cluster_.agenda().In(kLook, [this] {
    Watch();
    Begin();
  });
}

// All of its workers are up, and have answered all orders.
bool WaitWatch::Quiet(const std::string& node) {
  if (!cluster_.nodes().IsUp(node)) return false;
  const auto& workers = cluster_.world().node(node).workers;
  return !workers.empty() && std::ranges::all_of(workers, [](const auto& worker) {
    return worker->life.linked && worker->open == 0 && !worker->hang;
  });
}

WaitWatch::Seen WaitWatch::Look(const std::string& node) {
  Seen seen;
  for (const auto& worker : cluster_.world().node(node).workers)
    seen.emplace_back(worker->spawns, worker->given, worker->life.runtime);
  return seen;
}

void WaitWatch::Watch() {
  for (const auto& node : cluster_.shape().NodeNames()) {
    if (!Quiet(node)) {
      quiet_.erase(node);
      continue;
    }
    auto seen = Look(node);
    const auto before = quiet_.find(node);
    const bool still = before != quiet_.end() && before->second == seen;
    quiet_[node] = std::move(seen);
    if (still && !DecidesSoon(node)) Try(node);
  }
}

// It has set a timer for a decision before the next look.
bool WaitWatch::DecidesSoon(const std::string& node) {
  const Time next = cluster_.world().Now() + kLook;
  bool soon = false;
  ForEachWakeup([&](caf::actor_id actor, Time due, proto::Tick& tick) {
    soon |= actor == cluster_.world().node(node).controller->id() && due <= next && IsDecision(tick);
  });
  return soon;
}

void WaitWatch::Try(const std::string& node) {
  const auto decide = actors::MakeTick(static_cast<std::uint32_t>(node::Timer::kRefill));
  caf::anon_send(caf::actor_cast<caf::actor>(cluster_.world().node(node).controller), decide);
  cluster_.world().Settle();
  const auto now = Look(node);
  const auto& before = quiet_[node];
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (now[i] == before[i]) continue;
    const auto& [spawns, given, runtime] = now[i];
    broken_.push_back(absl::StrCat(
        node, " worker ", i,
        given != std::get<1>(before[i]) ? " was given a run" : " was to serve another function",
        " when its node was made to decide at ", FormatDuration(cluster_.world().Now().time_since_epoch()),
        ", though nothing had happened there for ", FormatDuration(kLook), ": a request waited for nothing"));
  }
  quiet_.erase(node);
}

void WaitWatch::ForgetWakeups() {
  cluster_.agenda().In(kDrop, [this] {
    DropWakeups();
    ForgetWakeups();
  });
}

template <class Visit>
void WaitWatch::ForEachWakeup(const Visit& visit) {
  using Clock = caf::detail::simple_actor_clock;
  for (const auto& [due, event] : cluster_.world().scheduler().clock().schedule()) {
    if (event->subtype != Clock::actor_msg_type) continue;
    auto& delayed = static_cast<Clock::actor_msg&>(*event);
    if (!delayed.receiver) continue;
    auto& content = delayed.content->content();
    if (!content.match_elements<proto::Tick>()) continue;
    visit(delayed.receiver->id(), Time(due.time_since_epoch()), content.get_mutable_as<proto::Tick>(0));
  }
}

// A timer of no kind takes the place of each: the node does nothing when it comes.
void WaitWatch::DropWakeups() {
  std::vector<caf::actor_id> nodes;
  for (const auto& node : cluster_.shape().NodeNames())
    if (cluster_.nodes().IsUp(node)) nodes.push_back(cluster_.world().node(node).controller->id());
  ForEachWakeup([&](caf::actor_id actor, Time, proto::Tick& tick) {
    if (std::ranges::find(nodes, actor) != nodes.end() && IsDecision(tick)) tick.set_what(~0U);
  });
}

}  // namespace troupe::sim
