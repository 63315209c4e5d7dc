// What a member's subject has heard of the cluster's changes, as far as the member can tell: whether it has to
// be reminded of a revision, and whether the manager is to be asked for what it has missed.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

namespace troupe::actors {

class CatchUpState {
 public:
  // The answer to a join brought this revision. True when the subject heard of changes before, which may go
  // beyond it: the manager is to be asked.
  [[nodiscard]] bool Joined(std::uint64_t revision) {
    told_ = reminded_ = revision;
    asking_ = false;
    return std::exchange(missed_, false);
  }
  // The manager has told `revision` by now; what it had told a beat ago has come, or is lost: the revision of
  // which the subject is to be reminded, if any.
  [[nodiscard]] std::optional<std::uint64_t> Told(std::uint64_t revision) {
    const std::uint64_t before = std::exchange(told_, revision);
    if (before == std::exchange(reminded_, before)) return std::nullopt;
    return before;
  }
  [[nodiscard]] std::uint64_t told() const { return told_; }
  // The subject found a gap. True when the manager is to be asked now.
  [[nodiscard]] bool Missed(bool joined) {
    // What came before the answer to a join, and went beyond what that answer will say.
    if (!joined) missed_ = true;
    return joined && !std::exchange(asking_, true);
  }
  // The manager was asked; should something be missing still, the next beat says so.
  void Asked() {
    asking_ = false;
    reminded_ = 0;
  }

 private:
  std::uint64_t told_ = 0;      // revision that the manager had reached at the last beat
  std::uint64_t reminded_ = 0;  // the last that the subject was reminded of
  bool missed_ = false;         // the subject heard of changes before the member had joined
  bool asking_ = false;         // the manager is asked for what the subject has missed
};

// Which of the subject's events the manager has: each is brought by one heartbeat, and again by a later one if
// that was lost.
class EventsHeard {
 public:
  // Whether a heartbeat may bring events: a second one with events would overtake the first.
  [[nodiscard]] bool MayTell() const { return !telling_; }
  void Telling() { telling_ = true; }
  // That heartbeat has ended; `heard`: the manager has the events up to `last`.
  void Told(std::uint64_t last, bool heard) {
    telling_ = false;
    if (heard && last > heard_) heard_ = last;
  }
  [[nodiscard]] std::uint64_t heard() const { return heard_; }

 private:
  std::uint64_t heard_ = 0;
  bool telling_ = false;
};

}  // namespace troupe::actors
