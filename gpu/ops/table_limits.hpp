// A bound for kernels that keep a table along a dimension.
#pragma once

#include <cstdint>

namespace troupe::gpu {

// A longer table is refused: a file of a few bytes must not make a table that fills the memory.
inline constexpr std::int64_t kMaxTabulated = std::int64_t{1} << 24;

}  // namespace troupe::gpu
