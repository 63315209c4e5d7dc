#include "gpu/worker/run_needs.hpp"

#include <algorithm>

#include "gpu/memory/memory_space.hpp"

namespace troupe::gpu {
namespace {

std::shared_ptr<const MemoryProfile> ProfileOf(const DevicePlan& plan, Duration run_time) {
  return std::make_shared<const MemoryProfile>(plan, run_time, MemoryProfile::Weights::kResident,
                                               MemoryProfile::Activations::kAhead, MemorySpace::kUnit);
}

}  // namespace

std::vector<RunNeeds::Trim> RunNeeds::TrimsOf(const DevicePlan& plan) {
  const std::uint64_t whole = plan.activation_bytes().count();
  std::vector<Trim> trims;
  std::uint64_t left = whole;
  std::size_t step = 0;
  for (const std::uint64_t eighths : {6, 4, 2, 1}) {
    while (step < plan.step_count() && plan.activation_extent(step).count() > whole / 8 * eighths) ++step;
    if (step == plan.step_count()) break;
    const std::uint64_t extent = plan.activation_extent(step).count();
    if (left - extent < kWorthTrimming.count()) continue;
    trims.push_back({step, Bytes(extent)});
    left = extent;
  }
  return trims;
}

RunNeeds::Needs& RunNeeds::Find(const std::shared_ptr<const DevicePlan>& plan) {
  const auto found = needs_.find(plan.get());
  if (found != needs_.end() && !found->second.plan.expired()) return found->second;
  if (needs_.size() >= 2 * plans_)
    std::erase_if(needs_, [](const auto& entry) { return entry.second.plan.expired(); });
  return needs_[plan.get()] = {.plan = plan,
                               .run_time = {},
                               .resident_run = {},
                               .profile = ProfileOf(*plan, Duration(0)),
                               .trims = TrimsOf(*plan),
                               .window = nullptr};
}

const RunNeeds::Needs& RunNeeds::Of(const std::shared_ptr<const DevicePlan>& plan) {
  return Find(plan);
}

std::shared_ptr<const WeightWindow> RunNeeds::WindowOf(const std::shared_ptr<const DevicePlan>& plan,
                                                       Bytes group) {
  Needs& needs = Find(plan);
  // One group is used, one is there for the next step, one is on its way.
  if (needs.window == nullptr)
    needs.window = std::make_shared<const WeightWindow>(PlanWindow(*plan, group, group * 2));
  return needs.window;
}

// The profile spreads the time over the steps; a little more or less changes nothing.
void RunNeeds::Measured(const std::shared_ptr<const DevicePlan>& plan, Duration run_time, bool waited) {
  const auto found = needs_.find(plan.get());
  if (found == needs_.end() || found->second.plan.expired()) return;
  Needs& needs = found->second;
  if (!waited || needs.resident_run == Duration()) needs.resident_run = run_time;
  if (run_time < needs.run_time * 2 && needs.run_time < run_time * 2) return;
  needs.run_time = run_time;
  needs.profile = ProfileOf(*plan, run_time);
}

}  // namespace troupe::gpu
