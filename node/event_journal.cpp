#include "node/event_journal.hpp"

#include <utility>

#include "absl/strings/str_cat.h"

namespace troupe::node {

void EventJournal::Note(const std::string& kind, const std::string& message, Time now) {
  proto::Event event;
  event.set_kind(kind);
  event.set_message(message);
  event.set_unix_ns(now.time_since_epoch().count());
  log_.Add(std::move(event));
}

std::vector<proto::Event> EventJournal::After(std::uint64_t heard, Time now) const {
  std::vector<proto::Event> events;
  for (auto& event : log_.After(heard, 0)) {
    const auto missing = event.sequence() - heard - 1;
    heard = event.sequence();
    if (missing > 0) {
      proto::Event& lost = events.emplace_back();
      lost.set_sequence(heard - 1);
      lost.set_kind("events-lost");
      lost.set_message(absl::StrCat("the ", missing, " before this one could not be told"));
      lost.set_unix_ns(event.unix_ns());
    }
    events.push_back(std::move(event));
    if (events.size() >= kMostAtOnce) break;
  }
  for (auto& event : events) {
    event.set_age_ns(now.time_since_epoch().count() - event.unix_ns());
    event.clear_unix_ns();
  }
  return events;
}

}  // namespace troupe::node
