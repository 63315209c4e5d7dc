#include "sim/host_link.hpp"

#include <algorithm>
#include <utility>

namespace troupe::sim {

HostLink::Ticket HostLink::Begin(Duration alone, Time now, actors::FakeGpu::Timer timer,
                                 std::function<void(Time)> done) {
  Advance(now);
  const Ticket ticket = next_++;
  transfers_[ticket] = {
      .left = alone, .due = Time::max(), .timer = std::move(timer), .done = std::move(done)};
  Arm(now);
  return ticket;
}

// A transfer that goes before its end is its worker's death: what it had of the link is the others' at the
// next change.
void HostLink::Leave(Ticket ticket) {
  const auto gone = transfers_.extract(ticket);
  if (!in_turns_ || gone.empty() || transfers_.empty() || transfers_.begin()->first < ticket) return;
  // It had the link: what it has begun goes through, then comes the next one's turn.
  transfers_.begin()->second.left += gone.mapped().left;
  Arm(last_);
}

void HostLink::Advance(Time now) {
  const Duration passed = now - std::exchange(last_, now);
  if (transfers_.empty()) return;
  busy_ += passed;
  if (in_turns_) {
    auto& first = transfers_.begin()->second.left;
    first = std::max(first - passed, Duration(0));
    return;
  }
  const Duration share = passed / static_cast<Duration::rep>(transfers_.size());
  for (auto& [ticket, transfer] : transfers_) transfer.left = std::max(transfer.left - share, Duration(0));
}

void HostLink::Arm(Time now) {
  const auto sharers = in_turns_ ? 1 : static_cast<Duration::rep>(transfers_.size());
  for (auto& [ticket, transfer] : transfers_) {
    if (in_turns_ && ticket != transfers_.begin()->first) return;
    const Time due = now + transfer.left * sharers;
    if (due == transfer.due) continue;
    transfer.due = due;
    transfer.timer(due, [this, id = ticket, due] { Due(id, due); });
  }
}

void HostLink::Due(Ticket ticket, Time at) {
  const auto it = transfers_.find(ticket);
  if (it == transfers_.end() || it->second.due != at) return;  // others came or went meanwhile
  Advance(at);
  const auto done = std::move(it->second.done);
  transfers_.erase(it);
  Arm(at);
  done(at);
}

std::vector<std::shared_ptr<HostLink>> LinksOf(const node::Topology& topology, std::uint32_t gpus) {
  std::vector<std::shared_ptr<HostLink>> links(gpus);
  for (const auto& group : topology.Switches()) {
    const auto shared = std::make_shared<HostLink>();
    for (const auto gpu : group) links[gpu] = shared;
  }
  for (auto& link : links)
    if (link == nullptr) link = std::make_shared<HostLink>();
  return links;
}

}  // namespace troupe::sim
