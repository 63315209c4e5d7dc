// FOLD BUDGET: how much constant folding may compute for one file, counted and not timed: the same file folds
// the same steps on every machine. A step beyond the budget is not an error: it stays in the graph and runs
// when the model runs.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/units.hpp"
#include "gpu/ops/operator.hpp"

namespace troupe::gpu {

struct FoldLimits {
  // One multiply-add, or one element that is read or written, is one operation. One core does the default in
  // some 1 to 20 s, by operator.
  std::uint64_t operations = std::uint64_t{1} << 34;
  Bytes bytes = GiB(4);  // of all results, kept or not
};

// What one evaluation of the step costs: multiply-adds of products, convolutions and recurrences, window
// elements of pools, else the elements that it reads and writes. An upper bound; the largest number when it
// does not fit.
[[nodiscard]] std::uint64_t FoldOperations(const StepContext& context, std::span<const ValueInfo> in,
                                           std::span<const ValueInfo> out);

// One thread. Spent across all passes over one file.
class FoldBudget {
 public:
  explicit FoldBudget(FoldLimits limits) : limits_(limits) {}
  // False, and nothing is spent, when the step needs more than what is left of either.
  bool Spend(const StepContext& context, std::span<const ValueInfo> in, std::span<const ValueInfo> out);
  [[nodiscard]] std::uint64_t operations() const { return operations_; }
  // The first step that was left in the graph for its work, how much that is, and the limit; empty: none was.
  [[nodiscard]] const std::string& stopped() const { return stopped_; }

 private:
  FoldLimits limits_;
  std::uint64_t operations_ = 0;
  std::uint64_t bytes_ = 0;
  std::string stopped_;
};

}  // namespace troupe::gpu
