// Which models are on the device, and what may happen to them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/device/device.hpp"

namespace troupe::gpu {

// absent -(BeginLoading)-> loading -(Loaded)-> resident <-(Acquire, Release)-> running
//          loading -(LoadFailed)-> absent      resident -(Evict)-> absent
// Never evicts by itself: what does not fit is the node controller's to plan. Pure; the main loop's thread.
class ModelTable {
 public:
  enum class State { kAbsent, kLoading, kResident, kRunning };
  [[nodiscard]] State StateOf(const std::string& digest) const;

  // From absent only: asking otherwise is a bug.
  void BeginLoading(const std::string& digest, DeviceRange weights);
  void Loaded(const std::string& digest);
  // Gives back the memory.
  [[nodiscard]] DeviceRange LoadFailed(const std::string& digest);

  // A run that uses the weights begins; Release when it has computed. The model is resident or running.
  [[nodiscard]] DeviceRange Acquire(const std::string& digest);
  void Release(const std::string& digest);

  // The memory, which is the caller's to free. NotFound when absent; FailedPrecondition while it is loading
  // or running.
  [[nodiscard]] absl::StatusOr<DeviceRange> Evict(const std::string& digest);

  // Size of the weights; the model is not absent.
  [[nodiscard]] Bytes SizeOf(const std::string& digest) const;
  // Digests and sizes of what is resident or running.
  [[nodiscard]] std::vector<std::pair<std::string, Bytes>> Resident() const;
  [[nodiscard]] std::size_t loading() const { return loading_; }

 private:
  struct Model {
    DeviceRange weights;
    bool loading = true;
    std::size_t users = 0;
  };
  Model& At(const std::string& digest);
  std::map<std::string, Model> models_;
  std::size_t loading_ = 0;
};

}  // namespace troupe::gpu
