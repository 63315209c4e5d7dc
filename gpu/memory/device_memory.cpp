#include "gpu/memory/device_memory.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "gpu/device/precise_sleep.hpp"
#include "gpu/memory/device_calls.hpp"
#include "gpu/memory/partition_space.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::gpu {
namespace {

using Kind = MemoryUser::Kind;

DeviceRange TakeQuota(Device& device, Bytes quota) {
  const Bytes there = device.memory().largest;
  const absl::StatusOr<DeviceRange> range =
      device.Allocate(quota == Bytes(0) ? there : std::min(quota, there));
  TROUPE_CHECK(range.ok(), "a device gives the largest range that it has");
  return *range;
}

MemoryPolicy PolicyOf(const MemoryOptions& options) {
  const absl::StatusOr<MemoryPolicy> policy = FindMemoryPolicy(options.policy);
  TROUPE_CHECK(policy.ok(), "the name of the memory policy has been checked");
  return *policy;
}

std::unique_ptr<MemorySpace> MakeSpace(const MemoryOptions& options, Bytes capacity) {
  const auto pay = [cost = options.device_call] { PreciseSleepUntil(transport::SteadyNow() + cost); };
  switch (PolicyOf(options).source) {
    case MemoryPolicy::Source::kCachedBlocks:
      return std::make_unique<BlockCache>(capacity, pay);
    case MemoryPolicy::Source::kDevice:
      return std::make_unique<DeviceCalls>(capacity, pay);
    case MemoryPolicy::Source::kPartitions:
      break;
  }
  return std::make_unique<PartitionSpace>(capacity);
}

}  // namespace

DeviceMemory::DeviceMemory(Device& device, const MemoryOptions& options)
    : device_(device),
      policy_(options.policy.empty() ? kDefaultMemory : options.policy),
      quota_(TakeQuota(device, options.quota)),
      space_(MakeSpace(options, quota_.size)),
      partitions_(dynamic_cast<PartitionSpace*>(space_.get())),
      pool_(PolicyOf(options).pool, options.pool_interval),
      maps_(options.addresses == WeightAddresses::kMapped) {
  TROUPE_CHECK(!maps_ || device_.MappingUnit() > Bytes(0), "a device that maps nothing was asked to");
}

DeviceMemory::~DeviceMemory() {
  device_.Free(quota_);
}

std::uint64_t DeviceMemory::OffsetOf(const std::byte* address) const {
  return static_cast<std::uint64_t>(address - quota_.address);
}

std::optional<std::uint64_t> DeviceMemory::Take(const MemoryUser& user, Bytes size) {
  std::optional<std::uint64_t> offset;
  if (user.kind == Kind::kRun || (pool_.set_aside() == Bytes(0) && promised_ == Bytes(0))) {
    offset = space_->Allocate(user, size);
  } else if (const Bytes free = memory().free; size <= free) {
    offset = space_->Allocate(user, size);
    // Rounding may have made it too large, and it may lie where a run needs one range.
    if (offset && (*space_->Occupied(*offset) > free || !KeepsPromise())) {
      TROUPE_CHECK(space_->Free(*offset), "a range that was just allocated is not");
      offset.reset();
    }
  }
  return offset;
}

absl::Status DeviceMemory::NoFit(Bytes size) const {
  const MemoryUse use = memory();
  return absl::ResourceExhaustedError(
      absl::StrCat(FormatBytes(size), " do not fit ", device_.info().name, ": ", FormatBytes(use.free),
                   " are free, the largest range has ", FormatBytes(use.largest), ", ",
                   FormatBytes(pool_.set_aside()), " are set aside for runs"));
}

absl::StatusOr<DeviceRange> DeviceMemory::Allocate(const MemoryUser& user, Bytes size,
                                                   std::uint64_t address) {
  if (maps_ && user.kind == Kind::kWeights && size > Bytes(0)) return AllocateMapped(user, size, address);
  const std::optional<std::uint64_t> offset = Take(user, size);
  if (!offset) return NoFit(size);
  std::byte* const place = quota_.address + *offset;
  Enter(place, user, *space_->Occupied(*offset));
  if (user.kind == Kind::kRun) pool_.Planned(user.digest, size);
  return DeviceRange{place, size};
}

std::optional<DeviceRange> DeviceMemory::AllocateAt(const MemoryUser& user, std::uint64_t offset,
                                                    Bytes size) {
  if (!Keeps() || !space_->AllocateAt(user, offset, size)) return std::nullopt;
  std::byte* const place = quota_.address + offset;
  Enter(place, user, *space_->Occupied(offset));
  return DeviceRange{place, size};
}

void DeviceMemory::Enter(const std::byte* address, const MemoryUser& user, Bytes occupied) {
  ++changes_;
  entries_.emplace(address, Entry{user.kind, std::string(user.digest), occupied});
  if (user.kind == Kind::kRun) {
    pool_.Took(user.digest, occupied);
  } else if (user.kind == Kind::kWeights) {
    pool_.Arrived(user.digest);
  }
}

void DeviceMemory::Free(const DeviceRange& range) {
  if (mapped_.contains(range.address)) return FreeMapped(range);
  const auto found = entries_.find(range.address);
  TROUPE_CHECK(found != entries_.end() && space_->Free(OffsetOf(range.address)),
               "a range was freed that is not allocated");
  const Entry entry = std::move(found->second);
  entries_.erase(found);
  ++changes_;
  if (entry.kind == Kind::kRun) {
    pool_.GaveBack(entry.digest, entry.occupied);
  } else if (entry.kind == Kind::kWeights) {
    pool_.Left(entry.digest);
  }
}

void DeviceMemory::Trim(DeviceRange& range, Bytes size) {
  const auto found = entries_.find(range.address);
  TROUPE_CHECK(found != entries_.end(), "a range was trimmed that is not allocated");
  if (partitions_ == nullptr || size >= range.size) return;
  Entry& entry = found->second;
  const Bytes occupied = *space_->Trim(OffsetOf(range.address), size);
  if (entry.kind == Kind::kRun) pool_.GaveBack(entry.digest, entry.occupied - occupied);
  entry.occupied = occupied;
  range.size = size;
  ++changes_;
}

void DeviceMemory::Promise(Bytes bytes, Bytes longest) {
  pool_.Expect(bytes);
  promised_ = longest;
}

// The baselines without partitions promise nothing.
bool DeviceMemory::KeepsPromise() const {
  return promised_ == Bytes(0) || partitions_ == nullptr || space_->use().largest >= promised_;
}

MemoryUse DeviceMemory::memory() const {
  MemoryUse use = space_->use();
  use.free -= std::min(use.free, pool_.set_aside());
  use.largest = std::min(use.largest, use.free);
  return use;
}

double DeviceMemory::fragmentation() const {
  const MemoryUse use = space_->use();
  if (use.free == Bytes(0)) return 0;
  return 1 - static_cast<double>(use.largest.count()) / static_cast<double>(use.free.count());
}

// A new place has the user of the old one.
DeviceMemory::Move DeviceMemory::Entered(std::uint64_t from, std::uint64_t to, Bytes size) {
  std::byte* const source = quota_.address + from;
  std::byte* const target = quota_.address + to;
  const Entry entry = entries_.at(source);
  Enter(target, {entry.kind, entry.digest}, *space_->Occupied(to));
  return {{source, size}, {target, size}};
}

std::vector<DeviceMemory::Move> DeviceMemory::Consolidate(
    const std::function<bool(const std::byte*)>& movable, Bytes budget) {
  std::vector<Move> moves;
  if (partitions_ == nullptr) return moves;
  const auto may = [&](std::uint64_t offset) { return movable(quota_.address + offset); };
  for (const PartitionSpace::Move& move : partitions_->Consolidate(may, budget))
    moves.push_back(Entered(move.from, move.to, move.size));
  return moves;
}

std::vector<DeviceMemory::Move> DeviceMemory::MakeRoom(const std::function<bool(const std::byte*)>& movable,
                                                       Bytes size) {
  std::vector<Move> moves;
  if (partitions_ == nullptr || size > memory().free) return moves;
  const auto may = [&](std::uint64_t offset) { return movable(quota_.address + offset); };
  const std::vector<PartitionSpace::Move> planned = partitions_->MakeRoom(size, may);
  const bool kept = KeepsPromise();  // a new place may lie where a run needs one range
  for (const PartitionSpace::Move& move : planned) {
    if (kept) {
      moves.push_back(Entered(move.from, move.to, move.size));
    } else {
      TROUPE_CHECK(partitions_->Free(move.to), "a place that was just taken is not");
    }
  }
  return moves;
}

}  // namespace troupe::gpu
