#include "cluster/rectangles/replan.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"

namespace troupe::cluster {

namespace {

using RequestPtr = std::shared_ptr<const InstanceRequest>;
using GpuNames = std::vector<std::string>;

// The largest of the request's areas over the kinds of GPUs.
std::uint32_t LargestAreaOf(const InstanceRequest& request) {
  std::uint32_t area = 0;
  for (const auto& [kind, size] : request.by_kind) area = std::max(area, size.extent.area());
  return area;
}

bool AreSame(const NodeNames& a, const NodeNames& b) {
  return a == b || (a != nullptr && b != nullptr && *a == *b);
}

bool TakeAlike(const InstanceRequest& a, const InstanceRequest& b) {
  return a.function == b.function && a.by_kind == b.by_kind && a.spread == b.spread &&
         AreSame(a.nodes, b.nodes);
}

// Whether the instances lie as they are wanted.
using LayoutGoal = absl::FunctionRef<bool(const Layout&)>;

// An instance without a place, and the GPUs where it may have one.
struct UnplacedInstance {
  RequestPtr request;
  const GpuNames* places = nullptr;
};

class ReplanSearch {
 public:
  ReplanSearch(const Gpus& gpus, const ReplanLimits& limits)
      : gpus_(gpus), limits_(limits), steps_(limits.steps) {
    for (const auto& [name, gpu] : gpus_)
      if (!gpu.bookings().empty()) scope_.push_back(name);
    std::ranges::stable_sort(scope_, std::greater<>(),
                             [&](const std::string& name) { return gpus_.at(name).FreeArea(); });
    if (scope_.size() > limits_.most_gpus) scope_.resize(limits_.most_gpus);
  }

  // The GPUs with instances that the plan looks at, those with the most free area first.
  [[nodiscard]] const GpuNames& scope() const { return scope_; }

  // With `count` instances of `gpu` lifted, and placed again at `places`, and `added`, if there is one, on `gpu`.
  std::optional<Layout> Lift(const std::string& gpu, std::size_t count, const RequestPtr& added,
                             const GpuNames& places, LayoutGoal goal) {
    const auto& bookings = gpus_.at(gpu).bookings();
    if (count > bookings.size()) return std::nullopt;
    const GpuNames here = {gpu};
    std::vector<bool> lifted(bookings.size());
    std::fill_n(lifted.begin(), count, true);
    do {
      // The free rectangles are found anew, which puts the others of this GPU where they are.
      steps_ -= std::min(steps_, static_cast<std::uint32_t>(bookings.size()));
      Layout layout(gpus_);
      std::vector<UnplacedInstance> left;
      auto chosen = lifted.begin();
      for (const auto& [id, booking] : bookings)
        if (*chosen++) left.push_back({layout.Edit(gpu).Release(id).request, &places});
      if (added) left.push_back({added, &here});
      std::ranges::stable_sort(left, std::greater<>(),
                               [](const UnplacedInstance& item) { return LargestAreaOf(*item.request); });
      steps_of_choice_ = limits_.steps_of_choice;
      if (PlaceAll(layout, left, goal)) return layout;
    } while (steps_ > 0 && std::prev_permutation(lifted.begin(), lifted.end()));
    return std::nullopt;
  }

  // The fewest lifted from one GPU: back on the same one, or else on any of the scope.
  std::optional<Layout> LiftFewest(const GpuNames& from, const RequestPtr& added, LayoutGoal goal) {
    for (const bool elsewhere : {false, true}) {
      if (elsewhere && scope_.size() < 2) break;
      for (std::size_t count = 1; count <= limits_.most_moves; ++count) {
        for (const std::string& gpu : from) {
          const GpuNames here = {gpu};
          if (!elsewhere && added && gpus_.at(gpu).FreeArea() < gpus_.at(gpu).SizeOf(*added)->extent.area())
            continue;
          if (auto layout = Lift(gpu, count, added, elsewhere ? scope_ : here, goal)) return layout;
        }
      }
    }
    return std::nullopt;
  }

 private:
  struct Corner {
    std::uint32_t waste = 0;  // of the free rectangle's area
    const std::string* gpu = nullptr;
    Rectangle place{};
  };
  // Those that leave the least area first.
  static std::vector<Corner> CornersFor(const Layout& layout, const UnplacedInstance& item) {
    std::vector<Corner> corners;
    for (const std::string& name : *item.places) {
      const GpuRectangles& gpu = layout.At(name);
      if (!gpu.HasMemoryFor(*item.request) || !layout.SpreadAllows(*item.request, name)) continue;
      const Extent extent = gpu.SizeOf(*item.request)->extent;
      for (const Rectangle& free : gpu.free().maximal())
        if (extent.Fits(free.extent))
          corners.push_back({free.area() - extent.area(), &name, {free.left, free.bottom, extent}});
    }
    std::ranges::stable_sort(corners, {}, &Corner::waste);
    return corners;
  }

  // Every order and every corner. `layout` has the result, and is as before when there is none.
  bool PlaceAll(Layout& layout, std::vector<UnplacedInstance>& left, LayoutGoal goal) {
    if (left.empty()) return goal(layout);
    std::vector<std::vector<Corner>> corners;
    for (const UnplacedInstance& item : left) {
      corners.push_back(CornersFor(layout, item));
      if (corners.back().empty()) return false;  // and the others only take more room
    }
    for (std::size_t i = 0; i < left.size(); ++i) {
      const UnplacedInstance item = left[i];
      const auto alike = [&](const UnplacedInstance& other) {
        return other.places == item.places && TakeAlike(*other.request, *item.request);
      };
      if (std::any_of(left.begin(), left.begin() + static_cast<std::ptrdiff_t>(i), alike)) continue;
      left.erase(left.begin() + static_cast<std::ptrdiff_t>(i));
      for (const Corner& corner : corners[i]) {
        if (steps_ == 0 || steps_of_choice_ == 0) break;
        --steps_;
        --steps_of_choice_;
        GpuRectangles before = layout.At(*corner.gpu);
        layout.Edit(*corner.gpu).Book(item.request, corner.place);
        if (PlaceAll(layout, left, goal)) return true;
        layout.Edit(*corner.gpu) = std::move(before);
      }
      left.insert(left.begin() + static_cast<std::ptrdiff_t>(i), item);
    }
    return false;
  }

  const Gpus& gpus_;
  const ReplanLimits& limits_;
  GpuNames scope_;
  std::uint32_t steps_;
  std::uint32_t steps_of_choice_ = 0;
};

}  // namespace

std::optional<Layout> PlanRoomFor(const Gpus& gpus, const RequestPtr& request, const ReplanLimits& limits) {
  ReplanSearch search(gpus, limits);
  GpuNames able;
  std::ranges::copy_if(search.scope(), std::back_inserter(able),
                       [&](const std::string& name) { return gpus.at(name).SizeOf(*request) != nullptr; });
  return search.LiftFewest(able, request, [](const Layout&) { return true; });
}

std::optional<Layout> PlanLessFragmentation(const Gpus& gpus, const ReplanLimits& limits) {
  ReplanSearch search(gpus, limits);
  GpuNames fragmented;
  std::ranges::copy_if(search.scope(), std::back_inserter(fragmented), [&](const std::string& name) {
    return gpus.at(name).Fragmentation() > limits.fragmentation;
  });
  std::ranges::stable_sort(fragmented, std::greater<>(),
                           [&](const std::string& name) { return gpus.at(name).Fragmentation(); });
  return search.LiftFewest(fragmented, nullptr, [&](const Layout& layout) {
    return std::ranges::all_of(layout.changed(), [&](const auto& entry) {
      return entry.second.Fragmentation() <= limits.fragmentation;
    });
  });
}

std::optional<Layout> PlanEmptyGpu(const Gpus& gpus, const ReplanLimits& limits) {
  ReplanSearch search(gpus, limits);
  GpuNames fewest = search.scope();
  std::ranges::stable_sort(fewest, {},
                           [&](const std::string& name) { return gpus.at(name).bookings().size(); });
  for (const std::string& gpu : fewest) {
    const std::size_t count = gpus.at(gpu).bookings().size();
    if (count > limits.most_moves) break;
    GpuNames others = search.scope();
    std::erase(others, gpu);
    if (auto layout = search.Lift(gpu, count, nullptr, others, [](const Layout&) { return true; }))
      return layout;
  }
  return std::nullopt;
}

}  // namespace troupe::cluster
