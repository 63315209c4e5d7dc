// Buddy allocation inside one partition: chunks of a power of two units, split and joined with their buddies.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>

namespace troupe::gpu {

// In units, offsets from the partition's begin. What a chunk has beyond the length asked for is given back at
// once, in smaller chunks: nothing is lost to rounding. Pure; O(log units).
class Buddy {
 public:
  // `units`: at most 2^(kOrders - 1); need not be a power of two.
  explicit Buddy(std::uint32_t units);
  // The lowest chunk of the smallest order that fits; nothing when none does.
  [[nodiscard]] std::optional<std::uint32_t> Allocate(std::uint32_t units);
  // Takes exactly these units; false, and nothing has changed, when one of them is not free.
  [[nodiscard]] bool AllocateAt(std::uint32_t offset, std::uint32_t units);
  // Exactly what was allocated.
  void Free(std::uint32_t offset, std::uint32_t units);
  [[nodiscard]] std::uint32_t free() const { return free_; }
  // The longest length that Allocate would serve.
  [[nodiscard]] std::uint32_t largest() const;
  [[nodiscard]] bool empty() const { return free_ == units_; }

 private:
  static constexpr std::uint32_t kOrders = 24;
  // The begin and the order of the free chunk that has this unit.
  [[nodiscard]] std::optional<std::pair<std::uint32_t, std::uint32_t>> FreeChunkOf(std::uint32_t unit) const;
  void Put(std::uint32_t offset, std::uint32_t order);
  void PutRange(std::uint32_t offset, std::uint32_t units);

  std::uint32_t units_;
  std::uint32_t free_ = 0;
  std::uint32_t orders_ = 0;  // bit i: chunks_[i] is not empty
  std::array<std::set<std::uint32_t>, kOrders> chunks_;
};

}  // namespace troupe::gpu
