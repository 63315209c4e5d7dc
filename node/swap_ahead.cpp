// Copies ahead of requests: which model, to which GPU, and who goes for it.
#include <algorithm>
#include <limits>
#include <utility>

#include "node/swap_scheduler.hpp"

namespace troupe::node {

namespace {

// Of the models that were asked for since, so many are looked at in one decision.
constexpr std::size_t kSomeModels = 8;
// What a copy saves has to be so many times what is lost for it: else two models would take each other's
// place in turns, and of those that are seldom asked for the rate is a guess.
constexpr double kClearly = 4;
// A copy that its own model keeps busy for less than this share of the time serves it well.
constexpr double kServedWell = 0.1;
// Of the GPUs that are idle so many stay so, where a load has its GPU for itself: a part of all.
constexpr std::size_t kStayIdle = 3;
// Of the least busy GPUs so many are looked at.
constexpr std::size_t kQuietest = 2 * kSomeGpus;
// The links' share of time beyond which they are left to requests.
constexpr double kQuietLinks = 0.5;

}  // namespace

// Runtimes that serve one key each, and GPUs that are models' homes, are no place for copies.
bool SwapScheduler::MayBringAhead() const {
  return policies_.copies != CopiesRule::kAsked && !draining_ && !locality_ && !policies_.gpu.early_binding &&
         OneForAll();
}

void SwapScheduler::NoteAsked(ModelId id, Time now) {
  if (!MayBringAhead()) return;
  models_[id].asks.Add(1, now);
  Foresee(id, now);
  MayWantCopy(id);
}

// What could not come, or ran when a worker died, is not brought again and again ahead of requests.
void SwapScheduler::ForgetDemand(ModelId id) {
  models_[id].asks = {};
  models_[id].forecast = {};
  ForgetForeseen(id);
}

void SwapScheduler::MayWantCopy(ModelId id) {
  if (!MayBringAhead() || std::exchange(models_[id].may_want_copy, true)) return;
  wanting_.push_back(id);
}

ModelDemand SwapScheduler::DemandOf(ModelId id, Time now) const {
  const Model& model = models_[id];
  const Duration load = LoadTimeOf(model);
  return {.rate = model.asks.At(now),
          .run = costs_.RunTime(model.cost),
          .bring = limits_.LoadsOccupy() ? load : costs_.SwapDelay(model.cost, model.weights)};
}

bool SwapScheduler::MayHaveCopies(ModelId id) const {
  const Model& model = models_[id];
  return model.adopted && model.in_region && model.key.empty() && states_.Of(id).empty();
}

// What part of the time the node's GPUs compute.
double SwapScheduler::BusyGpus(Time now) const {
  const auto gpus = static_cast<double>(std::max<std::size_t>(gpus_.ReadyCount(), 1));
  return std::min(computing_.At(now) / gpus, 1.0);
}

// Waiting that one copy more saves, in seconds a second; nothing when it would not pay for its load.
double SwapScheduler::GainOfCopy(ModelId id, Time now) const {
  const Model& model = models_[id];
  if (!MayHaveCopies(id)) return 0;
  const std::uint32_t copies = gpus_.HolderCount(id);
  if (copies == 0) return 0;
  const ModelDemand demand = DemandOf(id, now);
  if (demand.rate * ToSeconds(demand.run) < kServedWell * copies) return 0;
  const double busy = BusyGpus(now);
  const double gain = WaitingWith(demand, copies, busy) - WaitingWith(demand, copies + 1, busy);
  return gain * ToSeconds(RecentRate::kMemory) > ToSeconds(LoadTimeOf(model)) ? gain : 0;
}

// Somebody waits for it, or its functions have states there.
bool SwapScheduler::IsWanted(ModelId victim, const Gpu& gpu) const {
  return WaitingFor(victim) > 0 || !gpu.Find(victim)->states.empty();
}

// What those who go lose; infinite when one of them is wanted.
double SwapScheduler::LossOf(const std::vector<ModelId>& victims, const Gpu& gpu, Time now) const {
  double loss = 0;
  const double busy = BusyGpus(now);
  for (const ModelId victim : victims) {
    if (IsWanted(victim, gpu)) return std::numeric_limits<double>::infinity();
    if (!models_[victim].adopted) continue;
    const ModelDemand demand = DemandOf(victim, now);
    const std::uint32_t copies = gpus_.HolderCount(victim);
    loss += WaitingWith(demand, copies - 1, busy) - WaitingWith(demand, copies, busy);
  }
  return loss;
}

// GPUs where a load is in nobody's way now, of the least busy ones.
SwapScheduler::Gpus SwapScheduler::QuietGpus() const {
  Gpus quiet;
  const bool occupies = limits_.LoadsOccupy();
  // Where a load has its GPU for itself those with the least free memory stay for whoever comes next.
  const std::size_t stay =
      occupies ? std::clamp<std::size_t>(gpus_.ready().size() / kStayIdle, 1, kSomeGpus) : 0;
  std::size_t looked = 0;
  gpus_.ready().InOrder([&](const GpuPlace& place) {
    if (looked++ == kQuietest) return false;
    if (occupies && place.in_flight() > 0) return false;
    const Gpu& gpu = gpus_.at(place.gpu);
    const bool disturbs = gpu.coming_models > 0 || !gpu.evicting.empty() || holds_[gpu.index] != nullptr;
    if (disturbs || (!occupies && LoadOfSwitch(gpu) != SwitchLoad::kNone)) return true;
    quiet.push_back(gpu.index);
    return true;
  });
  quiet.erase(quiet.end() - static_cast<std::ptrdiff_t>(std::min(quiet.size(), stay)), quiet.end());
  return quiet;
}

// Who would go for the model; nothing where it is, or finds no room now.
std::optional<AheadPlan> SwapScheduler::PlanOn(ModelId id, const Gpu& gpu, Time now) const {
  const Bytes need = models_[id].weights + models_[id].activation;
  if (gpu.Find(id) != nullptr || !CanEverFit(id, gpu)) return std::nullopt;
  if (gpu.Free() + gpu.idle < Target(id, gpu, need)) return std::nullopt;
  return AheadPlan{.gpu = gpu.index, .victims = PlanVictims(id, need, gpu, now)};
}

std::optional<AheadPlan> SwapScheduler::PlanAhead(ModelId id, double gain, const Gpus& quiet,
                                                  Time now) const {
  std::optional<AheadPlan> best;
  for (const GpuIndex index : quiet) {
    auto plan = PlanOn(id, gpus_.at(index), now);
    if (!plan) continue;
    plan->loss = LossOf(plan->victims, gpus_.at(index), now);
    if (kClearly * plan->loss >= gain && !plan->victims.empty()) continue;
    if (!best || plan->loss < best->loss) best = std::move(plan);
    if (best->victims.empty()) break;
  }
  return best;
}

// By a copy ahead, where a load has its GPU for itself: a run waits for it.
bool SwapScheduler::IsOccupied(const Gpu& gpu) const {
  return limits_.LoadsOccupy() && gpu.in_flight == 0 && gpu.coming_models > 0;
}

// A function that was deployed will be asked for, though nobody knows how often: while there is room that
// nobody else has, its model comes before. Not one that never ran: that is measured by its first swap.
void SwapScheduler::BringNewcomers(Time now) {
  if (newcomers_.empty() || !MayBringAhead()) return;
  Gpus quiet = QuietGpus();
  while (!quiet.empty() && !newcomers_.empty()) {
    const ModelId id = newcomers_.front();
    newcomers_.pop_front();
    // What was asked for meanwhile is there, or was taken off a GPU for a reason.
    if (models_[id].asked != Time::min() || !MayHaveCopies(id) || gpus_.HolderCount(id) > 0) continue;
    if (!costs_.Ran(models_[id].cost)) continue;
    const auto plan = PlanAhead(id, 0, quiet, now);
    if (!plan || !plan->victims.empty()) continue;
    quiet.erase(std::ranges::find(quiet, plan->gpu));
    LoadAhead(id, *plan, Time::max(), now);
  }
}

// The model whose copy saves most comes, when there is a place for it; the others are looked at when they are
// asked for again.
void SwapScheduler::BringAhead(Time now) {
  BringNewcomers(now);
  if (wanting_.empty() || !MayBringAhead()) return;
  if (late_ && late_->late() > 0) return;  // there is too much to do already
  if (!limits_.LoadsOccupy() && link_pressure_.At(now) > kQuietLinks) return;
  ModelId best = kNoName;
  double most = 0;
  for (std::size_t looked = 0; looked < kSomeModels && !wanting_.empty(); ++looked) {
    const ModelId id = wanting_.back();
    wanting_.pop_back();
    models_[id].may_want_copy = false;
    const double gain = GainOfCopy(id, now);
    if (gain <= most) continue;
    most = gain;
    best = id;
  }
  if (best == kNoName) return;
  const Gpus quiet = QuietGpus();
  if (quiet.empty()) return MayWantCopy(best);
  if (const auto plan = PlanAhead(best, most, quiet, now)) LoadAhead(best, *plan, Time::max(), now);
}

void SwapScheduler::LoadAhead(ModelId id, const AheadPlan& plan, Time deadline, Time now) {
  const Model& model = models_[id];
  Dispatch ahead{
      .model = NameOf(id), .gpu = plan.gpu, .source = SwapSource::kHost, .deadline = deadline, .ahead = true};
  for (const ModelId victim : plan.victims) {
    ahead.victims.push_back(NameOf(victim));
    Evict(plan.gpu, victim);
  }
  gpus_.BeginLoad(plan.gpu, id, model.weights, kNoGpu, LoadTimeOf(model), now);
  if (limits_.LoadsOccupy()) gpus_.Occupy(plan.gpu, id, LoadTimeOf(model), now);
  ++counts_.ahead;
  ahead_.push_back(std::move(ahead));
}

}  // namespace troupe::node
