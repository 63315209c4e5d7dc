// Models that come ahead of a request that is foreseen (node/arrival_forecast.hpp).
#include <algorithm>
#include <utility>

#include "node/swap_scheduler.hpp"

namespace troupe::node {

namespace {

// From so many times its load before it is wanted a model may come: whenever a link is idle in that time.
constexpr int kLead = 8;
// So many are looked at in one decision.
constexpr std::size_t kSomeForeseen = 4;

}  // namespace

// Where a load has its GPU for itself, one that came too early would be in everybody's way.
void SwapScheduler::Foresee(ModelId id, Time now) {
  if (policies_.copies != CopiesRule::kForecast || limits_.LoadsOccupy()) return;
  Model& model = models_[id];
  ForgetForeseen(id);
  model.kept_until = Time::min();
  model.forecast.Arrived(now);
  if (model.forecast.Due() == Time::max()) return;
  model.bring_from = model.forecast.Due() - kLead * LoadTimeOf(model);
  foreseen_.emplace(model.bring_from, id);
}

void SwapScheduler::ForgetForeseen(ModelId id) {
  const Time from = std::exchange(models_[id].bring_from, Time::max());
  if (from != Time::max()) foreseen_.erase({from, id});
}

// The first of the GPUs where nobody goes for it who is wanted.
std::optional<AheadPlan> SwapScheduler::PlanForeseen(ModelId id, const Gpus& quiet, Time now) const {
  const Time since = now - models_[id].forecast.interval();
  for (const GpuIndex index : quiet) {
    const Gpu& gpu = gpus_.at(index);
    auto plan = PlanOn(id, gpu, now);
    if (!plan) continue;
    // What would pass through a full GPU for its request, since those there are used more often, evicts none
    // of them before it either.
    if (MayPass(id, gpu, gpu.Free() + gpu.promised, plan->victims, since)) continue;
    const auto stays = [&](ModelId victim) {
      return IsWanted(victim, gpu) || models_[victim].kept_until > now;
    };
    if (std::ranges::none_of(plan->victims, stays)) return plan;
  }
  return std::nullopt;
}

// False when a quiet GPU may be found for it later.
bool SwapScheduler::BringForeseen(ModelId id, Time now) {
  Model& model = models_[id];
  const Time due = model.forecast.Due();
  if (!MayHaveCopies(id) || now >= due) return true;
  model.kept_until = due + model.forecast.Grace();
  if (gpus_.HolderCount(id) > 0) return true;
  const Gpus quiet = QuietGpus();
  const auto plan = quiet.empty() ? std::nullopt : PlanForeseen(id, quiet, now);
  if (!plan) return false;
  // As urgent as its request will be.
  const bool known = model.patience.known();
  const Time begin_by = known ? due + model.patience.Or({}) - costs_.RunTime(model.cost) : Time::max();
  LoadAhead(id, *plan, begin_by, now);
  return true;
}

void SwapScheduler::BringForeseen(Time now) {
  auto next = foreseen_.begin();
  for (std::size_t looked = 0; looked < kSomeForeseen && next != foreseen_.end() && next->first <= now;
       ++looked) {
    const ModelId id = next->second;
    if (!BringForeseen(id, now)) {
      ++next;
      continue;
    }
    models_[id].bring_from = Time::max();
    next = foreseen_.erase(next);
  }
  if (next != foreseen_.end() && next->first > now) look_again_ = std::min(look_again_, next->first);
}

}  // namespace troupe::node
