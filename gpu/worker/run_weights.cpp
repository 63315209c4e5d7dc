#include "gpu/worker/run_weights.hpp"

#include <algorithm>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "transport/steady_clock.hpp"

namespace troupe::gpu {

using transport::SteadyNow;

absl::Status CheckByLayer(const RunRequest& request) {
  const proto::RunOrder& order = request.order;
  if (!order.by_layer())
    return absl::NotFoundError(
        absl::StrCat("model ", order.digest(), " is not on this device: swap it in first"));
  if (!request.host) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a run of model ", order.digest(), " by layer has to name the host copy that its weights come from"));
  }
  // The request is not at fault: the node brings the model, and orders the run again.
  if (!order.stateful().empty()) {
    return absl::NotFoundError(absl::StrCat("model ", order.digest(),
                                            " is not on this device, and the state of '", order.stateful(),
                                            "' comes with it: swap it in first"));
  }
  return absl::OkStatus();
}

StepGate GateOf(Run& run) {
  StepGate gate;
  if (run.layers != nullptr) {
    gate = run.layers->Gate();
  } else if (run.load != nullptr && !run.load->complete()) {
    gate = run.load->GateFor(*run.plan);
  }
  if (!run.request.order.trace()) return gate;
  run.trace = std::make_shared<std::vector<Time>>();
  run.trace->reserve(run.plan->step_count());
  return [trace = run.trace, gate](std::size_t step) {
    trace->push_back(SteadyNow());
    return gate ? gate(step) : nullptr;
  };
}

void NoteGroups(Run& run, const Completion& completion) {
  run.first_step = completion.begin;
  if (run.load == nullptr || !completion.status.ok()) return;
  const std::vector<std::uint32_t> needed =
      run.layers != nullptr ? run.layers->window().needed : GroupsNeeded(*run.plan, run.load->groups());
  if (!needed.empty()) run.first_step = std::max(run.first_step, run.load->ArrivalOf(needed.front()));
  const std::size_t all = *std::max_element(needed.begin(), needed.end());
  const Time last = run.load->ArrivalOf(all);
  if (last > completion.begin) run.last_group = last;
}

bool StopLayers(Run& run, const absl::Status& why) {
  if (run.layers == nullptr) return false;
  run.layers->Stop(why);
  if (run.layers->quiet()) return false;
  run.failed = why;
  return true;
}

}  // namespace troupe::gpu
