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

TROUPE_INLINE void PanelBody(const float* x, const float* panel, std::int64_t depth, float* out) {
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

void Panel(const float* x, const float* panel, std::int64_t depth, float* out) {
  PanelBody(x, panel, depth, out);
}
#if defined(__x86_64__)
[[gnu::target("avx2,fma")]] void PanelAvx2(const float* x, const float* panel, std::int64_t depth,
                                           float* out) {
  PanelBody(x, panel, depth, out);
}
[[gnu::target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,prefer-vector-width=512")]] void PanelAvx512(
    const float* x, const float* panel, std::int64_t depth, float* out) {
  PanelBody(x, panel, depth, out);
}
#endif

}  // namespace

MultiplyPanel FindMultiplyPanel() {
#if defined(__x86_64__)
  if (HasAvx512()) return &PanelAvx512;
  if (HasAvx2()) return &PanelAvx2;
#endif
  return &Panel;
}

}  // namespace troupe::gpu
