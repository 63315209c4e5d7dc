// Compiled with its own flags (CMakeLists.txt).
#include "gpu/ops/panel_rows.hpp"

#include <cstring>

#include "gpu/ops/vector_targets.hpp"

namespace troupe::gpu {
namespace {

// Sixteen floats; a processor with shorter registers takes several for them.
using Lane [[gnu::vector_size(64)]] = float;
using Words [[gnu::vector_size(64)]] = std::uint32_t;
constexpr std::int64_t kLanes = kPanelColumns / 16;
// Bytes of the panel that are asked for ahead of their use: as far as memory is away.
constexpr std::int64_t kAhead = 4096;

struct PanelBody {
  TROUPE_INLINE static void Run(const float* x, const std::byte* panel, std::int64_t depth, float* out) {
    Lane sums[kLanes] = {};
    for (std::int64_t k = 0; k < depth; ++k) {
      for (std::int64_t i = 0; i < kLanes; ++i, panel += sizeof(Lane)) {
        Lane weights;
        std::memcpy(&weights, panel, sizeof(weights));
        sums[i] += x[k] * weights;
        __builtin_prefetch(panel + kAhead);
      }
    }
    std::memcpy(out, sums, sizeof(sums));
  }
};

// A BF16 is the upper half of an FP32.
struct BfloatPanelBody {
  TROUPE_INLINE static void Run(const float* x, const std::byte* panel, std::int64_t depth, float* out) {
    Lane even[kLanes] = {}, odd[kLanes] = {};
    for (std::int64_t k = 0; k + 1 < depth; k += 2) {
      for (std::int64_t i = 0; i < kLanes; ++i, panel += sizeof(Words)) {
        Words pairs;
        std::memcpy(&pairs, panel, sizeof(pairs));
        even[i] += x[k] * Lane(pairs << 16);
        odd[i] += x[k + 1] * Lane(pairs & 0xffff0000U);
        __builtin_prefetch(panel + kAhead);
      }
    }
    for (std::int64_t i = 0; i < kLanes; ++i) even[i] += odd[i];
    std::memcpy(out, even, sizeof(even));
  }
};

}  // namespace

MultiplyPanel FindMultiplyPanel(bool bf16) {
  return bf16 ? BestOf<BfloatPanelBody, const float*, const std::byte*, std::int64_t, float*>()
              : BestOf<PanelBody, const float*, const std::byte*, std::int64_t, float*>();
}

}  // namespace troupe::gpu
