#include "cluster/autoscaling/autoscaler.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace troupe::cluster {

void Autoscaler::RemoveFunction(const std::string& function) {
  const FunctionScaler* scaler = functions_.Find(function);
  if (scaler == nullptr) return;
  for (const InstanceId id : scaler->Instances()) table_.Release(id).IgnoreError();
  functions_.Remove(function);
}

std::vector<ScaleDecision> Autoscaler::RemoveGpu(const std::string& gpu, Time now) {
  std::vector<ScaleDecision> decisions;
  const auto lost = table_.RemoveGpu(gpu);
  functions_.ForEach([&](FunctionScaler& scaler) {
    for (const InstanceId id : scaler.Instances())
      if (std::ranges::binary_search(lost, id)) scaler.GpuGone(id, gpu, TickOf(now, decisions));
  });
  return decisions;
}

std::vector<ScaleDecision> Autoscaler::Tick(const std::map<std::string, FunctionLoad>& loads, Time now) {
  std::vector<ScaleDecision> decisions;
  functions_.Tick(loads, TickOf(now, decisions));
  for (const Move& move : table_.Replan()) {
    decisions.push_back({.at = now,
                         .function = "",
                         .action = ScaleAction::kMove,
                         .instance = move.instance,
                         .gpu = move.to,
                         .place = move.place,
                         .reason = absl::StrCat("instance ", move.instance, " leaves its place on ",
                                                move.from, ", so that a GPU is empty or less fragmented")});
    functions_.TellMoved(decisions.back(), table_);
  }
  return decisions;
}

std::vector<ScaleDecision> Autoscaler::Drained(InstanceId id, Time now) {
  std::vector<ScaleDecision> decisions;
  functions_.ForEach([&](FunctionScaler& scaler) { scaler.Drained(id, TickOf(now, decisions)); });
  return decisions;
}

std::vector<InstanceId> Autoscaler::InstancesOf(const std::string& function) const {
  const FunctionScaler* scaler = functions_.Find(function);
  return scaler == nullptr ? std::vector<InstanceId>() : scaler->Instances();
}

std::vector<ScaleDecision> Autoscaler::HistoryOf(const std::string& function) const {
  const FunctionScaler* scaler = functions_.Find(function);
  if (scaler == nullptr) return {};
  return {scaler->history().begin(), scaler->history().end()};
}

}  // namespace troupe::cluster
