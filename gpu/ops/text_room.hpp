// How much room plans and launches give to tensors of texts (BYTES), whose sizes no shape says. Between processes and
// in the inputs and outputs of a launch, a text is a 4-byte little-endian length and that many bytes.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "base/units.hpp"

namespace troupe::gpu {

inline constexpr std::uint64_t kTextLength = sizeof(std::uint32_t);  // what stands before a text
// The most that one tensor of texts may take, with their lengths.
inline constexpr Bytes kMaxTextBytes = MiB(16);

// The room of a tensor that takes `bytes` now: a power of two, so that one plan serves many texts, and never less than
// 32 bytes for each of `count` texts. Not for more than kMaxTextBytes.
[[nodiscard]] constexpr Bytes TextRoom(std::int64_t count, Bytes bytes) {
  constexpr std::uint64_t kUsual = kTextLength + 32;
  constexpr std::uint64_t kLeast = 256;
  const std::uint64_t most = kMaxTextBytes.count();
  const auto texts = std::min(static_cast<std::uint64_t>(count), most / kUsual);
  return Bytes(std::min(std::bit_ceil(std::max({kLeast, texts * kUsual, bytes.count()})), most));
}

}  // namespace troupe::gpu
