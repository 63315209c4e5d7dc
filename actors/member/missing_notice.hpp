// When people are told that a member has not joined a cluster, or is refused: ever more rarely.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/units.hpp"

namespace troupe::actors {

//   joined -(Begin)-> missing -(Tell, Tell, ...)-> joined (Joined)
// Time is given; the owner waits for `pause` before each Tell.
class MissingNotice {
 public:
  // False when the member was missing already: nothing is to be waited for.
  [[nodiscard]] bool Begin(Time now) {
    if (since_) return false;
    since_ = now;
    pause_ = kFirst;
    ++number_;
    return true;
  }
  void Joined() {
    since_.reset();
    refusal_.clear();
  }
  // True for a reason that is not the last one.
  [[nodiscard]] bool Refused(const std::string& why) {
    const bool is_new = why != refusal_;
    refusal_ = why;
    return is_new;
  }

  // Waits of an earlier number are over.
  [[nodiscard]] std::uint64_t number() const { return number_; }
  [[nodiscard]] Duration pause() const { return pause_; }
  [[nodiscard]] bool IsDue(std::uint64_t number) const { return since_ && number == number_; }
  // The time has come: what to say, if anything; the next pause is longer.
  [[nodiscard]] std::string Tell(Time now, const std::string& manager, bool connected) {
    pause_ = std::min(pause_ * 2, kLongest);
    const auto since = absl::StrCat(" since ", FormatDuration(now - *since_));
    if (!connected) {
      return absl::StrCat("no cluster manager at ", manager, since,
                          ": check that it runs, and --manager; this member tries on");
    }
    if (!refusal_.empty()) return "";  // which was said
    return absl::StrCat("the cluster manager at ", manager, " has not taken this member", since,
                        "; it tries on");
  }

 private:
  static constexpr Duration kFirst = std::chrono::seconds(1);
  static constexpr Duration kLongest = std::chrono::minutes(1);
  std::optional<Time> since_;
  Duration pause_{};
  std::uint64_t number_ = 0;
  std::string refusal_;  // the last one
};

}  // namespace troupe::actors
