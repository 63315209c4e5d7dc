// RECTANGLE: a part of one GPU, as FaST-GShare (001, section 3.4.2) draws it. The width is a part of each window's time
// (the quota), the height a part of the SMs, both in percent; a GPU is 100 wide and 100 high. Pure.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>

namespace troupe::cluster {

inline constexpr std::uint32_t kWholeGpu = 100;  // percent

// How much an instance takes, wherever it lies.
struct Extent {
  std::uint32_t quota = 0;  // percent of each window's time
  std::uint32_t sms = 0;    // percent of the SMs
  // Of the GPU's 10,000 (the paper's 'secondCores').
  [[nodiscard]] std::uint32_t area() const { return quota * sms; }
  [[nodiscard]] bool Fits(const Extent& other) const { return quota <= other.quota && sms <= other.sms; }
  auto operator<=>(const Extent&) const = default;
};

struct Rectangle {
  std::uint32_t left = 0;    // where its time begins in the window
  std::uint32_t bottom = 0;  // its first SMs
  Extent extent{};
  [[nodiscard]] std::uint32_t right() const { return left + extent.quota; }
  [[nodiscard]] std::uint32_t top() const { return bottom + extent.sms; }
  [[nodiscard]] std::uint32_t area() const { return extent.area(); }
  // False when they share no more than an edge.
  [[nodiscard]] bool Overlaps(const Rectangle& other) const {
    return left < other.right() && other.left < right() && bottom < other.top() && other.bottom < top();
  }
  [[nodiscard]] bool Contains(const Rectangle& other) const {
    return left <= other.left && other.right() <= right() && bottom <= other.bottom && other.top() <= top();
  }
  auto operator<=>(const Rectangle&) const = default;
};

}  // namespace troupe::cluster
