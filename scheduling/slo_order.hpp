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

#include <cstdint>
#include <map>
#include <string>
#include <vector>

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

class SloOrder {
 public:
  explicit SloOrder(const SloRules& rules) : rules_(rules) {}

  // A request ended; cancelled and refused requests do not count. `percentile` in (0, 100); 0: the default.
  // At 100 and above no late request can ever be made good: 99.99 stands for it.
  void Ended(const std::string& function, double percentile, bool in_time, Duration latency);
  // True when the period was over and places may have changed: make the keys of what waits anew.
  [[nodiscard]] bool Reorder(Time now);
  // The order as of the last Reorder. A function that is new since then stands in the high group with an RRC
  // of 0.
  [[nodiscard]] FunctionPlace PlaceOf(const std::string& function) const;

  [[nodiscard]] const SloRules& rules() const { return rules_; }
  [[nodiscard]] double alpha() const { return alpha_; }

 private:
  struct Function {
    SloCount count;
    std::uint64_t period_ended = 0;
    std::uint64_t period_in_time = 0;
    double latency_seconds = 0;  // sum
    std::uint64_t last = 0;      // counts ends, to find the function that is idle longest
    FunctionPlace place{};
  };
  [[nodiscard]] static double Share(const Function& function);
  [[nodiscard]] double Score(const Function& function) const;
  void Place();
  void AdjustAlpha();
  void Forget();

  const SloRules rules_;
  std::map<std::string, Function> functions_;
  double alpha_ = 1;
  double last_share_ = -1;  // negative: no period has ended
  std::uint32_t reorders_ = 0;
  std::uint64_t ends_ = 0;
  Time next_{};
};

}  // namespace troupe
