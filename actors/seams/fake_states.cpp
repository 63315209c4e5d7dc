#include "actors/seams/fake_states.hpp"

#include <utility>

namespace troupe::actors {

void TakeStates(const proto::SwapInOrder& order, FakeStates& states, bool by_model) {
  for (const auto& image : order.states()) {
    const auto known = states.find(image.function());
    // With the mistake, what a sibling's write-back took has been counted, whatever its own run was told.
    if (by_model && known != states.end() && known->second.image.runs() > image.runs()) continue;
    states[image.function()] = {order.model().digest(), image, false};
  }
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

std::optional<proto::WorkerOutcome> TakeStatesFor(FakeStates& states, const proto::WriteBackOrder& order,
                                                  bool by_model) {
  if (by_model || order.function().empty()) return TakeChangedStates(states, order.digest());
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

}  // namespace troupe::actors
