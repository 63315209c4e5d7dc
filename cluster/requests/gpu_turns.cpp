#include "cluster/requests/gpu_turns.hpp"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"

namespace troupe::cluster {

GpuTurns::GpuTurns(const GpuRouting& rules, RequestIndex& requests, const EligibleQueue& waiting,
                   const CreditTable& credits)
    : rules_(rules),
      requests_(requests),
      waiting_(waiting),
      credits_(credits),
      gpus_(rules.limit ? ClusterGpus::IdleOrder::kMostUsed : ClusterGpus::IdleOrder::kByPlace),
      overdue_(credits) {}

void GpuTurns::Add(const RequestEntry& entry) {
  if (!rules_.limit) return;
  if (entry.passed > *rules_.limit) return overdue_.Add(entry);
  young_[entry.request.model].insert(entry.key);
}

void GpuTurns::Remove(const RequestEntry& entry) {
  if (!rules_.limit) return;
  if (entry.passed > *rules_.limit) return overdue_.Remove(entry);
  const auto young = young_.find(entry.request.model);
  young->second.erase(entry.key);
  if (young->second.empty()) young_.erase(young);
}

void GpuTurns::Forget(const std::string& node) {
  overdue_.Forget(node);
  gpus_.Remove(node);
}

std::string GpuTurns::Refusal(const std::string& model) const {
  const auto* holders = credits_.Holders(model);
  if (holders == nullptr) return {};
  std::string why;
  for (const std::string& node : *holders) {
    if (gpus_.Tells(node)) return {};
    const std::string withheld = gpus_.Withheld(node);
    why = absl::StrCat("node '", node, "' ", withheld.empty() ? "tells of no GPUs" : withheld);
  }
  return why;
}

bool GpuTurns::Open(const std::string& node, Time now) const {
  const NodeCredit* const credit = credits_.Find(node);
  return credit != nullptr && credit->Open(now);
}

bool GpuTurns::IsSpent(const std::string& node, Time now) const {
  const NodeCredit* const credit = credits_.Find(node);
  return credit != nullptr && !credit->draining && credit->closed_until <= now && credit->in_flight > 0 &&
         credit->in_flight >= credit->limit;
}

bool GpuTurns::MayRunAt(const RequestEntry& entry, const std::string& node, Time now) const {
  const NodeCredit* const credit = credits_.Find(node);
  return credit != nullptr && credit->adopted.contains(entry.request.model) && !entry.RefusedBy(node, now);
}

Duration GpuTurns::RunOn(const RequestEntry& entry, const GpuPlace& place) const {
  const Duration profiled = entry.request.profiled.shortest;
  return profiled > Duration::zero() ? profiled : gpus_.CostOf(place, entry.request.model).run;
}

Duration GpuTurns::WorkOn(const RequestEntry& entry, const GpuPlace& place) const {
  const std::string& model = entry.request.model;
  const Duration run = RunOn(entry, place);
  return gpus_.Has(place, model) ? run : run + gpus_.CostOf(place, model).load;
}

void GpuTurns::Decide(Time now, SendTo send) {
  std::optional<ClusterGpus::IdleGpu> at;
  Waits waits;
  while (!waiting_.empty() && (at = gpus_.NextIdle(at))) {
    if (!Open(at->place.node, now)) continue;
    rules_.limit ? Turn(at->place, now, send, waits) : FirstTurn(at->place, now, send);
  }
}

void GpuTurns::FirstTurn(const GpuPlace& place, Time now, SendTo send) {
  const Found first = First(waiting_, place, now, {});
  if (first.entry != nullptr) send(*first.entry, place, WorkOn(*first.entry, place));
}

void GpuTurns::Turn(const GpuPlace& place, Time now, SendTo send, Waits& waits) {
  const Found hit = FirstHit(place, now);
  const auto end = hit.entry == nullptr ? std::nullopt : std::optional(hit.key);
  Found next;
  while ((next = First(overdue_, place, now, waits)).entry != nullptr && !(end && *end <= next.key)) {
    if (Place(next, place, now, send, waits)) return Count(place.node, next.key);
    if (!Open(place.node, now)) return;  // its last credit went to another GPU of the node
  }
  Count(place.node, end);
  if (hit.entry != nullptr) return send(*hit.entry, place, WorkOn(*hit.entry, place));
  while ((next = First(waiting_, place, now, waits)).entry != nullptr) {
    if (Place(next, place, now, send, waits) || !Open(place.node, now)) return;
  }
}

bool GpuTurns::Place(const Found& found, const GpuPlace& self, Time now, SendTo send, Waits& waits) {
  RequestEntry& entry = *found.entry;
  const GpuPlace to = PlaceFor(entry, self, now, waits);
  if (Open(to.node, now)) {
    send(entry, to, WorkOn(entry, to));
  } else {
    waits.queued[to] += RunOn(entry, to);
    waits.seen[entry.request.model] = found.key;
  }
  return to == self;
}

GpuPlace GpuTurns::PlaceFor(const RequestEntry& entry, const GpuPlace& self, Time now,
                            const Waits& waits) const {
  const auto end_on = [&](const GpuPlace& place) {
    const auto queued = waits.queued.find(place);
    const Duration before = queued == waits.queued.end() ? Duration() : queued->second;
    return gpus_.Left(place, now) + before + RunOn(entry, place);
  };
  const GpuPlace* busy = nullptr;
  Duration busy_end{};
  if (const auto* holders = gpus_.Holders(entry.request.model)) {
    for (const GpuPlace& holder : *holders) {
      if (holder == self || !MayRunAt(entry, holder.node, now)) continue;
      const bool open = Open(holder.node, now);
      if (open && gpus_.IsIdle(holder)) return holder;
      if (gpus_.IsIdle(holder) || !(open || IsSpent(holder.node, now))) continue;
      // A request that has lost a worker waits in no GPU's queue, and nothing waits behind it.
      if (entry.attempts > 0 || gpus_.HasAlone(holder)) continue;
      const Duration end = end_on(holder);
      if (busy != nullptr && busy_end <= end) continue;
      busy = &holder;
      busy_end = end;
    }
  }
  const Duration brought = gpus_.CostOf(self, entry.request.model).load + RunOn(entry, self);
  return busy != nullptr && busy_end < brought ? *busy : self;
}

GpuTurns::Found GpuTurns::FirstOf(const EligibleQueue& queue, const std::string& model, const GpuPlace& place,
                                  Time now, const OrderingKey* seen) const {
  const auto* requests = queue.Find(model);
  if (requests == nullptr) return {};
  for (auto it = seen == nullptr ? requests->begin() : requests->upper_bound(*seen); it != requests->end();
       ++it) {
    RequestEntry& entry = requests_.At(it->second);
    if (entry.expiry > now && !entry.RefusedBy(place.node, now)) return {&entry, it->first};
  }
  return {};
}

GpuTurns::Found GpuTurns::First(const EligibleQueue& queue, const GpuPlace& place, Time now,
                                const Waits& waits) const {
  Found first;
  const auto* heads = queue.HeadsFor(place.node);
  if (heads == nullptr) return first;
  for (const auto& head : *heads) {
    if (first.entry != nullptr && first.key < head.key) break;
    if (!gpus_.Fits(place, head.model)) continue;
    const auto seen = waits.seen.find(head.model);
    const Found found =
        FirstOf(queue, head.model, place, now, seen == waits.seen.end() ? nullptr : &seen->second);
    if (found.entry != nullptr && (first.entry == nullptr || found.key < first.key)) first = found;
  }
  return first;
}

GpuTurns::Found GpuTurns::FirstHit(const GpuPlace& place, Time now) const {
  Found first;
  const auto& adopted = credits_.Find(place.node)->adopted;
  for (const auto& [model, last] : gpus_.ModelsOf(place)) {
    if (!adopted.contains(model)) continue;
    const Found found = FirstOf(waiting_, model, place, now, nullptr);
    if (found.entry != nullptr && (first.entry == nullptr || found.key < first.key)) first = found;
  }
  return first;
}

void GpuTurns::Count(const std::string& node, const std::optional<OrderingKey>& end) {
  const auto& adopted = credits_.Find(node)->adopted;
  for (auto model = young_.begin(); model != young_.end();) {
    auto& keys = model->second;
    const bool counts = adopted.contains(model->first);
    for (auto key = keys.begin(); counts && key != keys.end() && !(end && *end <= *key);) {
      RequestEntry& entry = requests_.At(waiting_.Find(model->first)->at(*key));
      const bool overdue = ++entry.passed > *rules_.limit;
      key = overdue ? keys.erase(key) : std::next(key);
      if (overdue) overdue_.Add(entry);
    }
    model = keys.empty() ? young_.erase(model) : std::next(model);
  }
}

void GpuTurns::Check() const {
  gpus_.Check();
  if (!rules_.limit) return;
  std::size_t young = 0;
  for (const auto& [model, keys] : young_) young += keys.size();
  TROUPE_CHECK(young + overdue_.size() == waiting_.size(), "a request waits and no GPU has it in view");
}

}  // namespace troupe::cluster
