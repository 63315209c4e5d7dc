// SCHEDULER VIEW: what others may read of the swap scheduler's tables, by the numbers of models and in
// the order of their names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "node/requests/run_limit.hpp"
#include "node/scheduling/scheduler_parts.hpp"

namespace troupe::node {

class SchedulerView {
 public:
  SchedulerView(const SchedulerView&) = delete;  // the parts look at their tables
  SchedulerView& operator=(const SchedulerView&) = delete;

  // --- models ---
  [[nodiscard]] bool Knows(const ModelNumber& model) const {
    return parts_.tables.models.Adopted(parts_.tables.models.Find(model)) != nullptr;
  }
  [[nodiscard]] bool Waits(const ModelNumber& model) const { return WaitingFor(model) > 0; }
  [[nodiscard]] std::size_t WaitingFor(const ModelNumber& model) const {
    return parts_.tables.requests.WaitingFor(parts_.tables.models.Find(model));
  }
  // Of adopted models: of this copy, else of some copy of the same model. No others are heavy, or weigh
  // anything.
  [[nodiscard]] bool Heavy(const ModelNumber& model) const;  // on some kind of the node's GPUs
  [[nodiscard]] bool HeavyOn(const ModelNumber& model, KindId kind) const;
  [[nodiscard]] Bytes WeightsOf(const ModelNumber& model) const;
  // The first adopted copy of each model that has one here, by digest; the keys are texts of the copies' numbers.
  [[nodiscard]] absl::flat_hash_map<std::string_view, ModelNumber> FirstCopies() const;
  // On GPUs of the same kind as this one. Nothing for a model that has no row here.
  [[nodiscard]] KnownRuns RunsOf(const ModelNumber& model, GpuIndex gpu) const;
  // What was learned of the models, to be kept (node/models/profiles.hpp) and read again at the next start. A
  // model that was forgotten keeps its profile.
  [[nodiscard]] const CostModel& costs() const { return parts_.tables.times.costs; }
  [[nodiscard]] const BatchingRules& batching() const { return parts_.tables.rules.policies.batching; }
  // What the adopted model takes of a GPU of this kind, by estimate.
  struct ModelEstimate {
    Duration load{};  // from the host
    Duration run{};
    Bytes weights{};
    Bytes activation{};
  };
  [[nodiscard]] ModelEstimate EstimateOf(const ModelNumber& model, KindId kind) const;
  [[nodiscard]] KindId kinds() const {
    return parts_.tables.times.kinds;
  }  // of the GPUs: they have the numbers from 0
  // Models that have a row in the tables.
  [[nodiscard]] std::size_t rows() const { return parts_.tables.models.rows.size(); }

  // --- GPUs. A resident is read at once: the next event may move it ---
  [[nodiscard]] const GpuTable& gpus() const { return parts_.tables.gpus; }
  [[nodiscard]] const Resident* FindResident(GpuIndex gpu, const ModelNumber& model) const;
  [[nodiscard]] std::uint32_t HolderCount(const ModelNumber& model) const;
  [[nodiscard]] std::vector<std::pair<ModelNumber, const Resident*>> ResidentsOf(GpuIndex gpu) const;
  [[nodiscard]] std::vector<ModelNumber> EvictingOn(GpuIndex gpu) const;
  [[nodiscard]] std::vector<ModelNumber> ResidentModels() const;  // on some GPU, resident or running
  // What others than that router have there, in requests and in estimated time.
  struct OthersWork {
    std::uint64_t requests = 0;
    Duration left{};
  };
  [[nodiscard]] OthersWork OthersOn(GpuIndex gpu, std::uint64_t router, Time now) const;
  // The estimated time of GPUs that the requests here take, by their routers; kNoRouter's are the node's own.
  [[nodiscard]] absl::flat_hash_map<std::uint64_t, Duration> WorkByRouter() const;
  [[nodiscard]] Time NextIdle(Duration idle) const { return parts_.runtimes.NextIdle(idle); }

  // --- states of functions ---
  [[nodiscard]] const FunctionStates& states() const { return parts_.tables.states; }
  // Of the functions of one model; empty for most.
  [[nodiscard]] const std::vector<StateNumber>& StatesOf(const ModelNumber& model) const {
    return parts_.tables.states.Of(parts_.tables.models.Find(model));
  }

  // --- requests ---
  [[nodiscard]] bool draining() const { return parts_.tables.draining; }
  [[nodiscard]] std::size_t waiting() const { return parts_.tables.requests.queue.size(); }
  [[nodiscard]] std::size_t in_flight() const { return parts_.requests.size() - waiting(); }
  [[nodiscard]] bool idle() const { return parts_.requests.size() == 0; }
  [[nodiscard]] std::size_t trials() const { return parts_.requests.trials(); }  // that wait or are in flight
  [[nodiscard]] const SchedulerCounts& counts() const { return parts_.counts; }
  // Of the policies that order functions by their SLO (scheduling/slo_order.hpp); 0: the policy has none.
  [[nodiscard]] double alpha() const { return parts_.slo ? parts_.slo->alpha() : 0; }

 protected:
  SchedulerView(SchedulerLimits limits, SchedulerPolicies policies, CostDefaults costs, Topology topology)
      : parts_(limits, policies, costs, std::move(topology)) {}
  ~SchedulerView() = default;

  SchedulerParts parts_;

 private:
  [[nodiscard]] const ModelEntry* FindCopy(const ModelNumber& model) const;
  [[nodiscard]] ModelNumber FirstCopyOf(const DigestNumber& digest) const;
};

}  // namespace troupe::node
