// Compiled with its own flags (CMakeLists.txt). No sum is reordered here, since the exponential depends on the order of its
// additions.
#include "gpu/ops/recurrent_gates.hpp"

#include "gpu/ops/vector_math.hpp"

namespace troupe::gpu {
namespace {

TROUPE_INLINE void LstmBody(const float* gates, std::int64_t n, float* c, float* h) {
  const float *in = gates, *out = gates + n, *forget = gates + 2 * n, *fresh = gates + 3 * n;
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    const float state = FastSigmoid(forget[i]) * c[i] + FastSigmoid(in[i]) * FastTanh(fresh[i]);
    c[i] = state;
    h[i] = FastSigmoid(out[i]) * FastTanh(state);
  }
}

TROUPE_INLINE void OpenBody(float* gates, const float* recurrent, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) gates[i] = FastSigmoid(gates[i] + recurrent[i]);
}

TROUPE_INLINE void GruBody(const float* update, const float* fresh, const float* recurrent, std::int64_t n,
                           float* h) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i)
    h[i] = (1.0F - update[i]) * FastTanh(fresh[i] + recurrent[i]) + update[i] * h[i];
}

// The loops for one set of instructions.
#define TROUPE_GATE_LOOPS(Name, target)                                                                   \
  struct Name {                                                                                           \
    target static void Lstm(const float* g, std::int64_t n, float* c, float* h) { LstmBody(g, n, c, h); } \
    target static void Open(float* g, const float* r, std::int64_t n) { OpenBody(g, r, n); }              \
    target static void Gru(const float* u, const float* f, const float* r, std::int64_t n, float* h) {    \
      GruBody(u, f, r, n, h);                                                                             \
    }                                                                                                     \
    static GateLoops Loops() { return {&Lstm, &Open, &Gru}; }                                             \
  };

TROUPE_GATE_LOOPS(Plain, )
#if defined(__x86_64__)
TROUPE_GATE_LOOPS(Avx2, [[gnu::target("avx2,fma")]])
TROUPE_GATE_LOOPS(Avx512,
                  [[gnu::target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,prefer-vector-width=512")]])
#endif

}  // namespace

GateLoops FindGateLoops() {
#if defined(__x86_64__)
  if (HasAvx512()) return Avx512::Loops();
  if (HasAvx2()) return Avx2::Loops();
#endif
  return Plain::Loops();
}

}  // namespace troupe::gpu
