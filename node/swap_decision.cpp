// The deciding half of the swap scheduler: where a request goes, what makes room for it, who is kept a place.
#include <algorithm>
#include <optional>
#include <span>
#include <tuple>

#include "base/check.hpp"
#include "node/swap_scheduler.hpp"

namespace troupe::node {

bool SwapScheduler::AnySlot(bool hits_only) const {
  // With one runtime a device the least busy one stands first.
  const std::uint32_t places = hits_only ? MostInFlight() : limits_.PipelineDepth();
  if (!limits_.isolated) return !gpus_.ready().empty() && gpus_.ready().begin()->in_flight < places;
  for (const auto& [index, gpu] : gpus_.gpus()) {
    if (gpu.worker == WorkerState::kReady && gpus_.InFlightOn(gpu.device) < limits_.PipelineDepth())
      return true;
  }
  return false;
}

bool SwapScheduler::PlacesForHits() const {
  return policies_.gpu.places_for_hits && !limits_.isolated && !limits_.LoadsOccupy();
}

// A request whose model is there finds a place more for each that waits for its model.
std::uint32_t SwapScheduler::PlacesFor(const Entry& entry, const Gpu& gpu) const {
  const std::uint32_t depth = limits_.PipelineDepth();
  const Resident* resident = gpu.Find(entry.request.model);
  if (!PlacesForHits() || resident == nullptr || resident->state == ResidentState::kLoading) return depth;
  return std::min(depth + gpu.coming_models, MostInFlight());
}

std::uint32_t SwapScheduler::MostInFlight() const {
  return PlacesForHits() ? 2 * limits_.PipelineDepth() : limits_.PipelineDepth();
}

bool SwapScheduler::HasSlot(const Entry& entry, const Gpu& gpu) const {
  // What is kept for one request may be taken by a more urgent one of the same model: the first would not be
  // looked at before it.
  const auto hold = holds_.find(gpu.index);
  if (hold != holds_.end() && requests_.at(hold->second).request.model != entry.request.model) return false;
  if (gpus_.InFlightOn(gpu.device) + KeptPlaces(entry, gpu) >= PlacesFor(entry, gpu)) return false;
  if (gpu.in_flight == 0) return true;
  if (entry.suspect) return false;
  if (suspects_ == 0) return true;
  const auto pipeline = pipelines_.find(gpu.index);
  return std::none_of(pipeline->second.begin(), pipeline->second.end(),
                      [&](const RequestId& id) { return requests_.at(id).suspect; });
}

Bytes SwapScheduler::Need(const Entry& entry, const Gpu& gpu) const {
  const Model& model = models_.at(entry.request.model);
  const Bytes state = StateNeed(entry, gpu);
  return state +
         (gpu.Find(entry.request.model) != nullptr ? model.activation : model.weights + model.activation);
}

bool SwapScheduler::CanEverFit(const std::string& name, const Gpu& gpu) const {
  if (gpu.worker == WorkerState::kUnfit) return false;
  const auto hint = hints_.find({gpu.index, name});
  if (hint != hints_.end() && hint->second.impossible) return false;
  const Model& model = models_.at(name);
  return model.weights + model.activation + states_.BytesOf(name) <= gpu.memory;
}

bool SwapScheduler::CanEverFit(const std::string& model) const {
  const auto& gpus = gpus_.gpus();
  return std::any_of(gpus.begin(), gpus.end(),
                     [&](const auto& gpu) { return CanEverFit(model, gpu.second); });
}

GpuOption SwapScheduler::OptionFor(const Entry& entry, const Gpu& gpu, Time now) const {
  const bool has_model = gpu.Find(entry.request.model) != nullptr;
  const bool has_slot = HasSlot(entry, gpu);
  GpuOption option{.gpu = gpu.index,
                   .has_model = has_model,
                   .has_slot = has_slot,
                   .fits = has_slot && PlanVictims(entry, gpu, now, nullptr),
                   .in_flight = gpus_.InFlightOn(gpu.device),
                   .free = gpu.Free(),
                   .evicts = Need(entry, gpu) > gpu.Free(),
                   .backlog = std::max(Duration::zero(), gpu.busy_until - now),
                   .load = has_model ? Duration::zero() : LoadTimeOf(entry.request.model)};
  option.switch_load = LoadOfSwitch(gpu);
  if (!has_model) FindPeer(entry, gpu, option);
  return option;
}

// The fastest link from a GPU that has the whole model, if this GPU's worker can use it (see StateAllows).
void SwapScheduler::FindPeer(const Entry& entry, const Gpu& gpu, GpuOption& option) const {
  if (!gpu.peer_copies || entry.host_only || StateNeed(entry, gpu) > Bytes()) return;
  BytesPerSecond fastest;
  for (const GpuIndex holder : gpus_.Holders(entry.request.model)) {
    const auto speed = topology_.PeerLink(gpus_.at(holder).device, gpu.device);
    if (!speed || *speed <= fastest) continue;
    if (gpus_.at(holder).Find(entry.request.model)->state == ResidentState::kLoading) continue;
    fastest = *speed;
    option.peer = holder;
    option.peer_load = TransferTime(models_.at(entry.request.model).weights, fastest);
  }
}

// From the host: one for each switch that several share, and one for each other GPU.
std::uint32_t SwapScheduler::LinkCount() const {
  std::size_t links = gpus_.gpus().size();
  for (const auto& shared : topology_.Switches()) links -= std::min(links, shared.size() - 1);
  return static_cast<std::uint32_t>(std::max<std::size_t>(links, 1));
}

SwitchLoad SwapScheduler::LoadTo(const Gpu& gpu) const {
  SwitchLoad load = SwitchLoad::kNone;
  for (const std::string& model : gpu.host_loads) {
    if (costs_.Heavy(DigestOf(model), gpu.Find(model)->bytes)) return SwitchLoad::kHeavy;
    load = SwitchLoad::kLight;
  }
  return load;
}

SwitchLoad SwapScheduler::LoadOfSwitch(const Gpu& gpu) const {
  if (!limits_.isolated && topology_.empty()) return LoadTo(gpu);
  SwitchLoad load = SwitchLoad::kNone;
  for (const auto& [index, other] : gpus_.gpus()) {
    if (other.device == gpu.device || topology_.ShareSwitch(other.device, gpu.device))
      load = std::max(load, LoadTo(other));
  }
  return load;
}

// The GPUs that a request looks at. Of many it takes some that have its model, by lot, and the least busy
// ones: so a decision costs the same on a node of ten as on one of a thousand.
std::vector<GpuIndex> SwapScheduler::Candidates(const Entry& entry, std::uint64_t draw) const {
  std::vector<GpuIndex> out;
  const bool shared = OneForAll() && models_.at(entry.request.model).key.empty();
  if (!shared || policies_.gpu.early_binding || gpus_.gpus().size() <= kAllGpus) {
    out.reserve(gpus_.gpus().size());
    for (const auto& [index, gpu] : gpus_.gpus()) out.push_back(index);
    return out;
  }
  const FunctionStates::State* state = states_.Find(entry.request.state);
  if (state != nullptr && state->gpu != kNoGpu) return {state->gpu};
  out.reserve(2 * kSomeGpus + 1);
  const std::vector<GpuIndex>& holders = gpus_.Holders(entry.request.model);
  const std::size_t some = std::min(holders.size(), kSomeGpus);
  for (std::size_t i = 0; i < some; ++i) out.push_back(holders[(draw + i) % holders.size()]);
  auto place = gpus_.ready().begin();
  for (std::size_t i = 0; i < kSomeGpus && place != gpus_.ready().end(); ++i, ++place)
    out.push_back(place->gpu);
  if (entry.hold != kNoGpu) out.push_back(entry.hold);
  std::ranges::sort(out);
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

GpuChoice SwapScheduler::Choose(const Entry& entry, std::uint64_t draw, Time now) const {
  const FunctionStates::State* state = states_.Find(entry.request.state);
  const GpuIndex bound = state == nullptr ? kNoGpu : state->gpu;
  GpuView view{.load = LoadTimeOf(entry.request.model),
               .queued = QueuedFor(entry.request.model),
               .link_pressure = link_pressure_.At(now),
               .peer_links = topology_.HasLinks(),
               .loads_occupy = limits_.LoadsOccupy(),
               .concurrency = limits_.concurrency,
               .home = bound,
               .draw = draw};
  std::vector<GpuOption> options;
  for (const GpuIndex index : Candidates(entry, draw)) {
    const Gpu& gpu = gpus_.at(index);
    if (gpu.worker != WorkerState::kReady || !CanEverFit(entry.request.model, gpu)) continue;
    if (!StateAllows(entry, index) || !MayChoose(entry, gpu)) continue;
    options.push_back(OptionFor(entry, gpu, now));
    if (bound == kNoGpu && gpu.device == Home(entry.request.model)) view.home = index;
    const GpuOption& option = options.back();
    if (index != entry.hold || !option.has_slot || !option.fits || !Serves(entry, gpu)) continue;
    // It was kept for this request: only the source is left to choose.
    view.options = std::span(&option, 1);
    const GpuChoice choice = policies_.gpu.choose(view);
    return {GpuVerdict::kRun, index, choice.verdict == GpuVerdict::kRun ? choice.peer : kNoGpu};
  }
  view.options = options;
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

void SwapScheduler::Load(Entry& entry, const GpuChoice& choice, Dispatch& dispatch, Time now) {
  entry.source = choice.peer == kNoGpu ? SwapSource::kHost : SwapSource::kPeer;
  dispatch.peer = choice.peer;
  gpus_.BeginLoad(choice.gpu, entry.request.model, models_.at(entry.request.model).weights, choice.peer, now);
  ++counts_.swaps;
  counts_.peer_swaps += choice.peer == kNoGpu ? 0 : 1;
  if (PlacesForHits()) ActivateResidents(gpus_.at(choice.gpu));
  if (choice.peer == kNoGpu) link_pressure_.Add(LoadTimeOf(entry.request.model), now, LinkCount());
}

// Beside its model, which is there or comes from where the choice says.
void SwapScheduler::Place(Entry& entry, const GpuChoice& choice, Dispatch& dispatch, Time now) {
  const GpuIndex index = choice.gpu;
  const std::string& name = entry.request.model;
  const Model& model = models_.at(name);
  const bool has_model = gpus_.at(index).Find(name) != nullptr;
  entry.hit = has_model && gpus_.at(index).Find(name)->state != ResidentState::kLoading;
  entry.source = SwapSource::kResident;
  for (const std::string& victim : dispatch.victims) Evict(index, victim);
  if (Need(entry, gpus_.at(index)) > gpus_.at(index).Free()) gpus_.ForgetOverhead(index);
  Duration work = costs_.RunTime(DigestOf(name));
  if (!has_model) {
    Load(entry, choice, dispatch, now);
    const auto link = choice.peer == kNoGpu
                          ? std::nullopt
                          : topology_.PeerLink(gpus_.at(choice.peer).device, gpus_.at(index).device);
    work += link ? TransferTime(model.weights, *link) : LoadTimeOf(name);
  } else {
    counts_.hits += entry.hit && !entry.request.trial ? 1 : 0;
  }
  PlaceState(entry, dispatch);
  entry.brings_state = dispatch.bring_state;
  gpus_.Pin(index, name, model.activation, work, now);
  entry.pinned = true;
  entry.activation = model.activation;
}

Dispatch SwapScheduler::MakeDispatch(Entry& entry, const GpuChoice& choice, Time now) {
  const GpuIndex index = choice.gpu;
  const std::string& name = entry.request.model;
  Dispatch dispatch;
  dispatch.request = entry.request.id;
  dispatch.model = name;
  dispatch.gpu = index;
  TROUPE_CHECK(PlanVictims(entry, gpus_.at(index), now, &dispatch.victims), "a chosen GPU has no room");
  entry.alone = gpus_.at(index).in_flight == 0;
  if (choice.peer == kNoGpu && PassesThrough(entry, gpus_.at(index), dispatch)) {
    PassThrough(entry, dispatch, now);
  } else {
    Place(entry, choice, dispatch, now);
  }
  entry.gpu = index;
  entry.passed = 0;
  entry.queued = now - entry.arrival;
  counts_.retried += entry.attempts > 0 ? 1 : 0;
  ++entry.attempts;
  Release(entry);
  Dequeue(entry);
  pipelines_[index].push_back(entry.request.id);
  Running& running = running_[entry.request.function];
  ++running.requests;
  running.gpu = index;
  dispatch.source = entry.source;
  dispatch.attempt = entry.attempts;
  dispatch.queued = entry.queued;
  dispatch.deadline = entry.request.deadline;
  dispatch.expiry = entry.request.expiry;
  return dispatch;
}

std::vector<Dispatch> SwapScheduler::Decide(Time now) {
  if (locality_) return DecideByLocality(now);
  Reorder(now);
  look_again_ = Time::max();
  std::vector<Dispatch> dispatches;
  // Beneath a run a load costs nothing; where it occupies its GPU, what is there already goes first.
  if (policies_.gpu.hits_first && (limits_.LoadsOccupy() || PlacesForHits()))
    DecideInOrder(true, now, dispatches);
  fresh_.clear();
  DecideInOrder(false, now, dispatches);
  // A load that was begun leaves its place to what is there.
  if (PlacesForHits()) DecideInOrder(true, now, dispatches);
  fresh_.clear();
  return dispatches;
}

void SwapScheduler::DecideInOrder(bool hits_only, Time now, std::vector<Dispatch>& dispatches) {
  std::vector<Entry*> left;  // more urgent than the one at hand, and not to be placed now
  // To look for a place where its model is makes sense after something has changed for it there.
  auto& heads = hits_only ? fresh_ : heads_;
  auto head = heads.begin();
  while (head != heads.end() && AnySlot(hits_only)) {
    const OrderingKey key = head->key;
    Entry* const next = NextOf(head->model);
    if (next == nullptr || MustTakeTurns(*next)) {
      ++head;
      if (next != nullptr) Park(next->request.model, running_.at(next->request.function).gpu);
      continue;
    }
    // No hit goes before what has a higher priority.
    if (hits_only && key.priority > heads_.begin()->key.priority) break;
    Entry& entry = *next;
    if (policies_.gpu.early_binding) BindHome(entry.request.model);
    LeaveUselessHold(entry);
    const GpuChoice choice = Choose(entry, random_(), now);
    const bool runs = choice.verdict == GpuVerdict::kRun && Serves(entry, gpus_.at(choice.gpu));
    if (runs && (!hits_only || gpus_.at(choice.gpu).Find(entry.request.model) != nullptr)) {
      dispatches.push_back(MakeDispatch(entry, choice, now));
      hits_only ? NotePassed(FirstBefore(key)) : NotePassed(left);
    } else {
      left.push_back(&entry);
      if (!hits_only) StayWaiting(entry, choice, now);
    }
    head = heads.upper_bound({key, {}});
  }
}

void SwapScheduler::StayWaiting(Entry& entry, const GpuChoice& choice, Time now) {
  SeekRuntime(entry, choice, now);
  // A place of its own key's: for another one it waits like everybody.
  const bool served = gpus_.Served(models_.at(entry.request.model).key, std::nullopt);
  if (entry.suspect && entry.hold == kNoGpu && served) HoldFor(entry);
  const bool busy = choice.firm && gpus_.at(choice.gpu).in_flight > 0;
  if (busy && OneForAll() && !entry.suspect && entry.hold == kNoGpu) Park(entry.request.model, choice.gpu);
}

// Another request of its function is on a GPU, and the rules allow one at a time. Functions that share a
// model share the turn of the first of them.
bool SwapScheduler::MustTakeTurns(const Entry& entry) const {
  return slo_ && slo_->rules().one_at_a_time && running_.contains(entry.request.function);
}

// Functions may have changed places: what waits gets new keys.
void SwapScheduler::Reorder(Time now) {
  if (!slo_ || !slo_->Reorder(now)) return;
  for (auto& [id, entry] : requests_) {
    const FunctionPlace place = slo_->PlaceOf(entry.request.function);
    if (entry.gpu == kNoGpu && place != entry.key.place) {
      Dequeue(entry);
      entry.key.place = place;
      Enqueue(entry);
    }
    entry.key.place = place;
  }
}

// The most urgent request that could be placed and waits, when it is more urgent than that; else nobody.
std::vector<SwapScheduler::Entry*> SwapScheduler::FirstBefore(const OrderingKey& key) {
  for (const auto& head : heads_) {
    if (!(head.key < key)) break;
    Entry* const next = NextOf(head.model);
    if (next != nullptr && !MustTakeTurns(*next)) return {next};
  }
  return {};
}

void SwapScheduler::NotePassed(const std::vector<Entry*>& passed) {
  for (Entry* entry : passed) {
    if (++entry->passed > limits_.max_passed && entry->hold == kNoGpu) HoldFor(*entry);
  }
}

}  // namespace troupe::node
