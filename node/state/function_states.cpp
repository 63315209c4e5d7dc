#include "node/state/function_states.hpp"

#include <algorithm>

namespace troupe::node {

void FunctionStates::Declare(const StateNumber& key, ModelId model, Bytes bytes) {
  const auto [it, is_new] = states_.try_emplace(key);
  it->second.bytes = bytes;
  if (!is_new) return;
  it->second.model = model;
  by_model_[model].push_back(key);
}

void FunctionStates::Forget(const StateNumber& key) {
  const auto it = states_.find(key);
  if (it == states_.end()) return;
  const auto of = by_model_.find(it->second.model);
  std::erase(of->second, key);
  if (of->second.empty()) by_model_.erase(of);
  states_.erase(it);
}

FunctionStates::State* FunctionStates::Find(const StateNumber& key) {
  if (states_.empty()) return nullptr;
  const auto it = states_.find(key);
  return it == states_.end() ? nullptr : &it->second;
}

const FunctionStates::State* FunctionStates::Find(const StateNumber& key) const {
  if (states_.empty()) return nullptr;
  const auto it = states_.find(key);
  return it == states_.end() ? nullptr : &it->second;
}

const std::vector<StateNumber>& FunctionStates::Of(ModelId model) const {
  static const std::vector<StateNumber> none;
  if (by_model_.empty()) return none;
  const auto it = by_model_.find(model);
  return it == by_model_.end() ? none : it->second;
}

Bytes FunctionStates::BytesOf(ModelId model) const {
  Bytes sum;
  for (const StateNumber& key : Of(model)) sum += states_.at(key).bytes;
  return sum;
}

void FunctionStates::Enter(const StateNumber& key, const RequestId& id) {
  if (State* state = Find(key)) state->line.push_back(id);
}

// A function that was forgotten meanwhile has no line any more.
void FunctionStates::Leave(const StateNumber& key, const RequestId& id) {
  State* state = Find(key);
  if (state != nullptr) std::erase(state->line, id);
}

void FunctionStates::BeginEvict(GpuIndex gpu, ModelId model) {
  for (const StateNumber& key : Of(model)) {
    State& state = states_.at(key);
    // A run on a model that may go has lost it before: its outcome says so.
    if (state.gpu != gpu || state.running) continue;
    state.leaving = state.current;
    if (!state.current) state.gpu = kNoGpu;
  }
}

void FunctionStates::EndEvict(GpuIndex gpu, ModelId model, bool gone) {
  for (const StateNumber& key : Of(model)) {
    State& state = states_.at(key);
    if (state.gpu != gpu || !state.leaving) continue;
    state.leaving = false;
    if (!gone) continue;
    state.gpu = kNoGpu;
    state.current = false;
  }
}

void FunctionStates::WorkerGone(GpuIndex gpu) {
  for (auto& [key, state] : states_) {
    if (state.gpu != gpu) continue;
    state.gpu = kNoGpu;
    state.current = state.leaving = false;
  }
}

std::size_t FunctionStates::Blocked(ModelId model) const {
  std::size_t blocked = 0;
  for (const StateNumber& key : Of(model)) {
    const State& state = states_.at(key);
    if (!state.MayRun()) blocked += state.line.size() - (state.running ? 1 : 0);
  }
  return blocked;
}

}  // namespace troupe::node
