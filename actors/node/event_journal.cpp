#include "actors/node/event_journal.hpp"

#include <utility>

#include "absl/strings/str_cat.h"

namespace troupe::actors {

void EventJournal::Note(const std::string& kind, const std::string& message, Time now) {
  proto::Event event;
  event.set_kind(kind);
  event.set_message(message);
  event.set_unix_ns(now.time_since_epoch().count());
  log_.Add(std::move(event));
}

std::vector<proto::Event> EventJournal::After(std::uint64_t heard, Time now) const {
  auto events = log_.After(heard, 0);
  if (!events.empty() && events.front().sequence() > heard + 1) {
    proto::Event lost;
    lost.set_sequence(events.front().sequence() - 1);
    lost.set_kind("events-lost");
    lost.set_message(
        absl::StrCat("the ", events.front().sequence() - 1 - heard, " before this one could not be told"));
    lost.set_unix_ns(events.front().unix_ns());
    events.insert(events.begin(), std::move(lost));
  }
  if (events.size() > kMostAtOnce) events.resize(kMostAtOnce);
  for (auto& event : events) {
    event.set_age_ns(now.time_since_epoch().count() - event.unix_ns());
    event.clear_unix_ns();
  }
  return events;
}

}  // namespace troupe::actors
