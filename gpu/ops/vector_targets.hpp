// One loop body compiled for three instruction sets; the machine's best is chosen when a kernel is made.
//
// A body is a struct with `static void Run(A...)`, most often of a row, that is always inlined, with all it calls, into
// a function that carries the target. (target_clones would do the same but does not work on templates.)
#pragma once

#include "gpu/ops/broadcast_loop.hpp"

#define TROUPE_INLINE [[gnu::always_inline]] inline

namespace troupe::gpu {

template <class Body, class... A>
void RunPlain(A... arguments) {
  Body::Run(arguments...);
}

#if defined(__x86_64__)
[[nodiscard]] inline bool HasAvx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
}
[[nodiscard]] inline bool HasAvx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
template <class Body, class... A>
[[gnu::target("avx2,fma")]] void RunAvx2(A... arguments) {
  Body::Run(arguments...);
}
template <class Body, class... A>
[[gnu::target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,prefer-vector-width=512")]] void RunAvx512(
    A... arguments) {
  Body::Run(arguments...);
}
#endif

// `Body::Run`, which takes A..., compiled for this machine.
template <class Body, class... A>
[[nodiscard]] auto BestOf() -> void (*)(A...) {
#if defined(__x86_64__)
  if (HasAvx512()) return &RunAvx512<Body, A...>;
  if (HasAvx2()) return &RunAvx2<Body, A...>;
#endif
  return &RunPlain<Body, A...>;
}
template <class Body>
[[nodiscard]] RowFunction BestRow() {
  return BestOf<Body, const Row&>();
}

// A row of F over one input: out[i] = f(in[i]), where f is F made from the row's parameters or by default.
template <class T, class F>
struct UnaryBody {
  TROUPE_INLINE static void Run(const Row& row) {
    const T* in = reinterpret_cast<const T*>(row.in[0]);
    T* out = reinterpret_cast<T*>(row.out);
    const F f(row.parameters);
    const std::int64_t n = row.n;
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) out[i] = f(in[i]);
  }
};

// A row of F over two inputs of type T with a result of type R.
template <class T, class R, class F>
struct BinaryBody {
  TROUPE_INLINE static void Run(const Row& row) {
    const T* a = reinterpret_cast<const T*>(row.in[0]);
    const T* b = reinterpret_cast<const T*>(row.in[1]);
    R* out = reinterpret_cast<R*>(row.out);
    const F f(row.parameters);
    const std::int64_t n = row.n;
    if (row.step[1] == 0) {
      const T right = *b;
      if (row.step[0] == 0) {
        const R value = f(*a, right);
        for (std::int64_t i = 0; i < n; ++i) out[i] = value;
        return;
      }
#pragma GCC ivdep
      for (std::int64_t i = 0; i < n; ++i) out[i] = f(a[i], right);
    } else if (row.step[0] == 0) {
      const T left = *a;
#pragma GCC ivdep
      for (std::int64_t i = 0; i < n; ++i) out[i] = f(left, b[i]);
    } else {
#pragma GCC ivdep
      for (std::int64_t i = 0; i < n; ++i) out[i] = f(a[i], b[i]);
    }
  }
};

}  // namespace troupe::gpu
