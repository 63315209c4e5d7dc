// SCHEDULER VIEW: what others may read of the swap scheduler's tables, by name and in the order of names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "node/requests/run_limit.hpp"
#include "node/scheduling/scheduler_parts.hpp"

namespace troupe::node {

class SchedulerView {
 public:
  SchedulerView(const SchedulerView&) = delete;  // the parts look at their tables
  SchedulerView& operator=(const SchedulerView&) = delete;

  // --- models ---
  [[nodiscard]] bool Knows(const std::string& model) const {
    return parts_.tables.Adopted(parts_.tables.Find(model)) != nullptr;
  }
  [[nodiscard]] bool Waits(const std::string& model) const { return WaitingFor(model) > 0; }
  [[nodiscard]] std::size_t WaitingFor(const std::string& model) const {
    return parts_.tables.WaitingFor(parts_.tables.Find(model));
  }
  // Of adopted models, by copy, or by digest: then of some copy. No others are heavy, or weigh anything.
  [[nodiscard]] bool Heavy(const std::string& model) const;
  [[nodiscard]] Bytes WeightsOf(const std::string& model) const;
  // Of a model by its name here; nothing for an unknown name.
  [[nodiscard]] KnownRuns RunsOf(const std::string& model) const;
  // What was learned of the models, to be kept (node/models/profiles.hpp) and read again at the next start. A
  // model that was forgotten keeps its profile.
  [[nodiscard]] const CostModel& costs() const { return parts_.tables.costs; }
  // Models that have a number here.
  [[nodiscard]] std::size_t names() const { return parts_.tables.names.size(); }

  // --- GPUs. A resident is read at once: the next event may move it ---
  [[nodiscard]] const GpuTable& gpus() const { return parts_.tables.gpus; }
  [[nodiscard]] const Resident* FindResident(GpuIndex gpu, const std::string& model) const;
  [[nodiscard]] std::uint32_t HolderCount(const std::string& model) const;
  [[nodiscard]] std::vector<std::pair<std::string, const Resident*>> ResidentsOf(GpuIndex gpu) const;
  [[nodiscard]] std::vector<std::string> EvictingOn(GpuIndex gpu) const;
  [[nodiscard]] std::vector<std::string> ResidentModels() const;  // on some GPU, resident or running
  [[nodiscard]] Time NextIdle(Duration idle) const { return parts_.runtimes.NextIdle(idle); }

  // --- states of functions ---
  [[nodiscard]] const FunctionStates& states() const { return parts_.tables.states; }
  // Of the functions of one model; empty for most.
  [[nodiscard]] const std::vector<std::string>& StatesOf(const std::string& model) const {
    return parts_.tables.states.Of(parts_.tables.Find(model));
  }

  // --- requests ---
  [[nodiscard]] bool draining() const { return parts_.tables.draining; }
  [[nodiscard]] std::size_t waiting() const { return parts_.tables.queue.size(); }
  [[nodiscard]] std::size_t in_flight() const { return parts_.requests.size() - waiting(); }
  [[nodiscard]] bool idle() const { return parts_.requests.size() == 0; }
  [[nodiscard]] std::size_t trials() const { return parts_.requests.trials(); }  // that wait or are in flight
  [[nodiscard]] const SchedulerCounts& counts() const { return parts_.counts; }

 protected:
  SchedulerView(SchedulerLimits limits, SchedulerPolicies policies, CostDefaults costs, Topology topology)
      : parts_(limits, policies, costs, std::move(topology)) {}
  ~SchedulerView() = default;

  SchedulerParts parts_;

 private:
  [[nodiscard]] const ModelEntry* FindCopy(const std::string& model) const;
};

}  // namespace troupe::node
