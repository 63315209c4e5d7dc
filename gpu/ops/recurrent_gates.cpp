// Compiled with its own flags (CMakeLists.txt). No sum is reordered here, since the exponential depends on the order of its
// additions.
#include "gpu/ops/recurrent_gates.hpp"

#include "gpu/ops/vector_math.hpp"

namespace troupe::gpu {
namespace {

struct LstmBody {
  TROUPE_INLINE static void Run(const float* gates, std::int64_t n, float* c, float* h) {
    const float *in = gates, *out = gates + n, *forget = gates + 2 * n, *fresh = gates + 3 * n;
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) {
      const float state = FastSigmoid(forget[i]) * c[i] + FastSigmoid(in[i]) * FastTanh(fresh[i]);
      c[i] = state;
      h[i] = FastSigmoid(out[i]) * FastTanh(state);
    }
  }
};

struct OpenBody {
  TROUPE_INLINE static void Run(float* gates, const float* recurrent, std::int64_t n) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) gates[i] = FastSigmoid(gates[i] + recurrent[i]);
  }
};

struct GruBody {
  TROUPE_INLINE static void Run(const float* update, const float* fresh, const float* recurrent,
                                std::int64_t n, float* h) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i)
      h[i] = (1.0F - update[i]) * FastTanh(fresh[i] + recurrent[i]) + update[i] * h[i];
  }
};

}  // namespace

GateLoops FindGateLoops() {
  return {BestOf<LstmBody, const float*, std::int64_t, float*, float*>(),
          BestOf<OpenBody, float*, const float*, std::int64_t>(),
          BestOf<GruBody, const float*, const float*, const float*, std::int64_t, float*>()};
}

}  // namespace troupe::gpu
