// FP32 elements rounded to BF16 for products in BF16, whose factors lie in memory as FP32.
#pragma once

#include <cstdint>

namespace troupe::gpu {

// As FloatToBfloat rounds, to the nearest and of two to the even one, but by the fastest loop of this processor, on the
// threads that a plan was made for where that many elements are worth it. The ranges do not overlap.
void ToBfloats(const float* from, std::uint16_t* to, std::int64_t count);
// The same numbers, as FP32 again, on the caller's thread.
void RoundToBfloats(const float* from, float* to, std::int64_t count);

}  // namespace troupe::gpu
