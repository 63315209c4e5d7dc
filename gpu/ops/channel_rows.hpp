// Arithmetic of a tensor in blocks of channels with one number for each channel, such as the scales that a network of
// squeeze and excitation computes. oneDNN does this with a reference loop where the channels do not fill its blocks.
#pragma once

#include <cstdint>
#include <string_view>

#include "gpu/ops/broadcast_loop.hpp"

namespace troupe::gpu {

// A row is all places of one block of channels: `n` elements, of which neighbours belong to the block's channels. in[1] has
// a number for each of them. Add, Sub, Mul and Div; null for any other, and for blocks of another size than 8 and 16.
[[nodiscard]] RowFunction FindChannelRow(std::string_view op, std::int64_t block);

}  // namespace troupe::gpu
