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
    if (still) Try(node);
  }
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

// A timer of no kind takes the place of each: the node does nothing when it comes.
void WaitWatch::DropWakeups() {
  using Clock = caf::detail::simple_actor_clock;
  std::vector<caf::actor_id> nodes;
  for (const auto& node : cluster_.shape().NodeNames())
    if (cluster_.nodes().IsUp(node)) nodes.push_back(cluster_.world().node(node).controller->id());
  for (const auto& [due, event] : cluster_.world().scheduler().clock().schedule()) {
    if (event->subtype != Clock::actor_msg_type) continue;
    auto& delayed = static_cast<Clock::actor_msg&>(*event);
    if (!delayed.receiver || std::ranges::find(nodes, delayed.receiver->id()) == nodes.end()) continue;
    auto& content = delayed.content->content();
    if (!content.match_elements<proto::Tick>()) continue;
    auto& tick = content.get_mutable_as<proto::Tick>(0);
    if (tick.what() == static_cast<std::uint32_t>(node::Timer::kExpire)) tick.set_what(~0U);
  }
}

}  // namespace troupe::sim
