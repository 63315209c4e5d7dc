// MEMORY SPACE: which parts of the quota are free. Offsets from the quota's begin; nothing here touches the
// memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/units.hpp"
#include "gpu/device/device.hpp"

namespace troupe::gpu {

// What a range is for. Ranges of one model are kept together, so that its eviction frees whole partitions.
struct MemoryUser {
  // kState: what functions leave on the device behind their runs, states and tensors that later runs read.
  enum class Kind { kWeights, kRun, kState };
  Kind kind = Kind::kWeights;
  std::string_view
      digest;  // the model; for a run its model, for a state or a kept tensor that of its function
};

// Ranges do not overlap, never leave [0, capacity), begin at multiples of kUnit. Not thread-safe.
class MemorySpace {
 public:
  static constexpr Bytes kUnit = Bytes(256);
  virtual ~MemorySpace() = default;
  // Nothing when no free range is long enough. Zero bytes take a unit.
  [[nodiscard]] virtual std::optional<std::uint64_t> Allocate(const MemoryUser& user, Bytes size) = 0;
  // Takes the range that begins at `offset`, as Allocate might have given it; false when a part of it is not
  // free or no range can begin there. Spaces that choose the place themselves always refuse.
  [[nodiscard]] virtual bool AllocateAt(const MemoryUser&, std::uint64_t /*offset*/, Bytes) { return false; }
  // False when no allocated range begins at `offset`.
  [[nodiscard]] virtual bool Free(std::uint64_t offset) = 0;
  // The range that begins at `offset` keeps its first `size` bytes, fewer than it has: what it occupies now.
  // Spaces that give ranges back whole change nothing. Nothing when no allocated range begins there.
  [[nodiscard]] virtual std::optional<Bytes> Trim(std::uint64_t offset, Bytes) { return Occupied(offset); }
  // What the range at `offset` occupies, with what rounding adds; nothing when none begins there.
  [[nodiscard]] virtual std::optional<Bytes> Occupied(std::uint64_t offset) const = 0;
  // What is not occupied is free, also where it is in pieces. `largest` could be allocated now.
  [[nodiscard]] virtual MemoryUse use() const = 0;
};

}  // namespace troupe::gpu
