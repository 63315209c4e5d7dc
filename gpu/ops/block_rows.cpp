// Compiled with its own flags (CMakeLists.txt): sums may be reordered, so that they become vector instructions.
#include "gpu/ops/block_rows.hpp"

#define TROUPE_INLINE [[gnu::always_inline]] inline

namespace troupe::gpu {
namespace {

// Written with vectors: a compiler takes a loop over bytes 64 at a time, and leaves a block of 32 to scalar code.
using Bytes16 [[gnu::vector_size(16)]] = std::uint8_t;
using Shorts16 [[gnu::vector_size(32)]] = std::int16_t;
using Ints16 [[gnu::vector_size(64)]] = std::int32_t;
using Floats16 [[gnu::vector_size(64)]] = float;
constexpr std::int64_t kStep = 16;

// Processors without registers of 64 bytes get there by an intermediate width.
template <bool wide>
TROUPE_INLINE void Convert(const Bytes16& numbers, Floats16& out) {
  if constexpr (wide) {
    out = __builtin_convertvector(__builtin_convertvector(numbers, Ints16), Floats16);
  } else {
    out = __builtin_convertvector(__builtin_convertvector(__builtin_convertvector(numbers, Shorts16), Ints16),
                                  Floats16);
  }
}

template <class V>
TROUPE_INLINE void Load(const void* from, V& to) {
  __builtin_memcpy(&to, from, sizeof(to));
}

// f(numbers, where they stand in the block) for each 16 of a block, then g(number, where) for each that is left.
template <bool wide, int bits, class F, class G>
TROUPE_INLINE void ForEach(const std::uint8_t* packed, std::int64_t block, F f, G g) {
  constexpr std::uint8_t kMask = bits == 4 ? 15 : 255;
  const std::int64_t bytes = block * bits / 8;
  std::int64_t i = 0;
  for (; i + kStep <= bytes; i += kStep) {
    Bytes16 both;
    Floats16 values;
    Load(packed + i, both);
#if defined(__x86_64__)
    __asm__("" : "+x"(both));  // else GCC 12 loads bytes one by one where nothing is masked
#endif
    Convert<wide>(both & kMask, values);
    f(values, i);
    if constexpr (bits == 4) {
      Convert<wide>(both >> 4, values);
      f(values, bytes + i);
    }
  }
  for (; i < bytes; ++i) {
    g(static_cast<float>(packed[i] & kMask), i);
    if constexpr (bits == 4) g(static_cast<float>(packed[i] >> 4), bytes + i);
  }
}

template <bool wide, int bits>
TROUPE_INLINE void UnpackBody(const PackedBlocks& blocks, float* out) {
  for (std::int64_t b = 0; b < blocks.blocks; ++b, out += blocks.block) {
    const float scale = blocks.scales[b];
    const float zero = blocks.zeros[b];
    ForEach<wide, bits>(
        blocks.packed + b * blocks.block * bits / 8, blocks.block,
        [=](const Floats16& numbers, std::int64_t at) __attribute__((always_inline)) {
          const Floats16 values = (numbers - zero) * scale;
          __builtin_memcpy(out + at, &values, sizeof(values));
        },
        [=](float number, std::int64_t at)
            __attribute__((always_inline)) { out[at] = (number - zero) * scale; });
  }
}

template <bool wide, int bits>
TROUPE_INLINE float MultiplyBody(const PackedBlocks& blocks, const float* row) {
  Floats16 sums = {};
  float rest = 0;
  for (std::int64_t b = 0; b < blocks.blocks; ++b, row += blocks.block) {
    const float scale = blocks.scales[b];
    const float zero = blocks.zeros[b];
    Floats16 sum = {};
    ForEach<wide, bits>(
        blocks.packed + b * blocks.block * bits / 8, blocks.block,
        [&](const Floats16& numbers, std::int64_t at) __attribute__((always_inline)) {
          Floats16 values;
          Load(row + at, values);
          sum += (numbers - zero) * values;
        },
        [&](float number, std::int64_t at)
            __attribute__((always_inline)) { rest += (number - zero) * scale * row[at]; });
    sums += sum * scale;
  }
  for (std::int64_t i = 0; i < kStep; ++i) rest += sums[i];
  return rest;
}

#define TROUPE_BLOCK_LOOPS(Name, target, wide)                                \
  template <int bits>                                                         \
  target void Name##Unpack(const PackedBlocks& blocks, float* out) {          \
    UnpackBody<wide, bits>(blocks, out);                                      \
  }                                                                           \
  template <int bits>                                                         \
  target float Name##Multiply(const PackedBlocks& blocks, const float* row) { \
    return MultiplyBody<wide, bits>(blocks, row);                             \
  }
TROUPE_BLOCK_LOOPS(Plain, , false)
#if defined(__x86_64__)
#define TROUPE_AVX512 [[gnu::target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,prefer-vector-width=512")]]
TROUPE_BLOCK_LOOPS(Avx2, [[gnu::target("avx2,fma")]], false)
TROUPE_BLOCK_LOOPS(Avx512, TROUPE_AVX512, true)
#undef TROUPE_AVX512
#endif
#undef TROUPE_BLOCK_LOOPS

template <int bits>
BlockLoops Find() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
    return {&Avx512Unpack<bits>, &Avx512Multiply<bits>};
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return {&Avx2Unpack<bits>, &Avx2Multiply<bits>};
#endif
  return {&PlainUnpack<bits>, &PlainMultiply<bits>};
}

}  // namespace

BlockLoops FindBlockLoops(std::int64_t bits) {
  return bits == 4 ? Find<4>() : Find<8>();
}

}  // namespace troupe::gpu
