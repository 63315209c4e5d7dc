#include "gpu/worker/run_state.hpp"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "gpu/device/tensor_bytes.hpp"

namespace troupe::gpu {
namespace {

const DeviceState::Tensor* FindTensor(const DeviceState& state, const std::string& input) {
  const auto found =
      std::find_if(state.tensors.begin(), state.tensors.end(),
                   [&](const DeviceState::Tensor& tensor) { return tensor.spec.name() == input; });
  return found == state.tensors.end() ? nullptr : &*found;
}

std::size_t IndexOf(std::span<const proto::TensorSpec> specs, const std::string& name) {
  return static_cast<std::size_t>(
      std::find_if(specs.begin(), specs.end(), [&](const auto& spec) { return spec.name() == name; }) -
      specs.begin());
}

}  // namespace

bool IsStateInput(const Run& run, const std::string& name) {
  const auto& state = run.request.order.state();
  return std::any_of(state.begin(), state.end(), [&](const auto& tensor) { return tensor.input() == name; });
}

bool IsStateOutput(const Run& run, const std::string& name) {
  const auto& state = run.request.order.state();
  return std::any_of(state.begin(), state.end(), [&](const auto& tensor) { return tensor.output() == name; });
}

absl::Status PlaceState(Run& run) {
  for (const proto::StateTensor& named : run.request.order.state()) {
    const DeviceState::Tensor& tensor = *FindTensor(*run.state, named.input());
    const Bytes size = tensor.now.size;
    const std::size_t in = IndexOf(run.plan->inputs(), named.input());
    const std::size_t out = IndexOf(run.plan->outputs(), named.output());
    const bool there = in < run.plan->inputs().size() && out < run.plan->outputs().size();
    if (!there || run.plan->input_bytes(in) != size || run.plan->output_bytes(out) != size) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the state of '", run.state->function, "' is '", named.input(), "' with ", size.count(), " bytes; ",
          there ? absl::StrCat("the model takes ", run.plan->input_bytes(in).count(), " bytes and gives ",
                               run.plan->output_bytes(out).count(), " as '", named.output(), "'")
                : absl::StrCat("the model has no such input, or no output '", named.output(), "'")));
    }
    run.arguments.inputs[in] = tensor.now;
    run.arguments.outputs[out] = tensor.next;
  }
  return absl::OkStatus();
}

absl::Status JoinState(StateTable& states, RunId id, Run& run) {
  const proto::RunOrder& order = run.request.order;
  if (order.stateful().empty()) return absl::OkStatus();
  const StateTable::StatePtr state = states.Find(order.stateful());
  // A state never begins with zeros by mistake: the order that swaps it in says what it is.
  if (state == nullptr || state->digest != order.digest()) {
    // Not NOT_FOUND, which says that the weights are not there.
    return absl::AbortedError(absl::StrCat("the state of '", order.stateful(),
                                           "' is not on this device: bring it with a swap-in first"));
  }
  const bool all = std::all_of(order.state().begin(), order.state().end(), [&](const auto& named) {
    return FindTensor(*state, named.input()) != nullptr;
  });
  if (!all || static_cast<std::size_t>(order.state_size()) != state->tensors.size()) {
    return absl::InvalidArgumentError(absl::StrCat("the run names other tensors than the state of '",
                                                   order.stateful(), "' has on this device"));
  }
  run.state = state;
  states.Join(*state, {id, nullptr});
  return absl::OkStatus();
}

void LeaveState(StateTable& states, RunId id, Run& run) {
  if (run.state != nullptr) states.Leave(*run.state, id);
}

}  // namespace troupe::gpu
