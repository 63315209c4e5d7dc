#include "gpu/swap/block_queue.hpp"

#include "base/check.hpp"

namespace troupe::gpu {

void BlockQueue::Add(Id id, Urgency urgency) {
  const Place place{urgency, turns_++};
  TROUPE_CHECK(places_.emplace(id, place).second, "a transfer is queued once");
  order_.emplace(urgency, place.turn, id);
}

void BlockQueue::Remove(Id id) {
  const auto found = places_.find(id);
  if (found == places_.end()) return;
  order_.erase({found->second.urgency, found->second.turn, id});
  places_.erase(found);
}

void BlockQueue::Raise(Id id, Urgency urgency) {
  const auto found = places_.find(id);
  if (found == places_.end() || found->second.urgency <= urgency) return;
  order_.erase({found->second.urgency, found->second.turn, id});
  found->second.urgency = urgency;
  order_.emplace(urgency, found->second.turn, id);
}

std::optional<BlockQueue::Id> BlockQueue::Next() {
  if (order_.empty()) return std::nullopt;
  const Id id = std::get<2>(*order_.begin());
  order_.erase(order_.begin());
  Place& place = places_.at(id);
  place.turn = turns_++;
  order_.emplace(place.urgency, place.turn, id);
  return id;
}

std::optional<Urgency> BlockQueue::MostUrgent() const {
  if (order_.empty()) return std::nullopt;
  return std::get<0>(*order_.begin());
}

}  // namespace troupe::gpu
