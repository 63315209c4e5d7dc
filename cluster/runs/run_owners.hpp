// RUN OWNERS: which actor of a gateway runs which run under way, so that a cancellation reaches it at once;
// which runs were released, since they have no actor any more; and which questions wait for the end of a run
// that another actor runs.
//
//   a run:  owned -> released     its actor or its gateway is gone
//           released -> owned     another actor goes on with it
//           owned -> ended
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/units.hpp"
#include "cluster/events.hpp"

namespace troupe::cluster {

// More ask something of one run at the same time than are kept.
[[nodiscard]] inline absl::Status TooMany(const std::string& run, const std::string& what,
                                          std::size_t limit) {
  return absl::ResourceExhaustedError(
      absl::StrCat("run '", run, "' is ", what, " ", limit, " times already; try again later"));
}

class RunOwners {
 public:
  // A run that no actor runs: since when, and the gateway that is to go on with it, once it was claimed for
  // that; and the actor that had it last, as long as that lives.
  struct Released {
    Time since{};
    std::string next{};
    bool claimed = false;
    Runner last{};
  };

  explicit RunOwners(std::size_t limit = 16) : limit_(limit) {}

  void Add(const std::string& run, Runner runner) {
    runners_[run] = runner;
    released_.erase(run);
  }
  // None: not connected, or ended.
  [[nodiscard]] Runner Find(const std::string& run) const {
    const auto it = runners_.find(run);
    return it == runners_.end() ? Runner() : it->second;
  }
  // No actor runs it since `now`, or `next` is to since then.
  void Release(const std::string& run, Time now, const std::string& next = {}) {
    auto last = Find(run);
    runners_.erase(run);
    auto& entry = released_[run];
    entry = {now, next, false, last.exists() ? last : entry.last};
  }
  // `runner` is to have it once its claim is stored: until then who had it before is remembered.
  void Reserve(const std::string& run, Runner runner) {
    formers_[run] = Former(run);
    Add(run, runner);
  }
  // The claim is stored. Who had it before; none when that one is gone.
  Runner Commit(const std::string& run) {
    const auto former = formers_.extract(run);
    return former.empty() ? Runner() : former.mapped();
  }
  // The claim was not stored: who had it before is who had it last.
  void Withdraw(const std::string& run, Time now) {
    runners_.erase(run);
    released_[run] = {now, {}, false, Commit(run)};
  }
  // The actor that had it last has it again: it lives, and no other claimed the run meanwhile.
  void Reattach(const std::string& run) {
    if (const auto last = Former(run); last.exists()) Add(run, last);
  }
  // Who had it last; none when another has it, or that one is gone.
  [[nodiscard]] Runner Former(const std::string& run) const {
    const auto it = released_.find(run);
    return it == released_.end() ? Runner() : it->second.last;
  }
  // For `next`; false when an actor has it already.
  bool Claimed(const std::string& run) {
    const auto it = released_.find(run);
    if (it == released_.end()) return false;
    it->second.claimed = true;
    return true;
  }
  // An actor that is gone; answers what it ran.
  std::vector<std::string> Remove(Runner runner) {
    for (auto& [run, waiting] : waiting_)
      if (const auto gone = waiting.extract(runner); !gone.empty()) dropped_.push_back(gone.mapped());
    std::erase_if(waiting_, [](const auto& entry) { return entry.second.empty(); });
    for (auto& [run, entry] : released_)
      if (entry.last == runner) entry.last = Runner();
    std::erase_if(formers_, [&](const auto& entry) { return entry.second == runner; });
    std::vector<std::string> runs;
    std::erase_if(runners_, [&](const auto& entry) {
      if (entry.second != runner) return false;
      runs.push_back(entry.first);
      return true;
    });
    return runs;
  }
  [[nodiscard]] const std::map<std::string, Released>& released() const { return released_; }

  // `asker` hears when the run has ended. ResourceExhausted when `limit` wait for it already.
  absl::Status Await(const std::string& run, Runner asker, Ask ask) {
    auto& waiting = waiting_[run];
    if (waiting.size() >= limit_ && !waiting.contains(asker)) return TooMany(run, "waited for", limit_);
    if (const auto before = std::exchange(waiting[asker], ask); before != 0) dropped_.push_back(before);
    return absl::OkStatus();
  }
  // Questions whose answers are not waited for any more: their askers are gone, or have asked again.
  [[nodiscard]] std::vector<Ask> TakeDropped() { return std::exchange(dropped_, {}); }
  // The run is over, or was never begun: those that waited are to be answered.
  [[nodiscard]] std::vector<Ask> End(const std::string& run) {
    runners_.erase(run);
    released_.erase(run);
    formers_.erase(run);
    std::vector<Ask> asks;
    const auto waiting = waiting_.extract(run);
    if (waiting.empty()) return asks;
    for (const auto& [asker, ask] : waiting.mapped()) asks.push_back(ask);
    return asks;
  }

 private:
  const std::size_t limit_;
  std::map<std::string, Runner> runners_;
  std::map<std::string, Released> released_;
  std::map<std::string, Runner> formers_;  // of runs whose claim is being stored
  // By the waiters, with their processes: two processes number their actors alike.
  std::map<std::string, std::map<Runner, Ask>> waiting_;
  std::vector<Ask> dropped_;
};

}  // namespace troupe::cluster
