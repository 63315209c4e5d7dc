// SLO ORDER: which functions go first, so that as many as possible meet their SLO (Torpor, 002, 5.2 and A.3).
// A node's scheduler or a router's request table owns it; no locks. It counts how the requests of each
// function ended, and at each Reorder puts the functions in two groups by their required request count
//
//     RRC = (p n - m) / (1 - p)      n ended requests, m of them in time, p the SLO's percentile:
//                                    so many more have to be in time until the SLO is met
//
// Functions stand in ascending order of RRC; the high group is the largest k of them with
// sum(max(RRC_j, 0), j <= k) <= alpha x sum(max(RRC_i, 0)). Requests of the high group go first, those of the
// largest RRC before others (nearly there, but not yet); in the low group the smallest RRC goes first. alpha
// follows the share of functions that meet their SLO: it doubles when the share grows by more than the
// threshold, and is halved when the share falls by more than that.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/units.hpp"
#include "scheduling/ordering_policy.hpp"
#include "scheduling/slo_count.hpp"

namespace troupe {

// The paper leaves the two periods open; both rules take those of the released router.
struct SloRules {
  Duration reorder_every = std::chrono::seconds(2);
  std::uint32_t reorders_per_alpha = 20;
  double threshold = 0.04;  // of the change of the share of functions that meet their SLO
  double scale = 2;
  double creep = 1;              // alpha grows by this while the share stays about the same
  bool relative_change = false;  // relative to the last change that moved alpha
  bool share_of_period = true;   // the share counts this period's requests only; else all so far
  bool by_latency = false;       // RRC weighted with the function's mean latency
  bool one_at_a_time = false;    // one request of a function on the GPUs at a time
};
inline constexpr SloRules kPaperSloRules{};
inline constexpr SloRules kReleasedSloRules{.creep = 1.01,
                                            .relative_change = true,
                                            .share_of_period = false,
                                            .by_latency = true,
                                            .one_at_a_time = true};

// How one function stands.
struct SloStanding {
  // A request ended.
  void Ended(double percentile, bool in_time, Duration latency);
  // At 100 and above no late request can ever be made good: 99.99 stands for it.
  [[nodiscard]] double Share() const { return std::min(count.percentile, 99.99) / 100; }
  // The RRC, weighted as the rules say.
  [[nodiscard]] double Score(const SloRules& rules) const;

  SloCount count{};
  std::uint64_t period_ended = 0;
  std::uint64_t period_in_time = 0;
  double latency_seconds = 0;  // sum
  std::uint64_t last = 0;      // counts ends, to find the function that is idle longest
  FunctionPlace place{};
};

// The share of what lacks that the high group may have, and how it follows the functions that meet their SLO.
class SloAlpha {
 public:
  explicit SloAlpha(const SloRules& rules) : rules_(rules) {}
  // A period is over: the counts of the next one begin.
  void Adjust(const std::vector<SloStanding*>& standings);
  // Gives each function its place. They come in an order that does not change with the process: sums depend on it.
  void Place(const std::vector<SloStanding*>& standings) const;

  [[nodiscard]] const SloRules& rules() const { return rules_; }
  [[nodiscard]] double value() const { return alpha_; }

 private:
  const SloRules rules_;
  double alpha_ = 1;
  double last_share_ = -1;  // negative: no period has ended
};

// `Key` names a function to its owner: a text, or what has one as `text()`.
template <class Key>
class SloOrder {
 public:
  // The function that is idle longest is forgotten for a new one.
  static constexpr std::size_t kMostFunctions = 16384;

  explicit SloOrder(const SloRules& rules) : alpha_(rules) {}

  // A request ended; cancelled and refused requests do not count. `percentile` in (0, 100); 0: the default.
  void Ended(const Key& function, double percentile, bool in_time, Duration latency) {
    if (functions_.size() >= kMostFunctions && !functions_.contains(function)) Forget();
    SloStanding& standing = functions_[function];
    standing.last = ++ends_;
    standing.Ended(percentile, in_time, latency);
  }
  // True when the period was over and places may have changed: make the keys of what waits anew.
  [[nodiscard]] bool Reorder(Time now) {
    if (now < next_) return false;
    next_ = now + rules().reorder_every;
    const std::vector<SloStanding*> standings = InOrderOfNames();
    if (++reorders_ % rules().reorders_per_alpha == 0) alpha_.Adjust(standings);
    alpha_.Place(standings);
    return true;
  }
  // The order as of the last Reorder. A function that is new since then stands in the high group with an RRC
  // of 0.
  [[nodiscard]] FunctionPlace PlaceOf(const Key& function) const {
    const auto it = functions_.find(function);
    return it == functions_.end() ? FunctionPlace{} : it->second.place;
  }

  [[nodiscard]] const SloRules& rules() const { return alpha_.rules(); }
  [[nodiscard]] double alpha() const { return alpha_.value(); }

 private:
  static const std::string& TextOf(const Key& key) {
    if constexpr (std::is_same_v<Key, std::string>) {
      return key;
    } else {
      return key.text();
    }
  }
  std::vector<SloStanding*> InOrderOfNames() {
    std::vector<std::pair<const std::string*, SloStanding*>> named;
    for (auto& [key, standing] : functions_) named.emplace_back(&TextOf(key), &standing);
    std::ranges::sort(named, [](const auto& a, const auto& b) { return *a.first < *b.first; });
    std::vector<SloStanding*> standings;
    for (const auto& [name, standing] : named) standings.push_back(standing);
    return standings;
  }
  void Forget() {
    functions_.erase(std::ranges::min_element(
        functions_, [](const auto& a, const auto& b) { return a.second.last < b.second.last; }));
  }

  SloAlpha alpha_;
  absl::flat_hash_map<Key, SloStanding> functions_;
  std::uint32_t reorders_ = 0;
  std::uint64_t ends_ = 0;
  Time next_{};
};

}  // namespace troupe
