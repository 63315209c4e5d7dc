// The baselines that ask the device for every range: spaces whose calls have a price.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <unordered_map>

#include "gpu/memory/memory_space.hpp"
#include "transport/range_allocator.hpp"

namespace troupe::gpu {

// Pays for a call of the device's allocator: cudaMalloc and cudaFree stop the world for about 100 us, the
// virtual device's allocator for none. Null: free of charge.
using PayForCall = std::function<void()>;

// `device-malloc`: the device's own allocator, as far as the quota goes. Best fit.
class DeviceCalls final : public MemorySpace {
 public:
  DeviceCalls(Bytes capacity, PayForCall pay);
  [[nodiscard]] std::optional<std::uint64_t> Allocate(const MemoryUser& user, Bytes size) override;
  [[nodiscard]] bool Free(std::uint64_t offset) override;
  [[nodiscard]] std::optional<Bytes> Occupied(std::uint64_t offset) const override;
  [[nodiscard]] MemoryUse use() const override;

 private:
  transport::RangeAllocator ranges_;
  PayForCall pay_;
};

// `block-cache` (Torpor-Block, 002 section 7.3): a freed block is kept, and handed out whole to the next
// request that it satisfies, the smallest such one first. When none does, the device is asked; when it has
// no room, kept blocks go back to it, the one that was kept longest first, until it has.
class BlockCache final : public MemorySpace {
 public:
  BlockCache(Bytes capacity, PayForCall pay);
  [[nodiscard]] std::optional<std::uint64_t> Allocate(const MemoryUser& user, Bytes size) override;
  [[nodiscard]] bool Free(std::uint64_t offset) override;
  [[nodiscard]] std::optional<Bytes> Occupied(std::uint64_t offset) const override;
  // Kept blocks are free: what matters is what could be allocated if they went back.
  [[nodiscard]] MemoryUse use() const override;

 private:
  struct Kept {
    std::uint64_t offset;
    Bytes length;
  };
  void GiveBack(std::list<Kept>::iterator block);

  transport::RangeAllocator ranges_;
  PayForCall pay_;
  Bytes used_;
  std::unordered_map<std::uint64_t, Bytes> handed_out_;
  std::list<Kept> kept_;  // the oldest first
  std::multimap<Bytes, std::list<Kept>::iterator> by_length_;
};

}  // namespace troupe::gpu
