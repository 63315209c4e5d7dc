#include "cluster/autoscaling/scaled_functions.hpp"

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

std::string_view NameOf(ScaleAction action) {
  switch (action) {
    case ScaleAction::kAdd:
      return "add";
    case ScaleAction::kResize:
      return "resize";
    case ScaleAction::kDrain:
      return "drain";
    case ScaleAction::kRemove:
      return "remove";
    case ScaleAction::kOwn:
      return "own";
    case ScaleAction::kBindLate:
      return "bind-late";
    case ScaleAction::kMove:
      return "move";
    case ScaleAction::kNoRoom:
      return "no-room";
  }
  return "";
}

absl::Status ScaledFunctions::Add(const ScaledFunction& function) {
  if (function.name.empty())
    return absl::InvalidArgumentError("a function that is to be scaled needs a name");
  TROUPE_RETURN_IF_ERROR(CheckScaleLimits(function.limits));
  TROUPE_RETURN_IF_ERROR(CheckPoints(function));
  TROUPE_ASSIGN_OR_RETURN(const ScalingRule rule, FindScalingPolicy(function.policy));
  TROUPE_ASSIGN_OR_RETURN(const ForecastRule forecast, FindForecast(function.forecast));
  TROUPE_ASSIGN_OR_RETURN(const OwningRule owning, FindOwningRule(function.owning));
  if (functions_.contains(function.name))
    return absl::AlreadyExistsError(absl::StrCat("function ", function.name, " is scaled already"));
  functions_.emplace(function.name,
                     Scaled{.scaler = FunctionScaler(function, {forecast, owning}, window_), .rule = rule});
  return absl::OkStatus();
}

FunctionScaler* ScaledFunctions::Find(const std::string& function) {
  const auto it = functions_.find(function);
  return it == functions_.end() ? nullptr : &it->second.scaler;
}

const FunctionScaler* ScaledFunctions::Find(const std::string& function) const {
  const auto it = functions_.find(function);
  return it == functions_.end() ? nullptr : &it->second.scaler;
}

void ScaledFunctions::Tick(const std::map<std::string, FunctionLoad>& loads, const ScalingTick& tick) {
  std::vector<std::pair<double, Scaled*>> order;  // by the part of what is wanted that is there
  for (auto& [name, scaled] : functions_) {
    scaled.scaler.DrainedByTime(tick);
    const auto load = loads.find(name);
    if (load == loads.end()) continue;
    scaled.scaler.Observe(load->second, tick);
    if (!Owns(scaled.scaler, tick)) continue;
    KeepToLimits(scaled.scaler, tick);
    const double wanted = scaled.scaler.need().wanted;
    order.emplace_back(wanted > 0 ? scaled.scaler.Capacity(tick.table) / wanted : 1, &scaled);
  }
  std::ranges::stable_sort(order, {}, [](const auto& entry) { return entry.first; });
  for (const auto& [part, scaled] : order) scaled->rule(scaled->scaler, tick);
  for (ScaleDecision& decision : tick.decisions) TellMoved(decision, tick.table);
}

bool ScaledFunctions::Owns(FunctionScaler& scaler, const ScalingTick& tick) {
  while (!changes_.empty() && tick.now - changes_.front() > kChangesWithin) changes_.pop_front();
  const bool before = scaler.owning().owns();
  const bool owns = scaler.DecideOwning(changes_.size() < kMostChanges, tick);
  if (owns != before) changes_.push_back(tick.now);
  return owns;
}

void ScaledFunctions::TellMoved(ScaleDecision& decision, const RectangleTable& table) {
  const Booking* booking = table.Find(decision.instance);
  if (decision.action != ScaleAction::kMove || booking == nullptr) return;
  decision.function = booking->request->function;
  if (FunctionScaler* scaler = Find(decision.function)) scaler->Moved(decision);
}

}  // namespace troupe::cluster
