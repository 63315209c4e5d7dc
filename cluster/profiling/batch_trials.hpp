// BATCH TRIALS: the trials of one batch size while an experiment bisects, told again from their rows: which is
// next, and what is foreseen of the points that have no trial. Pure; trial_plan.hpp says in which order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "proto/function_profile.pb.h"

namespace troupe::cluster {

class BatchTrials {
 public:
  // A point by its place in the grid.
  struct Cell {
    std::size_t share = 0;
    std::size_t quota = 0;

    auto operator<=>(const Cell&) const = default;
  };

  BatchTrials(const proto::ProfilingGrid& grid, const std::vector<const proto::ProfileRow*>& rows);

  // The trial that is to come; nothing when there is none.
  [[nodiscard]] const std::optional<Cell>& next() const { return next_; }
  [[nodiscard]] std::size_t budget() const { return budget_; }
  [[nodiscard]] std::size_t used() const { return trials_.size(); }
  // Throughput and time of a run at a point without a trial; nothing when too little was measured for it.
  struct Foreseen {
    double throughput = 0;
    double run_ns = 0;
  };
  [[nodiscard]] std::optional<Foreseen> At(const Cell& cell) const;

 private:
  void Tell();
  // The trial at this cell has ended, and counts from now on. If not, it is the next one, within the budget.
  bool Take(const Cell& cell);
  [[nodiscard]] bool Measured(const Cell& cell) const;
  [[nodiscard]] std::size_t FindSaturation(bool& complete);
  // Measures a row of shares until a trial was foreseen well; false: one is still to come.
  bool Refine(std::size_t quota);
  // The same from the smallest share up, which was not foreseen well.
  void RefineFromBelow(std::size_t quota);
  [[nodiscard]] std::optional<Cell> FarthestIn(std::size_t quota) const;
  using Line = std::vector<std::pair<double, double>>;  // ascending
  [[nodiscard]] static double On(const Line& line, double at);
  [[nodiscard]] std::optional<double> Base(double share) const;

  std::vector<double> shares_;
  std::vector<double> quotas_;
  std::map<Cell, const proto::ProfileRow*> trials_;  // the rows of all trials that have ended
  std::map<Cell, const proto::ProfileRow*> known_;   // the rows that Tell has taken so far
  std::size_t budget_ = 0;
  std::optional<Cell> next_;
  bool foreseen_well_ = false;  // the last trial that was told
};

}  // namespace troupe::cluster
