// COPIES AHEAD: which models come to a GPU before anybody asks for them there (the `copies` slot): one copy
// more of what is asked for much, what was just deployed, and what is foreseen
// (node/scheduling/arrival_forecast.hpp). It says which and where; the scheduler books and orders the load.
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

class CopiesAhead {
 public:
  // Carries a plan out at once: the next one is made with what is left. `begin_by`: when the request that is
  // foreseen has to begin; Time::max(): none is.
  using Bring = absl::FunctionRef<void(ModelId, const AheadPlan&, Time begin_by)>;

  CopiesAhead(SchedulerTables& tables, const GpuChooser& chooser, const VictimPlanner& victims)
      : tables_(tables), chooser_(chooser), victims_(victims) {}

  void NoteAdopted(ModelId model);
  void NoteAsked(ModelId model, Time now);
  void NoteRun(Duration work, Time now);
  // What has changed for it may make a copy more worth while.
  void MayWantCopy(ModelId model);
  // What could not come, or ran when a worker died, is not brought again and again ahead of requests.
  void ForgetDemand(ModelId model);
  void ForgetForeseen(ModelId model);

  // Returns when to decide again, for what is foreseen; Time::max(): whenever something happens.
  Time Decide(Time now, Bring bring);

 private:
  [[nodiscard]] bool MayBring() const;
  [[nodiscard]] bool MayHaveCopies(ModelId model) const;
  [[nodiscard]] ModelDemand DemandOf(ModelId model, Time now) const;
  [[nodiscard]] double BusyGpus(Time now) const;
  [[nodiscard]] double GainOfCopy(ModelId model, Time now) const;
  [[nodiscard]] double LossOf(const std::vector<ModelId>& victims, const Gpu& gpu, Time now) const;
  [[nodiscard]] bool IsWanted(ModelId victim, const Gpu& gpu) const;
  [[nodiscard]] GpuList QuietGpus() const;
  [[nodiscard]] std::optional<AheadPlan> PlanOn(ModelId model, const Gpu& gpu, Time now) const;
  [[nodiscard]] std::optional<AheadPlan> PlanCopy(ModelId model, double gain, const GpuList& quiet,
                                                  Time now) const;
  void BringNewcomers(Time now, Bring bring);
  void BringCopy(Time now, Bring bring);

  // foreseen_copies.cpp
  void Foresee(ModelId model, Time now);
  [[nodiscard]] std::optional<AheadPlan> PlanForeseen(ModelId model, const GpuList& quiet, Time now) const;
  bool BringForeseen(ModelId model, std::optional<GpuList>& quiet, Time now, Bring bring);
  Time BringForeseen(Time now, Bring bring);

  SchedulerTables& tables_;  // of the models: what is asked for and foreseen
  const GpuChooser& chooser_;
  const VictimPlanner& victims_;
  std::vector<ModelId> wanting_;   // may want a copy more, by what has changed since they were looked at
  std::deque<ModelId> newcomers_;  // adopted since, and perhaps on no GPU
  absl::btree_set<std::pair<Time, ModelId>> foreseen_;  // may come from then on
  RecentRate computing_;                                // seconds of runs, on all GPUs
};

}  // namespace troupe::node
