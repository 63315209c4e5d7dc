// MEMORY PLANNER: places buffers that live for a stretch of steps into one block of memory, so that no two
// that live at once overlap. Pure; the block's size is at most the sum of the buffers' sizes and at least the
// largest live sum.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/units.hpp"

namespace troupe::gpu {

struct BufferLife {
  Bytes size;
  std::size_t first = 0;  // step that writes it
  std::size_t last = 0;   // last step that reads it; at least `first`
};

struct MemoryPlacement {
  std::vector<std::uint64_t> offsets;  // one per buffer, 64-byte aligned
  Bytes size;                          // of the whole block
};

// Largest buffers first, each into the smallest gap that fits (best fit) among those it lives with.
[[nodiscard]] MemoryPlacement PlaceBuffers(std::span<const BufferLife> buffers);

// For each of `steps` steps: the end of the highest buffer that is still needed then or later.
[[nodiscard]] std::vector<Bytes> Extents(std::span<const BufferLife> buffers,
                                         const MemoryPlacement& placement, std::size_t steps);

// What lives during each of `steps` steps.
[[nodiscard]] std::vector<Bytes> LiveBytes(std::span<const BufferLife> buffers, std::size_t steps);

}  // namespace troupe::gpu
