// The choosing half of a decision: which GPUs a request looks at, what it sees of each, and where the gpu
// policy sends it. Pure looks at the tables.
#include <algorithm>
#include <optional>
#include <span>

#include "base/check.hpp"
#include "node/swap_scheduler.hpp"

namespace troupe::node {

bool SwapScheduler::AnySlot(bool hits_only) const {
  // With one runtime a device the least busy one stands first.
  if (!limits_.isolated) return gpus_.LeastInFlight() < (hits_only ? places_.most : places_.depth);
  for (const auto& [index, gpu] : gpus_.gpus()) {
    if (gpu.worker == WorkerState::kReady && gpus_.InFlightOn(gpu.device) < places_.depth) return true;
  }
  return false;
}

// A late request whose model is there waits until nothing else computes on the GPU: one that comes meanwhile,
// and can still be met, would have to wait for it.
bool SwapScheduler::IsBehindRuns(const Entry& entry, const Gpu& gpu) const {
  return Yields(entry.key) && gpus_.InFlightOn(gpu.device) >= limits_.concurrency + gpu.coming_models;
}

bool SwapScheduler::HasSlot(const Entry& entry, const Gpu& gpu, const Resident* resident) const {
  if (resident != nullptr && resident->missing) return false;
  // What is kept for one request may be taken by a more urgent one of the same model: the first would not be
  // looked at before it.
  const Entry* const holder = holds_[gpu.index];
  if (holder != nullptr && holder->model != entry.model) return false;
  const bool is_hit = resident != nullptr && resident->state != ResidentState::kLoading;
  if (gpus_.InFlightOn(gpu.device) + KeptPlaces(entry, gpu) >= places_.Of(gpu.coming_models, is_hit))
    return false;
  if (gpu.in_flight == 0) return true;
  if (is_hit && IsBehindRuns(entry, gpu)) return false;
  if (entry.suspect) return false;
  return suspects_ == 0 || std::ranges::none_of(pipelines_[gpu.index], &Entry::suspect);
}

Bytes SwapScheduler::Need(const Look& look, const Resident* resident) const {
  const Bytes run = StateNeed(look, resident) + look.model.activation;
  return resident != nullptr ? run : run + look.model.weights;
}

bool SwapScheduler::CanEverFit(ModelId id, const Gpu& gpu) const {
  const Model& model = models_[id];
  return CanEverFit(id, model.weights + model.activation + states_.BytesOf(id), gpu);
}

// `whole`: what the model, its states and a run take.
bool SwapScheduler::CanEverFit(ModelId model, Bytes whole, const Gpu& gpu) const {
  if (gpu.worker == WorkerState::kUnfit || whole > gpu.memory) return false;
  if (hints_.empty()) return true;
  const auto hint = hints_.find({gpu.index, model});
  return hint == hints_.end() || !hint->second.impossible;
}

bool SwapScheduler::CanEverFit(ModelId model) const {
  const auto& gpus = gpus_.gpus();
  return std::any_of(gpus.begin(), gpus.end(),
                     [&](const auto& gpu) { return CanEverFit(model, gpu.second); });
}

RequestLook SwapScheduler::LookFor(const Entry& entry) const {
  const Model& model = models_[entry.model];
  const bool any_states = !states_.all().empty();
  const Bytes states = any_states ? states_.BytesOf(entry.model) : Bytes();
  return {.entry = entry,
          .model = model,
          .state = any_states ? states_.Find(entry.request.state) : nullptr,
          .whole = model.weights + model.activation + states,
          .load = LoadTimeOf(model)};
}

// Of a node's many GPUs a request looks at some that have its model, by lot, and at the least busy ones: so a
// decision costs the same on a node of ten as on one of a thousand.
bool SwapScheduler::LooksAtAll(const Model& model) const {
  return gpus_.gpus().size() <= kAllGpus || policies_.gpu.early_binding || !OneForAll() || !model.key.empty();
}

SwapScheduler::Gpus SwapScheduler::SomeHolders(ModelId model, std::uint64_t draw) const {
  const std::vector<GpuIndex>& holders = gpus_.Holders(model);
  const std::size_t some = std::min(holders.size(), kSomeGpus);
  Gpus out;
  std::size_t next = some > 0 ? draw % holders.size() : 0;
  for (std::size_t i = 0; i < some; ++i) {
    out.push_back(holders[next]);
    next = next + 1 == holders.size() ? 0 : next + 1;
  }
  return out;
}

// Of those with fewer requests than that.
SwapScheduler::Gpus SwapScheduler::LeastBusy(std::uint32_t below) const {
  Gpus out;
  if (gpus_.LeastInFlight() >= below) return out;
  gpus_.ready().InOrder([&](const GpuPlace& place) {
    if (place.in_flight() >= below) return false;
    out.push_back(place.gpu);
    return out.size() < kSomeGpus;
  });
  return out;
}

SwapScheduler::Gpus SwapScheduler::Candidates(const Look& look, std::uint64_t draw) const {
  const std::vector<GpuIndex>& holders = gpus_.Holders(look.entry.model);
  Gpus out;
  // One without a place matters only if it has the model: it may be worth to wait for it.
  const auto matters = [&](const Gpu& gpu) {
    return gpus_.InFlightOn(gpu.device) < places_.depth || std::ranges::binary_search(holders, gpu.index);
  };
  if (LooksAtAll(look.model)) {
    for (const Gpu* gpu : gpus_.by_index())
      if (gpu != nullptr && (policies_.gpu.early_binding || matters(*gpu))) out.push_back(gpu->index);
    return out;
  }
  if (look.state != nullptr && look.state->gpu != kNoGpu) return {look.state->gpu};
  out = SomeHolders(look.entry.model, draw);
  const bool has_all = out.size() == holders.size();
  for (const GpuIndex gpu : LeastBusy(has_all ? places_.depth : ~std::uint32_t{0}))
    if (matters(gpus_.at(gpu))) out.push_back(gpu);
  if (look.entry.hold != kNoGpu) out.push_back(look.entry.hold);
  std::ranges::sort(out);
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

// Among the GPUs that the request looks at is one that has its model and could take it: else there is no need
// to look at the others to see that it is no hit.
bool SwapScheduler::MayHit(const Look& look, std::uint64_t draw) const {
  const auto takes = [&](GpuIndex index) {
    const Gpu& gpu = gpus_.at(index);
    return gpus_.InFlightOn(gpu.device) < places_.Of(gpu.coming_models, true) &&
           CanTake(look, gpu, gpu.Find(look.entry.model));
  };
  const std::vector<GpuIndex>& holders = gpus_.Holders(look.entry.model);
  if (holders.size() <= kSomeGpus || LooksAtAll(look.model)) return std::ranges::any_of(holders, takes);
  if (look.state != nullptr && look.state->gpu != kNoGpu) return true;
  return std::ranges::any_of(SomeHolders(look.entry.model, draw), takes) ||
         std::ranges::any_of(LeastBusy(places_.most), [&](GpuIndex index) {
           return std::ranges::binary_search(holders, index) && takes(index);
         });
}

// Adds none where no policy would look at it, since it cannot take the request now and does not have its
// model.
bool SwapScheduler::AddOption(const Look& look, const Gpu& gpu, Time now, Options& options) const {
  const Resident* const resident = gpus_.Find(look.entry.model, gpu);
  if (resident != nullptr && resident->missing) return false;
  const bool has_slot = HasSlot(look.entry, gpu, resident);
  if (!has_slot && resident == nullptr) return false;
  const Bytes need = Need(look, resident);
  const Bytes free = gpu.Free();
  const bool fits = has_slot && CanMakeRoom(look, gpu, resident, need);
  if (!fits && resident == nullptr) return false;
  GpuOption& option =
      options.emplace_back(GpuOption{.gpu = gpu.index,
                                     .has_model = resident != nullptr,
                                     .has_slot = has_slot,
                                     .fits = fits,
                                     .in_flight = gpus_.InFlightOn(gpu.device) + (IsOccupied(gpu) ? 1 : 0),
                                     .free = free,
                                     .evicts = need > free,
                                     .backlog = gpu.work.Left(now)});
  if (resident != nullptr) return true;
  option.load = look.load;
  option.switch_load = LoadOfSwitch(gpu);
  option.before = gpu.bringing.Left(now);
  option.beside = LoadsBeside(gpu, now);
  FindPeer(look, gpu, option);
  return true;
}

GpuChoice SwapScheduler::Choose(const Look& look, std::uint64_t draw, Time now) const {
  const Entry& entry = look.entry;
  const GpuIndex bound = look.state == nullptr ? kNoGpu : look.state->gpu;
  const std::uint32_t home = bound == kNoGpu ? Home(entry.model) : kNoGpu;
  GpuView view{.load = look.load,
               .queued = QueuedFor(entry.model),
               .link_pressure = link_pressure_.At(now),
               .peer_links = topology_.HasLinks(),
               .loads_occupy = limits_.LoadsOccupy(),
               .concurrency = limits_.concurrency,
               .home = bound,
               .draw = draw};
  const bool any_serves = OneForAll() && look.model.key.empty();
  Options options;
  for (const GpuIndex index : Candidates(look, draw)) {
    const Gpu& gpu = gpus_.at(index);
    if (gpu.worker != WorkerState::kReady || !CanEverFit(entry.model, look.whole, gpu)) continue;
    if (!StateAllows(look, gpu) || !((any_serves && gpu.assigned) || MayChoose(entry, gpu))) continue;
    if (home != kNoGpu && gpu.device == home) view.home = index;
    if (!AddOption(look, gpu, now, options) || index != entry.hold) continue;
    const GpuOption& option = options.back();
    if (!option.has_slot || !option.fits || !Serves(entry, gpu)) continue;
    // It was kept for this request: only the source is left to choose.
    view.options = std::span(&option, 1);
    const GpuChoice choice = policies_.gpu.choose(view);
    return {GpuVerdict::kRun, index, choice.verdict == GpuVerdict::kRun ? choice.peer : kNoGpu};
  }
  view.options = std::span(options.data(), options.size());
  const GpuChoice choice = policies_.gpu.choose(view);
  if (choice.verdict == GpuVerdict::kRun) {
    TROUPE_CHECK(std::any_of(options.begin(), options.end(),
                             [&](const GpuOption& o) {
                               return o.gpu == choice.gpu && o.has_slot && o.fits &&
                                      (choice.peer == kNoGpu || (choice.peer == o.peer && !o.has_model));
                             }),
                 "the gpu policy chose a GPU that cannot take the request, or not from there");
  }
  return choice;
}

}  // namespace troupe::node
