// Brings models onto the device and drops them.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gpu/device/device.hpp"
#include "gpu/memory/device_memory.hpp"
#include "gpu/worker/host_model.hpp"
#include "gpu/worker/lanes.hpp"
#include "gpu/worker/limits.hpp"
#include "gpu/worker/model_table.hpp"
#include "gpu/worker/reply.hpp"
#include "gpu/worker/task_queue.hpp"

namespace troupe::gpu {

// Executes swap orders with a stream of its own; who goes for whom is decided elsewhere. The main loop's
// thread.
class Residency {
 public:
  // Told when a model has become resident, or has failed to.
  using Changed = std::function<void(const std::string& digest, const absl::Status& status)>;
  // Whether runs wait for this model: it is not evicted from under them.
  using Wanted = std::function<bool(const std::string& digest)>;
  Residency(DeviceMemory& memory, TaskQueue& queue, Lanes lanes, const WorkerLimits& limits);
  ~Residency();
  void Connect(Changed changed, Wanted wanted);

  // Answers when the whole model is there; at once when it was. NoFit with ResourceExhausted when memory is
  // short.
  void SwapIn(const HostModel& host, Reply reply);
  void Evict(const std::string& digest, Reply reply);

  [[nodiscard]] ModelTable& table() { return table_; }
  [[nodiscard]] const ModelTable& table() const { return table_; }
  [[nodiscard]] std::uint64_t swaps() const { return swaps_; }

 private:
  void Copied(const std::string& digest, const absl::Status& status);

  DeviceMemory& memory_;
  TaskQueue& queue_;
  Lanes lanes_;
  const WorkerLimits& limits_;
  ModelTable table_;
  Changed changed_;
  Wanted wanted_;
  std::map<std::string, std::vector<Reply>> waiting_;  // for models that are loading
  std::uint64_t swaps_ = 0;
  std::unique_ptr<Stream> stream_;
};

// What a refused allocation answers.
[[nodiscard]] proto::WorkerOutcome NoFitOutcome(const DeviceMemory& memory);

}  // namespace troupe::gpu
