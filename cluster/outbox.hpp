// OUTBOX: what the event at hand leads to, in order, the time at which it happens, and the log of events. All
// parts of a cluster write to it; cluster::Cluster empties it after each event.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "cluster/effects.hpp"
#include "cluster/event_log.hpp"

namespace troupe::cluster {

class Outbox {
 public:
  void Begin(Time now, std::int64_t unix_now) {
    now_ = now;
    unix_now_ = unix_now;
  }
  [[nodiscard]] Time now() const { return now_; }
  [[nodiscard]] std::int64_t unix_now() const { return unix_now_; }  // nanoseconds since 1970
  void Add(Effect effect) { effects_.push_back(std::move(effect)); }
  [[nodiscard]] Effects Take() { return std::exchange(effects_, {}); }

  // For operators, and for the log of the manager.
  void Tell(const std::string& member, const std::string& kind, const std::string& message) {
    proto::Event event;
    event.set_unix_ns(unix_now_);
    event.set_member(member);
    event.set_kind(kind);
    event.set_message(message);
    Keep(event);
  }
  void Keep(const proto::Event& event) {
    events_.Add(event);
    Add(Note{event});
  }
  void WakeAfter(Timer timer, Duration after) { Add(WakeMe{timer, after}); }
  [[nodiscard]] const EventLog& events() const { return events_; }

 private:
  Time now_{};
  std::int64_t unix_now_ = 0;
  Effects effects_;
  EventLog events_;
};

}  // namespace troupe::cluster
