#include "gpu/engine/memory_planner.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace troupe::gpu {
namespace {

constexpr Bytes kAlignment(64);

struct Placed {
  std::uint64_t begin;
  std::uint64_t end;
  std::size_t first;
  std::size_t last;
};

// The offset of the smallest gap of at least `size` between the neighbours, which are sorted by begin.
std::uint64_t BestGap(const std::vector<Placed>& placed, const BufferLife& buffer, std::uint64_t size) {
  std::uint64_t best = 0;
  std::uint64_t best_gap = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t covered = 0;
  for (const Placed& other : placed) {
    if (other.last < buffer.first || buffer.last < other.first) continue;
    if (other.begin > covered && other.begin - covered >= size && other.begin - covered < best_gap) {
      best = covered;
      best_gap = other.begin - covered;
    }
    covered = std::max(covered, other.end);
  }
  return best_gap == std::numeric_limits<std::uint64_t>::max() ? covered : best;
}

}  // namespace

MemoryPlacement PlaceBuffers(std::span<const BufferLife> buffers) {
  std::vector<std::size_t> order(buffers.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order,
                           [&](std::size_t a, std::size_t b) { return buffers[a].size > buffers[b].size; });
  MemoryPlacement placement;
  placement.offsets.assign(buffers.size(), 0);
  std::vector<Placed> placed;
  placed.reserve(buffers.size());
  for (std::size_t i : order) {
    const BufferLife& buffer = buffers[i];
    if (buffer.size == Bytes(0)) continue;
    const std::uint64_t size = AlignUp(buffer.size, kAlignment).count();
    const std::uint64_t offset = BestGap(placed, buffer, size);
    placement.offsets[i] = offset;
    placement.size = std::max(placement.size, Bytes(offset + size));
    const Placed entry{offset, offset + size, buffer.first, buffer.last};
    placed.insert(std::ranges::upper_bound(placed, entry.begin, {}, &Placed::begin), entry);
  }
  return placement;
}

std::vector<Bytes> Extents(std::span<const BufferLife> buffers, const MemoryPlacement& placement,
                           std::size_t steps) {
  std::vector<Bytes> extents(steps);
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    if (buffers[i].size == Bytes(0) || steps == 0) continue;
    Bytes& last = extents[std::min(buffers[i].last, steps - 1)];
    last = std::max(last, Bytes(placement.offsets[i]) + AlignUp(buffers[i].size, kAlignment));
  }
  for (std::size_t step = steps; step-- > 1;) extents[step - 1] = std::max(extents[step - 1], extents[step]);
  return extents;
}

std::vector<Bytes> LiveBytes(std::span<const BufferLife> buffers, std::size_t steps) {
  std::vector<Bytes> live(steps);
  for (const BufferLife& buffer : buffers) {
    for (std::size_t step = buffer.first; step <= buffer.last && step < steps; ++step)
      live[step] += AlignUp(buffer.size, kAlignment);
  }
  return live;
}

}  // namespace troupe::gpu
