#include "gpu/memory/partition_space.hpp"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/check.hpp"
#include "gpu/memory/partition_runs.hpp"

namespace troupe::gpu {

PartitionSizes PartitionSizes::For(Bytes capacity) {
  const std::uint64_t few = std::bit_floor(capacity.count() / 128);
  const std::uint64_t many = std::bit_ceil(capacity.count() / 2048);
  const Bytes partition(
      std::max(std::clamp(few, KiB(16).count(), MiB(32).count()), std::max(many, std::uint64_t{1})));
  return {partition, Bytes(partition.count() / 64)};
}

PartitionSpace::PartitionSpace(Bytes capacity)
    : sizes_(PartitionSizes::For(capacity)), blocks_(capacity.count() / sizes_.block.count()) {
  const std::size_t partitions = (blocks_ + kBlocks - 1) / kBlocks;
  chunks_.resize(partitions);
  tenants_.resize(partitions);
  for (std::size_t p = 0; p < partitions; ++p) free_blocks_.push_back(AllBlocks(p));
}

PartitionSpace::~PartitionSpace() = default;

std::size_t PartitionSpace::free_partitions() const {
  std::size_t count = 0;
  for (std::size_t p = 0; p < partitions(); ++p) count += IsFree(p);
  return count;
}

std::uint64_t PartitionSpace::BytesOf(std::size_t p) const {
  return static_cast<std::uint64_t>(std::popcount(AllBlocks(p))) * sizes_.block.count();
}

std::uint64_t PartitionSpace::Record(std::uint64_t offset, const Range& range) {
  used_ += range.occupied;
  ranges_.emplace(offset, range);
  return offset;
}

PartitionSpace::Range PartitionSpace::RangeFor(const MemoryUser& user, Bytes size) {
  Range range;
  range.size = size;
  // A function's state lies beside the weights of its model, and leaves with them.
  range.kind = user.kind == Kind::kState ? Kind::kWeights : user.kind;
  range.owner = static_cast<std::uint32_t>(std::hash<std::string_view>()(user.digest));
  return range;
}

std::optional<std::uint64_t> PartitionSpace::Allocate(const MemoryUser& user, Bytes size) {
  if (size > sizes_.block * blocks_) return std::nullopt;  // also keeps what follows from overflowing
  const Range range = RangeFor(user, size);
  const bool blocks_first = FitsBlocksWell(size);
  std::optional<std::uint64_t> offset = blocks_first ? AllocateBlocks(range) : AllocateBuddy(range);
  if (!offset) offset = blocks_first ? AllocateBuddy(range) : AllocateBlocks(range);
  return offset;
}

// A range that fills its blocks but for a sixteenth: common sizes, and all large ones.
bool PartitionSpace::FitsBlocksWell(Bytes size) const {
  const Bytes blocks = AlignUp(size, sizes_.block);
  return size > Bytes(0) && (blocks - size).count() * 16 <= size.count();
}

PartitionSpace::Cost PartitionSpace::CostOf(std::uint64_t first, const BlockRun& run,
                                            const Range& range) const {
  // Those between the first and the last are free: all their blocks belong to the run.
  const std::uint64_t begin = first / kBlocks;
  const std::uint64_t last = (first + range.length - 1) / kBlocks;
  Cost cost{0, last - begin + 1, 1, run.count - range.length};
  for (const std::uint64_t p : {begin, last}) {
    if (!IsFree(p)) {
      --cost.opened;
      if (tenants_[p].kind != range.kind) ++cost.strangers;
      if (tenants_[p].owner == range.owner) cost.apart = 0;
    }
    if (begin == last) break;
  }
  return cost;
}

std::optional<std::uint64_t> PartitionSpace::FindBlocks(const Range& range, const BlockRun& without) const {
  std::optional<std::pair<Cost, std::uint64_t>> best;
  const auto consider = [&](std::uint64_t first, const BlockRun& run) {
    const Cost cost = CostOf(first, run, range);
    // Runs gather at the upper end, weights at the lower one.
    const bool better = !best || cost < best->first || (cost == best->first && range.kind == Kind::kRun);
    if (better) best.emplace(cost, first);
  };
  ForEachRun(free_blocks_, [&](const BlockRun& run) {
    if (run.count < range.length || run.Overlaps(without)) return;
    const std::uint64_t end = run.first + run.count - range.length;
    // Within one partition all places are as good: most runs, when there are many.
    if (run.first / kBlocks == (run.first + run.count - 1) / kBlocks)
      return consider(range.kind == Kind::kRun ? end : run.first, run);
    // Against either neighbour, or where it shares no partition with them.
    const std::uint64_t up = (run.first + kBlocks - 1) / kBlocks * kBlocks;
    const std::uint64_t down = end / kBlocks * kBlocks;
    for (const std::uint64_t first : {run.first, up, std::max(down, run.first), end}) {
      if (first <= end) consider(first, run);
    }
  });
  if (!best) return std::nullopt;
  return best->second;
}

void PartitionSpace::MarkBlocks(std::uint64_t first, const Range& range, bool used) {
  for (std::uint64_t block = first; block < first + range.length;) {
    const std::size_t p = block / kBlocks;
    const std::uint64_t here = block % kBlocks;
    const std::uint64_t count = std::min(kBlocks - here, first + range.length - block);
    const std::uint64_t mask = OnesBelow(count) << here;
    if (used) {
      TROUPE_CHECK((free_blocks_[p] & mask) == mask, "blocks were given out twice");
      if (IsFree(p)) tenants_[p].kind = range.kind;
      tenants_[p].owner = range.owner;
      free_blocks_[p] &= ~mask;
    } else {
      free_blocks_[p] |= mask;
    }
    block += count;
  }
}

std::optional<std::uint64_t> PartitionSpace::AllocateBlocks(Range range) {
  range.occupied = AlignUp(std::max(range.size, Bytes(1)), sizes_.block);
  range.length = range.occupied.count() / sizes_.block.count();
  const std::optional<std::uint64_t> first = FindBlocks(range, {});
  if (!first) return std::nullopt;
  MarkBlocks(*first, range, true);
  return Record(*first * sizes_.block.count(), range);
}

// The offset does not say whether the range was of blocks; what Allocate tries first is tried first here, too.
bool PartitionSpace::AllocateAt(const MemoryUser& user, std::uint64_t offset, Bytes size) {
  const Bytes total = sizes_.block * blocks_;
  if (offset > total.count() || size.count() > total.count() - offset) return false;
  const Range range = RangeFor(user, size);
  if (FitsBlocksWell(size)) return BlocksAt(offset, range) || BuddyAt(offset, range);
  return BuddyAt(offset, range) || BlocksAt(offset, range);
}

bool PartitionSpace::BlocksAt(std::uint64_t offset, Range range) {
  const std::uint64_t block = sizes_.block.count();
  range.occupied = AlignUp(std::max(range.size, Bytes(1)), sizes_.block);
  range.length = range.occupied.count() / block;
  const BlockRun wanted{offset / block, range.length};
  if (offset % block != 0 || wanted.first + wanted.count > blocks_) return false;
  bool free = false;
  ForEachRun(free_blocks_, [&](const BlockRun& run) {
    free |= run.first <= wanted.first && wanted.first + wanted.count <= run.first + run.count;
  });
  if (!free) return false;
  MarkBlocks(wanted.first, range, true);
  Record(offset, range);
  return true;
}

bool PartitionSpace::BuddyAt(std::uint64_t offset, Range range) {
  const std::size_t place = offset / sizes_.partition.count();
  const std::uint64_t inside = offset % sizes_.partition.count();
  range.in_buddy = true;
  range.occupied = AlignUp(std::max(range.size, Bytes(1)), kUnit);
  range.length = range.occupied.count() / kUnit.count();
  const bool fits = place < partitions() && range.occupied.count() <= BytesOf(place) &&
                    inside <= BytesOf(place) - range.occupied.count();
  if (!fits || offset % kUnit.count() != 0 || (chunks_[place] == nullptr && !IsFree(place))) return false;
  const auto first = static_cast<std::uint32_t>(inside / kUnit.count());
  const auto length = static_cast<std::uint32_t>(range.length);
  // A partition that was free has every unit free, so only one that is open already can refuse.
  if (!OpenBuddy(place, range).AllocateAt(first, length)) return false;
  Show(place);
  Record(offset, range);
  return true;
}

// The fullest that has room, one of the same model before others.
std::optional<std::size_t> PartitionSpace::FindBuddy(const Range& range, Kind kind) const {
  const BuddyPlace* best = nullptr;
  const auto key = [&range](const BuddyPlace& place) {
    return std::pair(place.tenant.owner != range.owner, place.free);
  };
  for (const BuddyPlace& place : buddies_) {
    if (place.tenant.kind != kind || place.largest < range.length) continue;
    if (best == nullptr || key(place) < key(*best)) best = &place;
  }
  if (best == nullptr) return std::nullopt;
  return best->partition;
}

std::vector<PartitionSpace::BuddyPlace>::iterator PartitionSpace::PlaceOf(std::size_t partition) {
  return std::ranges::lower_bound(buddies_, partition, {}, &BuddyPlace::partition);
}

void PartitionSpace::Show(std::size_t partition) {
  const Buddy& shown = *chunks_[partition];
  *PlaceOf(partition) = {partition, shown.largest(), shown.free(), tenants_[partition]};
}

// The last one: large ranges begin at the other end.
std::optional<std::size_t> PartitionSpace::FindFree(Bytes size) const {
  for (std::size_t p = partitions(); p-- > 0;) {
    if (IsFree(p) && std::bit_floor(BytesOf(p)) >= size.count()) return p;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> PartitionSpace::AllocateBuddy(Range range) {
  if (range.size > sizes_.partition) return std::nullopt;
  range.in_buddy = true;
  range.occupied = AlignUp(std::max(range.size, Bytes(1)), kUnit);
  range.length = range.occupied.count() / kUnit.count();
  std::optional<std::size_t> place = FindBuddy(range, range.kind);
  if (!place) place = FindFree(range.occupied);
  if (!place) place = FindBuddy(range, range.kind == Kind::kRun ? Kind::kWeights : Kind::kRun);
  if (!place) return std::nullopt;
  return AllocateIn(*place, range);
}

Buddy& PartitionSpace::OpenBuddy(std::size_t place, const Range& range) {
  std::unique_ptr<Buddy>& chunks = chunks_[place];
  if (chunks == nullptr) {
    chunks = std::make_unique<Buddy>(static_cast<std::uint32_t>(BytesOf(place) / kUnit.count()));
    tenants_[place].kind = range.kind;
    free_blocks_[place] = 0;
    buddies_.insert(PlaceOf(place), BuddyPlace{place, 0, 0, tenants_[place]});
  }
  tenants_[place].owner = range.owner;
  return *chunks;
}

std::uint64_t PartitionSpace::AllocateIn(std::size_t place, const Range& range) {
  const auto chunk = OpenBuddy(place, range).Allocate(static_cast<std::uint32_t>(range.length));
  TROUPE_CHECK(chunk.has_value(), "a partition that had room has none");
  Show(place);
  return Record(place * sizes_.partition.count() + *chunk * kUnit.count(), range);
}

bool PartitionSpace::Free(std::uint64_t offset) {
  const auto found = ranges_.find(offset);
  if (found == ranges_.end()) return false;
  const Range range = found->second;
  ranges_.erase(found);
  used_ -= range.occupied;
  if (!range.in_buddy) {
    MarkBlocks(offset / sizes_.block.count(), range, false);
    return true;
  }
  const std::size_t p = offset / sizes_.partition.count();
  std::unique_ptr<Buddy>& chunks = chunks_[p];
  const std::uint64_t chunk = offset % sizes_.partition.count() / kUnit.count();
  chunks->Free(static_cast<std::uint32_t>(chunk), static_cast<std::uint32_t>(range.length));
  if (chunks->empty()) {
    chunks.reset();
    free_blocks_[p] = AllBlocks(p);
    buddies_.erase(PlaceOf(p));
  } else {
    Show(p);
  }
  return true;
}

std::optional<Bytes> PartitionSpace::Trim(std::uint64_t offset, Bytes size) {
  const auto found = ranges_.find(offset);
  if (found == ranges_.end()) return std::nullopt;
  Range& range = found->second;
  const Bytes unit = range.in_buddy ? kUnit : sizes_.block;
  const std::uint64_t length = AlignUp(std::max(size, Bytes(1)), unit).count() / unit.count();
  if (length >= range.length) return range.occupied;
  const std::uint64_t less = range.length - length;
  if (range.in_buddy) {
    const std::size_t p = offset / sizes_.partition.count();
    const std::uint64_t end = offset % sizes_.partition.count() / kUnit.count() + length;
    chunks_[p]->Free(static_cast<std::uint32_t>(end), static_cast<std::uint32_t>(less));
    Show(p);
  } else {
    Range tail = range;
    tail.length = less;
    MarkBlocks(offset / sizes_.block.count() + length, tail, false);
  }
  used_ -= unit * less;
  range.size = std::min(range.size, size);
  range.length = length;
  range.occupied = unit * length;
  return range.occupied;
}

std::optional<Bytes> PartitionSpace::Occupied(std::uint64_t offset) const {
  const auto found = ranges_.find(offset);
  if (found == ranges_.end()) return std::nullopt;
  return found->second.occupied;
}

MemoryUse PartitionSpace::use() const {
  const Bytes total = sizes_.block * blocks_;
  std::uint64_t run_blocks = 0;
  std::uint64_t chunk = 0;
  ForEachRun(free_blocks_, [&](const BlockRun& run) { run_blocks = std::max(run_blocks, run.count); });
  for (const BuddyPlace& place : buddies_) chunk = std::max<std::uint64_t>(chunk, place.largest);
  return {total, total - used_, std::max(sizes_.block * run_blocks, kUnit * chunk)};
}

}  // namespace troupe::gpu
