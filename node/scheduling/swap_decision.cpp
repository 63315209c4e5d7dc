// The deciding half of the swap scheduler: whose turn it is, what is booked for its dispatch, who is passed.
#include <algorithm>
#include <optional>
#include <span>
#include <tuple>

#include "base/check.hpp"
#include "node/scheduling/swap_scheduler.hpp"

namespace troupe::node {

// The choice names another GPU, or the host; what comes from the host may come by way of one that loads it.
void SwapScheduler::Load(const Look& look, Entry& entry, GpuChoice& choice, Time now) {
  const Gpu& gpu = tables_.gpus.at(choice.gpu);
  entry.source = choice.peer == kNoGpu ? SwapSource::kHost : SwapSource::kPeer;
  if (choice.peer == kNoGpu && (choice.peer = chooser_.SenderFor(look, gpu)) != kNoGpu) {
    entry.source = SwapSource::kBroadcast;
    tables_.broadcasts.Join({choice.peer, tables_.gpus.at(choice.peer).device}, {gpu.index, gpu.device},
                            entry.model);
  }
  tables_.gpus.BeginLoad(choice.gpu, entry.model, look.model.weights, choice.peer, look.load, now);
  ++counts_.swaps;
  counts_.peer_swaps += entry.source == SwapSource::kPeer ? 1 : 0;
  counts_.broadcasts += entry.source == SwapSource::kBroadcast ? 1 : 0;
  if (tables_.places.MoreForHits()) ActivateResidents(gpu);
  if (entry.source == SwapSource::kHost) tables_.link_pressure.Add(look.load, now, tables_.links);
}

// Beside its model, which is there or comes from where the choice says.
void SwapScheduler::Place(const Look& look, Entry& entry, GpuChoice& choice,
                          const std::vector<ModelId>& victims, Time now) {
  const Gpu& gpu = tables_.gpus.at(choice.gpu);
  const Resident* const resident = gpu.Find(entry.model);
  const bool has_model = resident != nullptr;
  entry.hit = has_model && resident->state != ResidentState::kLoading;
  entry.source = SwapSource::kResident;
  for (const ModelId victim : victims) Evict(choice.gpu, victim);
  if (tables_.Need(look, gpu.Find(entry.model)) > gpu.Free()) tables_.gpus.ForgetOverhead(choice.gpu);
  Duration work = tables_.costs.RunTime(look.model.cost);
  copies_.NoteRun(work, now);
  if (!has_model) {
    Load(look, entry, choice, now);
    const auto link = entry.source != SwapSource::kPeer
                          ? std::nullopt
                          : tables_.topology.PeerLink(tables_.gpus.at(choice.peer).device, gpu.device);
    work += link ? TransferTime(look.model.weights, *link) : look.load;
  } else {
    counts_.hits += entry.hit && !entry.request.trial ? 1 : 0;
  }
  PlaceState(entry, choice.gpu);
  entry.work = work;
  tables_.gpus.Pin(choice.gpu, entry.model, look.model.activation, work, now);
  entry.pinned = true;
  entry.activation = look.model.activation;
}

Dispatch SwapScheduler::MakeDispatch(Entry& entry, GpuChoice choice, Time now) {
  const GpuIndex index = choice.gpu;
  const Look look = tables_.LookFor(entry);
  const Bytes need = tables_.Need(look, tables_.gpus.at(index).Find(entry.model));
  std::vector<ModelId> victims = victims_.Plan(entry.model, need, tables_.gpus.at(index), now);
  entry.alone = tables_.gpus.at(index).in_flight == 0;
  entry.brings_state = false;
  if (choice.peer == kNoGpu && victims_.PassesThrough(entry, tables_.gpus.at(index), victims)) {
    victims.clear();
    PassThrough(entry, index, now);
  } else {
    Place(look, entry, choice, victims, now);
  }
  entry.gpu = index;
  entry.passed = 0;
  entry.queued = now - entry.arrival;
  counts_.retried += entry.attempts > 0 ? 1 : 0;
  ++entry.attempts;
  Release(entry);
  Dequeue(entry);
  if (!locality_) GiveTurn(entry);
  tables_.pipelines[index].push_back(&entry);
  FunctionEntry& function = serving_[entry.function];
  ++function.dispatched;
  function.gpu = index;
  return Order(entry, choice, victims);
}

// When its run has to begin to be in time: what comes for it is wanted by then.
Time SwapScheduler::BeginBy(const Entry& entry) const {
  if (entry.request.deadline == Time::max()) return Time::max();
  return entry.request.deadline - tables_.costs.RunTime(tables_.models[entry.model].cost);
}

// What whoever carries the decision out has to know of it.
Dispatch SwapScheduler::Order(const Entry& entry, const GpuChoice& choice,
                              const std::vector<ModelId>& victims) const {
  // What is late yields on the links, too.
  const bool late = tables_.late && (IsLate(entry.key) || entry.latest == Time::max());
  Dispatch dispatch{.request = entry.request.id,
                    .model = entry.request.model,
                    .gpu = choice.gpu,
                    .source = entry.source,
                    .peer = entry.source == SwapSource::kResident ? kNoGpu : choice.peer,
                    .attempt = entry.attempts,
                    .queued = entry.queued,
                    .deadline = late ? Time::max() : BeginBy(entry),
                    .expiry = entry.request.expiry,
                    .bring_state = entry.brings_state};
  for (const ModelId victim : victims) dispatch.victims.push_back(tables_.NameOf(victim));
  if (tables_.states.Find(entry.request.state) != nullptr) dispatch.state = entry.request.state;
  return dispatch;
}

Decision SwapScheduler::Decide(Time now) {
  YieldLate(now);
  Reorder(now);
  look_again_ = Time::max();
  locality_ ? DecideByLocality(now) : DecideByRequest(now);
  decision_.wanted = WaitingForRegion();
  decision_.due = NextDue();
  return std::exchange(decision_, {});
}

void SwapScheduler::DecideByRequest(Time now) {
  // Beneath a run a load costs nothing; where it occupies its GPU, what is there already goes first.
  if (tables_.policies.gpu.hits_first && (tables_.limits.LoadsOccupy() || tables_.places.MoreForHits()))
    DecideInOrder(true, now);
  tables_.queue.AllSeen();
  DecideInOrder(false, now);
  // A load that was begun leaves its place to what is there.
  if (tables_.places.MoreForHits()) DecideInOrder(true, now);
  tables_.queue.AllSeen();
  const auto bring = [&](ModelId model, const AheadPlan& plan, Time begin_by) {
    Bring(model, plan, begin_by, now);
  };
  look_again_ = std::min(look_again_, copies_.Decide(now, bring));
}

void SwapScheduler::DecideInOrder(bool hits_only, Time now) {
  absl::InlinedVector<Entry*, 16> left;  // more urgent than the one at hand, and not to be placed now
  std::optional<WaitingQueue::Head> at;
  // To look for a place where its model is makes sense after something has changed for it there.
  while (chooser_.AnySlot(hits_only) &&
         (at = hits_only ? tables_.queue.NextFresh(at) : tables_.queue.NextHead(at))) {
    Entry* const next = NextOf(at->model);
    if (next == nullptr || MustTakeTurns(*next)) {
      if (next != nullptr) Park(at->model, serving_[next->function].gpu);
      continue;
    }
    // No hit goes before what has a higher priority.
    if (hits_only && at->key.priority > tables_.queue.FirstKey().priority) break;
    // Nor one that is late before what can still be met.
    if (hits_only && tables_.Yields(at->key) && !tables_.Yields(tables_.queue.FirstKey())) break;
    Entry& entry = *next;
    if (tables_.policies.gpu.early_binding) BindHome(at->model);
    LeaveUselessHold(entry);
    const Look look = tables_.LookFor(entry);
    const std::uint64_t draw = random_();
    const GpuChoice choice =
        hits_only && !chooser_.MayHit(look, draw) ? GpuChoice{} : chooser_.Choose(look, draw, now);
    const bool runs =
        choice.verdict == GpuVerdict::kRun && tables_.Serves(entry, tables_.gpus.at(choice.gpu));
    if (runs && (!hits_only || tables_.gpus.at(choice.gpu).Find(at->model) != nullptr)) {
      decision_.dispatches.push_back(MakeDispatch(entry, choice, now));
      if (!hits_only) {
        NotePassed(left);
      } else if (Entry* const passed = FirstBefore(at->key)) {
        NotePassed({&passed, 1});
      }
    } else if (!hits_only) {
      left.push_back(&entry);
      StayWaiting(entry, choice, now);
    }
  }
}

void SwapScheduler::StayWaiting(Entry& entry, const GpuChoice& choice, Time now) {
  SeekRuntime(entry, choice, now);
  // A place of its own key's: for another one it waits like everybody.
  if (entry.suspect && entry.hold == kNoGpu &&
      tables_.gpus.Served(tables_.models[entry.model].key, std::nullopt))
    HoldFor(entry);
  const bool busy = choice.firm && tables_.gpus.at(choice.gpu).in_flight > 0;
  if (busy && tables_.OneForAll() && !entry.suspect && entry.hold == kNoGpu) Park(entry.model, choice.gpu);
}

// Another request of its function is on a GPU, and the rules allow one at a time. Functions that share a
// model share the turn of the first of them.
bool SwapScheduler::MustTakeTurns(const Entry& entry) const {
  return slo_ && slo_->rules().one_at_a_time && serving_[entry.function].dispatched > 0;
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

// The most urgent request that could be placed and waits, when it is more urgent than that; else null.
RequestEntry* SwapScheduler::FirstBefore(const OrderingKey& key) {
  std::optional<WaitingQueue::Head> head;
  while ((head = tables_.queue.NextHead(head)) && head->key < key) {
    Entry* const next = NextOf(head->model);
    if (next != nullptr && !MustTakeTurns(*next)) return next;
  }
  return nullptr;
}

void SwapScheduler::NotePassed(std::span<Entry* const> passed) {
  for (Entry* entry : passed) {
    if (++entry->passed > tables_.limits.max_passed && entry->hold == kNoGpu) HoldFor(*entry);
  }
}

void SwapScheduler::Evict(GpuIndex gpu, ModelId model) {
  ++counts_.evictions;
  const Bytes bytes = tables_.gpus.at(gpu).Find(model)->bytes;
  if (tables_.gpus.HolderCount(model) > 1) {
    ++counts_.evicted_replicas;
  } else {
    ++(tables_.costs.Heavy(tables_.models[model].cost, bytes) ? counts_.evicted_heavy
                                                              : counts_.evicted_light);
  }
  tables_.gpus.BeginEvict(gpu, model);
  tables_.states.BeginEvict(gpu, model);
  if (tables_.models[model].parked == gpu) Activate(model);
  copies_.MayWantCopy(model);
}

void SwapScheduler::PassThrough(Entry& entry, GpuIndex gpu, Time now) {
  const Model& model = tables_.models[entry.model];
  entry.source = SwapSource::kLayers;
  entry.hit = entry.pinned = false;
  entry.activation = VictimPlanner::WindowOf(model.weights) + model.activation;
  ++counts_.by_layer;
  entry.work = std::max(tables_.costs.RunTime(model.cost), tables_.costs.LoadTime(model.weights));
  tables_.gpus.Visit(gpu, entry.activation, entry.work, now);
}

// A copy ahead of requests, which nobody waits for.
void SwapScheduler::Bring(ModelId id, const AheadPlan& plan, Time begin_by, Time now) {
  const Model& model = tables_.models[id];
  Dispatch ahead{.model = tables_.NameOf(id),
                 .gpu = plan.gpu,
                 .source = SwapSource::kHost,
                 .deadline = begin_by,
                 .ahead = true};
  for (const ModelId victim : plan.victims) {
    ahead.victims.push_back(tables_.NameOf(victim));
    Evict(plan.gpu, victim);
  }
  tables_.gpus.BeginLoad(plan.gpu, id, model.weights, kNoGpu, tables_.LoadTimeOf(model), now);
  if (tables_.limits.LoadsOccupy()) tables_.gpus.Occupy(plan.gpu, id, tables_.LoadTimeOf(model), now);
  ++counts_.ahead;
  decision_.prefetches.push_back(std::move(ahead));
}

}  // namespace troupe::node
