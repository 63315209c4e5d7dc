#include "gpu/worker/run_table.hpp"

#include <algorithm>
#include <utility>

namespace troupe::gpu {

std::optional<RunId> RunTable::Add(RunRequest request, Reply& reply, Urgency urgency) {
  const RunId id = next_++;
  if (!by_sequence_.emplace(request.sequence, id).second) return std::nullopt;
  Run& run = *runs_.emplace(id, std::make_unique<Run>(std::move(request), std::move(reply))).first->second;
  run.urgency = urgency;
  waiting_.Add(id, run.request.order.priority(), urgency, run.Expires());
  return id;
}

Run* RunTable::Find(RunId id) {
  const auto found = runs_.find(id);
  return found == runs_.end() ? nullptr : found->second.get();
}

std::optional<RunId> RunTable::OfSequence(std::uint64_t sequence) const {
  const auto found = by_sequence_.find(sequence);
  return found == by_sequence_.end() ? std::nullopt : std::optional(found->second);
}

std::unique_ptr<Run> RunTable::Take(RunId id) {
  LeaveQueue(id);
  std::unique_ptr<Run> run = std::move(runs_.extract(id).mapped());
  const auto found = by_sequence_.find(run->request.sequence);
  if (found != by_sequence_.end() && found->second == id) by_sequence_.erase(found);
  by_layer_ -= run->by_layer ? 1 : 0;
  return run;
}

void RunTable::Ready(RunId id) {
  const Run& run = At(id);
  ready_.Add(id, run.request.order.priority(), run.urgency, run.Expires());
}

void RunTable::LeaveQueue(RunId id) {
  const Run::Stage stage = At(id).stage;
  if (stage == Run::Stage::kWaiting) waiting_.Remove(id);
  if (stage == Run::Stage::kReady) ready_.Remove(id);
}

Time RunTable::NextExpiry() const {
  return std::min(waiting_.NextExpiry(), ready_.NextExpiry());
}

void RunTable::Expire(Time now, const std::function<void(RunId)>& call) {
  for (RunQueue* queue : {&waiting_, &ready_}) {
    if (queue->NextExpiry() > now) continue;
    for (const RunId id : queue->TakeExpired(now)) call(id);
  }
}

std::vector<RunId> RunTable::All(const Matches& matches) const {
  std::vector<RunId> all;
  for (const auto& [id, run] : runs_)
    if (matches(*run)) all.push_back(id);
  return all;
}

bool RunTable::Any(const Matches& matches) const {
  return std::ranges::any_of(runs_, [&](const auto& entry) { return matches(*entry.second); });
}

void RunTable::ForEach(const std::function<void(Run&)>& call) {
  for (const auto& [id, run] : runs_) call(*run);
}

void RunTable::MarkByLayer(Run& run) {
  run.by_layer = true;
  ++by_layer_;
}

}  // namespace troupe::gpu
