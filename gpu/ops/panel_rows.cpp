// Compiled with its own flags (CMakeLists.txt).
#include "gpu/ops/panel_rows.hpp"

#include <cstring>

#include "gpu/ops/vector_targets.hpp"

namespace troupe::gpu {
namespace {

// Sixteen floats; a processor with shorter registers takes several for them.
using Lane [[gnu::vector_size(64)]] = float;
constexpr std::int64_t kLanes = kPanelColumns / 16;
// Rows of the panel that are asked for ahead of their use: as far as memory is away.
constexpr std::int64_t kAhead = 16;

struct PanelBody {
  TROUPE_INLINE static void Run(const float* x, const float* panel, std::int64_t depth, float* out) {
    Lane sums[kLanes] = {};
    for (std::int64_t k = 0; k < depth; ++k, panel += kPanelColumns) {
      for (std::int64_t i = 0; i < kLanes; ++i) {
        Lane weights;
        std::memcpy(&weights, panel + 16 * i, sizeof(weights));
        sums[i] += x[k] * weights;
        __builtin_prefetch(panel + kAhead * kPanelColumns + 16 * i);
      }
    }
    std::memcpy(out, sums, sizeof(sums));
  }
};

}  // namespace

MultiplyPanel FindMultiplyPanel() {
  return BestOf<PanelBody, const float*, const float*, std::int64_t, float*>();
}

}  // namespace troupe::gpu
