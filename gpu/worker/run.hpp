// One run on its way through the worker.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpu/device/device.hpp"
#include "gpu/device/virtual_event.hpp"
#include "gpu/memory/run_pool.hpp"
#include "gpu/sharing/gpu_time.hpp"
#include "gpu/swap/model_load.hpp"
#include "gpu/worker/host_model.hpp"
#include "gpu/worker/layer_load.hpp"
#include "gpu/worker/model_table.hpp"
#include "gpu/worker/reply.hpp"
#include "gpu/worker/run_batch.hpp"
#include "gpu/worker/state_table.hpp"
#include "gpu/worker/tensor_store.hpp"
#include "proto/worker.pb.h"
#include "transport/local_channel.hpp"

namespace troupe::gpu {

// The worker's own number of a run: the sequences of orders begin anew with each daemon.
using RunId = std::uint64_t;

// A launch's turns on the GPU: the main loop and the device's thread that asks share it (LaunchGate).
struct Turns {
  std::string function;
  SmShare share;
  GpuTime::Part time{};
  Duration charged{};
  std::shared_ptr<VirtualEvent> next{};  // when it has paused: its next turn
};

// What the order asked for, checked as far as it can be without the plan.
struct RunRequest {
  std::uint64_t sequence = 0;
  proto::RunOrder order;
  std::optional<HostModel> host;  // to prepare from, when the order names it
  std::shared_ptr<transport::LocalChannel> channel;
  Time received;
  std::optional<Time> deadline;  // a target: it orders the runs, and the blocks on the links
};

//   waiting (for model, plan, inputs, room) -> staging (inputs on their way in) -> ready
//   ready -> computing -> leaving (outputs on their way out) -> answered
// A run that was cancelled leaves at the next arrow.
struct Run {
  enum class Stage { kWaiting, kStaging, kReady, kComputing, kLeaving };
  struct KeptInput {
    int tensor = 0;  // of the order's inputs
    std::uint64_t number = 0;
    TensorStore::Input input;
  };
  struct KeptOutput {
    std::size_t output = 0;  // of the plan
    std::uint64_t number = 0;
    DeviceRange range;
  };
  Run(RunRequest given, Reply reply)
      : request(std::move(given)), batch(request.order), reply(std::move(reply)) {}

  // When it is dropped if it has not begun to compute; Time::max(): never.
  [[nodiscard]] Time Expires() const;

  RunRequest request;
  const RunBatch batch;  // the requests that it answers
  Reply reply;
  Urgency urgency = 0;  // among those of its priority
  Stage stage = Stage::kWaiting;
  absl::Status failed;  // why it is given up; OK while it is not
  std::shared_ptr<DevicePlan> plan;
  bool preparing = false;  // its plan is awaited
  bool inputs_here = false;
  std::vector<transport::TensorData> inputs;  // request by request, each in the order's order
  std::optional<ModelTable::Hold> model;      // while it uses the weights
  // Of the model, when it was on its way as the run was staged: the run begins with its first group.
  std::shared_ptr<ModelLoad> load;
  bool by_layer = false;              // its model is not on the device: its weights come and go with it
  std::optional<DeviceRange> window;  // where they do, until it has computed
  std::shared_ptr<LayerLoad> layers;  // with `window`
  std::shared_ptr<std::vector<Time>> trace;  // when each step was reached; null: no trace was asked for
  StateTable::StatePtr state;                // of its function; null: it has none
  bool unheard = false;                      // its daemon is gone: it advances no state
  std::vector<KeptInput> kept_inputs;        // tensors of this worker's that it reads
  std::vector<KeptOutput> kept_outputs;      // what it leaves on the device, once it is staged

  DeviceRange block;                       // inputs and outputs, until the outputs have left
  std::optional<DeviceRange> activations;  // while it computes, the end of them for less
  std::optional<RunPool::RunId> pool;      // while it computes
  std::uint32_t sm_percent = 100;          // of the GPU's SMs that it takes
  std::uint32_t passed = 0;                // launches that found room before it, while it had none
  std::shared_ptr<Turns> turns;            // while it computes
  LaunchArguments arguments;
  std::vector<transport::Reservation> rooms;  // for the outputs, request by request
  std::vector<proto::TensorSpec> outputs;     // as they came out
  std::vector<Bytes> output_sizes;
  std::uint64_t bytes = 0;  // over the link
  Time copy_in_begin;
  Duration copy_in{};
  Duration compute{};
  Duration gpu_time{};   // of that, without what runs beside it had
  Duration cut_after{};  // as in Completion
  Time first_step;
  Time last_group;  // Time() when nothing arrived while it ran
  Time copy_out_begin;
};

// InvalidArgument for a precision of a later release than this worker's.
absl::Status CheckPrecision(proto::Precision precision);
// Each tensor's bytes are where its shape says; names are different, also those of the function's state; parts of one input
// go together; and the requests of a batch can be joined. InvalidArgument names the tensor.
absl::Status CheckRunInputs(const proto::RunOrder& order);
// All inputs of the plan: the inputs of the order, those of a batch joined, and the state.
[[nodiscard]] std::vector<proto::TensorSpec> InputSpecs(const Run& run);
// What stays on the device as the function's state is neither sent nor answered.
[[nodiscard]] bool IsStateInput(const Run& run, const std::string& name);
[[nodiscard]] bool IsStateOutput(const Run& run, const std::string& name);
// Puts the state in the place of the inputs and outputs that it is. InvalidArgument when the run's plan and
// its state differ.
absl::Status PlaceState(Run& run);

// The state in its place, and room for the other outputs: inline while they are small and few, else in the
// channel's arena. ResourceExhausted when that is full of outputs that were not released; Unimplemented
// when the outputs of a batch cannot be divided.
absl::Status ReserveOutputs(Run& run, Bytes inline_limit);
// The sizes of run.outputs; Internal when one is larger than its plan said, Unimplemented when the outputs
// of a batch cannot be divided.
absl::Status MeasureOutputs(Run& run);
// What a run that has come to its end answers; its rooms become references.
[[nodiscard]] proto::WorkerOutcome OutcomeOf(Run& run, Time now);

// Lays out inputs and outputs in one block of device memory.
struct RunLayout {
  explicit RunLayout(const DevicePlan& plan) : RunLayout(plan, nullptr) {}
  // State has its own place, and what is kept on the device.
  explicit RunLayout(const Run& run) : RunLayout(*run.plan, &run) {}
  void Bind(DeviceRange block, LaunchArguments& arguments) const;
  Bytes total;

 private:
  RunLayout(const DevicePlan& plan, const Run* run);
  static constexpr Bytes kAlignment = Bytes(256);
  std::vector<std::pair<Bytes, Bytes>> inputs_;  // offset, size
  std::vector<std::pair<Bytes, Bytes>> outputs_;
};

}  // namespace troupe::gpu
