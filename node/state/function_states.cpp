#include "node/state/function_states.hpp"

#include <algorithm>

namespace troupe::node {

void FunctionStates::Declare(const StateNumber& key, ModelId model, Bytes bytes, bool sequence) {
  const auto [it, is_new] = states_.try_emplace(key);
  State& state = it->second;
  OfModel& of = by_model_[is_new ? model : state.model];
  if (!state.sequence) of.bytes -= state.bytes;
  state.bytes = bytes;
  if (is_new) {
    state.model = model;
    state.sequence = sequence;
    of.states.push_back(key);
  }
  if (!state.sequence) of.bytes += bytes;
}

void FunctionStates::Forget(const StateNumber& key) {
  const auto it = states_.find(key);
  if (it == states_.end()) return;
  const auto of = by_model_.find(it->second.model);
  std::erase(of->second.states, key);
  std::erase(of->second.waited_for, key);
  if (!it->second.sequence) of->second.bytes -= it->second.bytes;
  if (of->second.states.empty()) by_model_.erase(of);
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
  return it == by_model_.end() ? none : it->second.states;
}

Bytes FunctionStates::BytesOf(ModelId model) const {
  const auto it = by_model_.find(model);
  return it == by_model_.end() ? Bytes() : it->second.bytes;
}

void FunctionStates::Enter(const StateNumber& key, const RequestId& id) {
  State* state = Find(key);
  if (state == nullptr) return;
  if (state->line.empty()) by_model_.at(state->model).waited_for.push_back(key);
  state->line.push_back(id);
}

// A function that was forgotten meanwhile has no line any more.
void FunctionStates::Leave(const StateNumber& key, const RequestId& id) {
  State* state = Find(key);
  if (state == nullptr || std::erase(state->line, id) == 0) return;
  if (state->line.empty()) std::erase(by_model_.at(state->model).waited_for, key);
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
    state.stay = {};
    state.gpu = kNoGpu;
    state.current = false;
  }
}

void FunctionStates::BeginLeave(const StateNumber& key) {
  states_.at(key).leaving = true;
}

// Its worker may have died meanwhile, and then it has left already.
void FunctionStates::EndLeave(const StateNumber& key, bool gone, Time now) {
  State* state = Find(key);
  if (state == nullptr || !state->leaving) return;
  state->leaving = false;
  if (!gone) {
    state->stay.Begin(state->stay.failures() + 1, now);
    next_stay_end_ = std::min(next_stay_end_, state->stay.until());
    return;
  }
  state->stay = {};
  state->gpu = kNoGpu;
  state->current = false;
}

std::vector<ModelId> FunctionStates::EndStays(Time now) {
  std::vector<ModelId> ended;
  if (now < next_stay_end_) return ended;
  next_stay_end_ = Time::max();
  for (auto& [key, state] : states_) {
    if (state.stay.until() <= now) {
      state.stay.End();
      ended.push_back(state.model);
    }
    next_stay_end_ = std::min(next_stay_end_, state.stay.until());
  }
  return ended;
}

void FunctionStates::WorkerGone(GpuIndex gpu) {
  for (auto& [key, state] : states_) {
    if (state.gpu != gpu) continue;
    state.gpu = kNoGpu;
    state.current = state.leaving = false;
    state.stay = {};
  }
}

std::size_t FunctionStates::Blocked(ModelId model) const {
  std::size_t blocked = 0;
  const auto of = by_model_.find(model);
  if (of == by_model_.end()) return blocked;
  for (const StateNumber& key : of->second.waited_for) {
    const State& state = states_.at(key);
    if (!state.MayRun()) blocked += state.line.size() - (state.running ? 1 : 0);
  }
  return blocked;
}

}  // namespace troupe::node
