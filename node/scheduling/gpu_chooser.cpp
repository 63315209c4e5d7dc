#include "node/scheduling/gpu_chooser.hpp"

#include <algorithm>
#include <optional>
#include <span>

#include "base/check.hpp"

namespace troupe::node {

bool GpuChooser::AnySlot(bool hits_only) const {
  return tables_.requests.own_places_wanted > 0 || AnyPlace(hits_only);
}

bool GpuChooser::AnyPlace(bool hits_only) const {
  // With one runtime a device the least busy one stands first.
  if (!tables_.rules.limits.isolated)
    return tables_.gpus.loads().Least() <
           (hits_only ? tables_.rules.places.most : tables_.rules.places.depth);
  for (const auto& [index, gpu] : tables_.gpus.gpus()) {
    if (gpu.worker == WorkerState::kReady &&
        tables_.gpus.loads().InFlightOn(gpu.device) < tables_.rules.places.depth)
      return true;
  }
  return false;
}

// A late request whose model is there waits until nothing else computes on the GPU: a request that comes
// meanwhile, and can still be in time, would have to wait for it.
bool GpuChooser::IsBehindRuns(const RequestEntry& entry, const Gpu& gpu) const {
  return tables_.requests.Yields(entry.key) &&
         tables_.gpus.loads().InFlightOn(gpu.device) >= tables_.rules.limits.concurrency + gpu.coming_models;
}

// Runs of the request's function that one GPU is given at a time, at most; 0: as many as it has places for. Of
// those for which `gpu_mem` has room, one more than compute: the worker has the next one when a run ends.
std::uint32_t GpuChooser::MostRuns(const RequestEntry& entry, const Gpu& gpu) const {
  const NodeRequest& request = entry.request;
  if (!tables_.rights.owned.empty()) {
    const auto owned = tables_.rights.owned.InstancesOn(request.function, request.model, gpu.device);
    if (owned > 0) return owned + 1;
  }
  const ModelEntry& model = tables_.models[entry.model];
  if (request.gpu_mem == Bytes(0) || model.activation == Bytes(0)) return request.most_on_gpu;
  const std::uint64_t limit = request.gpu_mem.count();
  const std::uint64_t room = limit - std::min(limit, model.weights.count());
  const std::uint64_t fit = std::max<std::uint64_t>(room / model.activation.count(), 1) + 1;
  const std::uint64_t said = request.most_on_gpu == 0 ? fit : request.most_on_gpu;
  return static_cast<std::uint32_t>(std::min(fit, said));
}

// Its function owns parts of some GPUs, and runs nowhere else.
bool GpuChooser::IsOwner(const RequestEntry& entry) const {
  return !tables_.rights.owned.empty() &&
         tables_.rights.owned.Owns(entry.request.function, entry.request.model);
}

// As many as its function may have there are dispatched.
bool GpuChooser::HasAllItsRuns(const RequestEntry& entry, const Gpu& gpu) const {
  const std::uint32_t most = MostRuns(entry, gpu);
  if (most == 0) return false;
  const auto is_run = [&](const RequestEntry* other) {
    return other->leader == nullptr && other->request.function == entry.request.function;
  };
  return std::ranges::count_if(tables_.requests.pipelines[gpu.index], is_run) >= most;
}

bool GpuChooser::IsBarredFrom(const RequestEntry& entry, const Gpu& gpu) const {
  return !tables_.MayRunOn(entry.request, gpu) ||
         tables_.rights.pauses.IsPaused(entry.request.function, gpu.index) || HasAllItsRuns(entry, gpu);
}

bool GpuChooser::LacksPlace(const RequestEntry& entry) const {
  return tables_.requests.own_places_wanted > 0 && !tables_.HasOwnPlace(entry) && !AnyPlace(false);
}

bool GpuChooser::IsBarred(const RequestEntry& entry) const {
  if (entry.request.most_on_gpu == 0 && entry.request.gpu_mem == Bytes(0)) return false;
  return std::ranges::all_of(tables_.gpus.by_index(), [&](const Gpu* gpu) {
    return gpu == nullptr || gpu->worker != WorkerState::kReady || IsBarredFrom(entry, *gpu);
  });
}

bool GpuChooser::HasSlot(const RequestEntry& entry, const Gpu& gpu, const Resident* resident) const {
  if (resident != nullptr && resident->missing) return false;
  // What is kept for one request may be taken by a more urgent one of the same model: the first would not be
  // looked at before it.
  const bool own_place = tables_.HasOwnPlace(entry);
  const RequestEntry* const holder = tables_.rights.held.HolderOf(gpu.index);
  if (holder != nullptr && holder->model != entry.model && !own_place) return false;
  const bool is_hit = resident != nullptr && resident->state != ResidentState::kLoading;
  // What its router named for this GPU waits in this GPU's own queue, however long that is.
  const bool any_depth = own_place || entry.request.named != kNoGpu;
  if (!any_depth &&
      tables_.gpus.loads().InFlightOn(gpu.device) + tables_.rights.held.KeptPlaces(entry, gpu) >=
          tables_.rules.places.Of(gpu.coming_models, is_hit))
    return false;
  if (IsBarredFrom(entry, gpu)) return false;
  if (gpu.in_flight == 0) return true;
  if (is_hit && !own_place && IsBehindRuns(entry, gpu)) return false;
  if (entry.suspect) return false;
  return tables_.requests.suspects == 0 ||
         std::ranges::none_of(tables_.requests.pipelines[gpu.index], &RequestEntry::suspect);
}

GpuList GpuChooser::SomeHolders(ModelId model, std::uint64_t draw) const {
  const std::vector<GpuIndex>& holders = tables_.gpus.Holders(model);
  const std::size_t some = std::min(holders.size(), kSomeGpus);
  GpuList out;
  std::size_t next = some > 0 ? draw % holders.size() : 0;
  for (std::size_t i = 0; i < some; ++i) {
    out.push_back(holders[next]);
    next = next + 1 == holders.size() ? 0 : next + 1;
  }
  return out;
}

// The GPUs with fewer requests than `below`, the least busy first.
GpuList GpuChooser::LeastBusy(std::uint32_t below) const {
  GpuList out;
  if (tables_.gpus.loads().Least() >= below) return out;
  tables_.gpus.ready().InOrder([&](const GpuPlace& place) {
    if (place.in_flight() >= below) return false;
    out.push_back(place.gpu);
    return out.size() < kSomeGpus;
  });
  return out;
}

GpuList GpuChooser::Candidates(const RequestLook& look, std::uint64_t draw) const {
  const std::vector<GpuIndex>& holders = tables_.gpus.Holders(look.entry.model);
  GpuList out;
  if (look.entry.request.profiled_on != kNoGpu) {
    for (const Gpu* gpu : tables_.gpus.by_index())
      if (gpu != nullptr && gpu->device == look.entry.request.profiled_on) out.push_back(gpu->index);
    return out;
  }
  if (IsOwner(look.entry)) {
    for (const Gpu* gpu : tables_.gpus.by_index())
      if (gpu != nullptr && tables_.MayRunOn(look.entry.request, *gpu)) out.push_back(gpu->index);
    return out;
  }
  // One without a place matters only if it has the model: it may be worth to wait for it.
  const auto matters = [&](const Gpu& gpu) {
    return tables_.gpus.loads().InFlightOn(gpu.device) < tables_.rules.places.depth ||
           std::ranges::binary_search(holders, gpu.index);
  };
  if (tables_.LooksAtAll(look.model)) {
    for (const Gpu* gpu : tables_.gpus.by_index())
      if (gpu != nullptr && (tables_.rules.policies.gpu.early_binding || matters(*gpu)))
        out.push_back(gpu->index);
    return out;
  }
  if (look.state != nullptr && look.state->gpu != kNoGpu) return {look.state->gpu};
  out = SomeHolders(look.entry.model, draw);
  const bool has_all = out.size() == holders.size();
  for (const GpuIndex gpu : LeastBusy(has_all ? tables_.rules.places.depth : ~std::uint32_t{0}))
    if (matters(tables_.gpus.at(gpu))) out.push_back(gpu);
  if (look.entry.hold != kNoGpu) out.push_back(look.entry.hold);
  std::ranges::sort(out);
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

bool GpuChooser::MayHit(const RequestLook& look, std::uint64_t draw) const {
  const auto takes = [&](GpuIndex index) {
    const Gpu& gpu = tables_.gpus.at(index);
    const bool has_place =
        tables_.HasOwnPlace(look.entry) ||
        tables_.gpus.loads().InFlightOn(gpu.device) < tables_.rules.places.Of(gpu.coming_models, true);
    return has_place && CanTake(look, gpu, gpu.Find(look.entry.model));
  };
  const std::vector<GpuIndex>& holders = tables_.gpus.Holders(look.entry.model);
  if (holders.size() <= kSomeGpus || tables_.LooksAtAll(look.model))
    return std::ranges::any_of(holders, takes);
  if (look.state != nullptr && look.state->gpu != kNoGpu) return true;
  if (look.entry.request.profiled_on != kNoGpu || IsOwner(look.entry)) return true;
  return std::ranges::any_of(SomeHolders(look.entry.model, draw), takes) ||
         std::ranges::any_of(LeastBusy(tables_.rules.places.most), [&](GpuIndex index) {
           return std::ranges::binary_search(holders, index) && takes(index);
         });
}

bool GpuChooser::CanTake(const RequestLook& look, const Gpu& gpu, const Resident* resident) const {
  const RequestEntry& entry = look.entry;
  if (gpu.worker != WorkerState::kReady || !HasSlot(entry, gpu, resident)) return false;
  if (entry.request.profiled_on != kNoGpu && gpu.device != entry.request.profiled_on) return false;
  return tables_.CanEverFit(entry.model, look.whole, gpu) && tables_.StateAllows(look, gpu) &&
         tables_.Serves(entry, gpu) &&
         victims_.CanMakeRoom(look, gpu, resident, tables_.Need(look, resident));
}

// A request is given runtimes of its key, and the first warm runtime of each device that has none of its key:
// one runtime per key and device, so that no key takes all of a device's. While one is being assigned no
// other is taken.
bool GpuChooser::MayChoose(const RequestEntry& entry, const Gpu& gpu) const {
  if (tables_.Serves(entry, gpu)) return true;
  const std::string& key = tables_.models[entry.model].key;
  if (gpu.assigned || tables_.rights.held.HeldByOther(entry, gpu.index) || !Takeable(gpu)) return false;
  if (Coming(tables_.gpus.gpus(), key) || Served(tables_.gpus.gpus(), key, gpu.device)) return false;
  const auto& all = tables_.gpus.gpus();
  return std::none_of(all.begin(), all.end(), [&](const auto& other) {
    const Gpu& before = other.second;
    return before.device == gpu.device && before.index < gpu.index && !before.assigned &&
           !tables_.rights.held.HeldByOther(entry, before.index) && Takeable(before);
  });
}

// By a copy ahead, where a load has its GPU for itself: a run waits for it.
bool GpuChooser::IsOccupied(const Gpu& gpu) const {
  return tables_.rules.limits.LoadsOccupy() && gpu.in_flight == 0 && gpu.coming_models > 0;
}

// What the requests behind the first one of this model take of the GPUs that have it.
Duration GpuChooser::QueuedFor(ModelId model) const {
  const std::size_t waiting = tables_.requests.WaitingFor(model);
  if (waiting < 2) return {};
  if (tables_.times.KindsDiffer()) return QueuedForKinds(model, waiting - 1);
  const auto holders = std::max<std::uint32_t>(tables_.gpus.holders().Count(model), 1);
  return tables_.times.costs.RunTime(tables_.models[model].cost) * static_cast<Duration::rep>(waiting - 1) /
         holders;
}

// Each of them serves as many as its kind can.
Duration GpuChooser::QueuedForKinds(ModelId model, std::size_t behind) const {
  double rate = 0;  // runs a second
  const auto rate_on = [&](KindId kind) {
    return 1 / std::max(ToSeconds(tables_.times.costs.RunTime(tables_.models[model].cost, kind)), 1e-9);
  };
  for (const GpuIndex gpu : tables_.gpus.Holders(model)) rate += rate_on(tables_.gpus.at(gpu).kind);
  if (rate == 0) rate = rate_on(tables_.times.FastestKindFor(tables_.models[model]));
  return FromSeconds(static_cast<double>(behind) / rate);
}

// How long its function may not run there, since it has used up its time.
Duration GpuChooser::PauseOn(const RequestEntry& entry, const Gpu& gpu, Time now) const {
  const Time until = tables_.rights.pauses.Until(entry.request.function, gpu.index);
  return until <= now ? Duration() : until - now;
}

// Adds none where no policy would look at it, since it cannot take the request now and does not have its
// model.
bool GpuChooser::AddOption(const RequestLook& look, const Gpu& gpu, Time now, Options& options) const {
  const Resident* const resident = tables_.gpus.Find(look.entry.model, gpu);
  if (resident != nullptr && resident->missing) return false;
  const bool has_slot = HasSlot(look.entry, gpu, resident);
  if (!has_slot && resident == nullptr) return false;
  const Bytes need = tables_.Need(look, resident);
  const Bytes free = gpu.Free();
  const bool fits = has_slot && victims_.CanMakeRoom(look, gpu, resident, need);
  if (!fits && resident == nullptr) return false;
  GpuOption& option = options.emplace_back(
      GpuOption{.gpu = gpu.index,
                .has_model = resident != nullptr,
                .has_slot = has_slot,
                .fits = fits,
                .in_flight = tables_.gpus.loads().InFlightOn(gpu.device) + (IsOccupied(gpu) ? 1 : 0),
                .free = free,
                .evicts = need > free,
                .backlog = std::max(gpu.work.Left(now), PauseOn(look.entry, gpu, now))});
  if (resident != nullptr) return true;
  if (tables_.rules.policies.gpu.weighs_victims)
    option.victim = victims_.WorstVictim(look.entry, need, gpu, now);
  option.load = tables_.times.KindsDiffer() ? tables_.times.LoadTimeOn(look.model, gpu.kind) : look.load;
  option.switch_load = LoadOfSwitch(gpu);
  option.before = gpu.bringing.Left(now);
  option.beside = LoadsBeside(gpu, now);
  FindPeer(look, gpu, option);
  return true;
}

GpuChoice GpuChooser::Choose(const RequestLook& look, std::uint64_t draw, Time now) const {
  const RequestEntry& entry = look.entry;
  const GpuIndex bound = look.state == nullptr ? kNoGpu : look.state->gpu;
  const std::uint32_t home = bound == kNoGpu ? tables_.homes.Of(entry.model) : kNoGpu;
  GpuView view{.load = look.load,
               .queued = QueuedFor(entry.model),
               .link_pressure = tables_.pressure.on_links.At(now),
               .peer_links = tables_.rules.topology.HasLinks(),
               .loads_occupy = tables_.rules.limits.LoadsOccupy(),
               .concurrency = tables_.rules.limits.concurrency,
               .home = bound,
               .draw = draw};
  const bool kinds_differ = tables_.times.KindsDiffer();
  const Duration fastest = kinds_differ ? tables_.times.RunTimeOf(entry) : Duration();
  if (kinds_differ && entry.request.deadline != Time::max()) {
    view.spare = entry.request.deadline - now - fastest;
    view.fast_wanted = tables_.pressure.on_fast.At(now);
  }
  const bool any_serves = tables_.OneForAll() && look.model.key.empty();
  Options options;
  for (const GpuIndex index : Candidates(look, draw)) {
    const Gpu& gpu = tables_.gpus.at(index);
    if (gpu.worker != WorkerState::kReady || !tables_.CanEverFit(entry.model, look.whole, gpu)) continue;
    if (!tables_.StateAllows(look, gpu) || !((any_serves && gpu.assigned) || MayChoose(entry, gpu))) continue;
    if (home != kNoGpu && gpu.device == home) view.home = index;
    if (!AddOption(look, gpu, now, options)) continue;
    GpuOption& option = options.back();
    if (kinds_differ) option.slower = tables_.times.RunTimeOn(entry, gpu.kind) - fastest;
    if (index != entry.hold) continue;
    if (!option.has_slot || !option.fits || !tables_.Serves(entry, gpu)) continue;
    // It was kept for this request: only the source is left to choose.
    view.options = std::span(&option, 1);
    const GpuChoice choice = tables_.rules.policies.gpu.choose(view);
    return {GpuVerdict::kRun, index, choice.verdict == GpuVerdict::kRun ? choice.peer : kNoGpu};
  }
  view.options = std::span(options.data(), options.size());
  const GpuChoice choice = tables_.rules.policies.gpu.choose(view);
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
