// FREE RECTANGLES: what is free of one GPU, as its maximal rectangles: those that no other free rectangle contains.
// They overlap; together they are exactly the free area. FaST-GShare's Algorithm 2 (001, section 3.4.2), corrected
// where its print is wrong: a free rectangle is at least as large as the instance, and free rectangles that an
// instance cuts leave the list.
//
// What is released is kept as a rectangle of its own for a while ("keep"), so that the next instance of the same
// size finds its place again and nothing larger is cut for it. When more than `kMostKept` are kept, all of them are
// forgotten ("restructure"); the maximal rectangles are always exact.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "cluster/rectangles/rectangle.hpp"

namespace troupe::cluster {

// A place for an instance, and the area of its free rectangle that it leaves.
struct FreeFit {
  Rectangle place{};
  std::uint32_t waste = 0;
};

class FreeRectangles {
 public:
  static constexpr std::size_t kMostKept = 16;

  // All of a GPU.
  FreeRectangles() : maximal_{{0, 0, {kWholeGpu, kWholeGpu}}} {}

  // The best area fit: the bottom left part of the free or kept rectangle that leaves the least area; of several
  // the one with the lowest bottom, then left. Nothing when none is large enough.
  [[nodiscard]] std::optional<FreeFit> BestFor(const Extent& extent) const;
  [[nodiscard]] bool IsFree(const Rectangle& rectangle) const;

  // Has to be free.
  void Take(const Rectangle& taken);
  // `placed`: what is still taken.
  void Release(const Rectangle& released, std::span<const Rectangle> placed);

  [[nodiscard]] const std::vector<Rectangle>& maximal() const { return maximal_; }
  [[nodiscard]] const std::vector<Rectangle>& kept() const { return kept_; }
  // Of the largest maximal rectangle.
  [[nodiscard]] std::uint32_t LargestArea() const;

 private:
  void Cut(const Rectangle& taken);

  std::vector<Rectangle> maximal_;  // ascending
  std::vector<Rectangle> kept_;     // wholly free, in the order of their release
};

}  // namespace troupe::cluster
