// Which ranges should lie elsewhere (PartitionSpace::Consolidate).
#include <algorithm>
#include <utility>

#include "gpu/memory/partition_space.hpp"

namespace troupe::gpu {

struct PartitionSpace::Candidate {
  std::uint64_t from = 0;
  Range range;
  std::uint64_t to = 0;  // block, or the buddy partition
  double gain = 0;       // wholeness per byte moved
};

// The sum of the squares of the free runs' lengths: it grows when two runs become one, and when a longer one
// grows at the cost of a shorter one. So moves that let it grow come to an end.
double PartitionSpace::Wholeness() const {
  double sum = 0;
  ForEachRun(free_blocks_, [&sum](const BlockRun& run) {
    sum += static_cast<double>(run.count) * static_cast<double>(run.count);
  });
  return sum;
}

// Tries it: takes the range out, puts it where it would go, and undoes both.
std::optional<PartitionSpace::Candidate> PartitionSpace::BlocksElsewhere(std::uint64_t offset,
                                                                         const Range& range) {
  const std::uint64_t first = offset / sizes_.block.count();
  const double before = Wholeness();
  MarkBlocks(first, range, false);
  // Not into the gap that it leaves: the copy must not overlap its source.
  const std::optional<std::uint64_t> to = FindBlocks(range, {first, range.length});
  double after = 0;
  if (to) {
    MarkBlocks(*to, range, true);
    after = Wholeness();
    MarkBlocks(*to, range, false);
  }
  MarkBlocks(first, range, true);
  if (!to || after <= before) return std::nullopt;
  return Candidate{offset, range, *to, (after - before) / static_cast<double>(range.occupied.count())};
}

// From a partition that can be vacated wholly, into a fuller one.
std::optional<PartitionSpace::Candidate> PartitionSpace::ChunkElsewhere(
    std::uint64_t offset, const Range& range, const std::function<bool(std::uint64_t)>& movable) const {
  const std::size_t here = offset / sizes_.partition.count();
  for (const auto& [other, unused] : ranges_) {
    if (other / sizes_.partition.count() == here && !movable(other)) return std::nullopt;
  }
  const BuddyPlace* best = nullptr;
  for (const BuddyPlace& place : buddies_) {
    if (place.partition == here || place.tenant.kind != range.kind || place.largest < range.length) continue;
    const auto fuller = std::pair(place.free, place.partition);
    if (fuller >= std::pair(chunks_[here]->free(), here)) continue;
    if (best == nullptr || place.free < best->free) best = &place;
  }
  if (best == nullptr) return std::nullopt;
  return Candidate{offset, range, best->partition, 1.0 / static_cast<double>(sizes_.block.count())};
}

PartitionSpace::Move PartitionSpace::Carry(const Candidate& candidate) {
  std::uint64_t to = 0;
  if (candidate.range.in_buddy) {
    to = AllocateIn(candidate.to, candidate.range);
  } else {
    MarkBlocks(candidate.to, candidate.range, true);
    to = Record(candidate.to * sizes_.block.count(), candidate.range);
  }
  return {candidate.from, to, candidate.range.size};
}

std::vector<PartitionSpace::Move> PartitionSpace::Consolidate(
    const std::function<bool(std::uint64_t)>& movable, Bytes budget) {
  std::vector<std::pair<std::uint64_t, Range>> there;
  for (const auto& [offset, range] : ranges_) {
    if (range.kind == Kind::kWeights && range.size > Bytes(0) && movable(offset))
      there.emplace_back(offset, range);
  }
  std::ranges::sort(there, {}, [](const auto& entry) { return entry.first; });  // the same plan each time
  std::vector<Move> moves;
  while (!there.empty()) {
    std::optional<Candidate> best;
    for (const auto& [offset, range] : there) {
      if (range.occupied > budget) continue;
      const std::optional<Candidate> candidate =
          range.in_buddy ? ChunkElsewhere(offset, range, movable) : BlocksElsewhere(offset, range);
      if (candidate && (!best || candidate->gain > best->gain)) best = candidate;
    }
    if (!best) break;
    budget -= best->range.occupied;
    moves.push_back(Carry(*best));
    std::erase_if(there, [&best](const auto& entry) { return entry.first == best->from; });
  }
  return moves;
}

}  // namespace troupe::gpu
