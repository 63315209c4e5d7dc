#include "gpu/memory/memory_profile.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.hpp"

namespace troupe::gpu {

std::vector<WeightPart> PlanWeights(const DevicePlan& plan, Bytes granularity) {
  TROUPE_CHECK(granularity > Bytes(0), "weights are cut into parts of some size");
  constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();
  struct Life {
    std::size_t first = kNever;
    std::size_t last = 0;
  };
  const std::uint64_t all = plan.weights_bytes().count();
  const std::uint64_t unit = granularity.count();
  std::vector<Life> lives(all / unit + (all % unit > 0 ? 1 : 0));
  for (std::size_t step = 0; step < plan.step_count(); ++step) {
    for (const auto& [offset, length] : plan.step_weights(step)) {
      if (length == 0) continue;
      TROUPE_CHECK(offset <= all && length <= all - offset, "a step reads beyond its model's weights");
      for (std::uint64_t i = offset / unit; i <= (offset + length - 1) / unit; ++i) {
        lives[i].first = std::min(lives[i].first, step);
        lives[i].last = std::max(lives[i].last, step);
      }
    }
  }
  std::vector<WeightPart> parts;
  for (std::uint64_t i = 0; i < lives.size(); ++i) {
    if (lives[i].first == kNever) continue;
    const std::uint64_t offset = i * unit;
    const std::uint64_t length = std::min(unit, all - offset);
    const bool joins = !parts.empty() && parts.back().offset + parts.back().length == offset &&
                       parts.back().first == lives[i].first && parts.back().last == lives[i].last;
    if (joins) {
      parts.back().length += length;
    } else {
      parts.push_back({offset, length, lives[i].first, lives[i].last});
    }
  }
  return parts;
}

MemoryProfile::MemoryProfile(const DevicePlan& plan, Duration run_time, Weights weights,
                             Activations activations, Bytes granularity)
    : steps_(std::max<std::size_t>(1, plan.step_count())), run_time_(run_time) {
  Bytes whole;  // during the whole run
  for (std::size_t i = 0; i < plan.inputs().size(); ++i) whole += plan.input_bytes(i);
  for (std::size_t i = 0; i < plan.outputs().size(); ++i) whole += plan.output_bytes(i);
  if (weights == Weights::kWhole) whole += plan.weights_bytes();
  if (activations == Activations::kWhole) whole += plan.activation_bytes();
  for (std::size_t step = 0; step < steps_.size(); ++step) {
    steps_[step] = whole;
    if (activations == Activations::kByLife && step < plan.step_count())
      steps_[step] += plan.step_activations(step);
    if (activations == Activations::kAhead && step < plan.step_count())
      steps_[step] += plan.activation_extent(step);
  }
  if (weights == Weights::kByLayer) {
    for (const WeightPart& part : PlanWeights(plan, granularity)) {
      for (std::size_t step = part.first; step <= part.last; ++step) steps_[step] += Bytes(part.length);
    }
  }
  peak_ = *std::ranges::max_element(steps_);
}

MemoryProfile::MemoryProfile(std::vector<Bytes> steps, Duration run_time)
    : steps_(std::move(steps)), run_time_(run_time) {
  TROUPE_CHECK(!steps_.empty(), "a plan has steps");
  peak_ = *std::ranges::max_element(steps_);
}

std::size_t MemoryProfile::StepAfter(Duration begun) const {
  if (begun < Duration(0)) return 0;
  if (begun >= run_time_) return steps_.size() - 1;
  const double share = static_cast<double>(begun.count()) / static_cast<double>(run_time_.count());
  return std::min(steps_.size() - 1, static_cast<std::size_t>(share * static_cast<double>(steps_.size())));
}

Bytes MemoryProfile::MaxOf(std::size_t first, std::size_t last) const {
  Bytes most;
  for (std::size_t step = first; step <= std::min(last, steps_.size() - 1); ++step)
    most = std::max(most, steps_[step]);
  return most;
}

}  // namespace troupe::gpu
