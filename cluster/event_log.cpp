#include "cluster/event_log.hpp"

#include <algorithm>
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
  events_.push_back(std::move(event));
  while (events_.size() > capacity_) events_.pop_front();
  return last_;
}

std::vector<proto::Event> EventLog::After(std::uint64_t after, std::size_t limit) const {
  const auto first = std::partition_point(
      events_.begin(), events_.end(), [&](const proto::Event& event) { return event.sequence() <= after; });
  const auto available = static_cast<std::size_t>(events_.end() - first);
  const std::size_t count = limit == 0 ? available : std::min(limit, available);
  const auto begin = after == 0 ? events_.end() - static_cast<std::ptrdiff_t>(count) : first;
  return {begin, begin + static_cast<std::ptrdiff_t>(count)};
}

}  // namespace troupe::cluster
