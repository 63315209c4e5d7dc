// The loops of a product of bytes.
#pragma once

#include <cstdint>

namespace troupe::gpu {

struct ByteLoops {
  // out[c] = sum over k of a[k] * b[k, c]
  void (*multiply)(const std::uint8_t* a, const std::int8_t* b, std::int64_t depth, std::int64_t columns,
                   std::int32_t* out);
  // sums[c] = sum over k of b[k, c]
  void (*add)(const std::int8_t* b, std::int64_t depth, std::int64_t columns, std::int32_t* sums);
};

// The best that this processor has.
[[nodiscard]] ByteLoops FindByteLoops();

}  // namespace troupe::gpu
