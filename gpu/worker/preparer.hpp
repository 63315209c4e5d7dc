// Makes plans on the preparation thread, once per plan however many ask.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "gpu/device/device.hpp"
#include "gpu/worker/host_model.hpp"
#include "gpu/worker/lanes.hpp"
#include "gpu/worker/limits.hpp"
#include "gpu/worker/plan_cache.hpp"
#include "gpu/worker/task_queue.hpp"

namespace troupe::gpu {

// absent -(Prepare)-> being prepared -> in the plan cache, or failed (and absent again)
// The main loop's thread; the device's Prepare runs on a thread of this object.
class Preparer {
 public:
  using Done = std::function<void(const absl::StatusOr<std::shared_ptr<DevicePlan>>&)>;
  Preparer(Device& device, TaskQueue& queue, Lanes lanes, const WorkerLimits& limits);

  // `done` is called once, on the main loop's thread: now, for a plan that is there. ResourceExhausted when
  // too many plans wait to be made.
  void Prepare(std::uint64_t order, const HostModel& host, std::vector<proto::TensorSpec> inputs,
               proto::Precision precision, Done done);
  [[nodiscard]] std::shared_ptr<DevicePlan> Find(const std::string& key) { return cache_.Find(key); }
  [[nodiscard]] bool Preparing(const std::string& key) const { return waiting_.contains(key); }
  // Adds a run that waits for a plan that is being prepared.
  void Await(const std::string& key, Done done);
  [[nodiscard]] const PlanCache& cache() const { return cache_; }
  // For the control page.
  void ShowLane();

 private:
  struct Waiting {
    std::uint64_t order = 0;
    std::vector<Done> done;
  };
  void Finished(const std::string& key, const std::string& digest, proto::Precision precision,
                absl::StatusOr<std::shared_ptr<DevicePlan>> plan);

  Device& device_;
  TaskQueue& queue_;
  Lanes lanes_;
  const WorkerLimits& limits_;
  PlanCache cache_;
  std::map<std::string, Waiting> waiting_;  // by key
  std::uint64_t finished_ = 0;
  TaskThread thread_;  // ends first
};

}  // namespace troupe::gpu
