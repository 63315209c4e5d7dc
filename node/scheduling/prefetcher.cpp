#include "node/scheduling/prefetcher.hpp"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

namespace troupe::node {

namespace {

// Of the models that were asked for since, so many are looked at in one decision.
constexpr std::size_t kSomeModels = 8;
// A copy must save so many times what its victims lose: else two models would take each other's place in
// turns, and the rate of a model with few requests is a guess.
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

// Runtimes that serve one key each, and GPUs that are models' homes, take no copies.
bool Prefetcher::MayPrefetch() const {
  return tables_.rules.policies.prefetch != PrefetchRule::kAsked && !tables_.draining &&
         !tables_.rules.by_gpu && !tables_.rules.policies.gpu.early_binding && tables_.OneForAll();
}

void Prefetcher::NoteAdopted(ModelId id) {
  if (MayPrefetch()) adopted_.push_back(id);
}

void Prefetcher::NoteAsked(ModelId id, Time now) {
  if (!MayPrefetch()) return;
  tables_.models[id].asks.Add(1, now);
  Foresee(id, now);
  MayWantCopy(id);
}

void Prefetcher::NoteRun(Duration work, Time now) {
  if (tables_.rules.policies.prefetch != PrefetchRule::kAsked) computing_.Add(ToSeconds(work), now);
}

void Prefetcher::MayWantCopy(ModelId id) {
  if (!MayPrefetch() || std::exchange(tables_.models[id].may_want_copy, true)) return;
  wanting_.push_back(id);
}

void Prefetcher::ForgetDemand(ModelId id) {
  tables_.models[id].asks = {};
  tables_.models[id].forecast = {};
  ForgetForeseen(id);
}

Time Prefetcher::Decide(Time now, Bring bring) {
  PrefetchOwned(now, bring);
  const Time again = PrefetchForeseen(now, bring);
  PrefetchAdopted(now, bring);
  PrefetchCopy(now, bring);
  return again;
}

ModelDemand Prefetcher::DemandOf(ModelId id, Time now) const {
  const ModelEntry& model = tables_.models[id];
  const KindId kind = tables_.times.FastestKindFor(model);
  return {.rate = model.asks.At(now),
          .run = tables_.times.costs.RunTime(model.cost, kind),
          .bring = tables_.rules.limits.LoadsOccupy()
                       ? tables_.times.LoadTimeOf(model)
                       : tables_.times.costs.SwapDelay(model.cost, model.weights, kind)};
}

bool Prefetcher::MayHaveCopies(ModelId id) const {
  const ModelEntry& model = tables_.models[id];
  return model.adopted && model.in_region && model.key.empty() && tables_.states.Of(id).empty();
}

// What part of the time the node's GPUs compute.
double Prefetcher::BusyGpus(Time now) const {
  const auto gpus = static_cast<double>(std::max<std::size_t>(tables_.gpus.loads().ReadyCount(), 1));
  return std::min(computing_.At(now) / gpus, 1.0);
}

// Waiting that one copy more saves, in seconds a second; nothing when it would not pay for its load.
double Prefetcher::GainOfCopy(ModelId id, Time now) const {
  const ModelEntry& model = tables_.models[id];
  if (!MayHaveCopies(id)) return 0;
  const std::uint32_t copies = tables_.gpus.holders().Count(id);
  if (copies == 0) return 0;
  const ModelDemand demand = DemandOf(id, now);
  if (demand.rate * ToSeconds(demand.run) < kServedWell * copies) return 0;
  const double busy = BusyGpus(now);
  const double gain = WaitingWith(demand, copies, busy) - WaitingWith(demand, copies + 1, busy);
  return gain * ToSeconds(RecentRate::kMemory) > ToSeconds(tables_.times.LoadTimeOf(model)) ? gain : 0;
}

// True when a request waits for the model, or its functions have states there.
bool Prefetcher::IsWanted(ModelId victim, const Gpu& gpu) const {
  return tables_.requests.WaitingFor(victim) > 0 || !gpu.Find(victim)->states.empty();
}

// How much waiting the loss of the victims costs; infinite when one of them is wanted.
double Prefetcher::LossOf(const std::vector<ModelId>& victims, const Gpu& gpu, Time now) const {
  double loss = 0;
  const double busy = BusyGpus(now);
  for (const ModelId victim : victims) {
    if (IsWanted(victim, gpu)) return std::numeric_limits<double>::infinity();
    if (!tables_.models[victim].adopted) continue;
    const ModelDemand demand = DemandOf(victim, now);
    const std::uint32_t copies = tables_.gpus.holders().Count(victim);
    loss += WaitingWith(demand, copies - 1, busy) - WaitingWith(demand, copies, busy);
  }
  return loss;
}

// GPUs where a load delays no request now, of the least busy ones.
GpuList Prefetcher::QuietGpus() const {
  GpuList quiet;
  const bool occupies = tables_.rules.limits.LoadsOccupy();
  // Where a load has its GPU for itself, the GPUs with the least free memory stay free for the next requests.
  const std::size_t stay =
      occupies ? std::clamp<std::size_t>(tables_.gpus.ready().size() / kStayIdle, 1, kSomeGpus) : 0;
  std::size_t looked = 0;
  tables_.gpus.ready().InOrder([&](const GpuPlace& place) {
    if (looked++ == kQuietest) return false;
    if (occupies && place.in_flight() > 0) return false;
    const Gpu& gpu = tables_.gpus.at(place.gpu);
    const bool disturbs =
        gpu.coming_models > 0 || !gpu.evicting.empty() || tables_.rights.held.HolderOf(gpu.index) != nullptr;
    if (disturbs || (!occupies && chooser_.LoadOfSwitch(gpu) != SwitchLoad::kNone)) return true;
    quiet.push_back(gpu.index);
    return true;
  });
  quiet.erase(quiet.end() - static_cast<std::ptrdiff_t>(std::min(quiet.size(), stay)), quiet.end());
  return quiet;
}

// The GPUs on which a run of the model takes least come first, in `sorted`; where all are of one kind they stay as they
// are.
const GpuList& Prefetcher::FastestFirst(ModelId id, const GpuList& gpus, GpuList& sorted) const {
  if (!tables_.times.KindsDiffer()) return gpus;
  sorted = gpus;
  std::ranges::stable_sort(sorted, {}, [&](GpuIndex gpu) {
    return tables_.times.costs.RunTime(tables_.models[id].cost, tables_.gpus.at(gpu).kind);
  });
  return sorted;
}

// Which victims would leave for the model; nothing when it is there already, or finds no room now.
std::optional<PrefetchPlan> Prefetcher::PlanOn(ModelId id, const Gpu& gpu, Time now) const {
  const Bytes need = tables_.models[id].weights + tables_.models[id].activation;
  if (gpu.Find(id) != nullptr || !tables_.CanEverFit(id, gpu)) return std::nullopt;
  if (gpu.Free() + gpu.idle < victims_.Target(id, gpu, need)) return std::nullopt;
  return PrefetchPlan{.gpu = gpu.index, .victims = victims_.Plan(id, need, gpu, now)};
}

std::optional<PrefetchPlan> Prefetcher::PlanCopy(ModelId id, double gain, const GpuList& quiet,
                                                 Time now) const {
  std::optional<PrefetchPlan> best;
  GpuList sorted;
  for (const GpuIndex index : FastestFirst(id, quiet, sorted)) {
    auto plan = PlanOn(id, tables_.gpus.at(index), now);
    if (!plan) continue;
    plan->loss = LossOf(plan->victims, tables_.gpus.at(index), now);
    if (kClearly * plan->loss >= gain && !plan->victims.empty()) continue;
    if (!best || plan->loss < best->loss) best = std::move(plan);
    if (best->victims.empty()) break;
  }
  return best;
}

void Prefetcher::NoteOwners() {
  owed_.clear();
  tables_.rights.owned.ForEach([&](const ModelNumber& model, std::uint32_t device) {
    for (const Gpu* gpu : tables_.gpus.by_index())
      if (gpu != nullptr && gpu->device == device) owed_.push_back({gpu->index, model});
  });
  // The table of owners has no order.
  std::ranges::sort(owed_, {}, [](const Owed& owed) { return std::tie(owed.gpu, owed.model.text()); });
  owed_.erase(std::unique(owed_.begin(), owed_.end()), owed_.end());
}

// Where a function owns a part of a GPU its model is there before its requests are.
void Prefetcher::PrefetchOwned(Time now, Bring bring) {
  if (owed_.empty() || tables_.draining || !tables_.OneForAll()) return;
  for (Owed& owed : std::exchange(owed_, {}))
    if (!PrefetchOwned(owed, now, bring)) owed_.push_back(std::move(owed));
}

// The model takes the room of models that no request waits for, and of none that is to stay itself. False: it may come
// later.
bool Prefetcher::PrefetchOwned(const Owed& owed, Time now, Bring bring) {
  const ModelId id = tables_.models.Find(owed.model);
  const ModelEntry* const model = tables_.models.Adopted(id);
  const Gpu& gpu = tables_.gpus.at(owed.gpu);
  if (model == nullptr || !model->in_region || gpu.worker != WorkerState::kReady) return false;
  if (gpu.Find(id) != nullptr) return true;
  const auto plan = PlanOn(id, gpu, now);
  const auto is_needed = [&](ModelId victim) {
    return IsWanted(victim, gpu) || tables_.rights.owned.Keeps(tables_.models.NameOf(victim), gpu.device);
  };
  if (!plan || std::ranges::any_of(plan->victims, is_needed)) return false;
  bring(id, *plan, Time::max());
  return true;
}

// A function that was deployed will have requests, though how many is unknown: while there is free room, its
// model comes before them. A model that never ran does not, because its first swap measures it.
void Prefetcher::PrefetchAdopted(Time now, Bring bring) {
  if (adopted_.empty() || !MayPrefetch()) return;
  GpuList quiet = QuietGpus();
  while (!quiet.empty() && !adopted_.empty()) {
    const ModelId id = adopted_.front();
    adopted_.pop_front();
    // What was asked for meanwhile is there, or was taken off a GPU for a reason.
    if (tables_.models[id].asked != Time::min() || !MayHaveCopies(id) || tables_.gpus.holders().Count(id) > 0)
      continue;
    if (!tables_.times.costs.Ran(tables_.models[id].cost)) continue;
    const auto plan = PlanCopy(id, 0, quiet, now);
    if (!plan || !plan->victims.empty()) continue;
    quiet.erase(std::ranges::find(quiet, plan->gpu));
    bring(id, *plan, Time::max());
  }
}

// The model whose copy saves most comes, when there is a place for it; the others are looked at when they are
// asked for again.
void Prefetcher::PrefetchCopy(Time now, Bring bring) {
  if (wanting_.empty() || !MayPrefetch()) return;
  if (tables_.requests.late && tables_.requests.late->late() > 0) return;  // there is too much to do already
  if (!tables_.rules.limits.LoadsOccupy() && tables_.pressure.on_links.At(now) > kQuietLinks) return;
  ModelId best = kNoModel;
  double most = 0;
  for (std::size_t looked = 0; looked < kSomeModels && !wanting_.empty(); ++looked) {
    const ModelId id = wanting_.back();
    wanting_.pop_back();
    tables_.models[id].may_want_copy = false;
    const double gain = GainOfCopy(id, now);
    if (gain <= most) continue;
    most = gain;
    best = id;
  }
  if (best == kNoModel) return;
  const GpuList quiet = QuietGpus();
  if (quiet.empty()) return MayWantCopy(best);
  if (const auto plan = PlanCopy(best, most, quiet, now)) bring(best, *plan, Time::max());
}

}  // namespace troupe::node
