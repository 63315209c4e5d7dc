#include "gpu/cuda/plan.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "base/status.hpp"
#include "gpu/coverage/coverage.hpp"
#include "gpu/cuda/launch_groups.hpp"
#include "gpu/cuda/stream.hpp"
#include "gpu/device/tensor_bytes.hpp"
#include "gpu/engine/program_builder.hpp"

namespace troupe::gpu::cuda {
namespace {

// A watchdog sees a launch get on this often, in steps.
constexpr std::size_t kStepsPerMilestone = 32;
// A plan needs one word of trouble for each stream that it is launched on.
constexpr std::size_t kWordsOfAPlan = 32;

std::size_t Index(int id) {
  return static_cast<std::size_t>(id);
}

// Tells of a launch's marks in their order.
class Marks {
 public:
  Marks(Submission& submission, const LaunchArguments& arguments)
      : submission_(submission), arguments_(arguments), next_(arguments.marks.begin()) {}
  // All steps before this one are on the stream.
  absl::Status Pass(std::size_t step) {
    for (; next_ != arguments_.marks.end() && *next_ <= step; ++next_) {
      TROUPE_RETURN_IF_ERROR(submission_.Mark([reached = arguments_.reached, at = *next_] { reached(at); }));
    }
    return absl::OkStatus();
  }

 private:
  Submission& submission_;
  const LaunchArguments& arguments_;
  std::vector<std::size_t>::const_iterator next_;
};

class ProgramPlan final : public CudaPlan {
 public:
  static absl::StatusOr<std::shared_ptr<ProgramPlan>> Make(Tools& tools, const proto::Model& model,
                                                           std::vector<proto::TensorSpec> inputs,
                                                           Program program) {
    auto plan = std::make_shared<ProgramPlan>(tools, std::move(inputs), std::move(program));
    plan->weights_bytes_ = Bytes(model.weights_bytes());
    TROUPE_RETURN_IF_ERROR(plan->BringConstants());
    for (const proto::TensorSpec& spec : plan->inputs_) {
      TROUPE_ASSIGN_OR_RETURN(const Bytes bytes, ConcreteBytes(spec));
      plan->input_bytes_.push_back(bytes);
    }
    TROUPE_RETURN_IF_ERROR(tools.words.Provide(kWordsOfAPlan));
    plan->recorded_ = plan->Warm();
    return plan;
  }

  ProgramPlan(Tools& tools, std::vector<proto::TensorSpec> inputs, Program program)
      : tools_(tools), inputs_(std::move(inputs)), program_(std::move(program)) {
    for (ProgramValue& value : program_.values)
      value.info.constant = nullptr;  // of Prepare's weights, which may move
    for (const Instruction& instruction : program_.instructions) weights_.push_back(WeightsOf(instruction));
  }

  [[nodiscard]] std::span<const proto::TensorSpec> inputs() const override { return inputs_; }
  [[nodiscard]] std::span<const proto::TensorSpec> outputs() const override { return program_.output_specs; }
  [[nodiscard]] Bytes input_bytes(std::size_t i) const override { return input_bytes_[i]; }
  [[nodiscard]] Bytes output_bytes(std::size_t i) const override {
    return program_.values[Index(program_.outputs[i])].size;
  }
  [[nodiscard]] Bytes weights_bytes() const override { return weights_bytes_; }
  [[nodiscard]] Bytes activation_bytes() const override { return program_.activation_bytes; }
  [[nodiscard]] std::size_t step_count() const override { return program_.instructions.size(); }
  [[nodiscard]] Bytes step_activations(std::size_t step) const override {
    return program_.step_activations[step];
  }
  [[nodiscard]] Bytes activation_extent(std::size_t step) const override {
    return program_.activation_extents[step];
  }
  [[nodiscard]] std::span<const std::pair<std::uint64_t, std::uint64_t>> step_weights(
      std::size_t step) const override {
    return weights_[step];
  }

  [[nodiscard]] absl::Status recorded() const override { return recorded_; }
  using Moved = std::function<void(std::uint64_t)>;
  absl::Status Submit(Submission& submission, const LaunchArguments& arguments, const Moved& moved) override;

 private:
  using Ranges = std::vector<std::pair<std::uint64_t, std::uint64_t>>;
  // What launches on one CUDA stream, which are one at a time, write to.
  struct OnStream {
    OnStream(Tools& tools, std::size_t steps, std::shared_ptr<std::int32_t> word)
        : graphs(tools.context, tools.graphs), groups(steps), trouble(std::move(word)) {}
    PlanGraphs graphs;
    LaunchGroups groups;
    std::shared_ptr<std::int32_t> trouble;
  };
  absl::StatusOr<OnStream*> On(CUstream stream);
  [[nodiscard]] Ranges WeightsOf(const Instruction& instruction) const;
  absl::Status BringConstants();
  absl::Status Warm();
  absl::Status Enqueue(const Instruction& instruction, const KernelLaunch& launch,
                       const LaunchArguments& arguments) const;
  absl::Status EnqueueSteps(std::size_t begin, std::size_t end, const KernelLaunch& launch,
                            const LaunchArguments& arguments) const;
  [[nodiscard]] LaunchKey KeyOf(CUstream stream, const LaunchArguments& arguments,
                                const std::vector<std::size_t>& groups) const;
  absl::Status Replay(const GraphSet& graphs, const LaunchKey& key, Submission& submission,
                      const LaunchArguments& arguments, GroupedLaunch& groups, const Moved& moved) const;
  absl::Status SubmitSteps(Submission& submission, const KernelLaunch& launch,
                           const LaunchArguments& arguments, GroupedLaunch& groups, const Moved& moved) const;
  [[nodiscard]] TensorView ViewOf(int id, const LaunchArguments& arguments) const;
  [[nodiscard]] std::byte* AddressOf(const ProgramValue& value, const LaunchArguments& arguments) const;

  Tools& tools_;
  const std::vector<proto::TensorSpec> inputs_;
  Program program_;
  std::vector<Bytes> input_bytes_;
  Bytes weights_bytes_;
  absl::Status recorded_;
  std::vector<Ranges> weights_;                                // per instruction
  std::vector<std::shared_ptr<const DeviceBlock>> constants_;  // as program_.constants
  std::mutex mutex_;
  std::map<CUstream, OnStream> streams_;  // guarded by mutex_; an entry is its stream's launch's
};

ProgramPlan::Ranges ProgramPlan::WeightsOf(const Instruction& instruction) const {
  Ranges ranges;
  for (const int id : instruction.inputs) {
    if (id == kAbsent || program_.values[Index(id)].place != Place::kWeights) continue;
    ranges.emplace_back(program_.values[Index(id)].position, program_.values[Index(id)].size.count());
  }
  std::ranges::sort(ranges);
  ranges.erase(std::unique(ranges.begin(), ranges.end()), ranges.end());
  return ranges;
}

// Constants that some instruction may read: most were only of use to the planning.
absl::Status ProgramPlan::BringConstants() {
  constants_.resize(program_.constants.size());
  for (const Instruction& instruction : program_.instructions) {
    for (const int id : instruction.inputs) {
      if (id == kAbsent || program_.values[Index(id)].place != Place::kConstant) continue;
      const ProgramValue& value = program_.values[Index(id)];
      auto& block = constants_[value.position];
      if (block != nullptr) continue;
      TROUPE_ASSIGN_OR_RETURN(
          block,
          DeviceBlock::Upload(tools_.context, program_.constants[value.position].data(), value.size.count()));
    }
  }
  return absl::OkStatus();
}

// The first launch of a kernel loads its code, and a library chooses and loads its own: seconds in which a launch
// looks like a hang. All steps are recorded once, with addresses that nothing reads, and what was recorded is
// thrown away. A recording bears no call that makes what the libraries need, so that is made before. A driver that
// records nothing, and a step that cannot be recorded, load with the first launch.
absl::Status ProgramPlan::Warm() {
  if (tools_.warm.stream == nullptr) return absl::UnavailableError("there is no stream to record on");
  TROUPE_RETURN_IF_ERROR(tools_.libraries->Provide(tools_.warm.stream));
  TROUPE_ASSIGN_OR_RETURN(const auto word, tools_.words.Take());
  const Driver& driver = tools_.context.driver();
  LaunchArguments arguments;
  arguments.weights = arguments.activations = tools_.warm.anywhere;
  arguments.inputs.assign(inputs_.size(), tools_.warm.anywhere);
  arguments.outputs.assign(program_.outputs.size(), tools_.warm.anywhere);
  const KernelLaunch launch{tools_, tools_.warm.stream, nullptr, word.get(),
                            tools_.kernels->BlocksOn(arguments.share.sms)};
  TROUPE_ASSIGN_OR_RETURN(const CUgraph graph, Capture(tools_.context, tools_.warm.stream, [&] {
                            return EnqueueSteps(0, step_count(), launch, arguments);
                          }));
  CUgraphExec executable = nullptr;
  const CUresult made = driver.cuGraphInstantiate(&executable, graph, 0);
  if (made == CUDA_SUCCESS) (void)driver.cuGraphExecDestroy(executable);
  (void)driver.cuGraphDestroy(graph);
  return tools_.context.Check(made, "making a graph");
}

std::byte* WeightAddress(const LaunchArguments& arguments, std::uint64_t position) {
  if (arguments.pieces.empty()) return arguments.weights.address + position;
  const auto behind = std::ranges::upper_bound(arguments.pieces, position, {}, &WeightPiece::offset);
  TROUPE_CHECK(behind != arguments.pieces.begin(), "a weight is in none of the pieces that were bound");
  const WeightPiece& piece = *std::prev(behind);
  TROUPE_CHECK(position - piece.offset < piece.length, "a weight is in none of the pieces that were bound");
  return piece.at.address + (position - piece.offset);
}

std::byte* ProgramPlan::AddressOf(const ProgramValue& value, const LaunchArguments& arguments) const {
  switch (value.place) {
    case Place::kInput:
      return arguments.inputs[value.position].address;
    case Place::kWeights:
      return WeightAddress(arguments, value.position);
    case Place::kConstant:
      return constants_[value.position]->data();
    case Place::kActivation:
      return arguments.activations.address + value.position;
    case Place::kOutput:
      return arguments.outputs[value.position].address;
    case Place::kNone:
      break;
  }
  return nullptr;
}

TensorView ProgramPlan::ViewOf(int id, const LaunchArguments& arguments) const {
  if (id == kAbsent) return {};
  const ProgramValue& value = program_.values[Index(id)];
  return {value.info.type, value.info.shape, AddressOf(value, arguments)};
}

absl::Status ProgramPlan::Enqueue(const Instruction& instruction, const KernelLaunch& launch,
                                  const LaunchArguments& arguments) const {
  std::vector<TensorView> in;
  std::vector<TensorView> out;
  for (const int id : instruction.inputs) in.push_back(ViewOf(id, arguments));
  for (const int id : instruction.outputs) out.push_back(ViewOf(id, arguments));
  const auto* const kernel = dynamic_cast<const GpuKernel*>(instruction.kernel.get());
  // What the layout adds are copies.
  const absl::Status status =
      kernel == nullptr
          ? CopyWhole(launch, in, out)
          : kernel->Enqueue(launch, in, out, arguments.activations.address + instruction.scratch);
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(instruction.label, ": ", std::string(status.message())));
}

absl::Status ProgramPlan::EnqueueSteps(std::size_t begin, std::size_t end, const KernelLaunch& launch,
                                       const LaunchArguments& arguments) const {
  for (std::size_t step = begin; step < end; ++step)
    TROUPE_RETURN_IF_ERROR(Enqueue(program_.instructions[step], launch, arguments));
  return absl::OkStatus();
}

// All that a recording depends on but for the plan itself. Marks are told between its segments, and a launch
// is cut there.
LaunchKey ProgramPlan::KeyOf(CUstream stream, const LaunchArguments& arguments,
                             const std::vector<std::size_t>& groups) const {
  LaunchKey key;
  key.stream = stream;
  const auto add = [&key](const DeviceRange& range) {
    key.addresses.push_back(reinterpret_cast<std::uintptr_t>(range.address));
  };
  add(arguments.weights);
  for (const WeightPiece& piece : arguments.pieces) {
    key.addresses.push_back(piece.offset);
    add(piece.at);
  }
  add(arguments.activations);
  for (const DeviceRange& input : arguments.inputs) add(input);
  for (const DeviceRange& output : arguments.outputs) add(output);
  std::ranges::set_union(arguments.marks, groups, std::back_inserter(key.ends));
  std::erase_if(key.ends, [this](std::size_t end) { return end == 0 || end >= step_count(); });
  key.ends.erase(std::unique(key.ends.begin(), key.ends.end()), key.ends.end());
  key.ends.push_back(step_count());
  return key;
}

absl::Status ProgramPlan::Replay(const GraphSet& graphs, const LaunchKey& key, Submission& submission,
                                 const LaunchArguments& arguments, GroupedLaunch& groups,
                                 const Moved& moved) const {
  Marks marks(submission, arguments);
  std::size_t begin = 0;
  for (std::size_t segment = 0; segment < key.ends.size(); ++segment) {
    TROUPE_RETURN_IF_ERROR(groups.Before(begin));
    TROUPE_RETURN_IF_ERROR(marks.Pass(begin));
    TROUPE_RETURN_IF_ERROR(graphs.Launch(segment, submission.stream()));
    const auto tell = [moved, steps = key.ends[segment] - begin] { moved(steps); };
    begin = key.ends[segment];
    if (begin == step_count()) {
      submission.AtEnd(tell);
    } else {
      TROUPE_RETURN_IF_ERROR(submission.Mark(tell));
    }
  }
  return marks.Pass(step_count());
}

absl::Status ProgramPlan::SubmitSteps(Submission& submission, const KernelLaunch& launch,
                                      const LaunchArguments& arguments, GroupedLaunch& groups,
                                      const Moved& moved) const {
  Marks marks(submission, arguments);
  std::size_t told = 0;
  for (std::size_t step = 0; step < step_count(); ++step) {
    TROUPE_RETURN_IF_ERROR(groups.Before(step));
    TROUPE_RETURN_IF_ERROR(marks.Pass(step));
    if (arguments.gate) {
      if (const EventPtr event = arguments.gate(step)) TROUPE_RETURN_IF_ERROR(submission.Wait(event));
    }
    TROUPE_RETURN_IF_ERROR(Enqueue(program_.instructions[step], launch, arguments));
    TROUPE_RETURN_IF_ERROR(submission.StepPut());
    submission.Alive();
    const bool tells = step + 1 - told == kStepsPerMilestone || step + 1 == step_count();
    if (!tells && !groups.EndsAt(step + 1)) continue;
    const auto tell = [moved, steps = step + 1 - told] { moved(steps); };
    told = step + 1;
    if (told == step_count()) {
      submission.AtEnd(tell);
    } else {
      TROUPE_RETURN_IF_ERROR(submission.Mark(tell));
    }
  }
  return marks.Pass(step_count());
}

absl::StatusOr<ProgramPlan::OnStream*> ProgramPlan::On(CUstream stream) {
  const std::lock_guard lock(mutex_);
  auto found = streams_.find(stream);
  if (found == streams_.end()) {
    TROUPE_ASSIGN_OR_RETURN(auto word, tools_.words.Take());
    found = streams_
                .emplace(std::piecewise_construct, std::forward_as_tuple(stream),
                         std::forward_as_tuple(tools_, step_count(), std::move(word)))
                .first;
  }
  return &found->second;
}

absl::Status ProgramPlan::Submit(Submission& submission, const LaunchArguments& arguments,
                                 const Moved& moved) {
  TROUPE_CHECK(arguments.inputs.size() == inputs_.size(), "a launch binds every input");
  TROUPE_CHECK(arguments.outputs.size() == program_.outputs.size(), "a launch binds every output");
  TROUPE_CHECK(arguments.activations.size >= activation_bytes(), "a launch needs its activation memory");
  TROUPE_CHECK(!arguments.pieces.empty() || arguments.weights.size >= weights_bytes_,
               "a launch needs its weights");
  TROUPE_CHECK(arguments.marks.empty() || arguments.reached, "marks need a callback");
  TROUPE_ASSIGN_OR_RETURN(OnStream* const here, On(submission.stream()));
  *here->trouble = 0;
  const KernelLaunch launch{tools_, submission.stream(), submission.lane(), here->trouble.get(),
                            tools_.kernels->BlocksOn(arguments.share.sms)};
  // With a gate each step may wait for something else: weights are still on their way.
  GroupedLaunch groups(submission, here->groups, arguments, step_count());
  LaunchKey key = KeyOf(submission.stream(), arguments, groups.ends());
  key.lane = launch.lane;
  key.blocks = launch.blocks;
  std::shared_ptr<const GraphSet> graphs;
  if (!arguments.gate) {
    graphs = here->graphs.Find(
        key, [&](std::size_t begin, std::size_t end) { return EnqueueSteps(begin, end, launch, arguments); });
  }
  TROUPE_RETURN_IF_ERROR(graphs != nullptr ? Replay(*graphs, key, submission, arguments, groups, moved)
                                           : SubmitSteps(submission, launch, arguments, groups, moved));
  groups.Submitted();
  submission.Verify([trouble = here->trouble, graphs]() -> absl::Status {
    if (*trouble == 0) return absl::OkStatus();
    return absl::InvalidArgumentError("an index in the data lies outside of what it chooses from");
  });
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Kernel>> MakeStep(const GpuStep& step) {
  TROUPE_RETURN_IF_ERROR(CheckCudaCovers({step.ctx, step.in, step.out}));
  const auto make = GpuKernels().find(step.ctx.step.op());
  TROUPE_CHECK(make != GpuKernels().end(), "an operator was judged to have a kernel");
  return make->second(step);
}

}  // namespace

absl::StatusOr<std::shared_ptr<DevicePlan>> MakePlan(Tools& tools, const proto::Model& model,
                                                     std::span<const std::byte> weights,
                                                     std::span<const proto::TensorSpec> inputs,
                                                     proto::Precision precision) {
  ProgramBuilder builder(model, weights);
  builder.MakeWith([&tools, precision](const Operator& entry, const StepContext& ctx, Infos in, Infos out) {
    return MakeStep({tools, entry, ctx, in, out, precision});
  });
  TROUPE_ASSIGN_OR_RETURN(Program program, builder.Build(inputs));
  LayOut(program);
  return ProgramPlan::Make(tools, model, {inputs.begin(), inputs.end()}, std::move(program));
}

}  // namespace troupe::gpu::cuda
