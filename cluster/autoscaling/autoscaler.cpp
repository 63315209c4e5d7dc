#include "cluster/autoscaling/autoscaler.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"

namespace troupe::cluster {

namespace {

absl::Status CheckPoints(const ScaledFunction& function) {
  for (const auto& [kind, points] : function.points)
    for (const ScalePoint& point : points) {
      const auto [quota, sms] = point.extent;
      const bool possible = quota > 0 && quota <= kWholeGpu && sms > 0 && sms <= kWholeGpu &&
                            std::isfinite(point.per_second) && point.per_second > 0 &&
                            point.run >= Duration();
      if (!possible)
        return absl::InvalidArgumentError(
            absl::StrCat("the profile of ", function.name, " on ", kind, " says ", point.per_second,
                         " requests/s on ", quota, " % of the time and ", sms,
                         " % of the SMs: percentages are 1 to 100, and the rate is above 0"));
    }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckScaleLimits(const ScaleLimits& limits) {
  if (limits.max_instances == 0 || limits.min_instances > limits.max_instances)
    return absl::InvalidArgumentError(
        absl::StrCat("at least ", limits.min_instances, " and at most ", limits.max_instances,
                     " instances: the maximum has to be 1 or more, and no less than the minimum"));
  if (!(limits.target_utilisation > 0 && limits.target_utilisation <= 1))
    return absl::InvalidArgumentError(absl::StrCat("a target utilisation of ", limits.target_utilisation,
                                                   ": it has to be above 0 and at most 1"));
  if (limits.hold < Duration() || limits.idle < Duration() || limits.drain < Duration())
    return absl::InvalidArgumentError("hold, idle and drain are spans of time: none of them is below 0");
  return absl::OkStatus();
}

absl::Status Autoscaler::AddFunction(const ScaledFunction& function) {
  if (function.name.empty())
    return absl::InvalidArgumentError("a function that is to be scaled needs a name");
  TROUPE_RETURN_IF_ERROR(CheckScaleLimits(function.limits));
  TROUPE_RETURN_IF_ERROR(CheckPoints(function));
  TROUPE_ASSIGN_OR_RETURN(const ScalingRule rule, FindScalingPolicy(function.policy));
  TROUPE_ASSIGN_OR_RETURN(const ForecastRule forecast, FindForecast(function.forecast));
  if (functions_.contains(function.name))
    return absl::AlreadyExistsError(absl::StrCat("function ", function.name, " is scaled already"));
  functions_.emplace(function.name,
                     Scaled{.scaler = FunctionScaler(function, forecast, settings_.window), .rule = rule});
  return absl::OkStatus();
}

void Autoscaler::RemoveFunction(const std::string& function) {
  const auto it = functions_.find(function);
  if (it == functions_.end()) return;
  for (const InstanceId id : it->second.scaler.Instances()) table_.Release(id).IgnoreError();
  functions_.erase(it);
}

std::vector<ScaleDecision> Autoscaler::RemoveGpu(const std::string& gpu, Time now) {
  std::vector<ScaleDecision> decisions;
  const auto lost = table_.RemoveGpu(gpu);
  for (auto& [name, scaled] : functions_)
    for (const InstanceId id : scaled.scaler.Instances())
      if (std::ranges::binary_search(lost, id)) scaled.scaler.GpuGone(id, gpu, TickOf(now, decisions));
  return decisions;
}

std::vector<ScaleDecision> Autoscaler::Tick(const std::map<std::string, FunctionLoad>& loads, Time now) {
  std::vector<ScaleDecision> decisions;
  const ScalingTick tick = TickOf(now, decisions);
  std::vector<std::pair<double, Scaled*>> order;  // by the part of what is wanted that is there
  for (auto& [name, scaled] : functions_) {
    scaled.scaler.DrainedByTime(tick);
    const auto load = loads.find(name);
    if (load == loads.end()) continue;
    scaled.scaler.Observe(load->second, tick);
    const double wanted = scaled.scaler.need().wanted;
    order.emplace_back(wanted > 0 ? scaled.scaler.Capacity(table_) / wanted : 1, &scaled);
  }
  std::ranges::stable_sort(order, {}, [](const auto& entry) { return entry.first; });
  for (const auto& [part, scaled] : order) scaled->rule(scaled->scaler, tick);
  for (const Move& move : table_.Replan())
    decisions.push_back({.at = now,
                         .function = "",
                         .action = ScaleAction::kMove,
                         .instance = move.instance,
                         .gpu = move.to,
                         .place = move.place,
                         .reason = absl::StrCat("instance ", move.instance, " leaves its place on ",
                                                move.from, ", so that a GPU is empty or less fragmented")});
  NameMoved(decisions);
  return decisions;
}

// Whose instances moved is known here only.
void Autoscaler::NameMoved(std::vector<ScaleDecision>& decisions) const {
  for (ScaleDecision& decision : decisions)
    if (const Booking* booking = table_.Find(decision.instance);
        decision.function.empty() && booking != nullptr)
      decision.function = booking->request->function;
}

std::vector<ScaleDecision> Autoscaler::Drained(InstanceId id, Time now) {
  std::vector<ScaleDecision> decisions;
  for (auto& [name, scaled] : functions_)
    if (scaled.scaler.Drained(id, TickOf(now, decisions))) break;
  return decisions;
}

std::vector<InstanceId> Autoscaler::InstancesOf(const std::string& function) const {
  const auto it = functions_.find(function);
  return it == functions_.end() ? std::vector<InstanceId>() : it->second.scaler.Instances();
}

std::vector<ScaleDecision> Autoscaler::HistoryOf(const std::string& function) const {
  const auto it = functions_.find(function);
  if (it == functions_.end()) return {};
  const auto& history = it->second.scaler.history();
  return {history.begin(), history.end()};
}

}  // namespace troupe::cluster
