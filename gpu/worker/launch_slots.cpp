#include "gpu/worker/launch_slots.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "gpu/worker/run_weights.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::gpu {

LaunchSlots::LaunchSlots(Device& device, TaskQueue& queue, Lanes lanes, Calls calls)
    : device_(device),
      queue_(queue),
      lanes_(lanes),
      calls_(std::move(calls)),
      slots_(device.info().concurrency) {}

void LaunchSlots::Close() {
  for (Slot& slot : slots_) slot.stream.reset();
}

bool LaunchSlots::HasFree() const {
  return std::ranges::any_of(slots_, [](const Slot& slot) { return slot.run == nullptr; });
}

void LaunchSlots::Launch(RunId id, Run& run) {
  const auto slot =
      std::ranges::find_if(slots_, [](const Slot& candidate) { return candidate.run == nullptr; });
  TROUPE_CHECK(slot != slots_.end(), "a run was launched without a free slot");
  if (slot->stream == nullptr) slot->stream = device_.MakeStream();
  slot->run = &run;
  run.stage = Run::Stage::kComputing;
  run.arguments.gate = GateOf(run);
  run.arguments.limit = Duration(run.request.order.run_limit_ns());
  if (!run.arguments.marks.empty()) {
    run.arguments.reached = [this, id](std::size_t step) {
      queue_.Post([this, id, step] { calls_.reached(id, step); });
    };
  }
  slot->stream->Launch(run.plan, run.arguments,
                       [this, id](const Completion& completion, std::vector<proto::TensorSpec> outputs) {
                         queue_.Post([this, id, completion, outputs = std::move(outputs)] {
                           calls_.ended(id, completion, outputs);
                         });
                       });
  Show(transport::SteadyNow());
}

void LaunchSlots::Leave(const Run& run) {
  for (Slot& slot : slots_) {
    if (slot.run == &run) slot.run = nullptr;
  }
}

void LaunchSlots::Show(Time now) {
  std::vector<ComputeWatch::LaneState> states;
  for (const Slot& slot : slots_) {
    if (slot.stream == nullptr) continue;
    const EngineState state = slot.stream->launches();
    states.push_back({state.busy, slot.run != nullptr ? slot.run->request.sequence : 0, state.progress});
  }
  const ComputeWatch::LaneState shown = watch_.Observe(states, now);
  if (shown.order != 0) lanes_.At(Lane::kCompute, shown.order);
  if (shown.busy) return lanes_.Show(Lane::kCompute, true, shown.progress);
  const EngineState engine = device_.engine(Engine::kCompute);
  lanes_.Show(Lane::kCompute, engine.busy, engine.progress);
}

}  // namespace troupe::gpu
