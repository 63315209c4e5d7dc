#include "gpu/ops/bfloat_rows.hpp"

#include <algorithm>
#include <bit>

#include "gpu/ops/parallel_ranges.hpp"
#include "gpu/ops/vector_targets.hpp"

namespace troupe::gpu {
namespace {

// Elements that are handed to a thread together, and how many of other loops' elements take as long: a vector of sixteen
// takes a few cycles.
constexpr std::int64_t kBlock = 4096;
constexpr std::int64_t kBlockCost = kBlock / 16;

TROUPE_INLINE std::uint32_t Rounded(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t nan = bits | 0x400000U;
  return (bits & 0x7fffffffU) > 0x7f800000U ? nan : bits + 0x7fffU + ((bits >> 16) & 1U);
}

struct BfloatBody {
  TROUPE_INLINE static void Run(const float* from, std::uint16_t* to, std::int64_t count) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<std::uint16_t>(Rounded(from[i]) >> 16);
  }
};

struct RoundBody {
  TROUPE_INLINE static void Run(const float* from, float* to, std::int64_t count) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) to[i] = std::bit_cast<float>(Rounded(from[i]) & 0xffff0000U);
  }
};

}  // namespace

void ToBfloats(const float* from, std::uint16_t* to, std::int64_t count) {
  static const auto convert = BestOf<BfloatBody, const float*, std::uint16_t*, std::int64_t>();
  ParallelRanges((count + kBlock - 1) / kBlock, kBlockCost, [&](std::int64_t first, std::int64_t last) {
    const std::int64_t begin = first * kBlock;
    convert(from + begin, to + begin, std::min(last * kBlock, count) - begin);
  });
}

void RoundToBfloats(const float* from, float* to, std::int64_t count) {
  static const auto round = BestOf<RoundBody, const float*, float*, std::int64_t>();
  round(from, to, count);
}

}  // namespace troupe::gpu
