// Compiled with its own flags (CMakeLists.txt).
#include "gpu/ops/byte_rows.hpp"

#include <algorithm>

#define TROUPE_INLINE [[gnu::always_inline]] inline

namespace troupe::gpu {
namespace {

// Sums wrap: as unsigned numbers.
TROUPE_INLINE void MultiplyBody(const std::uint8_t* a, const std::int8_t* b, std::int64_t depth,
                                std::int64_t columns, std::int32_t* out) {
  std::fill_n(out, columns, 0);
  for (std::int64_t k = 0; k < depth; ++k, b += columns) {
    const std::int32_t x = a[k];
    if (x == 0) continue;
#pragma GCC ivdep
    for (std::int64_t c = 0; c < columns; ++c)
      out[c] = static_cast<std::int32_t>(static_cast<std::uint32_t>(out[c]) +
                                         static_cast<std::uint32_t>(x * b[c]));
  }
}

TROUPE_INLINE void AddBody(const std::int8_t* b, std::int64_t depth, std::int64_t columns,
                           std::int32_t* sums) {
  std::fill_n(sums, columns, 0);
  for (std::int64_t k = 0; k < depth; ++k, b += columns) {
#pragma GCC ivdep
    for (std::int64_t c = 0; c < columns; ++c)
      sums[c] =
          static_cast<std::int32_t>(static_cast<std::uint32_t>(sums[c]) + static_cast<std::uint32_t>(b[c]));
  }
}

#define TROUPE_BYTE_LOOPS(Name, target)                                                       \
  target void Name##Multiply(const std::uint8_t* a, const std::int8_t* b, std::int64_t depth, \
                             std::int64_t columns, std::int32_t* out) {                       \
    MultiplyBody(a, b, depth, columns, out);                                                  \
  }                                                                                           \
  target void Name##Add(const std::int8_t* b, std::int64_t depth, std::int64_t columns,       \
                        std::int32_t* sums) {                                                 \
    AddBody(b, depth, columns, sums);                                                         \
  }
TROUPE_BYTE_LOOPS(Plain, )
#if defined(__x86_64__)
TROUPE_BYTE_LOOPS(Avx2, [[gnu::target("avx2")]])
#endif
#undef TROUPE_BYTE_LOOPS

}  // namespace

ByteLoops FindByteLoops() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return {&Avx2Multiply, &Avx2Add};
#endif
  return {&PlainMultiply, &PlainAdd};
}

}  // namespace troupe::gpu
