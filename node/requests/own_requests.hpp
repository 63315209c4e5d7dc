// OWN REQUESTS: what requests have in common that a node makes for itself, to measure its models or to bring them back:
// they belong to no router, are the least urgent, and their inputs are zeros.
#pragma once

#include <cstddef>
#include <cstdint>

#include "node/events.hpp"

namespace troupe::node {

inline constexpr std::uint64_t kNoRouter = 0;  // routers draw their numbers, and never this one
inline constexpr std::uint32_t kLeastUrgent = ~std::uint32_t{0};

// Adds an input of zeros, without data where it is too large for a message and has to be placed in the arena. False:
// there are no zeros of its type (strings), a dimension is open, or it has more than `most` bytes.
[[nodiscard]] bool AddZeros(const proto::TensorSpec& spec, std::size_t most, Tensors& inputs);
// Whether some input still needs its place in the arena.
[[nodiscard]] bool NeedArena(const Tensors& inputs);

}  // namespace troupe::node
