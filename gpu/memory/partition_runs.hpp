// Runs of free blocks over partitions of 64, one bit each. Internal to gpu/memory.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace troupe::gpu {

// Blocks that follow each other, across partitions.
struct BlockRun {
  std::uint64_t first = 0;
  std::uint64_t count = 0;
  [[nodiscard]] bool Overlaps(const BlockRun& other) const {
    return first < other.first + other.count && other.first < first + count;
  }
};

// `count` ones, at most 64.
[[nodiscard]] constexpr std::uint64_t OnesBelow(std::uint64_t count) {
  return count >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1;
}

// Visits the runs of set bits that cannot be extended, in order.
template <class Visit>
void ForEachRun(std::span<const std::uint64_t> partitions, Visit visit) {
  BlockRun run;
  for (std::size_t p = 0; p < partitions.size(); ++p) {
    std::uint64_t bits = partitions[p];
    while (bits != 0) {
      const auto skip = static_cast<std::uint64_t>(std::countr_zero(bits));
      const auto count = static_cast<std::uint64_t>(std::countr_one(bits >> skip));
      const std::uint64_t first = p * 64 + skip;
      if (run.count > 0 && run.first + run.count == first) {
        run.count += count;
      } else {
        if (run.count > 0) visit(run);
        run = {first, count};
      }
      bits &= ~(OnesBelow(count) << skip);
    }
  }
  if (run.count > 0) visit(run);
}

}  // namespace troupe::gpu
