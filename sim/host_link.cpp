#include "sim/host_link.hpp"

#include <algorithm>
#include <utility>

namespace troupe::sim {

HostLink::Ticket HostLink::Begin(Duration alone, std::optional<Time> deadline, Time now,
                                 actors::FakeGpu::Timer timer, std::function<void(Time)> done) {
  Advance(now);
  const Ticket ticket = next_++;
  const auto urgency = sharing_ == gpu::LinkSharing::kExclusive ? static_cast<std::int64_t>(ticket)
                                                                : gpu::UrgencyOf(sharing_, now, deadline);
  transfers_[ticket] = {.urgency = urgency,
                        .left = alone,
                        .due = Time::max(),
                        .timer = std::move(timer),
                        .done = std::move(done)};
  Arm(now);
  return ticket;
}

std::vector<std::pair<HostLink::Ticket, HostLink::Transfer*>> HostLink::Moving() {
  std::vector<std::pair<Ticket, Transfer*>> moving;
  for (auto& [ticket, transfer] : transfers_) {
    if (!moving.empty() && transfer.urgency > moving.front().second->urgency) continue;
    if (!moving.empty() && transfer.urgency < moving.front().second->urgency) moving.clear();
    moving.emplace_back(ticket, &transfer);
  }
  return moving;
}

// A transfer that goes before its end is its worker's death: what it had of the link is the others' at the
// next change.
void HostLink::Leave(Ticket ticket) {
  const auto gone = transfers_.extract(ticket);
  if (gone.empty() || transfers_.empty()) return;
  const auto moving = Moving();
  if (moving.front().second->urgency <= gone.mapped().urgency) return;
  // It had the link: what it has begun goes through, then comes the next one's turn.
  for (const auto& [next, transfer] : moving)
    transfer->left += gone.mapped().left / static_cast<Duration::rep>(moving.size());
  Arm(last_);
}

void HostLink::Advance(Time now) {
  const Duration passed = now - std::exchange(last_, now);
  if (transfers_.empty()) return;
  busy_ += passed;
  const auto moving = Moving();
  const Duration share = passed / static_cast<Duration::rep>(moving.size());
  for (const auto& [ticket, transfer] : moving)
    transfer->left = std::max(transfer->left - share, Duration(0));
}

void HostLink::Arm(Time now) {
  const auto moving = Moving();
  if (moving.empty()) return;
  const auto urgency = moving.front().second->urgency;
  for (auto& [ticket, transfer] : transfers_)
    if (transfer.urgency != urgency) transfer.due = Time::max();  // it waits
  for (const auto& [ticket, transfer] : moving) {
    const Time due = now + transfer->left * static_cast<Duration::rep>(moving.size());
    if (due == transfer->due) continue;
    transfer->due = due;
    transfer->timer(due, [this, id = ticket, due] { Due(id, due); });
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

std::vector<std::shared_ptr<HostLink>> LinksOf(const node::Topology& topology, std::uint32_t gpus,
                                               gpu::LinkSharing sharing) {
  std::vector<std::shared_ptr<HostLink>> links(gpus);
  for (const auto& group : topology.Switches()) {
    const auto shared = std::make_shared<HostLink>(sharing);
    for (const auto gpu : group) links[gpu] = shared;
  }
  for (auto& link : links)
    if (link == nullptr) link = std::make_shared<HostLink>(sharing);
  return links;
}

}  // namespace troupe::sim
