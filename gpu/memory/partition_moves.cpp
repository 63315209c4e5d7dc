// Which ranges should lie elsewhere (PartitionSpace::Consolidate), and what lies in the way of a large range and
// where else it would go (PartitionSpace::MakeRoom).
#include <algorithm>
#include <limits>
#include <utility>

#include "gpu/memory/partition_space.hpp"

namespace troupe::gpu {

namespace {

constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();
constexpr std::size_t kTries = 8;  // places that are looked at closely, the cheapest first

}  // namespace

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

// Blocks that are taken: by a range, or by a buddy partition, which stays.
struct PartitionSpace::Obstacle {
  BlockRun blocks;
  std::uint64_t offset = 0;
  bool moves = false;
};

struct PartitionSpace::Hole {
  BlockRun blocks;
  std::uint64_t cost = 0;  // blocks that have to move
};

std::vector<PartitionSpace::Obstacle> PartitionSpace::Obstacles(
    const std::function<bool(std::uint64_t)>& movable) const {
  std::vector<Obstacle> obstacles;
  for (const auto& [offset, range] : ranges_) {
    if (range.in_buddy) continue;
    const bool moves = range.kind == Kind::kWeights && range.size > Bytes(0) && movable(offset);
    obstacles.push_back({{offset / sizes_.block.count(), range.length}, offset, moves});
  }
  for (const BuddyPlace& place : buddies_)
    obstacles.push_back({{place.partition * kBlocks, kBlocks}, 0, false});
  std::ranges::sort(obstacles, {}, [](const Obstacle& obstacle) { return obstacle.blocks.first; });
  return obstacles;
}

// Of all places the cheapest begins or ends at an obstacle: another one can be shifted until it does.
std::vector<PartitionSpace::Hole> PartitionSpace::Holes(const std::vector<Obstacle>& obstacles,
                                                        std::uint64_t length) const {
  std::vector<std::uint64_t> begins = {0, blocks_ - length};
  for (const Obstacle& obstacle : obstacles) {
    begins.push_back(obstacle.blocks.first + obstacle.blocks.count);
    if (obstacle.blocks.first >= length) begins.push_back(obstacle.blocks.first - length);
  }
  std::vector<Hole> holes;
  for (const std::uint64_t begin : begins) {
    if (begin + length > blocks_) continue;
    Hole hole{{begin, length}, 0};
    for (const Obstacle& obstacle : obstacles) {
      if (!obstacle.blocks.Overlaps(hole.blocks)) continue;
      hole.cost = obstacle.moves ? hole.cost + obstacle.blocks.count : kNever;
      if (hole.cost == kNever) break;
    }
    if (hole.cost <= length) holes.push_back(hole);
  }
  std::ranges::sort(holes, {}, [](const Hole& hole) { return std::pair(hole.cost, hole.blocks.first); });
  return holes;
}

// Finds everything in the hole another place, or nothing of it.
std::vector<PartitionSpace::Move> PartitionSpace::Vacate(const std::vector<Obstacle>& obstacles,
                                                         const Hole& hole) {
  std::vector<const Obstacle*> inside;
  for (const Obstacle& obstacle : obstacles)
    if (obstacle.blocks.Overlaps(hole.blocks)) inside.push_back(&obstacle);
  // The largest has the fewest places to go.
  std::ranges::stable_sort(
      inside, [](const Obstacle* a, const Obstacle* b) { return a->blocks.count > b->blocks.count; });
  const std::vector<std::uint64_t> before = free_blocks_;
  for (std::uint64_t block = hole.blocks.first; block < hole.blocks.first + hole.blocks.count; ++block)
    free_blocks_[block / kBlocks] &= ~(std::uint64_t{1} << block % kBlocks);
  std::vector<std::pair<const Obstacle*, std::uint64_t>> places;
  for (const Obstacle* obstacle : inside) {
    const Range& range = ranges_.at(obstacle->offset);
    const std::optional<std::uint64_t> first = FindBlocks(range, {});
    if (!first) break;
    MarkBlocks(*first, range, true);
    places.emplace_back(obstacle, *first);
  }
  free_blocks_ = before;
  std::vector<Move> moves;
  if (places.size() < inside.size()) return moves;
  for (const auto& [obstacle, first] : places) {
    const Range range = ranges_.at(obstacle->offset);
    MarkBlocks(first, range, true);
    moves.push_back({obstacle->offset, Record(first * sizes_.block.count(), range), range.size});
  }
  return moves;
}

std::vector<PartitionSpace::Move> PartitionSpace::MakeRoom(
    Bytes size, const std::function<bool(std::uint64_t)>& movable) {
  const std::uint64_t length = AlignUp(std::max(size, Bytes(1)), sizes_.block).count() / sizes_.block.count();
  if (length > blocks_) return {};
  const std::vector<Obstacle> obstacles = Obstacles(movable);
  std::vector<Hole> holes = Holes(obstacles, length);
  if (holes.size() > kTries) holes.resize(kTries);
  for (const Hole& hole : holes) {
    std::vector<Move> moves = Vacate(obstacles, hole);
    if (!moves.empty()) return moves;
  }
  return {};
}

}  // namespace troupe::gpu
