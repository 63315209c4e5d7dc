// Boxes as kernels like them: with few dimensions, with places of 32 bits, and with elements that are moved
// and computed several at a time. What they say stays the same.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "gpu/cuda/kernels/index_arguments.hpp"

namespace troupe::gpu::cuda {

// Whether 32 bits hold numbers below each of these.
[[nodiscard]] bool Narrow(std::initializer_list<std::int64_t> counts);

// Takes dimensions of 1 out, makes one of two neighbours where all these strides go on from one to the other,
// and says whether 32 bits hold all places. In the order in which they were the elements lie where they lay.
void Simplify(Box& box, std::initializer_list<Strides*> places);

// Four elements at a time, where they lie together and begin at a multiple of four: depends on the pointers,
// so it is asked for each launch.
[[nodiscard]] UnaryArguments InFours(UnaryArguments arguments);
[[nodiscard]] BinaryArguments InFours(BinaryArguments arguments);

// The same move of larger elements, of at most 16 bytes.
[[nodiscard]] MoveArguments Widened(MoveArguments arguments);
[[nodiscard]] GatherArguments Widened(GatherArguments arguments);

}  // namespace troupe::gpu::cuda
