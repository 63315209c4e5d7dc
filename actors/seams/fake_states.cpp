#include "actors/seams/fake_states.hpp"

#include <utility>

namespace troupe::actors {

namespace {

bool Names(const proto::WriteBackOrder& order, const std::string& function, const std::string& digest) {
  const bool named = order.prefix() ? function.starts_with(order.function()) : function == order.function();
  return named && digest == order.digest();
}

}  // namespace

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
  if (order.drop()) {
    std::erase_if(states, [&](const auto& state) { return Names(order, state.first, state.second.digest); });
    return proto::WorkerOutcome();
  }
  if (order.prefix()) {
    FakeStates named;
    for (const auto& [function, state] : states)
      if (Names(order, function, state.digest)) named[function] = state;
    for (const auto& [function, state] : named) states[function].changed = false;
    return TakeChangedStates(named, order.digest());
  }
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
