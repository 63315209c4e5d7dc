// Models that come ahead of a request that is foreseen (node/scheduling/arrival_forecast.hpp).
#include <algorithm>
#include <utility>

#include "node/scheduling/prefetcher.hpp"

namespace troupe::node {

namespace {

// From so many times its load before it is wanted a model may come: whenever a link is idle in that time.
constexpr int kLead = 8;
// So many are looked at in one decision.
constexpr std::size_t kSomeForeseen = 4;

}  // namespace

// Where a load has its GPU for itself, a prefetch that comes too early would delay requests: there are no
// forecasts.
void Prefetcher::Foresee(ModelId id, Time now) {
  if (tables_.rules.policies.prefetch != PrefetchRule::kForecast || tables_.rules.limits.LoadsOccupy())
    return;
  ModelEntry& model = tables_.models[id];
  ForgetForeseen(id);
  model.kept_until = Time::min();
  model.forecast.Arrived(now);
  if (model.forecast.Due() == Time::max()) return;
  model.bring_from = model.forecast.Due() - kLead * tables_.times.LoadTimeOf(model);
  foreseen_.emplace(model.bring_from, id);
}

void Prefetcher::ForgetForeseen(ModelId id) {
  const Time from = std::exchange(tables_.models[id].bring_from, Time::max());
  if (from != Time::max()) foreseen_.erase({from, id});
}

// Takes the first GPU where no victim is wanted.
std::optional<PrefetchPlan> Prefetcher::PlanForeseen(ModelId id, const GpuList& quiet, Time now) const {
  const Time since = now - tables_.models[id].forecast.interval();
  GpuList sorted;
  for (const GpuIndex index : FastestFirst(id, quiet, sorted)) {
    const Gpu& gpu = tables_.gpus.at(index);
    auto plan = PlanOn(id, gpu, now);
    if (!plan) continue;
    // A model that its request would pass through a full GPU layer by layer, because the models there are
    // used more often, is not prefetched: it would evict one of them.
    if (victims_.MayPass(id, gpu, gpu.Free() + gpu.promised, plan->victims, since)) continue;
    const auto stays = [&](ModelId victim) {
      return IsWanted(victim, gpu) || tables_.models[victim].kept_until > now;
    };
    if (std::ranges::none_of(plan->victims, stays)) return plan;
  }
  return std::nullopt;
}

// False when a quiet GPU may be found for it later. `quiet`: as they were found for the model before, until
// one comes; none: to be looked for.
bool Prefetcher::PrefetchForeseen(ModelId id, std::optional<GpuList>& quiet, Time now, Bring bring) {
  ModelEntry& model = tables_.models[id];
  const Time due = model.forecast.Due();
  if (!MayHaveCopies(id) || now >= due) return true;
  model.kept_until = due + model.forecast.Grace();
  if (tables_.gpus.holders().Count(id) > 0) return true;
  if (!quiet) quiet = QuietGpus();
  const auto plan = PlanForeseen(id, *quiet, now);
  if (!plan) return false;
  // As urgent as its request will be.
  const bool known = model.patience.known();
  const KindId kind = tables_.gpus.at(plan->gpu).kind;
  const Time begin_by =
      known ? due + model.patience.Or({}) - tables_.times.costs.RunTime(model.cost, kind) : Time::max();
  bring(id, *plan, begin_by);
  quiet.reset();
  return true;
}

Time Prefetcher::PrefetchForeseen(Time now, Bring bring) {
  std::optional<GpuList> quiet;
  auto next = foreseen_.begin();
  for (std::size_t looked = 0; looked < kSomeForeseen && next != foreseen_.end() && next->first <= now;
       ++looked) {
    const ModelId id = next->second;
    if (!PrefetchForeseen(id, quiet, now, bring)) {
      ++next;
      continue;
    }
    tables_.models[id].bring_from = Time::max();
    next = foreseen_.erase(next);
  }
  return next != foreseen_.end() && next->first > now ? next->first : Time::max();
}

}  // namespace troupe::node
