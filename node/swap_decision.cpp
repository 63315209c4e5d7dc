// The deciding half of the swap scheduler: where a request goes, what makes room for it, who is kept a place.
#include <algorithm>
#include <optional>
#include <span>
#include <tuple>

#include "base/check.hpp"
#include "node/swap_scheduler.hpp"

namespace troupe::node {

namespace {
constexpr std::int32_t kBoundTier = 1000;  // behind every tier of an eviction policy
}  // namespace

bool SwapScheduler::AnySlot() const {
  // With one runtime a device the least busy one stands first.
  if (!limits_.isolated)
    return !gpus_.ready().empty() && gpus_.ready().begin()->in_flight < limits_.PipelineDepth();
  for (const auto& [index, gpu] : gpus_.gpus()) {
    if (gpu.worker == WorkerState::kReady && gpus_.InFlightOn(gpu.device) < limits_.PipelineDepth())
      return true;
  }
  return false;
}

bool SwapScheduler::HasSlot(const Entry& entry, const Gpu& gpu) const {
  // What is kept for one request may be taken by a more urgent one of the same model: the first would not be
  // looked at before it.
  const auto hold = holds_.find(gpu.index);
  if (hold != holds_.end() && requests_.at(hold->second).request.model != entry.request.model) return false;
  if (gpus_.InFlightOn(gpu.device) + KeptPlaces(entry, gpu) >= limits_.PipelineDepth()) return false;
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

std::vector<EvictionCandidate> SwapScheduler::EvictionOrder(const Entry& entry, const Gpu& gpu) const {
  std::vector<std::pair<EvictionRank, EvictionCandidate>> ranked;
  for (const auto& [model, resident] : gpu.residents) {
    if (!resident.Idle() || model == entry.request.model) continue;
    const EvictionCandidate candidate{.model = model,
                                      .bytes = resident.WithStates(),
                                      .last_use = resident.last_use,
                                      .replicas = gpus_.HolderCount(model),
                                      .wanted = queue_.Find(model) != nullptr,
                                      .heavy = costs_.Heavy(DigestOf(model), resident.bytes)};
    ranked.emplace_back(policies_.eviction(candidate), candidate);
    // Nothing bound goes, unless a model outgrew what was kept for it.
    if (binding_.Bound(model)) ranked.back().first.tier += kBoundTier;
  }
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<EvictionCandidate> order;
  for (const auto& [rank, candidate] : ranked) order.push_back(candidate);
  return order;
}

// What could be evicted for the request.
Bytes SwapScheduler::OthersIdle(const Entry& entry, const Gpu& gpu) const {
  const Resident* own = gpu.Find(entry.request.model);
  return own != nullptr && own->Idle() ? gpu.idle - own->WithStates() : gpu.idle;
}

// False when the request does not fit even after evicting all that may go. Else `victims` (may be null) are
// those to evict: in the policy's order, without those that turned out to be needless.
bool SwapScheduler::PlanVictims(const Entry& entry, const Gpu& gpu, std::vector<std::string>* victims) const {
  const Bytes need = Need(entry, gpu);
  const auto hint = hints_.find({gpu.index, entry.request.model});
  const Bytes target = hint == hints_.end() ? need : need + hint->second.extra;
  Bytes room = gpu.Free();
  if (room >= target) return true;
  if (victims == nullptr && room + OthersIdle(entry, gpu) >= target) return true;
  std::vector<EvictionCandidate> chosen;
  for (const EvictionCandidate& candidate : EvictionOrder(entry, gpu)) {
    chosen.push_back(candidate);
    room += candidate.bytes;
    if (room >= target) break;
  }
  if (room < target) {
    // With nothing else on the GPU neither fragments nor an earlier NoFit count: the worker will tell.
    const std::size_t own = gpu.Find(entry.request.model) != nullptr ? 1 : 0;
    const bool alone =
        gpu.in_flight == 0 && gpu.strange == Bytes(0) && chosen.size() + own == gpu.residents.size();
    if (!alone || room + gpu.overhead < need) return false;
  } else {
    std::erase_if(chosen, [&](const EvictionCandidate& candidate) {
      if (room < target + candidate.bytes) return false;
      room -= candidate.bytes;
      return true;
    });
  }
  if (victims != nullptr) {
    for (const EvictionCandidate& candidate : chosen) victims->emplace_back(candidate.model);
  }
  return true;
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
                   .fits = has_slot && PlanVictims(entry, gpu, nullptr),
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
  if (limits_.isolated || policies_.gpu.early_binding || gpus_.gpus().size() <= kAllGpus) {
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
  const auto [begin, end] = std::ranges::unique(out);
  out.erase(begin, end);
  return out;
}

GpuChoice SwapScheduler::Choose(const Entry& entry, std::uint64_t draw, Time now) const {
  const FunctionStates::State* state = states_.Find(entry.request.state);
  const GpuIndex bound = state == nullptr ? kNoGpu : state->gpu;
  GpuView view{.load = LoadTimeOf(entry.request.model),
               .queued = QueuedFor(entry.request.model),
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

void SwapScheduler::Evict(GpuIndex gpu, const std::string& model) {
  ++counts_.evictions;
  const Bytes bytes = gpus_.at(gpu).Find(model)->bytes;
  if (gpus_.HolderCount(model) > 1) {
    ++counts_.evicted_replicas;
  } else {
    ++(costs_.Heavy(DigestOf(model), bytes) ? counts_.evicted_heavy : counts_.evicted_light);
  }
  gpus_.BeginEvict(gpu, model);
  states_.BeginEvict(gpu, model);
  if (const auto left = models_.find(model); left != models_.end() && left->second.parked == gpu)
    Activate(model);
}

void SwapScheduler::Load(Entry& entry, const GpuChoice& choice, Dispatch& dispatch, Time now) {
  entry.source = choice.peer == kNoGpu ? SwapSource::kHost : SwapSource::kPeer;
  dispatch.peer = choice.peer;
  gpus_.BeginLoad(choice.gpu, entry.request.model, models_.at(entry.request.model).weights, choice.peer, now);
  ++counts_.swaps;
  counts_.peer_swaps += choice.peer == kNoGpu ? 0 : 1;
}

namespace {

// What a model takes of a GPU that it passes through: the worker plans it by what the steps read, and answers
// NoFit when this is too little.
Bytes WindowOf(Bytes weights) {
  return std::min(weights, std::max(Bytes(weights.count() / 4), MiB(16)));
}

}  // namespace

// Nobody else waits for the model, bringing it would evict one that was used since the model was last asked
// for, and half of the weights or more need not be there at a time.
bool SwapScheduler::PassesThrough(const Entry& entry, const Gpu& gpu, const Dispatch& dispatch) const {
  const std::string& name = entry.request.model;
  const Model& model = models_.at(name);
  const Bytes window = WindowOf(model.weights);
  if (!limits_.by_layer || entry.whole || !entry.request.state.empty() || entry.request.trial ||
      entry.suspect)
    return false;
  if (dispatch.victims.empty() || gpu.Find(name) != nullptr || WaitingFor(name) > 1) return false;
  if (window * 2 > model.weights || window + model.activation > gpu.Free()) return false;
  return std::ranges::all_of(dispatch.victims, [&](const std::string& victim) {
    return gpu.Find(victim)->last_use > entry.asked_before;
  });
}

void SwapScheduler::PassThrough(Entry& entry, Dispatch& dispatch, Time now) {
  const Model& model = models_.at(entry.request.model);
  dispatch.victims.clear();
  entry.source = SwapSource::kLayers;
  entry.hit = entry.pinned = false;
  entry.activation = WindowOf(model.weights) + model.activation;
  ++counts_.by_layer;
  gpus_.Visit(dispatch.gpu, entry.activation,
              std::max(costs_.RunTime(DigestOf(entry.request.model)), costs_.LoadTime(model.weights)), now);
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
  TROUPE_CHECK(PlanVictims(entry, gpus_.at(index), &dispatch.victims), "a chosen GPU has no room");
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
  if (limits_.LoadsOccupy() && policies_.gpu.hits_first) DecideInOrder(true, now, dispatches);
  DecideInOrder(false, now, dispatches);
  return dispatches;
}

void SwapScheduler::DecideInOrder(bool hits_only, Time now, std::vector<Dispatch>& dispatches) {
  std::vector<Entry*> left;  // more urgent than the one at hand, and not to be placed now
  auto head = heads_.begin();
  while (head != heads_.end() && AnySlot()) {
    const OrderingKey key = head->key;
    Entry* const next = NextOf(head->model);
    if (next == nullptr || MustTakeTurns(*next)) {
      ++head;
      if (next != nullptr) Park(next->request.model, running_.at(next->request.function).gpu);
      continue;
    }
    Entry& entry = *next;
    if (policies_.gpu.early_binding) BindHome(entry.request.model);
    LeaveUselessHold(entry);
    const GpuChoice choice = Choose(entry, random_(), now);
    const bool runs = choice.verdict == GpuVerdict::kRun && Serves(entry, gpus_.at(choice.gpu));
    if (runs && (!hits_only || gpus_.at(choice.gpu).Find(entry.request.model) != nullptr)) {
      dispatches.push_back(MakeDispatch(entry, choice, now));
      NotePassed(left);
    } else {
      left.push_back(&entry);
      if (!hits_only) StayWaiting(entry, choice, now);
    }
    head = heads_.upper_bound({key, {}});
  }
}

void SwapScheduler::StayWaiting(Entry& entry, const GpuChoice& choice, Time now) {
  SeekRuntime(entry, choice, now);
  // A place of its own key's: for another one it waits like everybody.
  const bool served = gpus_.Served(models_.at(entry.request.model).key, std::nullopt);
  if (entry.suspect && entry.hold == kNoGpu && served) HoldFor(entry);
  if (choice.firm && !limits_.isolated && !entry.suspect && entry.hold == kNoGpu)
    Park(entry.request.model, choice.gpu);
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

void SwapScheduler::NotePassed(const std::vector<Entry*>& passed) {
  for (Entry* entry : passed) {
    if (++entry->passed > limits_.max_passed && entry->hold == kNoGpu) HoldFor(*entry);
  }
}

}  // namespace troupe::node
