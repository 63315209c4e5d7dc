// The deciding half of the swap scheduler: whose turn it is, what is booked for its dispatch, who is passed.
#include <algorithm>
#include <optional>
#include <span>
#include <tuple>

#include "base/check.hpp"
#include "node/swap_scheduler.hpp"

namespace troupe::node {

// The choice names another GPU, or the host; what comes from the host may come by way of one that loads it.
void SwapScheduler::Load(const Look& look, Entry& entry, GpuChoice& choice, Time now) {
  const Gpu& gpu = gpus_.at(choice.gpu);
  entry.source = choice.peer == kNoGpu ? SwapSource::kHost : SwapSource::kPeer;
  if (choice.peer == kNoGpu && (choice.peer = SenderFor(look, gpu)) != kNoGpu) {
    entry.source = SwapSource::kBroadcast;
    broadcasts_.Join({choice.peer, gpus_.at(choice.peer).device}, {gpu.index, gpu.device}, entry.model);
  }
  gpus_.BeginLoad(choice.gpu, entry.model, look.model.weights, choice.peer, look.load, now);
  ++counts_.swaps;
  counts_.peer_swaps += entry.source == SwapSource::kPeer ? 1 : 0;
  counts_.broadcasts += entry.source == SwapSource::kBroadcast ? 1 : 0;
  if (places_.MoreForHits()) ActivateResidents(gpu);
  if (entry.source == SwapSource::kHost) link_pressure_.Add(look.load, now, links_);
}

// Beside its model, which is there or comes from where the choice says.
void SwapScheduler::Place(const Look& look, Entry& entry, GpuChoice& choice,
                          const std::vector<ModelId>& victims, Time now) {
  const Gpu& gpu = gpus_.at(choice.gpu);
  const Resident* const resident = gpu.Find(entry.model);
  const bool has_model = resident != nullptr;
  entry.hit = has_model && resident->state != ResidentState::kLoading;
  entry.source = SwapSource::kResident;
  for (const ModelId victim : victims) Evict(choice.gpu, victim);
  if (Need(look, gpu.Find(entry.model)) > gpu.Free()) gpus_.ForgetOverhead(choice.gpu);
  Duration work = costs_.RunTime(look.model.cost);
  if (policies_.copies != CopiesRule::kAsked) computing_.Add(ToSeconds(work), now);
  if (!has_model) {
    Load(look, entry, choice, now);
    const auto link = entry.source != SwapSource::kPeer
                          ? std::nullopt
                          : topology_.PeerLink(gpus_.at(choice.peer).device, gpu.device);
    work += link ? TransferTime(look.model.weights, *link) : look.load;
  } else {
    counts_.hits += entry.hit && !entry.request.trial ? 1 : 0;
  }
  PlaceState(entry, choice.gpu);
  entry.work = work;
  gpus_.Pin(choice.gpu, entry.model, look.model.activation, work, now);
  entry.pinned = true;
  entry.activation = look.model.activation;
}

Dispatch SwapScheduler::MakeDispatch(Entry& entry, GpuChoice choice, Time now) {
  const GpuIndex index = choice.gpu;
  const Look look = LookFor(entry);
  const Bytes need = Need(look, gpus_.at(index).Find(entry.model));
  std::vector<ModelId> victims = PlanVictims(entry.model, need, gpus_.at(index), now);
  entry.alone = gpus_.at(index).in_flight == 0;
  entry.brings_state = false;
  if (choice.peer == kNoGpu && PassesThrough(entry, gpus_.at(index), victims)) {
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
  pipelines_[index].push_back(&entry);
  FunctionEntry& function = serving_[entry.function];
  ++function.dispatched;
  function.gpu = index;
  return Order(entry, choice, victims);
}

// When its run has to begin to be in time: what comes for it is wanted by then.
Time SwapScheduler::BeginBy(const Entry& entry) const {
  if (entry.request.deadline == Time::max()) return Time::max();
  return entry.request.deadline - costs_.RunTime(models_[entry.model].cost);
}

// What whoever carries the decision out has to know of it.
Dispatch SwapScheduler::Order(const Entry& entry, const GpuChoice& choice,
                              const std::vector<ModelId>& victims) const {
  // What is late yields on the links, too.
  const bool late = late_ && (IsLate(entry.key) || entry.latest == Time::max());
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
  for (const ModelId victim : victims) dispatch.victims.push_back(NameOf(victim));
  if (states_.Find(entry.request.state) != nullptr) dispatch.state = entry.request.state;
  return dispatch;
}

std::vector<Dispatch> SwapScheduler::Decide(Time now) {
  YieldLate(now);
  if (locality_) return DecideByLocality(now);
  Reorder(now);
  look_again_ = Time::max();
  std::vector<Dispatch> dispatches;
  // Beneath a run a load costs nothing; where it occupies its GPU, what is there already goes first.
  if (policies_.gpu.hits_first && (limits_.LoadsOccupy() || places_.MoreForHits()))
    DecideInOrder(true, now, dispatches);
  queue_.AllSeen();
  DecideInOrder(false, now, dispatches);
  // A load that was begun leaves its place to what is there.
  if (places_.MoreForHits()) DecideInOrder(true, now, dispatches);
  queue_.AllSeen();
  BringForeseen(now);
  BringAhead(now);
  return dispatches;
}

void SwapScheduler::DecideInOrder(bool hits_only, Time now, std::vector<Dispatch>& dispatches) {
  absl::InlinedVector<Entry*, 16> left;  // more urgent than the one at hand, and not to be placed now
  std::optional<WaitingQueue::Head> at;
  // To look for a place where its model is makes sense after something has changed for it there.
  while (AnySlot(hits_only) && (at = hits_only ? queue_.NextFresh(at) : queue_.NextHead(at))) {
    Entry* const next = NextOf(at->model);
    if (next == nullptr || MustTakeTurns(*next)) {
      if (next != nullptr) Park(at->model, serving_[next->function].gpu);
      continue;
    }
    // No hit goes before what has a higher priority.
    if (hits_only && at->key.priority > queue_.FirstKey().priority) break;
    // Nor one that is late before what can still be met.
    if (hits_only && Yields(at->key) && !Yields(queue_.FirstKey())) break;
    Entry& entry = *next;
    if (policies_.gpu.early_binding) BindHome(at->model);
    LeaveUselessHold(entry);
    const Look look = LookFor(entry);
    const std::uint64_t draw = random_();
    const GpuChoice choice = hits_only && !MayHit(look, draw) ? GpuChoice{} : Choose(look, draw, now);
    const bool runs = choice.verdict == GpuVerdict::kRun && Serves(entry, gpus_.at(choice.gpu));
    if (runs && (!hits_only || gpus_.at(choice.gpu).Find(at->model) != nullptr)) {
      dispatches.push_back(MakeDispatch(entry, choice, now));
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
  if (entry.suspect && entry.hold == kNoGpu && gpus_.Served(models_[entry.model].key, std::nullopt))
    HoldFor(entry);
  const bool busy = choice.firm && gpus_.at(choice.gpu).in_flight > 0;
  if (busy && OneForAll() && !entry.suspect && entry.hold == kNoGpu) Park(entry.model, choice.gpu);
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
  while ((head = queue_.NextHead(head)) && head->key < key) {
    Entry* const next = NextOf(head->model);
    if (next != nullptr && !MustTakeTurns(*next)) return next;
  }
  return nullptr;
}

void SwapScheduler::NotePassed(std::span<Entry* const> passed) {
  for (Entry* entry : passed) {
    if (++entry->passed > limits_.max_passed && entry->hold == kNoGpu) HoldFor(*entry);
  }
}

}  // namespace troupe::node
