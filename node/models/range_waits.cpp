#include "node/models/range_waits.hpp"

#include <utility>

namespace troupe::node {

void RangeWaits::Expect(const std::string& object) {
  ++objects_[object].fetches;
}

RangeWaits::Answer RangeWaits::Ask(Ticket ticket, const std::string& asker, const std::string& object,
                                   std::uint64_t offset, std::uint64_t length) {
  const auto found = objects_.find(object);
  if (found == objects_.end()) return Answer::kAbsent;
  const auto end = offset + length;
  if (end < offset) return Answer::kBeyond;
  auto& at = found->second;
  const bool known = at.received.bytes > 0;
  if (known && end > at.received.total) return Answer::kBeyond;
  if (known && end <= at.received.bytes) return Answer::kHere;
  if (tickets_.size() >= limits_.most) return Answer::kTooMany;
  if (const auto of = askers_.find(asker); of != askers_.end() && of->second >= limits_.most_of_one)
    return Answer::kTooMany;
  at.waiting.emplace(end, ticket);
  tickets_[ticket] = {asker, object};
  ++askers_[asker];
  return Answer::kWaits;
}

void RangeWaits::Forget(Ticket ticket) {
  const auto waiting = tickets_.extract(ticket);
  const auto of = askers_.find(waiting.mapped().asker);
  if (--of->second == 0) askers_.erase(of);
}

std::vector<RangeWaits::Ticket> RangeWaits::Came(const std::string& object, Received received) {
  std::vector<Ticket> here;
  const auto found = objects_.find(object);
  if (found == objects_.end()) return here;
  auto& at = found->second;
  // When two fetches bring one object, ranges are read from the fetch that has more of it.
  if (received.upload != at.received.upload && received.bytes <= at.received.bytes) return here;
  at.received = std::move(received);
  for (auto it = at.waiting.begin(); it != at.waiting.end() && it->first <= at.received.bytes;) {
    here.push_back(it->second);
    Forget(it->second);
    it = at.waiting.erase(it);
  }
  return here;
}

std::vector<RangeWaits::Ticket> RangeWaits::Over(const std::string& object, bool whole) {
  std::vector<Ticket> over;
  const auto found = objects_.find(object);
  if (found == objects_.end()) return over;
  auto& at = found->second;
  const bool last = --at.fetches == 0;
  // What another fetch has received is told with its next range.
  at.received = {};
  if (!last && !whole) return over;
  for (const auto& [end, ticket] : at.waiting) {
    over.push_back(ticket);
    Forget(ticket);
  }
  at.waiting.clear();
  if (last) objects_.erase(found);
  return over;
}

bool RangeWaits::GiveUp(Ticket ticket) {
  const auto found = tickets_.find(ticket);
  if (found == tickets_.end()) return false;
  auto& waiting = objects_.at(found->second.object).waiting;
  std::erase_if(waiting, [ticket](const auto& wait) { return wait.second == ticket; });
  Forget(ticket);
  return true;
}

const RangeWaits::Received* RangeWaits::Of(const std::string& object) const {
  const auto found = objects_.find(object);
  return found == objects_.end() || found->second.received.bytes == 0 ? nullptr : &found->second.received;
}

}  // namespace troupe::node
