// Brings the free parts of device memory together while nothing else happens on the device.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "gpu/memory/device_memory.hpp"
#include "gpu/worker/model_table.hpp"
#include "gpu/worker/task_queue.hpp"

namespace troupe::gpu {

// Carries out DeviceMemory::Consolidate: copies weights within the device, then tells the table where they
// are. A model that is wanted meanwhile is not held up: runs use it where it was, and its move comes to
// nothing; an eviction takes it from where it was. The main loop's thread.
class Consolidator {
 public:
  // How long the device rests before anything moves, and how much moves before others get their turn again.
  static constexpr Duration kRest = std::chrono::milliseconds(100);
  static constexpr Bytes kBudget = MiB(64);
  // Below, free memory hangs together well enough.
  static constexpr double kFragmented = 0.25;

  Consolidator(DeviceMemory& memory, ModelTable& table, TaskQueue& queue);
  ~Consolidator();
  // Called often; `idle`: no runs and no swaps are under way.
  void Tick(Time now, bool idle);
  // Waits for what is moving, which has two places until then. False: nothing was moving, or a copy does not end.
  [[nodiscard]] bool Finish();
  [[nodiscard]] std::uint64_t moved() const { return moved_; }
  [[nodiscard]] std::size_t moving() const { return moving_.size(); }

 private:
  struct Moving {
    DeviceMemory::Move move;
    ModelTable::Place place;
    EventPtr copy;
  };
  void Begin();
  void Copied(std::uint64_t number, bool ok);

  DeviceMemory& memory_;
  ModelTable& table_;
  TaskQueue& queue_;
  std::optional<Time> idle_since_;
  std::uint64_t next_ = 0;
  std::map<std::uint64_t, Moving> moving_;
  std::uint64_t in_vain_ = 0;  // the memory's changes when there was nothing to move
  std::uint64_t moved_ = 0;
  std::unique_ptr<Stream> stream_;  // ends first
};

}  // namespace troupe::gpu
