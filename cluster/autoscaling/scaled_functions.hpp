// SCALED FUNCTIONS: the functions whose instances follow their load, each with its scaler and the rule that it is scaled
// by. The table of rectangles is the caller's. Pure.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cluster/autoscaling/function_scaler.hpp"
#include "cluster/autoscaling/scaling_policy.hpp"

namespace troupe::cluster {

class ScaledFunctions {
 public:
  // So many functions come to own parts of GPUs, or to be bound late, within so long: the others wait.
  static constexpr std::size_t kMostChanges = 60;
  static constexpr Duration kChangesWithin = std::chrono::minutes(1);

  // `window`: of which functions have their quotas.
  explicit ScaledFunctions(Duration window) : window_(window) {}

  // InvalidArgument: its limits contradict each other, or a point of its profile is not possible; NotFound: a policy or
  // forecast has no such name; AlreadyExists.
  [[nodiscard]] absl::Status Add(const ScaledFunction& function);
  void Remove(const std::string& function) { functions_.erase(function); }
  // Null: it is not here.
  [[nodiscard]] FunctionScaler* Find(const std::string& function);
  [[nodiscard]] const FunctionScaler* Find(const std::string& function) const;

  // By function. A function that is not in it has told nothing and stays as it is, but for its drains. The functions that
  // lack most are served first.
  void Tick(const std::map<std::string, FunctionLoad>& loads, const ScalingTick& tick);

  // Names the function whose instance a move is of, and tells its scaler: where the room was made it is not known. Other
  // decisions stay as they are.
  void TellMoved(ScaleDecision& decision, const RectangleTable& table);

  // `visit` is called with each function's scaler, in the order of their names.
  template <class Visit>
  void ForEach(const Visit& visit) {
    for (auto& [name, scaled] : functions_) visit(scaled.scaler);
  }

 private:
  struct Scaled {
    FunctionScaler scaler;
    ScalingRule rule;
  };

  [[nodiscard]] bool Owns(FunctionScaler& scaler, const ScalingTick& tick);

  const Duration window_;
  std::map<std::string, Scaled> functions_;
  std::deque<Time> changes_;  // between owning and late binding, within kChangesWithin
};

}  // namespace troupe::cluster
