#include "cluster/event_log.hpp"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

namespace troupe::cluster {

namespace {

// Cuts between characters: half of one would not be UTF-8 any more.
void Cut(std::string& text) {
  if (text.size() <= EventLog::kMaxText) return;
  std::size_t end = EventLog::kMaxText;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  text.resize(end);
}

}  // namespace

std::uint64_t EventLog::Add(proto::Event event) {
  event.set_sequence(++last_);
  Cut(*event.mutable_message());
  Cut(*event.mutable_kind());
  kinds_[event.kind()].push_back(last_);
  events_.emplace(last_, std::move(event));
  while (events_.size() > capacity_) DropOne();
  return last_;
}

void EventLog::DropOne() {
  const auto most = std::max_element(kinds_.begin(), kinds_.end(), [](const auto& a, const auto& b) {
    return a.second.size() < b.second.size();
  });
  events_.erase(most->second.front());
  most->second.pop_front();
  if (most->second.empty()) kinds_.erase(most);
}

std::vector<proto::Event> EventLog::After(std::uint64_t after, std::size_t limit) const {
  auto first = events_.upper_bound(after);
  const auto available = static_cast<std::size_t>(std::distance(first, events_.end()));
  const std::size_t count = limit == 0 ? available : std::min(limit, available);
  if (after == 0) std::advance(first, static_cast<std::ptrdiff_t>(available - count));
  std::vector<proto::Event> events;
  events.reserve(count);
  for (; events.size() < count; ++first) events.push_back(first->second);
  return events;
}

}  // namespace troupe::cluster
