#include "gpu/memory/fixed_region.hpp"

#include <algorithm>

namespace troupe::gpu {

namespace {

constexpr std::uint64_t kMostUnits = std::uint64_t{1} << 23;  // what a Buddy can hold

Bytes UnitOf(Bytes region) {
  Bytes unit = KiB(4);
  while (region.count() / unit.count() > kMostUnits) unit += unit;
  return unit;
}

}  // namespace

FixedRegion::FixedRegion(const DeviceRange& region)
    : region_(region),
      unit_(UnitOf(region.size)),
      pieces_(static_cast<std::uint32_t>(region.size.count() / unit_.count())) {}

std::uint32_t FixedRegion::UnitsOf(Bytes size) const {
  return static_cast<std::uint32_t>(
      std::max<std::uint64_t>(1, (size.count() + unit_.count() - 1) / unit_.count()));
}

std::optional<DeviceRange> FixedRegion::Allocate(Bytes size) {
  if (size > region_.size) return std::nullopt;
  const auto first = pieces_.Allocate(UnitsOf(size));
  if (!first) return std::nullopt;
  return DeviceRange{region_.address + *first * unit_.count(), size};
}

void FixedRegion::Free(const DeviceRange& piece) {
  const auto offset = static_cast<std::uint64_t>(piece.address - region_.address);
  pieces_.Free(static_cast<std::uint32_t>(offset / unit_.count()), UnitsOf(piece.size));
}

}  // namespace troupe::gpu
