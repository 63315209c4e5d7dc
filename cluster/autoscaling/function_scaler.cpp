#include "cluster/autoscaling/function_scaler.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/check.hpp"

namespace troupe::cluster {

namespace {

// Requests that wait are to be caught up within so long.
constexpr Duration kCatchUp = std::chrono::seconds(1);

std::string PartsOf(const Extent& extent) {
  return absl::StrFormat("%d %% of the time on %d %% of the SMs", extent.quota, extent.sms);
}

}  // namespace

FunctionScaler::FunctionScaler(ScaledFunction function, Rules rules, Duration window)
    : function_(std::move(function)),
      rates_(function_, window),
      forecast_(rules.forecast),
      owning_(rules.owning) {}

void FunctionScaler::Change(ScaledFunction function) {
  function_ = std::move(function);
  rates_.Use(function_);
}

void FunctionScaler::Adopt(const std::vector<InstanceId>& instances, NodeNames nodes) {
  instances_.clear();
  for (const InstanceId id : instances) instances_[id] = {};
  nodes_ = std::move(nodes);
}

void FunctionScaler::TakeOver(const RectangleTable& table, Time now) {
  const auto serving = Serving(table);
  // What they can serve is not known well yet: none of them goes while this counts.
  wanted_.emplace_back(now, std::numeric_limits<double>::infinity());
  looks_.latest = now;
  looks_.recommended.emplace_back(now, static_cast<std::uint32_t>(serving.size()));
}

void FunctionScaler::Observe(const FunctionLoad& load, const ScalingTick& tick) {
  double rated = 0;
  for (const auto& [id, instance] : instances_) {
    const GpuRectangles& gpu = *tick.table.GpuWith(id);
    rated += rates_.RatedOf(gpu.gpu().kind, gpu.bookings().at(id).place.extent);
  }
  rates_.Observe(load, rated);
  forecast_.Observe(load.arrived_per_second, tick.now, load.known_per_second);
  owning_.Observe(load.binding, Terms(), tick.now);
  if (load.arrived_per_second > 0 || load.waiting > 0 || !asked_) asked_ = tick.now;

  need_.arrived = load.arrived_per_second;
  need_.waiting = load.waiting;
  need_.busy = load.busy;
  const double target = function_.limits.target_utilisation;
  const double forecast = forecast_.Expected(tick.ahead);
  need_.expected = forecast + static_cast<double>(load.waiting) / ToSeconds(kCatchUp);
  need_.wanted = need_.expected / target;
  // What was caught up with is not needed again.
  wanted_.emplace_back(tick.now, forecast / target);
  while (tick.now - wanted_.front().first > function_.limits.hold) wanted_.pop_front();
  need_.wanted_held = need_.wanted;
  for (const auto& [at, wanted] : wanted_) need_.wanted_held = std::max(need_.wanted_held, wanted);
}

OwningTerms FunctionScaler::Terms() const {
  std::uint32_t smallest = kWholeGpu * kWholeGpu;
  for (const Extent& extent : function_.extents) smallest = std::min(smallest, extent.area());
  return {.late_allowed = function_.late_allowed,
          .utilisation = function_.limits.target_utilisation,
          .smallest_part = static_cast<double>(smallest) / (kWholeGpu * kWholeGpu)};
}

bool FunctionScaler::DecideOwning(bool may_change, const ScalingTick& tick) {
  const bool has_to = function_.limits.min_instances > 0;
  if (!owning_.owns() && (has_to || !Serving(tick.table).empty())) owning_.TakeOver(tick.now);
  if (has_to && owning_.owns()) return true;
  const bool before = owning_.owns();
  const bool owns = owning_.Decide(tick.now, may_change);
  if (owns && !before) Note(ScaleAction::kOwn, owning_.because(), tick);
  if (!owns) BindLate(owning_.because(), tick);
  return owns;
}

void FunctionScaler::Rest(const std::string& why, const ScalingTick& tick) {
  owning_.Rested();
  BindLate(why, tick);
}

void FunctionScaler::BindLate(const std::string& why, const ScalingTick& tick) {
  const auto serving = Serving(tick.table);
  if (serving.empty()) return;
  for (const ServingInstance& instance : serving) Drain(instance.id, why, tick);
  Note(ScaleAction::kBindLate, why, tick);
}

std::vector<ServingInstance> FunctionScaler::Serving(const RectangleTable& table) const {
  std::vector<ServingInstance> serving;
  for (const auto& [id, instance] : instances_) {
    if (instance.draining) continue;
    const GpuRectangles& gpu = *table.GpuWith(id);
    const std::string& kind = gpu.gpu().kind;
    const Extent extent = gpu.bookings().at(id).place.extent;
    serving.push_back({.id = id, .kind = kind, .extent = extent, .per_second = rates_.Of(kind, extent)});
  }
  // Efficiencies that differ by less than a thousandth of a request are the same; of such the smaller comes first.
  std::ranges::stable_sort(serving, {}, [](const ServingInstance& instance) {
    return std::pair(std::llround(instance.RatePerResource() * 1000), instance.per_second);
  });
  return serving;
}

double FunctionScaler::Capacity(const RectangleTable& table) const {
  double sum = 0;
  for (const auto& [id, instance] : instances_) {
    if (instance.draining) continue;
    const GpuRectangles& gpu = *table.GpuWith(id);
    sum += rates_.Of(gpu.gpu().kind, gpu.bookings().at(id).place.extent);
  }
  return sum;
}

std::vector<InstanceId> FunctionScaler::Instances() const {
  std::vector<InstanceId> ids;
  for (const auto& [id, instance] : instances_) ids.push_back(id);
  return ids;
}

std::map<std::string, InstanceSize> FunctionScaler::SizesOf(const PointByKind& points) const {
  std::map<std::string, InstanceSize> sizes;
  for (const auto& [kind, point] : points)
    sizes[kind] = {.extent = point.extent, .memory = function_.memory, .weights = function_.weights};
  return sizes;
}

bool FunctionScaler::Add(const PointByKind& points, const std::string& why, const ScalingTick& tick) {
  const InstanceId id = tick.next_id;
  const auto placed = tick.table.Place({.id = id,
                                        .function = function_.name,
                                        .by_kind = SizesOf(points),
                                        .spread = function_.spread,
                                        .nodes = nodes_});
  if (!placed.ok()) return false;
  ++tick.next_id;
  instances_[id] = {};
  for (const Move& move : placed->moves)
    tick.decisions.push_back(
        {.at = tick.now,
         .function = "",
         .action = ScaleAction::kMove,
         .instance = move.instance,
         .gpu = move.to,
         .place = move.place,
         .reason = absl::StrFormat("instance %d of %s needs its place", id, function_.name)});
  Decide({.action = ScaleAction::kAdd,
          .instance = id,
          .gpu = placed->gpu,
          .place = placed->place,
          .reason = absl::StrFormat("%s: an instance with %s", why, PartsOf(placed->place.extent))},
         tick);
  return true;
}

bool FunctionScaler::Resize(InstanceId id, const ScalePoint& point, const std::string& why,
                            const ScalingTick& tick) {
  const std::string gpu = tick.table.GpuOf(id);
  const Extent before = tick.table.Find(id)->place.extent;
  auto sizes = tick.table.Find(id)->request->by_kind;
  sizes[tick.table.gpus().at(gpu).gpu().kind].extent = point.extent;
  const auto placed = tick.table.Resize(id, sizes, ResizeTo::kSameGpu);
  if (!placed.ok()) return false;
  Decide({.action = ScaleAction::kResize,
          .instance = id,
          .gpu = gpu,
          .place = placed->place,
          .reason = absl::StrFormat("%s: instance %d from %s to %s", why, id, PartsOf(before),
                                    PartsOf(placed->place.extent))},
         tick);
  return true;
}

void FunctionScaler::Drain(InstanceId id, const std::string& why, const ScalingTick& tick) {
  Instance& instance = instances_.at(id);
  TROUPE_CHECK(!instance.draining, "an instance is drained twice");
  instance = {.draining = true, .until = tick.now + function_.limits.drain};
  Decide({.action = ScaleAction::kDrain,
          .instance = id,
          .gpu = tick.table.GpuOf(id),
          .place = tick.table.Find(id)->place,
          .reason = absl::StrFormat("%s: instance %d takes no new requests", why, id)},
         tick);
}

void FunctionScaler::Note(ScaleAction action, const std::string& why, const ScalingTick& tick) {
  if (!history_.empty() && history_.back().action == action) return;
  Decide({.action = action, .reason = why}, tick);
}

bool FunctionScaler::Drained(InstanceId id, const ScalingTick& tick) {
  const auto it = instances_.find(id);
  if (it == instances_.end() || !it->second.draining) return false;
  Remove(id, "it has drained", tick);
  return true;
}

void FunctionScaler::DrainedByTime(const ScalingTick& tick) {
  for (const InstanceId id : Instances())
    if (instances_.at(id).draining && tick.now >= instances_.at(id).until)
      Remove(id, "its time to drain is over", tick);
}

void FunctionScaler::Remove(InstanceId id, const std::string& why, const ScalingTick& tick) {
  const std::string gpu = tick.table.GpuOf(id);
  const Rectangle place = tick.table.Find(id)->place;
  TROUPE_CHECK(tick.table.Release(id).ok(), "an instance has no rectangle");
  instances_.erase(id);
  Decide({.action = ScaleAction::kRemove, .instance = id, .gpu = gpu, .place = place, .reason = why}, tick);
}

void FunctionScaler::GpuGone(InstanceId id, const std::string& gpu, const ScalingTick& tick) {
  instances_.erase(id);
  Decide({.action = ScaleAction::kRemove,
          .instance = id,
          .gpu = gpu,
          .reason = absl::StrFormat("GPU %s is gone", gpu)},
         tick);
}

void FunctionScaler::Decide(ScaleDecision decision, const ScalingTick& tick) {
  decision.at = tick.now;
  decision.function = function_.name;
  Remember(decision);
  tick.decisions.push_back(std::move(decision));
}

void FunctionScaler::Remember(const ScaleDecision& decision) {
  history_.push_back(decision);
  if (history_.size() > kKeptDecisions) history_.pop_front();
}

}  // namespace troupe::cluster
