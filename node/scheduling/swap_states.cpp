// The swap scheduler and functions that keep state on the device: whose turn it is, and on which GPU.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "node/scheduling/swap_scheduler.hpp"

namespace troupe::node {

void SwapScheduler::DeclareState(const std::string& state, const std::string& model, Bytes bytes) {
  tables_.states.Declare(state, Intern(model), bytes);
}

// Those that wait; what is on a GPU ends with its outcome.
void SwapScheduler::EndLine(const std::string& state, FinishKind kind, const absl::Status& why,
                            proto::BounceReason bounce, Consequences& effects) {
  const FunctionStates::State* found = tables_.states.Find(state);
  if (found == nullptr) return;
  const std::deque<RequestId> line = found->line;
  for (const RequestId& id : line) {
    Entry& entry = requests_.at(id);
    if (entry.gpu == kNoGpu) effects.finished.push_back(End(entry, kind, why, bounce));
  }
}

Consequences SwapScheduler::ForgetState(const std::string& state) {
  Consequences effects;
  EndLine(state, FinishKind::kBounced, absl::UnavailableError("the function's state was taken off this node"),
          proto::BOUNCE_NOT_ADOPTED, effects);
  tables_.states.Forget(state);
  ForgetNames();
  return effects;
}

Consequences SwapScheduler::FailState(const std::string& state, const absl::Status& why) {
  Consequences effects;
  EndLine(state, FinishKind::kFailed, why, proto::BOUNCE_UNSPECIFIED, effects);
  return effects;
}

void SwapScheduler::HoldState(const std::string& state, bool held) {
  if (FunctionStates::State* found = tables_.states.Find(state)) found->held = held;
}

// The request of this model that goes next: the most urgent, but each function with state in the order in
// which its requests were accepted, one at a time. Null: none may go now.
RequestEntry* SwapScheduler::NextOf(ModelId model) {
  const auto& waiting = *tables_.queue.Find(model);
  if (tables_.states.all().empty() || tables_.states.Of(model).empty()) return waiting.begin()->second;
  const std::size_t blocked = tables_.states.Blocked(model);
  if (blocked == waiting.size()) return nullptr;
  for (const auto& [key, entry] : waiting) {
    const FunctionStates::State* state = tables_.states.Find(entry->request.state);
    if (state == nullptr) return entry;
    if (state->MayRun()) return &requests_.at(state->line.front());
  }
  return nullptr;
}

// The turn of the request's function, on the GPU that the request goes to.
void SwapScheduler::PlaceState(Entry& entry, GpuIndex gpu) {
  FunctionStates::State* state = tables_.states.Find(entry.request.state);
  if (state == nullptr) return;
  TROUPE_CHECK(state->MayRun() && state->line.front() == entry.request.id, "a state was used out of turn");
  TROUPE_CHECK(state->gpu == kNoGpu || state->gpu == gpu, "a state would be on two GPUs");
  tables_.gpus.AddState(gpu, entry.model, entry.request.state, state->bytes);
  entry.brings_state = !state->CurrentAt(gpu);
  state->gpu = gpu;
  state->running = true;
}

void SwapScheduler::EndTurn(const Entry& entry) {
  if (FunctionStates::State* state = tables_.states.Find(entry.request.state)) state->running = false;
}

// Where the state of a run that has ended is now.
void SwapScheduler::NoteState(const Entry& entry, const RunDone& done) {
  FunctionStates::State* state = tables_.states.Find(entry.request.state);
  if (state == nullptr || state->gpu != done.gpu) return;
  if (entry.brings_state) state->current = done.brought_state;
  if (done.end == RunEnd::kNotResident || done.spoiled_state) state->current = false;
  // What is not there binds nobody to that GPU.
  if (!state->current && tables_.gpus.at(done.gpu).Find(state->model) == nullptr) state->gpu = kNoGpu;
}

void SwapScheduler::CheckStates() const {
  for (const auto& [key, state] : tables_.states.all()) {
    TROUPE_CHECK(!state.running || (!state.line.empty() && requests_.at(state.line.front()).gpu == state.gpu),
                 "a state is used by nobody, or from another GPU");
    for (std::size_t i = state.running ? 1 : 0; i < state.line.size(); ++i)
      TROUPE_CHECK(requests_.at(state.line[i]).gpu == kNoGpu, "two runs use one state");
    for (const auto& [index, gpu] : tables_.gpus.gpus()) {
      const Resident* resident = gpu.Find(state.model);
      TROUPE_CHECK(resident == nullptr || index == state.gpu || !state.CurrentAt(index),
                   "a state is on two GPUs");
    }
  }
}

}  // namespace troupe::node
