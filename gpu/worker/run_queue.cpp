#include "gpu/worker/run_queue.hpp"

#include "gpu/worker/launch_order.hpp"

namespace troupe::gpu {

bool RunQueue::Add(std::uint64_t sequence, std::uint32_t priority, Urgency urgency, Time expires) {
  const Place place{{priority, urgency, arrivals_}, expires};
  if (!places_.emplace(sequence, place).second) return false;
  ++arrivals_;
  order_[place.rank] = sequence;
  if (expires != Time::max()) expiries_.emplace(expires, sequence);
  return true;
}

bool RunQueue::Remove(std::uint64_t sequence) {
  const auto found = places_.find(sequence);
  if (found == places_.end()) return false;
  order_.erase(found->second.rank);
  expiries_.erase({found->second.expires, sequence});
  places_.erase(found);
  return true;
}

std::optional<std::uint64_t> RunQueue::First(Time now, const Ready& ready) const {
  std::optional<std::uint64_t> late;
  std::uint32_t of_priority = 0;
  for (const auto& [rank, sequence] : order_) {
    if (late && rank.priority > of_priority) break;
    const bool yields = Yields(rank.urgency, now);
    if ((late && yields) || !ready(sequence)) continue;
    if (!yields) return sequence;
    late = sequence;
    of_priority = rank.priority;
  }
  return late;
}

std::vector<std::uint64_t> RunQueue::TakeExpired(Time now) {
  std::vector<std::uint64_t> expired;
  while (!expiries_.empty() && expiries_.begin()->first <= now) {
    expired.push_back(expiries_.begin()->second);
    Remove(expired.back());
  }
  return expired;
}

Time RunQueue::NextExpiry() const {
  return expiries_.empty() ? Time::max() : expiries_.begin()->first;
}

std::vector<std::uint64_t> RunQueue::All() const {
  std::vector<std::uint64_t> all;
  for (const auto& [key, sequence] : order_) all.push_back(sequence);
  return all;
}

}  // namespace troupe::gpu
