// SCHEDULER TABLES: what the swap scheduler knows, each kind of it in a table of its own, and pure looks at several of
// them. The scheduler alone changes them; the parts that choose a GPU, plan evictions or prefetch look at them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "node/requests/waiting_queue.hpp"
#include "node/scheduling/broadcasts.hpp"
#include "node/scheduling/gpu_table.hpp"
#include "node/scheduling/held_gpus.hpp"
#include "node/scheduling/model_entries.hpp"
#include "node/scheduling/owned_gpus.hpp"
#include "node/scheduling/quota_pauses.hpp"
#include "node/scheduling/scheduler_entries.hpp"
#include "node/scheduling/scheduler_types.hpp"
#include "node/scheduling/time_estimates.hpp"
#include "node/scheduling/topology.hpp"
#include "node/state/function_states.hpp"
#include "scheduling/late_queue.hpp"

namespace troupe::node {

// Up to so many GPUs a request looks at each of them; of more it looks at some that have its model, and some
// of the least busy ones.
inline constexpr std::size_t kAllGpus = 16, kSomeGpus = 8;
// Few GPUs, or all of a small node.
using GpuList = absl::InlinedVector<GpuIndex, kAllGpus + 1>;

// What does not change after the start.
struct SchedulerRules {
  SchedulerRules(SchedulerLimits given, SchedulerPolicies chosen, Topology machine);

  SchedulerLimits limits;
  SchedulerPolicies policies;
  PlaceRules places;
  bool by_gpu = false;  // decisions go GPU by GPU, not request by request
  const Topology topology;
};

// How busy the links and the fast GPUs are, which all requests share.
struct Pressure {
  BusyShare on_links;       // from the host
  BusyShare on_fast;        // of the GPUs, by requests that are in time on some kinds only
  std::uint32_t links = 1;  // from the host
};

// Which requests and functions may use which GPUs.
struct GpuRights {
  HeldGpus held;
  QuotaPauses pauses;
  OwnedGpus owned;
};

// Which models have a GPU for good.
struct HomeTable {
  // The device of its own, where the gpu policy or the binding wants one; kNoGpu: none yet.
  [[nodiscard]] std::uint32_t Of(ModelId model) const;

  FunctionBinding binding;                              // instead of devices, where it is not late
  absl::flat_hash_map<ModelId, std::uint32_t> devices;  // with early binding
};

// The requests that are here, in the orders in which they wait or run.
struct RequestQueues {
  [[nodiscard]] std::size_t WaitingFor(ModelId model) const {
    const auto* waiting = queue.Find(model);
    return waiting == nullptr ? 0 : waiting->size();
  }
  [[nodiscard]] bool Yields(const OrderingKey& key) const { return late && IsLate(key); }

  // The models that it does not look at are parked until the next outcome of a certain GPU, or are on disk only.
  WaitingQueue queue;
  std::optional<LateQueue<RequestEntry*, FunctionNumber>> late;
  std::size_t own_places_wanted = 0;  // requests that wait and have places of their own
  std::vector<std::vector<RequestEntry*>>
      pipelines;             // by GPU; in the order of dispatch, the requests of a batch among them
  std::size_t suspects = 0;  // requests that run alone
};

struct SchedulerTables {
  SchedulerTables(SchedulerLimits limits, SchedulerPolicies policies, CostDefaults costs, Topology topology);
  SchedulerTables(const SchedulerTables&) = delete;  // the estimates look at the models
  SchedulerTables& operator=(const SchedulerTables&) = delete;

  void AddRuntime(GpuIndex gpu, Bytes memory, std::uint32_t device, KindId kind);

  // How much of a GPU's places its run takes, in percent of one: as much as it has of the SMs, or nothing where its
  // function has places of its own. Before its model is prepared, it is not known how many such runs there is memory
  // for: until then each takes a whole place, so that they do not crowd the GPU.
  [[nodiscard]] std::uint32_t PlaceOf(const RequestEntry& entry) const {
    if (!models[entry.model].prepared) return GpuLoads::kWhole;
    return entry.request.own_places ? 0 : entry.request.sm_percent;
  }
  // Its run takes no place that other functions' runs could have.
  [[nodiscard]] bool HasOwnPlace(const RequestEntry& entry) const { return PlaceOf(entry) == 0; }
  // False: its function owns parts of other GPUs, some of which have a worker.
  [[nodiscard]] bool MayRunOn(const NodeRequest& request, const Gpu& gpu) const;

  // No runtime serves the requests of one key alone.
  [[nodiscard]] bool OneForAll() const { return !rules.limits.isolated && gpus.AllShared(); }
  [[nodiscard]] bool Serves(const RequestEntry& entry, const Gpu& gpu) const {
    const std::string& key = models[entry.model].key;
    return gpu.assigned && (OneForAll() ? key.empty() : gpu.key == key);
  }

  [[nodiscard]] RequestLook LookFor(const RequestEntry& entry) const;
  // False: at some of many GPUs (kAllGpus).
  [[nodiscard]] bool LooksAtAll(const ModelEntry& model) const {
    return gpus.gpus().size() <= kAllGpus || rules.policies.gpu.early_binding || !OneForAll() ||
           !model.key.empty();
  }
  // Room that the request's state still has to get beside its model on a GPU (null: that is not there).
  [[nodiscard]] Bytes StateNeed(const RequestLook& look, const Resident* resident) const;
  // Room that the run takes there, and the model and the state where they are not.
  [[nodiscard]] Bytes Need(const RequestLook& look, const Resident* resident) const;
  [[nodiscard]] bool StateAllows(const RequestEntry& entry, const Gpu& gpu) const {
    return states.all().empty() || StateAllows(LookFor(entry), gpu);
  }
  [[nodiscard]] bool StateAllows(const RequestLook& look, const Gpu& gpu) const;
  // `whole`: what the model, its states and a run take.
  [[nodiscard]] bool CanEverFit(ModelId model, Bytes whole, const Gpu& gpu) const;
  [[nodiscard]] bool CanEverFit(ModelId model, const Gpu& gpu) const;
  [[nodiscard]] bool CanEverFit(ModelId model) const;

  SchedulerRules rules;
  bool draining = false;
  ModelEntries models;
  TimeEstimates times;
  Pressure pressure;
  GpuTable gpus;
  GpuRights rights;
  FunctionStates states;
  Broadcasts broadcasts;
  HomeTable homes;
  RequestQueues requests;
};

}  // namespace troupe::node
