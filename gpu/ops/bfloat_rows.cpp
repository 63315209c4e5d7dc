#include "gpu/ops/bfloat_rows.hpp"

#include <algorithm>

#include "gpu/ops/convert.hpp"
#include "gpu/ops/parallel_ranges.hpp"
#include "gpu/ops/vector_targets.hpp"

namespace troupe::gpu {
namespace {

// Elements that are handed to a thread together, and how many of other loops' elements take as long: a vector of sixteen
// takes a few cycles.
constexpr std::int64_t kBlock = 4096;
constexpr std::int64_t kBlockCost = kBlock / 16;

struct BfloatBody {
  TROUPE_INLINE static void Run(const float* from, std::uint16_t* to, std::int64_t count) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) to[i] = FloatToBfloat(from[i]);
  }
};

struct RoundBody {
  TROUPE_INLINE static void Run(const float* from, float* to, std::int64_t count) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) to[i] = BfloatToFloat(FloatToBfloat(from[i]));
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
