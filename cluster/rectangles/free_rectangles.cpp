#include "cluster/rectangles/free_rectangles.hpp"

#include <algorithm>
#include <iterator>
#include <tuple>

#include "base/check.hpp"

namespace troupe::cluster {

namespace {

// What is left of a free rectangle on the four sides of `taken`, each as long as the rectangle allows.
void AddFreeRemainders(const Rectangle& free, const Rectangle& taken, std::vector<Rectangle>& rest) {
  const auto [quota, sms] = free.extent;
  if (taken.left > free.left) rest.push_back({free.left, free.bottom, {taken.left - free.left, sms}});
  if (taken.right() < free.right())
    rest.push_back({taken.right(), free.bottom, {free.right() - taken.right(), sms}});
  if (taken.bottom > free.bottom)
    rest.push_back({free.left, free.bottom, {quota, taken.bottom - free.bottom}});
  if (taken.top() < free.top()) rest.push_back({free.left, taken.top(), {quota, free.top() - taken.top()}});
}

}  // namespace

std::optional<FreeFit> FreeRectangles::BestFor(const Extent& extent) const {
  const Rectangle* best = nullptr;
  const auto rank = [](const Rectangle& free) { return std::tuple(free.area(), free.bottom, free.left); };
  for (const auto* list : {&maximal_, &kept_})
    for (const Rectangle& free : *list)
      if (extent.Fits(free.extent) && (best == nullptr || rank(free) < rank(*best))) best = &free;
  if (best == nullptr) return std::nullopt;
  return FreeFit{.place = {best->left, best->bottom, extent}, .waste = best->area() - extent.area()};
}

bool FreeRectangles::IsFree(const Rectangle& rectangle) const {
  return std::ranges::any_of(maximal_, [&](const Rectangle& free) { return free.Contains(rectangle); });
}

void FreeRectangles::Take(const Rectangle& taken) {
  TROUPE_CHECK(IsFree(taken), "a rectangle is taken that is not free");
  Cut(taken);
  std::erase_if(kept_, [&](const Rectangle& kept) { return kept.Overlaps(taken); });
}

void FreeRectangles::Release(const Rectangle& released, std::span<const Rectangle> placed) {
  maximal_ = {{0, 0, {kWholeGpu, kWholeGpu}}};
  for (const Rectangle& taken : placed) Cut(taken);
  TROUPE_CHECK(IsFree(released), "a rectangle is released that is still taken");
  kept_.push_back(released);
  if (kept_.size() > kMostKept || placed.empty()) kept_.clear();
}

void FreeRectangles::Cut(const Rectangle& taken) {
  std::vector<Rectangle> rest;
  for (const Rectangle& free : maximal_) {
    if (free.Overlaps(taken)) {
      AddFreeRemainders(free, taken, rest);
    } else {
      rest.push_back(free);
    }
  }
  std::ranges::sort(rest);
  rest.erase(std::ranges::unique(rest).begin(), rest.end());
  maximal_.clear();
  std::ranges::copy_if(rest, std::back_inserter(maximal_), [&](const Rectangle& inner) {
    return std::ranges::none_of(
        rest, [&](const Rectangle& outer) { return outer != inner && outer.Contains(inner); });
  });
}

std::uint32_t FreeRectangles::LargestArea() const {
  std::uint32_t largest = 0;
  for (const Rectangle& free : maximal_) largest = std::max(largest, free.area());
  return largest;
}

}  // namespace troupe::cluster
