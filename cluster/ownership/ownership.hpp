// OWNERSHIP: gives functions that request time on a GPU their rectangles of GPUs, and takes them back, as nodes, functions and
// copies come and go. What a function owns is part of its record, so that it outlives the manager, and every member
// hears of it as of any other change of a function.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "cluster/ownership/ownership_plan.hpp"
#include "cluster/records/mutation.hpp"

namespace troupe::cluster {

struct Parts;

class Ownership {
 public:
  explicit Ownership(Parts& parts) : parts_(parts) {}

  void Start();
  // Plans anew when something has changed that a plan looks at, and when the autoscaler is to look at loads.
  void Pulse();
  // Why the function owns fewer rectangles than it has instances; empty: it does not.
  [[nodiscard]] std::string ProblemOf(const proto::FunctionKey& key) const;
  // What the function would own by the autoscaler's advice; null: advice is followed, or there is none.
  [[nodiscard]] bool HasAdvice() const { return !advice_.empty(); }
  [[nodiscard]] const GpuPlaces* AdviceFor(const proto::FunctionKey& key) const;

  // --- mutations (records/mutations.hpp) ---
  absl::Status Validate(Placing& change);
  void Answer(const Placing& change, const absl::Status& status);

 private:
  // What a plan looks at: the revisions of tables, and whether the cluster has just started.
  struct Seen {
    std::uint64_t functions = 0;
    std::uint64_t members = 0;
    std::uint64_t copies = 0;
    bool after_start = false;
    bool operator==(const Seen&) const = default;
  };
  [[nodiscard]] Seen Look() const;
  [[nodiscard]] bool IsAfterStart() const;
  [[nodiscard]] bool AwaitsNodes() const;
  [[nodiscard]] OwnershipPlan MakePlan(bool rescale, bool tidy);
  void TellProblems(const OwnershipPlan& plan);

  Parts& parts_;
  static constexpr Duration kRetry = std::chrono::seconds(1);  // of what could not be stored
  // So long after a change GPUs are emptied and mended, by one plan, and again after that until there is nothing to do:
  // a move costs a swap, and what comes and goes in the meantime may need none.
  static constexpr Duration kTidyAfter = std::chrono::minutes(1);

  std::optional<Seen> planned_;  // by the last plan; none: there is none, or it could not be stored
  // After a start: what functions own of nodes that have not come back yet, or hold their models again, stays theirs for so long.
  Time not_before_{};
  Time retry_at_{};  // after a plan that could not be stored
  Time tidy_at_ = Time::max();
  bool placing_ = false;     // a plan is on its way to the store
  PlacesByFunction advice_;  // of the autoscaler, when it is not followed
  std::map<FunctionVersion, absl::Status> problems_;
};

}  // namespace troupe::cluster
