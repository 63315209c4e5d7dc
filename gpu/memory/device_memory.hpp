// DEVICE MEMORY: the worker's quota of one device's memory, and what each part of it is used for.
//
//   made (the quota is taken from the device, once) -> Allocate ... Free -> destroyed (the quota goes back)
//
// Addresses: every range is adjacent bytes of the quota, and stays where it is until it is freed, or moved by
// the caller that carries out a Consolidate. Plans take the addresses of weights, inputs, outputs and
// activations anew at each launch, so nothing is translated on the way. `mapped` instead takes weights in
// blocks of 2 MiB wherever they are free, and has the device put them together at an address that the order
// gives: the same on every GPU, for launches that remember addresses (captured graphs), and with no need to
// move anything. The price: a device with small pages (the virtual one: 4 KiB) has as much work with finding
// them under a second address as with copying them, beside the copy.
//
// Owner: the worker's order handler; ends after everything that holds ranges, before the device. The main loop's
// thread.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "gpu/device/device.hpp"
#include "gpu/device/device_settings.hpp"
#include "gpu/memory/memory_policy.hpp"
#include "gpu/memory/memory_space.hpp"
#include "gpu/memory/run_pool.hpp"

namespace troupe::gpu {

class PartitionSpace;

struct MemoryOptions {
  std::string policy{kDefaultMemory};  // has been checked
  Bytes quota;                         // zero, or more than the device has: all of it
  // What a call of the device's allocator costs the baselines that make them.
  Duration device_call = std::chrono::microseconds(100);
  WeightAddresses addresses = WeightAddresses::kAdjacent;  // mapped: the device can map
  // How far the pool looks ahead (RunPool).
  Duration pool_interval = std::chrono::milliseconds(2);
};

class DeviceMemory {
 public:
  DeviceMemory(Device& device, const MemoryOptions& options);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // ResourceExhausted when it does not fit: memory() says what there is. Aligned to 256 bytes; the size is
  // the one asked for. Zero bytes are a range too. Weights leave alone what is set aside for runs.
  // `address`: where mapped weights go, unless others are there; 0: anywhere.
  [[nodiscard]] absl::StatusOr<DeviceRange> Allocate(const MemoryUser& user, Bytes size,
                                                     std::uint64_t address = 0);
  // WEIGHTS THAT AN EARLIER WORKER LEFT in this memory: takes the range that they lie in, OffsetOf its begin
  // then. Nothing when a part of it is not free, or Keeps() is false. What lies there is not touched.
  [[nodiscard]] std::optional<DeviceRange> AllocateAt(const MemoryUser& user, std::uint64_t offset,
                                                      Bytes size);
  // Whether weights lie in one range each, at a place that a later worker can take over.
  [[nodiscard]] bool Keeps() const { return partitions_ != nullptr && !maps_; }
  // From the begin of the quota.
  [[nodiscard]] std::uint64_t OffsetOf(const std::byte* address) const;
  // A range that was not allocated, or freed before, is a bug. No operation uses it any more.
  void Free(const DeviceRange& range);
  // The range keeps its first `size` bytes; policies without partitions keep all of it until it is freed.
  void Trim(DeviceRange& range, Bytes size);
  // Promises memory for the activations of runs: `bytes` beyond what runs hold, of which `longest` in one
  // range (zero: each has a place where another run's ends). From now on no other allocation gets it. The
  // promise holds while KeepsPromise, and only allocations for runs can break it.
  void Promise(Bytes bytes, Bytes longest);
  [[nodiscard]] bool KeepsPromise() const;
  // As weights see it: without what is set aside for runs.
  [[nodiscard]] MemoryUse memory() const;
  // The share of what is free that one allocation cannot get.
  [[nodiscard]] double fragmentation() const;
  // Grows with each allocation and each free.
  [[nodiscard]] std::uint64_t changes() const { return changes_; }
  [[nodiscard]] const std::string& policy() const { return policy_; }
  [[nodiscard]] RunPool& pool() { return pool_; }
  [[nodiscard]] const RunPool& pool() const { return pool_; }
  [[nodiscard]] Device& device() { return device_; }

  // Weights that should move so that free memory becomes contiguous; empty under policies without partitions.
  // `to` is allocated, of the size and the user of `from`: copy, then Free(from); or Free(to), when it cannot
  // be moved after all. `movable`: whether the range at this address may move, because nothing uses it. At
  // most `budget` bytes. Call it when no request waits: it compares all ranges.
  struct Move {
    DeviceRange from;
    DeviceRange to;
  };
  [[nodiscard]] std::vector<Move> Consolidate(const std::function<bool(const std::byte*)>& movable,
                                              Bytes budget);
  // The same for weights of `size` that were refused although as much is free: after these moves they fit.
  // Empty when nothing helps.
  [[nodiscard]] std::vector<Move> MakeRoom(const std::function<bool(const std::byte*)>& movable, Bytes size);

 private:
  struct Entry {
    MemoryUser::Kind kind = MemoryUser::Kind::kWeights;
    std::string digest;
    Bytes occupied;
  };
  [[nodiscard]] std::optional<std::uint64_t> Take(const MemoryUser& user, Bytes size);
  [[nodiscard]] absl::Status NoFit(Bytes size) const;
  [[nodiscard]] absl::StatusOr<DeviceRange> AllocateMapped(const MemoryUser& user, Bytes size,
                                                           std::uint64_t address);
  [[nodiscard]] std::optional<DeviceRange> TakeBlock(const MemoryUser& user, Bytes size);
  void FreeMapped(const DeviceRange& range);
  void GiveBack(const std::vector<DeviceRange>& blocks);
  void Enter(const std::byte* address, const MemoryUser& user, Bytes occupied);
  [[nodiscard]] Move Entered(std::uint64_t from, std::uint64_t to, Bytes size);

  Device& device_;
  const std::string policy_;
  const DeviceRange quota_;
  std::unique_ptr<MemorySpace> space_;
  PartitionSpace* partitions_ = nullptr;  // space_, when it has them
  RunPool pool_;
  Bytes promised_;  // in one range
  std::uint64_t changes_ = 0;
  std::unordered_map<const std::byte*, Entry> entries_;
  struct Mapped {
    DeviceRange range;                // as the device mapped it
    std::vector<DeviceRange> blocks;  // taken from the space
  };
  const bool maps_;
  std::unordered_map<const std::byte*, Mapped> mapped_;  // by address; each has an entry, too
};

}  // namespace troupe::gpu
