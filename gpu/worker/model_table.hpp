// Which models are on the device, and what may happen to them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/device/device.hpp"

namespace troupe::gpu {

// absent -(BeginLoading)-> loading -(Loaded)-> resident <-(Acquire, Release)-> running
//          loading -(LoadFailed)-> absent      resident -(Evict)-> absent
// Runs may hold a model from loading on; it is running when it is loaded. The memory of a load that failed
// while runs held it is theirs until the last one releases it; the model itself is absent and may be loaded
// anew, elsewhere. Never evicts by itself: what does not fit is the node controller's to plan. Pure; the main
// loop's thread.
class ModelTable {
 public:
  enum class State { kAbsent, kLoading, kResident, kRunning };
  [[nodiscard]] State StateOf(const std::string& digest) const;

  // Told when the weights of a model are whole at a place, and (nothing) before they may not be any more: where
  // they are then may be written to as soon as this returns.
  using Watcher = std::function<void(const std::string& digest, const std::optional<DeviceRange>& whole)>;
  void Watch(Watcher watcher) { watcher_ = std::move(watcher); }

  // From absent only: asking otherwise is a bug.
  void BeginLoading(const std::string& digest, DeviceRange weights);
  void Loaded(const std::string& digest);
  // Gives back the memory, unless runs hold it.
  [[nodiscard]] std::optional<DeviceRange> LoadFailed(const std::string& digest);

  // What a run holds of a model that it uses.
  struct Hold {
    DeviceRange weights;
    std::uint64_t load = 0;
  };
  // A run that uses the weights begins; Release when it has computed. The model is not absent.
  [[nodiscard]] Hold Acquire(const std::string& digest);
  // Gives back the memory of a load that has failed, when the last of its runs lets go of it.
  [[nodiscard]] std::optional<DeviceRange> Release(const std::string& digest, const Hold& hold);

  // NotFound when absent; FailedPrecondition while it is loading or running.
  [[nodiscard]] absl::Status MayEvict(const std::string& digest) const;
  // The memory, which is the caller's to free; or what MayEvict says.
  [[nodiscard]] absl::StatusOr<DeviceRange> Evict(const std::string& digest);

  // A model that is resident and that no run holds, by where its weights are.
  struct Place {
    std::string digest;
    std::uint64_t load = 0;
  };
  [[nodiscard]] std::optional<Place> IdleAt(const std::byte* weights) const;
  // Its weights are at `to` now. False when it is used, was evicted or loaded anew meanwhile: then nothing
  // has changed.
  [[nodiscard]] bool Move(const Place& place, DeviceRange to);

  // Size of the weights; the model is not absent.
  [[nodiscard]] Bytes SizeOf(const std::string& digest) const;
  // Digests and sizes of what is resident or running.
  [[nodiscard]] std::vector<std::pair<std::string, Bytes>> Resident() const;
  [[nodiscard]] std::size_t loading() const { return loading_; }

 private:
  struct Model {
    DeviceRange weights;
    std::uint64_t load = 0;
    bool loading = true;
    std::size_t users = 0;
  };
  Model& At(const std::string& digest);
  void Tell(const std::string& digest, const std::optional<DeviceRange>& whole) const {
    if (watcher_) watcher_(digest, whole);
  }
  Watcher watcher_;
  std::map<std::string, Model> models_;
  std::map<std::uint64_t, Model> failed_;  // by load: what runs still hold
  std::uint64_t loads_ = 0;
  std::size_t loading_ = 0;
};

}  // namespace troupe::gpu
