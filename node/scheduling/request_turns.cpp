#include "node/scheduling/request_turns.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "node/scheduling/scheduler_parts.hpp"

namespace troupe::node {

namespace {

constexpr Duration kLookAgain = std::chrono::milliseconds(10);

}  // namespace

void RequestTurns::Decide(Time now) {
  // Beneath a run a load costs nothing; where it occupies its GPU, what is there already goes first.
  if (tables_.rules.policies.gpu.hits_first &&
      (tables_.rules.limits.LoadsOccupy() || tables_.rules.places.MoreForHits()))
    DecideInOrder(true, now);
  tables_.requests.queue.AllSeen();
  DecideInOrder(false, now);
  // A load that was begun leaves its place to what is there.
  if (tables_.rules.places.MoreForHits()) DecideInOrder(true, now);
  tables_.requests.queue.AllSeen();
  const auto bring = [&](ModelId model, const PrefetchPlan& plan, Time begin_by) {
    parts_.reservations.Prefetch(model, plan, begin_by, now);
  };
  parts_.look_again = std::min(parts_.look_again, parts_.prefetcher.Decide(now, bring));
}

void RequestTurns::DecideInOrder(bool hits_only, Time now) {
  absl::InlinedVector<RequestEntry*, 16> left;  // more urgent than the one at hand, and not to be placed now
  std::optional<WaitingQueue::Head> at;
  std::optional<WaitingQueue::Head> behind;
  // To look for a place where its model is makes sense after something has changed for it there.
  while (parts_.chooser.AnySlot(hits_only) && (at = hits_only ? tables_.requests.queue.NextFresh(behind)
                                                              : tables_.requests.queue.NextHead(behind))) {
    const std::optional<WaitingQueue::Head> before = std::exchange(behind, at);
    RequestEntry* const next = parts_.states.NextOf(at->model);
    if (next == nullptr || parts_.requests.MustTakeTurns(*next)) {
      if (next != nullptr) parts_.waiting.Park(at->model, parts_.requests.FunctionOf(*next).gpu);
      continue;
    }
    // No hit goes before what has a higher priority.
    if (hits_only && at->key.priority > tables_.requests.queue.FirstKey().priority) break;
    // Nor does a late hit go before a request that can still be in time.
    if (hits_only && tables_.requests.Yields(at->key) &&
        !tables_.requests.Yields(tables_.requests.queue.FirstKey()))
      break;
    RequestEntry& entry = *next;
    const auto [choice, runs] = LookAt(entry, hits_only, now);
    if (!runs && !tables_.HasOwnPlace(entry)) DispatchToOwnPlaces(at->model, hits_only, now);
    if (runs) {
      if (AwaitsCompany(entry, choice.gpu, now)) continue;
      // Where others of its model stand before it, since their function is barred, more may follow.
      if (at->key < entry.key) behind = before;
      parts_.decision.dispatches.push_back(parts_.reservations.Reserve(entry, choice, now));
      if (tables_.HasOwnPlace(entry)) continue;  // it took no place from those that wait
      if (!hits_only) {
        NotePassed(left);
      } else if (RequestEntry* const passed = FirstBefore(at->key)) {
        NotePassed({&passed, 1});
      }
    } else if (!hits_only) {
      left.push_back(&entry);
      StayWaiting(entry, choice, now);
    }
  }
}

RequestTurns::Look RequestTurns::LookAt(RequestEntry& entry, bool hits_only, Time now) {
  if (tables_.rules.policies.gpu.early_binding) parts_.homes.Bind(entry.model);
  parts_.holds.LeaveUseless(entry);
  const RequestLook look = tables_.LookFor(entry);
  const std::uint64_t draw = random_();
  if (hits_only && !parts_.chooser.MayHit(look, draw)) return {};
  const GpuChoice choice = parts_.chooser.Choose(look, draw, now);
  const bool runs = choice.verdict == GpuVerdict::kRun &&
                    tables_.Serves(entry, tables_.gpus.at(choice.gpu)) &&
                    (!hits_only || tables_.gpus.at(choice.gpu).Find(entry.model) != nullptr);
  return {choice, runs};
}

// A decision has to be made again when it has waited long enough.
bool RequestTurns::AwaitsCompany(RequestEntry& entry, GpuIndex gpu, Time now) {
  const auto until = parts_.batches.Awaits(entry, tables_.gpus.at(gpu), now);
  if (until) parts_.look_again = std::min(parts_.look_again, *until);
  return until.has_value();
}

void RequestTurns::DispatchToOwnPlaces(ModelId model, bool hits_only, Time now) {
  while (tables_.requests.own_places_wanted > 0) {
    RequestEntry* const next = parts_.states.NextOf(model, StateTurns::Among::kOwnPlaces);
    if (next == nullptr || parts_.requests.MustTakeTurns(*next)) return;
    const auto [choice, runs] = LookAt(*next, hits_only, now);
    if (!runs || AwaitsCompany(*next, choice.gpu, now)) return;
    parts_.decision.dispatches.push_back(parts_.reservations.Reserve(*next, choice, now));
  }
}

void RequestTurns::StayWaiting(RequestEntry& entry, const GpuChoice& choice, Time now) {
  parts_.runtimes.SeekFor(entry, choice, now);
  // Only a runtime that serves its key is kept for it; for a runtime of another key it waits as all requests do.
  if (entry.suspect && entry.hold == kNoGpu &&
      Served(tables_.gpus.gpus(), tables_.models[entry.model].key, std::nullopt))
    parts_.holds.HoldFor(entry);
  // What it costs to bring the model to another GPU changes with time, and the end of a run there may not come, or late.
  if (choice.verdict == GpuVerdict::kWait && (!choice.firm || tables_.gpus.at(choice.gpu).in_flight == 0)) {
    const Duration left = tables_.gpus.at(choice.gpu).work.Left(now);
    parts_.look_again = std::min(parts_.look_again, now + std::max(kLookAgain, left));
  }
  const bool busy = choice.firm && tables_.gpus.at(choice.gpu).in_flight > 0;
  if (busy && tables_.OneForAll() && !entry.suspect && entry.hold == kNoGpu)
    parts_.waiting.Park(entry.model, choice.gpu);
}

// The most urgent request that could be placed and waits, when it is more urgent than that; else null.
RequestEntry* RequestTurns::FirstBefore(const OrderingKey& key) {
  std::optional<WaitingQueue::Head> head;
  while ((head = tables_.requests.queue.NextHead(head)) && head->key < key) {
    RequestEntry* const next = parts_.states.NextOf(head->model);
    if (next != nullptr && !parts_.requests.MustTakeTurns(*next)) return next;
  }
  return nullptr;
}

void RequestTurns::NotePassed(std::span<RequestEntry* const> passed) {
  for (RequestEntry* entry : passed) {
    if (parts_.chooser.IsBarred(*entry) || parts_.chooser.LacksPlace(*entry)) continue;
    if (++entry->passed > tables_.rules.limits.max_passed && entry->hold == kNoGpu)
      parts_.holds.HoldFor(*entry);
  }
}

}  // namespace troupe::node
