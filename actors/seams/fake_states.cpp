#include "actors/seams/fake_states.hpp"

#include <utility>

namespace troupe::actors {

void TakeStates(const proto::SwapInOrder& order, FakeStates& states) {
  for (const auto& image : order.states()) states[image.function()] = {order.model().digest(), image, false};
}

proto::WorkerOutcome TakeChangedStates(FakeStates& states, const std::string& digest) {
  proto::WorkerOutcome outcome;
  outcome.mutable_state();
  for (auto& [function, state] : states) {
    if (state.digest != digest || !std::exchange(state.changed, false)) continue;
    *outcome.mutable_state()->add_states() = state.image;
  }
  return outcome;
}

std::optional<proto::WorkerOutcome> TakeStatesFor(FakeStates& states, const proto::WriteBackOrder& order) {
  if (order.function().empty()) return TakeChangedStates(states, order.digest());
  const auto it = states.find(order.function());
  if (it == states.end() || it->second.digest != order.digest()) return std::nullopt;
  it->second.changed = false;
  proto::WorkerOutcome outcome;
  *outcome.mutable_state()->add_states() = it->second.image;
  return outcome;
}

void CountRun(FakeWorkerLife::State& state, proto::RunOutcome& run) {
  const auto runs = std::to_string(state.image.runs() + 1);
  state.image.set_runs(state.image.runs() + 1);
  for (auto& tensor : *state.image.mutable_tensors()) tensor.mutable_data()->set_inlined(runs);
  state.changed = true;
  auto& output = *run.add_outputs();
  output.mutable_spec()->set_name("runs");
  output.mutable_data()->set_inlined(runs);
}

void ShareState(const std::string& function, FakeStates& states) {
  const auto& from = states.at(function);
  for (auto& [other, state] : states) {
    if (other == function || state.digest != from.digest) continue;
    state.image.set_runs(from.image.runs());
    *state.image.mutable_tensors() = from.image.tensors();
    state.changed = true;
  }
}

}  // namespace troupe::actors
