// OUTBOX: what the event at hand leads to, in order, and the time at which it happens. All parts of a node
// write to it; node::Node empties it after each event.
#pragma once

#include <string>
#include <utility>

#include "node/effects.hpp"
#include "node/event_journal.hpp"

namespace troupe::node {

class Outbox {
 public:
  void Begin(Time now) { now_ = now; }
  [[nodiscard]] Time now() const { return now_; }
  void Add(Effect effect) { effects_.push_back(std::move(effect)); }
  [[nodiscard]] Effects Take() { return std::exchange(effects_, {}); }

  // For the log here, and for the cluster's.
  void Note(const std::string& kind, const std::string& message) {
    journal_.Note(kind, message, now_);
    Add(Log{kind, message});
  }
  void WakeAt(Timer timer, Time due) { Add(WakeMe{timer, due - now_}); }
  void WakeAfter(Timer timer, Duration after) { Add(WakeMe{timer, after}); }
  [[nodiscard]] const EventJournal& journal() const { return journal_; }

 private:
  Time now_{};
  Effects effects_;
  EventJournal journal_;
};

}  // namespace troupe::node
