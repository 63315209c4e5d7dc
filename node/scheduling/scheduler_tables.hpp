// SCHEDULER TABLES: what the swap scheduler knows, and pure looks at it. The scheduler alone changes them;
// the parts that choose a GPU, plan evictions or prefetch look at them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "node/requests/waiting_queue.hpp"
#include "node/scheduling/batch_profiles.hpp"
#include "node/scheduling/broadcasts.hpp"
#include "node/scheduling/gpu_table.hpp"
#include "node/scheduling/held_gpus.hpp"
#include "node/scheduling/model_rows.hpp"
#include "node/scheduling/owned_gpus.hpp"
#include "node/scheduling/quota_pauses.hpp"
#include "node/scheduling/scheduler_entries.hpp"
#include "node/scheduling/scheduler_types.hpp"
#include "node/scheduling/topology.hpp"
#include "node/state/function_states.hpp"
#include "scheduling/cost_model.hpp"
#include "scheduling/late_queue.hpp"

namespace troupe::node {

// Up to so many GPUs a request looks at each of them; of more it looks at some that have its model, and some
// of the least busy ones.
inline constexpr std::size_t kAllGpus = 16, kSomeGpus = 8;
// Few GPUs, or all of a small node.
using GpuList = absl::InlinedVector<GpuIndex, kAllGpus + 1>;

struct SchedulerTables {
  SchedulerTables(SchedulerLimits limits, SchedulerPolicies policies, CostDefaults costs, Topology topology);

  void AddRuntime(GpuIndex gpu, Bytes memory, std::uint32_t device, KindId kind);

  [[nodiscard]] ModelId Find(const ModelNumber& model) const { return rows.Find(model); }
  [[nodiscard]] const ModelNumber& NameOf(ModelId model) const { return rows.at(model); }
  // Null: this node has not adopted it, or not any more.
  [[nodiscard]] ModelEntry* Adopted(ModelId model) {
    return model != kNoModel && models[model].adopted ? &models[model] : nullptr;
  }
  [[nodiscard]] const ModelEntry* Adopted(ModelId model) const {
    return model != kNoModel && models[model].adopted ? &models[model] : nullptr;
  }
  [[nodiscard]] std::size_t WaitingFor(ModelId model) const {
    const auto* waiting = queue.Find(model);
    return waiting == nullptr ? 0 : waiting->size();
  }
  // As long as it has been here: what its loads took; else by its size.
  [[nodiscard]] Duration LoadTimeOn(const ModelEntry& model, KindId kind) const {
    const RunningEstimate* const load = kind == 0 ? &model.load : model.loads.Find(kind);
    return load != nullptr && load->known() ? load->Or({}) : costs.LoadTime(model.weights, kind);
  }
  void ObserveLoad(ModelEntry& model, Duration took, KindId kind) {
    (kind == 0 ? model.load : model.loads.At(kind)).Observe(took);
  }
  // As the profile of its function says, else as was learned of its model.
  [[nodiscard]] Duration RunTimeOn(const RequestEntry& entry, KindId kind) const {
    const ProfiledRuns& profiled = entry.request.profiled_runs;
    if (kind < profiled.size() && profiled[kind] > Duration::zero()) return profiled[kind];
    return costs.RunTime(models[entry.model].cost, kind);
  }
  // On the kind of the node's GPUs where it takes least: what nothing can be done sooner than.
  [[nodiscard]] Duration LoadTimeOf(const ModelEntry& model) const {
    return Least([&](KindId kind) { return LoadTimeOn(model, kind); });
  }
  [[nodiscard]] Duration RunTimeOf(const RequestEntry& entry) const {
    return Least([&](KindId kind) { return RunTimeOn(entry, kind); });
  }
  // Of the node's kinds the one on which a run of the model takes least.
  [[nodiscard]] KindId FastestKindFor(const ModelEntry& model) const {
    KindId fastest = 0;
    for (KindId kind = 1; kind < kinds; ++kind)
      if (costs.RunTime(model.cost, kind) < costs.RunTime(model.cost, fastest)) fastest = kind;
    return fastest;
  }
  [[nodiscard]] bool KindsDiffer() const { return kinds > 1; }
  // On some kinds it would be in time if it had a GPU for itself from its arrival on, and on others late.
  [[nodiscard]] bool NeedsFast(const RequestEntry& entry) const {
    if (!KindsDiffer() || entry.request.deadline == Time::max()) return false;
    KindId in_time = 0;
    for (KindId kind = 0; kind < kinds; ++kind)
      in_time += entry.arrival + RunTimeOn(entry, kind) <= entry.request.deadline ? 1 : 0;
    return in_time > 0 && in_time < kinds;
  }
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
  // The device of its own, where the gpu policy or the binding wants one; kNoGpu: none yet.
  [[nodiscard]] std::uint32_t Home(ModelId model) const;
  [[nodiscard]] bool Yields(const OrderingKey& key) const { return late && IsLate(key); }

  // No runtime serves the requests of one key alone.
  [[nodiscard]] bool OneForAll() const { return !limits.isolated && gpus.AllShared(); }
  [[nodiscard]] bool Serves(const RequestEntry& entry, const Gpu& gpu) const {
    const std::string& key = models[entry.model].key;
    return gpu.assigned && (OneForAll() ? key.empty() : gpu.key == key);
  }

  [[nodiscard]] RequestLook LookFor(const RequestEntry& entry) const;
  // False: at some of many GPUs (kAllGpus).
  [[nodiscard]] bool LooksAtAll(const ModelEntry& model) const {
    return gpus.gpus().size() <= kAllGpus || policies.gpu.early_binding || !OneForAll() || !model.key.empty();
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

  SchedulerLimits limits;
  SchedulerPolicies policies;
  PlaceRules places;
  bool by_gpu = false;  // decisions go GPU by GPU, not request by request
  bool draining = false;
  const Topology topology;
  CostModel costs;
  BusyShare link_pressure;  // of the links from the host
  BusyShare fast_wanted;    // of the GPUs, by requests that are in time on some kinds only
  std::uint32_t links = 1;  // of those
  KindId kinds = 1;         // of its GPUs: they have the numbers from 0
  GpuTable gpus;
  HeldGpus held;
  QuotaPauses pauses;
  OwnedGpus owned;
  std::size_t own_places_wanted = 0;  // requests that wait and have places of their own
  std::vector<std::vector<RequestEntry*>>
      pipelines;  // by GPU; in the order of dispatch, the requests of a batch among them
  FunctionStates states;
  Broadcasts broadcasts;
  FunctionBinding binding;                            // instead of homes, where it is not late
  absl::flat_hash_map<ModelId, std::uint32_t> homes;  // devices, with early binding
  ModelRows rows;
  std::vector<ModelEntry> models;  // by row; a new one moves them
  std::map<std::pair<GpuIndex, ModelId>, FitHint> hints;
  BatchProfiles batches;
  // The models that it does not look at are parked until the next outcome of a certain GPU, or are on disk only.
  WaitingQueue queue;
  std::optional<LateQueue<RequestEntry*>> late;
  std::size_t suspects = 0;  // requests that run alone

 private:
  template <class Time>
  [[nodiscard]] Duration Least(Time time) const {
    Duration least = time(KindId{0});
    for (KindId kind = 1; kind < kinds; ++kind) least = std::min(least, time(kind));
    return least;
  }
};

}  // namespace troupe::node
