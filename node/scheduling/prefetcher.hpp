// PREFETCHER: decides which models come to a GPU before a request for them does (the `prefetch` slot): one more
// copy of a model that has many requests, a model that was just adopted, and a model whose next request is
// forecast (node/scheduling/arrival_forecast.hpp). It says which model and which GPU; the scheduler reserves the
// memory and orders the load.
#pragma once

#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/functional/function_ref.h"
#include "node/scheduling/gpu_chooser.hpp"
#include "node/scheduling/model_demand.hpp"
#include "node/scheduling/scheduler_tables.hpp"
#include "node/scheduling/victim_planner.hpp"

namespace troupe::node {

class Prefetcher {
 public:
  // Carries a plan out at once, so that the next plan counts with the room that is left. `begin_by`: when the
  // forecast request has to begin; Time::max() without a forecast.
  using Bring = absl::FunctionRef<void(ModelId, const PrefetchPlan&, Time begin_by)>;

  Prefetcher(SchedulerTables& tables, const GpuChooser& chooser, const VictimPlanner& victims)
      : tables_(tables), chooser_(chooser), victims_(victims) {}

  void NoteAdopted(ModelId model);
  // Functions own other parts of GPUs than before, or a GPU has a new worker: their models come there.
  void NoteOwners();
  void NoteAsked(ModelId model, Time now);
  void NoteRun(Duration work, Time now);
  // Something has changed that may make one more copy of the model worth while.
  void MayWantCopy(ModelId model);
  // Forgets the requests for a model that could not come or that ran when a worker died, so that it is not
  // prefetched again and again.
  void ForgetDemand(ModelId model);
  void ForgetForeseen(ModelId model);

  // Returns when to decide again for forecast requests; Time::max(): at the next event.
  Time Decide(Time now, Bring bring);

 private:
  // A model that is to come to a GPU of which its function owns a part.
  struct Owed {
    GpuIndex gpu = kNoGpu;
    ModelNumber model{};
    bool operator==(const Owed&) const = default;
  };

  [[nodiscard]] bool MayPrefetch() const;
  [[nodiscard]] bool MayHaveCopies(ModelId model) const;
  [[nodiscard]] ModelDemand DemandOf(ModelId model, Time now) const;
  [[nodiscard]] double BusyGpus(Time now) const;
  [[nodiscard]] double GainOfCopy(ModelId model, Time now) const;
  [[nodiscard]] double LossOf(const std::vector<ModelId>& victims, const Gpu& gpu, Time now) const;
  [[nodiscard]] bool IsWanted(ModelId victim, const Gpu& gpu) const;
  [[nodiscard]] GpuList QuietGpus() const;
  [[nodiscard]] const GpuList& FastestFirst(ModelId model, const GpuList& gpus, GpuList& sorted) const;
  [[nodiscard]] std::optional<PrefetchPlan> PlanOn(ModelId model, const Gpu& gpu, Time now) const;
  [[nodiscard]] std::optional<PrefetchPlan> PlanCopy(ModelId model, double gain, const GpuList& quiet,
                                                     Time now) const;
  void PrefetchAdopted(Time now, Bring bring);
  void PrefetchOwned(Time now, Bring bring);
  bool PrefetchOwned(const Owed& owed, Time now, Bring bring);
  void PrefetchCopy(Time now, Bring bring);

  // foreseen_prefetch.cpp
  void Foresee(ModelId model, Time now);
  [[nodiscard]] std::optional<PrefetchPlan> PlanForeseen(ModelId model, const GpuList& quiet, Time now) const;
  bool PrefetchForeseen(ModelId model, std::optional<GpuList>& quiet, Time now, Bring bring);
  Time PrefetchForeseen(Time now, Bring bring);

  // The prefetcher changes what they say of the requests for models, and of those that are foreseen.
  SchedulerTables& tables_;
  const GpuChooser& chooser_;
  const VictimPlanner& victims_;
  std::vector<ModelId> wanting_;  // may want a copy more, by what has changed since they were looked at
  std::deque<ModelId> adopted_;   // adopted since, and perhaps on no GPU
  // By GPU. Once each: a model that had to leave, or did not come, comes with its next request.
  std::vector<Owed> owed_;
  absl::btree_set<std::pair<Time, ModelId>> foreseen_;  // may come from then on
  RecentRate computing_;                                // seconds of runs, on all GPUs
};

}  // namespace troupe::node
