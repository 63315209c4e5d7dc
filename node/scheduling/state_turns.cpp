#include "node/scheduling/state_turns.hpp"

#include <algorithm>
#include <deque>

#include "absl/container/inlined_vector.h"
#include "base/check.hpp"
#include "node/scheduling/scheduler_parts.hpp"

namespace troupe::node {

void StateTurns::EndLine(const StateNumber& state, FinishKind kind, const absl::Status& why,
                         proto::BounceReason bounce, Consequences& effects) {
  const FunctionStates::State* found = tables_.states.Find(state);
  if (found == nullptr) return;
  const std::deque<RequestId> line = found->line;
  for (const RequestId& id : line) {
    RequestEntry& entry = parts_.requests.At(id);
    if (entry.gpu == kNoGpu) effects.finished.push_back(parts_.requests.End(entry, kind, why, bounce));
  }
}

Finished StateTurns::EndFirst(const StateNumber& state, const absl::Status& why) {
  RequestEntry& first = parts_.requests.At(tables_.states.Find(state)->line.front());
  TROUPE_CHECK(first.gpu == kNoGpu, "a request that is on a GPU ends with its outcome");
  return parts_.requests.End(first, FinishKind::kFailed, why);
}

bool StateTurns::Waits(const RequestEntry& entry, const FunctionStates::State& state) const {
  if (state.gpu == kNoGpu) return false;
  const Gpu& gpu = tables_.gpus.at(state.gpu);
  return !parts_.chooser.HasSlot(entry, gpu, gpu.Find(entry.model));
}

// The first whose function may run: functions that share a model do not wait for each other.
RequestEntry* StateTurns::NextOf(ModelId model, Among among) {
  const auto& waiting = *tables_.requests.queue.Find(model);
  const bool has_states = !tables_.states.all().empty() && !tables_.states.Of(model).empty();
  if (has_states && tables_.states.Blocked(model) == waiting.size()) return nullptr;
  absl::InlinedVector<FunctionNumber, 4> barred;
  RequestEntry* waits = nullptr;
  for (const auto& [key, entry] : waiting) {
    if (entry->request.named != kNoGpu) continue;
    if (among == Among::kOwnPlaces && !tables_.HasOwnPlace(*entry)) continue;
    if (std::ranges::find(barred, entry->request.function) != barred.end()) continue;
    // Later requests of its function may have places of their own: its settings may have changed since this one came.
    if (parts_.chooser.LacksPlace(*entry)) continue;
    if (parts_.chooser.IsBarred(*entry)) {
      barred.push_back(entry->request.function);
      continue;
    }
    const FunctionStates::State* state = has_states ? tables_.states.Find(entry->request.state) : nullptr;
    if (state == nullptr) return entry;
    if (!state->MayRun()) continue;
    RequestEntry& first = parts_.requests.At(state->line.front());
    if (first.request.named != kNoGpu) continue;
    if (!Waits(first, *state)) return &first;
    if (waits == nullptr) waits = &first;
  }
  return waits;
}

void StateTurns::SendAway(const StateNumber& key) {
  const FunctionStates::State& state = *tables_.states.Find(key);
  tables_.gpus.RemoveState(state.gpu, state.model, key);
  tables_.states.BeginLeave(key);
}

void StateTurns::EndLeave(const StateNumber& key, bool gone, Time now) {
  tables_.states.EndLeave(key, gone, now);
  const FunctionStates::State* const state = tables_.states.Find(key);
  if (state == nullptr) return;
  if (!gone && state->gpu != kNoGpu) Book(state->gpu, state->model);
  parts_.waiting.Activate(state->model);
}

void StateTurns::Book(GpuIndex index, ModelId model) {
  for (const StateNumber& key : tables_.states.Of(model)) {
    const FunctionStates::State& state = *tables_.states.Find(key);
    if (state.CurrentAt(index) && !state.leaving) tables_.gpus.AddState(index, model, key, state.bytes, true);
  }
}

void StateTurns::Place(RequestEntry& entry, GpuIndex gpu, Time now) {
  FunctionStates::State* state = tables_.states.Find(entry.request.state);
  if (state == nullptr) return;
  TROUPE_CHECK(state->MayRun() && state->line.front() == entry.request.id, "a state was used out of turn");
  TROUPE_CHECK(state->gpu == kNoGpu || state->gpu == gpu, "a state would be on two GPUs");
  entry.books_state = tables_.gpus.AddState(gpu, entry.model, entry.request.state, state->bytes);
  // What begins anew takes the place of what is there.
  entry.brings_state = !state->CurrentAt(gpu) || entry.request.begins_state;
  state->used = now;
  state->gpu = gpu;
  state->running = true;
}

void StateTurns::EndTurn(const RequestEntry& entry) {
  if (FunctionStates::State* state = tables_.states.Find(entry.request.state)) state->running = false;
}

void StateTurns::Note(const RequestEntry& entry, const RunDone& done) {
  FunctionStates::State* state = tables_.states.Find(entry.request.state);
  if (state == nullptr || state->gpu != done.gpu) return;
  if (entry.brings_state) state->current = done.brought_state;
  const bool lost = done.end == RunEnd::kNotResident || done.end == RunEnd::kNoState || done.spoiled_state;
  if (lost) state->current = false;
  // What was to come and did not takes no room; what lay there before, and is not the state any more, does.
  if (entry.brings_state && entry.books_state && !done.brought_state)
    tables_.gpus.RemoveState(done.gpu, state->model, entry.request.state);
  // A state that is not on the GPU does not bind the function to it.
  const Resident* const model = tables_.gpus.at(done.gpu).Find(state->model);
  const bool there = model != nullptr && model->states.contains(entry.request.state);
  if (!state->current && !there) state->gpu = kNoGpu;
}

void StateTurns::Check() const {
  for (const auto& [key, state] : tables_.states.all()) {
    TROUPE_CHECK(
        !state.running || (!state.line.empty() && parts_.requests.At(state.line.front()).gpu == state.gpu),
        "a state is used by no run, or from another GPU");
    for (std::size_t i = state.running ? 1 : 0; i < state.line.size(); ++i)
      TROUPE_CHECK(parts_.requests.At(state.line[i]).gpu == kNoGpu, "two runs use one state");
    for (const auto& [index, gpu] : tables_.gpus.gpus()) {
      const Resident* resident = gpu.Find(state.model);
      TROUPE_CHECK(resident == nullptr || index == state.gpu || !state.CurrentAt(index),
                   "a state is on two GPUs");
    }
  }
}

}  // namespace troupe::node
