#include "gpu/memory/weight_window.hpp"

#include <algorithm>
#include <tuple>

#include "base/check.hpp"
#include "gpu/engine/memory_planner.hpp"

namespace troupe::gpu {
namespace {

constexpr std::uint64_t kAlignment = 64;

// Each weight that some step reads, once; weights that share bytes count as one.
std::vector<WindowPart> WeightsOf(const DevicePlan& plan) {
  std::vector<WindowPart> read;
  for (std::size_t step = 0; step < plan.step_count(); ++step) {
    for (const auto& [offset, length] : plan.step_weights(step)) {
      if (length == 0) continue;
      TROUPE_CHECK(offset <= plan.weights_bytes().count() && length <= plan.weights_bytes().count() - offset,
                   "a step reads beyond its model's weights");
      const std::uint64_t begin = offset / kAlignment * kAlignment;
      read.push_back({begin, offset + length - begin, step, step});
    }
  }
  std::ranges::stable_sort(read, {}, &WindowPart::offset);
  std::vector<WindowPart> weights;
  for (const WindowPart& each : read) {
    if (weights.empty() || weights.back().offset + weights.back().length <= each.offset) {
      weights.push_back(each);
      continue;
    }
    WindowPart& same = weights.back();
    same.length = std::max(same.offset + same.length, each.offset + each.length) - same.offset;
    same.first = std::min(same.first, each.first);
    same.last = std::max(same.last, each.last);
  }
  return weights;
}

// Neighbours that are read once, one after the other.
std::vector<WindowPart> Join(std::vector<WindowPart> weights, std::uint64_t part) {
  std::ranges::sort(weights, {}, [](const WindowPart& w) { return std::tuple(w.first, w.offset); });
  std::vector<WindowPart> parts;
  bool may_grow = false;  // the last of them holds only what is read once
  for (const WindowPart& weight : weights) {
    const bool once = weight.first == weight.last;
    if (may_grow && once) {
      WindowPart& before = parts.back();
      const std::uint64_t end = before.offset + before.length;
      if (weight.offset >= end && weight.offset - end < kAlignment &&
          weight.offset + weight.length - before.offset <= part) {
        before.length = weight.offset + weight.length - before.offset;
        before.last = weight.last;
        continue;
      }
    }
    parts.push_back(weight);
    may_grow = once;
  }
  return parts;
}

// From when on each part may be on its way: since the first use of the part that is `ahead` bytes before it.
std::vector<BufferLife> LivesOf(const std::vector<WindowPart>& parts, std::uint64_t ahead) {
  std::vector<BufferLife> lives;
  std::size_t from = 0;
  std::uint64_t between = 0;  // bytes of parts [from, i)
  for (std::size_t i = 0; i < parts.size(); ++i) {
    while (between > ahead) between -= parts[from++].length;
    lives.push_back(
        {Bytes(parts[i].length), between == 0 ? parts[i].first : parts[from].first, parts[i].last});
    if (from == 0) lives.back().first = 0;
    between += parts[i].length;
  }
  return lives;
}

}  // namespace

WeightWindow PlanWindow(const DevicePlan& plan, Bytes part, Bytes ahead) {
  WeightWindow window;
  window.parts = Join(WeightsOf(plan), part.count());
  const MemoryPlacement placement = PlaceBuffers(LivesOf(window.parts, ahead.count()));
  window.size = placement.size;
  for (std::size_t i = 0; i < window.parts.size(); ++i) {
    WindowPart& coming = window.parts[i];
    coming.place = placement.offsets[i];
    window.bytes += Bytes(coming.length);
    for (std::size_t j = 0; j < i; ++j) {
      const WindowPart& before = window.parts[j];
      const bool share =
          before.place < coming.place + coming.length && coming.place < before.place + before.length;
      if (share) coming.free_at = std::max(coming.free_at, before.last + 1);
    }
    TROUPE_CHECK(coming.free_at <= coming.first, "weights would take the place of others that are in use");
  }
  for (std::size_t step = 0; step < plan.step_count(); ++step) {
    const auto behind = std::ranges::upper_bound(window.parts, step, {}, &WindowPart::first);
    window.needed.push_back(static_cast<std::uint32_t>(behind - window.parts.begin()));
  }
  return window;
}

}  // namespace troupe::gpu
