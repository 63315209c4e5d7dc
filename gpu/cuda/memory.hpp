// The memory of a GPU as virtual memory management has it: physical units that are made once and mapped side
// by side at one home range; units may be mapped under further addresses, given away and imported.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "gpu/cuda/context.hpp"
#include "gpu/device/device.hpp"

namespace troupe::gpu::cuda {

// One unit of physical memory.
using UnitHandle = CUmemGenericAllocationHandle;

// How large the units are of which this much memory of a GPU with this granularity is made: larger where making and
// mapping them would be too many calls. `maps`: models are mapped, each of which takes whole units.
[[nodiscard]] Bytes UnitFor(Bytes granularity, Bytes size, bool maps);

// Addresses with units mapped to them one after the other, readable and writable for one GPU. Unmapped by the
// destructor; the handles stay their owner's.
class MappedUnits {
 public:
  // At `address`, or (0) anywhere; AlreadyExists when the driver gives another one.
  static absl::StatusOr<MappedUnits> Map(const Context& context, std::uint64_t address, Bytes unit,
                                         std::span<const UnitHandle> units);
  MappedUnits(MappedUnits&& other) noexcept;
  MappedUnits& operator=(MappedUnits&&) = delete;
  ~MappedUnits();
  [[nodiscard]] std::byte* address() const { return reinterpret_cast<std::byte*>(address_); }
  [[nodiscard]] Bytes size() const { return size_; }

 private:
  MappedUnits(const Context& context, CUdeviceptr address, Bytes size)
      : context_(&context), address_(address), size_(size) {}
  const Context* context_;
  CUdeviceptr address_;
  Bytes size_;
  Bytes mapped_;  // of it, from the begin
};

// Thread-safe.
class Memory {
 public:
  // `size` is rounded down to whole units, whose size it decides: a multiple of the GPU's granularity.
  // ResourceExhausted says how much there was when the driver refused.
  // `maps`: models are mapped to addresses of their own, for which units are as small as the GPU has them.
  static absl::StatusOr<std::unique_ptr<Memory>> Make(const Context& context, Bytes size, bool maps);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  [[nodiscard]] Bytes unit() const { return unit_; }
  [[nodiscard]] DeviceRange home() const { return {home_->address(), home_->size()}; }

  // Device::Map and Unmap. Mapping waits for all that the GPU has to do: its caller must not be needed for that.
  // Unmapping waits, too, and a thread of its own does it.
  absl::StatusOr<DeviceRange> Map(std::uint64_t address, std::span<const DeviceRange> pieces);
  void Unmap(const DeviceRange& mapped);

  // Where a range of the home, or of a mapping, lies: runs of units one after the other, and which bytes of
  // each run.
  struct Lying {
    std::span<const UnitHandle> units;
    Bytes offset;  // in the first of them
    Bytes size;
  };
  [[nodiscard]] std::vector<Lying> Under(const DeviceRange& range) const;

 private:
  struct Mapping {
    std::optional<MappedUnits> units;
    std::vector<DeviceRange> pieces;
    bool leaving = false;
  };
  Memory(const Context& context, Bytes unit) : context_(context), unit_(unit) {}
  absl::Status Fill(Bytes size);
  [[nodiscard]] std::size_t UnitAt(const std::byte* address) const;
  absl::Status AwaitRoom(std::uint64_t address, Bytes size);
  [[nodiscard]] static bool Meets(const DeviceRange& range, std::uint64_t address, Bytes size);
  [[nodiscard]] std::vector<DeviceRange> AtHome(const DeviceRange& range) const;
  void Serve();

  const Context& context_;
  const Bytes unit_;
  std::vector<UnitHandle> units_;  // as they lie at home
  std::optional<MappedUnits> home_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::byte*, Mapping> mappings_;  // guarded by mutex_, as all below
  DeviceRange going_;                       // that the thread unmaps at this moment
  DeviceRange awaited_;                     // that a caller waits for to leave
  bool stopping_ = false;
  std::thread thread_;  // from the first Unmap on
};

}  // namespace troupe::gpu::cuda
