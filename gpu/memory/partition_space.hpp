// PARTITIONS (002 appendix A.2): the quota is cut into partitions of equal size. One holds either blocks of
// a fixed size or, by buddy allocation, what is smaller or fits blocks badly.
//
//   free -(a range of blocks)-> blocks -(the last one is freed)-> free
//   free -(a small range)-----> buddy  -(the last one is freed)-> free
//
// A range of blocks may cross partitions: its blocks are adjacent, so that it has one address without any
// mapping. Weights and runs have partitions of their own while there are free ones (runs come and go and
// would leave holes), and a model's ranges share them; but nothing that fits somewhere is refused.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "gpu/memory/buddy.hpp"
#include "gpu/memory/memory_space.hpp"
#include "gpu/memory/partition_runs.hpp"

namespace troupe::gpu {

// 64 blocks to a partition. At most 2048 partitions, so that looking at all of them takes microseconds; at
// least 128 where that leaves 16 KiB to each; of at most 32 MiB where that is possible.
struct PartitionSizes {
  Bytes partition;
  Bytes block;
  [[nodiscard]] static PartitionSizes For(Bytes capacity);
};

class PartitionSpace final : public MemorySpace {
 public:
  explicit PartitionSpace(Bytes capacity);
  ~PartitionSpace() override;

  [[nodiscard]] std::optional<std::uint64_t> Allocate(const MemoryUser& user, Bytes size) override;
  [[nodiscard]] bool AllocateAt(const MemoryUser& user, std::uint64_t offset, Bytes size) override;
  [[nodiscard]] bool Free(std::uint64_t offset) override;
  [[nodiscard]] std::optional<Bytes> Trim(std::uint64_t offset, Bytes size) override;
  [[nodiscard]] std::optional<Bytes> Occupied(std::uint64_t offset) const override;
  [[nodiscard]] MemoryUse use() const override;
  [[nodiscard]] const PartitionSizes& sizes() const { return sizes_; }
  [[nodiscard]] std::size_t free_partitions() const;
  [[nodiscard]] std::size_t partitions() const { return chunks_.size(); }

  // A range that should lie elsewhere. The new place is allocated already: the caller copies, then frees
  // `from`; or frees `to`, when it cannot move it after all.
  struct Move {
    std::uint64_t from = 0;
    std::uint64_t to = 0;
    Bytes size;  // as it was asked for
  };
  // CONSOLIDATION: moves of weights that leave more partitions free or a larger free range than before, the
  // best first, of at most `budget` bytes together. `movable`: whether the range that begins there may move
  // (nothing uses it). Compares all ranges: off the path of requests.
  [[nodiscard]] std::vector<Move> Consolidate(const std::function<bool(std::uint64_t)>& movable,
                                              Bytes budget);
  // ROOM: the moves of weights after which a range of `size` fits, which was refused although as much is
  // free. It moves what is in the way where that is least. None when no place will do, or when more would
  // move than comes. It looks at all ranges, not at all pairs, so it may be called while a swap waits.
  [[nodiscard]] std::vector<Move> MakeRoom(Bytes size, const std::function<bool(std::uint64_t)>& movable);

 private:
  using Kind = MemoryUser::Kind;
  static constexpr std::uint32_t kBlocks = 64;  // of a partition
  // Whose a partition is. Apart from its chunks, because a search looks at many of them.
  struct Tenant {
    std::uint32_t owner = 0;     // the model that has allocated in it last
    Kind kind = Kind::kWeights;  // while it is not free
  };
  // What a search has to know of a buddy partition, side by side for the same reason as free_blocks_.
  struct BuddyPlace {
    std::size_t partition = 0;
    std::uint32_t largest = 0;
    std::uint32_t free = 0;
    Tenant tenant;
  };
  struct Range {
    Bytes size;  // as it was asked for
    Bytes occupied;
    std::uint64_t length = 0;  // blocks, or units in a buddy partition
    Kind kind = Kind::kWeights;
    std::uint32_t owner = 0;
    bool in_buddy = false;
  };
  // How bad a place is; the first difference decides.
  struct Cost {
    std::uint64_t strangers = 0;  // partitions of the other kind that it touches
    std::uint64_t opened = 0;     // free partitions that it begins to use
    std::uint64_t apart = 0;      // 1: no partition that it touches was used for the same model
    std::uint64_t left = 0;       // blocks of its run that it leaves
    auto operator<=>(const Cost&) const = default;
  };

  // Bits of the blocks that it has: the last partition may have fewer than 64.
  [[nodiscard]] std::uint64_t AllBlocks(std::size_t p) const {
    return p + 1 < chunks_.size() ? ~std::uint64_t{0} : OnesBelow(blocks_ - p * kBlocks);
  }
  [[nodiscard]] std::uint64_t BytesOf(std::size_t p) const;
  [[nodiscard]] bool IsFree(std::size_t p) const { return free_blocks_[p] == AllBlocks(p); }
  [[nodiscard]] Cost CostOf(std::uint64_t first, const BlockRun& run, const Range& range) const;
  [[nodiscard]] std::optional<std::uint64_t> FindBlocks(const Range& range, const BlockRun& without) const;
  void MarkBlocks(std::uint64_t first, const Range& range, bool used);
  std::optional<std::uint64_t> AllocateBlocks(Range range);
  [[nodiscard]] std::optional<std::size_t> FindBuddy(const Range& range, Kind kind) const;
  [[nodiscard]] std::optional<std::size_t> FindFree(Bytes size) const;
  std::optional<std::uint64_t> AllocateBuddy(Range range);
  std::uint64_t AllocateIn(std::size_t place, const Range& range);
  [[nodiscard]] static Range RangeFor(const MemoryUser& user, Bytes size);
  [[nodiscard]] bool BlocksAt(std::uint64_t offset, Range range);
  [[nodiscard]] bool BuddyAt(std::uint64_t offset, Range range);
  Buddy& OpenBuddy(std::size_t place, const Range& range);
  [[nodiscard]] std::vector<BuddyPlace>::iterator PlaceOf(std::size_t partition);
  void Show(std::size_t partition);
  [[nodiscard]] bool FitsBlocksWell(Bytes size) const;
  std::uint64_t Record(std::uint64_t offset, const Range& range);

  struct Candidate;
  struct Obstacle;
  struct Hole;
  [[nodiscard]] std::vector<Obstacle> Obstacles(const std::function<bool(std::uint64_t)>& movable) const;
  [[nodiscard]] std::vector<Hole> Holes(const std::vector<Obstacle>& obstacles, std::uint64_t length) const;
  [[nodiscard]] std::vector<Move> Vacate(const std::vector<Obstacle>& obstacles, const Hole& hole);
  [[nodiscard]] double Wholeness() const;
  [[nodiscard]] std::optional<Candidate> BlocksElsewhere(std::uint64_t offset, const Range& range);
  [[nodiscard]] std::optional<Candidate> ChunkElsewhere(
      std::uint64_t offset, const Range& range, const std::function<bool(std::uint64_t)>& movable) const;
  Move Carry(const Candidate& candidate);

  const PartitionSizes sizes_;
  std::uint64_t blocks_ = 0;
  Bytes used_;
  // By partition.
  std::vector<std::unique_ptr<Buddy>> chunks_;  // null: it is free, or of blocks
  std::vector<Tenant> tenants_;
  // A bit per block, set: free. All in a free partition, none in a buddy one. Apart from the rest, because
  // every allocation looks at all of them.
  std::vector<std::uint64_t> free_blocks_;
  std::vector<BuddyPlace> buddies_;                  // in order
  std::unordered_map<std::uint64_t, Range> ranges_;  // by offset
};

}  // namespace troupe::gpu
