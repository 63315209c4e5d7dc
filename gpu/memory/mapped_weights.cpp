// Weights in blocks that need not be adjacent: holes in device memory cost nothing, and nothing has to move.
#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "gpu/memory/device_memory.hpp"

namespace troupe::gpu {
namespace {

// As large as the smallest block of a device that maps physical memory.
constexpr Bytes kBlock = MiB(2);
// Where a device maps less, what is left between larger things is taken in pieces down to this.
constexpr Bytes kSmallest = KiB(64);

}  // namespace

// Spaces hand out multiples of less than the device's unit. A range that begins beside a unit's boundary is
// taken anew, with room to begin at the next.
std::optional<DeviceRange> DeviceMemory::TakeBlock(const MemoryUser& user, Bytes size) {
  const std::uint64_t unit = device_.MappingUnit().count();
  const auto aligned = [&](std::uint64_t offset) {
    const auto place = reinterpret_cast<std::uintptr_t>(quota_.address + offset);
    return (place + unit - 1) / unit * unit - place;
  };
  std::optional<std::uint64_t> offset = Take(user, size);
  if (offset && aligned(*offset) > 0) {
    TROUPE_CHECK(space_->Free(*offset), "a block that was just taken is not");
    offset = Take(user, size + Bytes(unit));
  }
  if (!offset) return std::nullopt;
  return DeviceRange{quota_.address + *offset, size};
}

absl::StatusOr<DeviceRange> DeviceMemory::AllocateMapped(const MemoryUser& user, Bytes size,
                                                         std::uint64_t address) {
  const std::uint64_t unit = device_.MappingUnit().count();
  std::vector<DeviceRange> blocks;  // where the space says
  std::vector<DeviceRange> pieces;  // where the device's units begin
  Bytes occupied;
  // A smaller piece than the device's unit would take a whole one all the same.
  Bytes largest = std::max(kBlock, Bytes(unit));
  for (Bytes left = size; left > Bytes(0);) {
    const Bytes piece = std::min(left, largest);
    const Bytes whole = AlignUp(piece, Bytes(unit));
    const std::optional<DeviceRange> block = TakeBlock(user, whole);
    if (!block && largest > std::max(kSmallest, Bytes(unit))) {
      largest = Bytes(largest.count() / 2);
      continue;
    }
    if (!block) {
      GiveBack(blocks);
      return NoFit(size);
    }
    blocks.push_back(*block);
    occupied += *space_->Occupied(OffsetOf(block->address));
    const auto place = reinterpret_cast<std::uintptr_t>(block->address);
    pieces.push_back({block->address + ((place + unit - 1) / unit * unit - place), whole});
    left = Bytes(left.count() - piece.count());
  }
  absl::StatusOr<DeviceRange> mapped = device_.Map(address, pieces);
  // Another model lies there, one that was forgotten and is not evicted yet, or of a daemon before this one; or
  // the address is none at which this device can map. Better served from elsewhere than not at all.
  if (address != 0 && (absl::IsAlreadyExists(mapped.status()) || absl::IsInvalidArgument(mapped.status())))
    mapped = device_.Map(0, pieces);
  if (!mapped.ok()) {
    GiveBack(blocks);
    return mapped.status();
  }
  Enter(mapped->address, user, occupied);
  mapped_.emplace(mapped->address, Mapped{*mapped, std::move(blocks)});
  return DeviceRange{mapped->address, size};
}

void DeviceMemory::GiveBack(const std::vector<DeviceRange>& blocks) {
  for (const DeviceRange& block : blocks)
    TROUPE_CHECK(space_->Free(OffsetOf(block.address)), "a block was given back that was not taken");
}

void DeviceMemory::FreeMapped(const DeviceRange& range) {
  const Mapped mapped = std::move(mapped_.extract(range.address).mapped());
  device_.Unmap(mapped.range);
  GiveBack(mapped.blocks);
  const Entry entry = std::move(entries_.extract(range.address).mapped());
  ++changes_;
  pool_.Left(entry.digest);
}

}  // namespace troupe::gpu
