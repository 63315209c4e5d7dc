#include "gpu/worker/run.hpp"

#include <set>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "gpu/device/tensor_bytes.hpp"
#include "gpu/worker/run_inputs.hpp"
#include "gpu/worker/run_kept.hpp"

namespace troupe::gpu {

Time Run::Expires() const {
  const Duration timeout(request.order.timeout_ns());
  if (timeout <= Duration(0) || timeout > Time::max() - request.received) return Time::max();
  return request.received + timeout;
}

absl::Status CheckPrecision(proto::Precision precision) {
  if (proto::Precision_IsValid(precision)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("precision ", static_cast<int>(precision),
                                                 " was asked for; this worker knows fp32, tf32, bf16 and "
                                                 "fp16: is it of an older release?"));
}

namespace {

absl::Status CheckSize(const proto::Tensor& tensor) {
  const Bytes found = transport::SizeOf(tensor.data());
  if (tensor.spec().type() == proto::BYTES) return CheckTextBytes(tensor.spec(), found);
  TROUPE_ASSIGN_OR_RETURN(const Bytes expected, ConcreteBytes(tensor.spec()));
  if (found == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("input ", FormatSpec(tensor.spec()), " has ", found.count(),
                                                 " bytes, its shape needs ", expected.count()));
}

}  // namespace

absl::Status CheckRunInputs(const proto::RunOrder& order) {
  TROUPE_RETURN_IF_ERROR(CheckPrecision(order.precision()));
  TROUPE_RETURN_IF_ERROR(CheckParts(order));
  std::set<std::string> names;
  bool alone = !order.keep().empty();
  for (const proto::Tensor& tensor : order.inputs()) {
    TROUPE_RETURN_IF_ERROR(CheckSize(tensor));
    names.insert(tensor.spec().name());
    alone |= tensor.data().has_kept() || tensor.continues();
  }
  if (alone && !order.members().empty())
    return absl::InvalidArgumentError(
        "a run of a batch reads kept tensors or an input in parts, or keeps outputs: it cannot");
  for (const proto::BatchMember& member : order.members())
    for (const proto::Tensor& tensor : member.inputs()) TROUPE_RETURN_IF_ERROR(CheckSize(tensor));
  if (order.sharing().sm_partition() > 100) {
    return absl::InvalidArgumentError(absl::StrCat("a run asks for ", order.sharing().sm_partition(),
                                                   " % of the device's SMs, which has 100"));
  }
  if (order.stateful().empty() != order.state().empty())
    return absl::InvalidArgumentError("a run names the function of its state and the tensors, or neither");
  std::set<std::string> outputs;
  for (const proto::StateTensor& tensor : order.state()) {
    if (names.insert(tensor.input()).second && outputs.insert(tensor.output()).second) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "'", tensor.input(), "' is state of the function: it stays on the device, callers do not send it"));
  }
  return RunBatch::Check(order);
}

std::vector<proto::TensorSpec> InputSpecs(const Run& run) {
  std::vector<proto::TensorSpec> specs;
  for (proto::TensorSpec& spec : WholeInputs(run.request.order))
    specs.push_back(WithTextRoom(run.batch.Joined(std::move(spec))));
  if (run.state != nullptr) {
    for (const DeviceState::Tensor& tensor : run.state->tensors) specs.push_back(tensor.spec);
  }
  return specs;
}

absl::Status ReserveOutputs(Run& run, Bytes inline_limit) {
  TROUPE_RETURN_IF_ERROR(PlaceState(run));
  PlaceKept(run);
  TROUPE_RETURN_IF_ERROR(run.batch.CheckDivisible(run.plan->outputs()));
  const std::size_t outputs = run.plan->outputs().size();
  Bytes inlined;
  for (std::size_t at = 0; at < outputs * run.batch.size(); ++at) {
    const std::size_t i = at % outputs;
    const Bytes size = run.batch.PartOf(at / outputs, run.plan->output_bytes(i)).size;
    if (StaysOnDevice(run, i)) {
      run.rooms.emplace_back();
      continue;
    }
    transport::LocalChannel& channel = *run.request.channel;
    const bool in_message = size <= transport::kInlineLimit && inlined + size <= inline_limit;
    if (in_message) inlined += size;
    absl::StatusOr<transport::Reservation> room =
        in_message ? channel.Reserve(size) : channel.ReserveSlice(size);
    if (!room.ok()) {
      run.rooms.clear();
      return absl::Status(
          room.status().code(),
          absl::StrCat("no room for output ", run.plan->outputs()[i].name(), ": ", room.status().message()));
    }
    run.rooms.push_back(*std::move(room));
  }
  return absl::OkStatus();
}

absl::Status MeasureOutputs(Run& run) {
  if (run.outputs.size() != run.plan->outputs().size()) {
    return absl::InternalError(absl::StrCat("the plan has ", run.plan->outputs().size(),
                                            " outputs, its run gave ", run.outputs.size()));
  }
  TROUPE_RETURN_IF_ERROR(run.batch.CheckDivisible(run.outputs));
  for (std::size_t i = 0; i < run.outputs.size(); ++i) {
    TROUPE_ASSIGN_OR_RETURN(const Bytes size, ConcreteBytes(run.outputs[i]));
    if (size > run.plan->output_bytes(i)) {
      return absl::InternalError(absl::StrCat("output ", FormatSpec(run.outputs[i]),
                                              " is larger than its bound of ",
                                              run.plan->output_bytes(i).count(), " bytes"));
    }
    const bool stays = IsStateOutput(run, run.plan->outputs()[i].name());
    if (stays && size != run.plan->output_bytes(i)) {
      return absl::InternalError(absl::StrCat("state ", FormatSpec(run.outputs[i]), " is smaller than the ",
                                              run.plan->output_bytes(i).count(), " bytes it had"));
    }
    run.output_sizes.push_back(size);
    run.bytes += StaysOnDevice(run, i) ? 0 : size.count();
  }
  return absl::OkStatus();
}

namespace {

void AddOutputs(Run& run, std::size_t request, google::protobuf::RepeatedPtrField<proto::Tensor>& outputs) {
  for (std::size_t i = 0; i < run.outputs.size(); ++i) {
    if (IsStateOutput(run, run.plan->outputs()[i].name())) continue;
    const std::uint64_t size = run.batch.PartOf(request, run.output_sizes[i]).size.count();
    proto::Tensor& tensor = *outputs.Add();
    *tensor.mutable_spec() = run.batch.SpecOf(request, run.outputs[i]);
    tensor.mutable_spec()->clear_text_bytes();
    if (const Run::KeptOutput* const kept = FindKeptOutput(run, i)) {
      tensor.mutable_data()->mutable_kept()->set_number(kept->number);
      tensor.mutable_data()->mutable_kept()->set_length(size);
      continue;
    }
    *tensor.mutable_data() = run.rooms[request * run.outputs.size() + i].Commit();
    // A room is as large as the output may become.
    if (tensor.data().has_arena()) {
      tensor.mutable_data()->mutable_arena()->set_length(size);
    } else {
      tensor.mutable_data()->mutable_inlined()->resize(size);
    }
  }
}

}  // namespace

proto::WorkerOutcome OutcomeOf(Run& run, Time now) {
  proto::WorkerOutcome outcome;
  outcome.set_bytes(run.bytes);
  proto::RunOutcome& detail = *outcome.mutable_run();
  detail.set_copy_in_ns(run.copy_in.count());
  detail.set_compute_ns(run.compute.count());
  detail.set_copy_out_ns((now - run.copy_out_begin).count());
  detail.set_first_step_ns(run.first_step.time_since_epoch().count());
  detail.set_last_group_ns(run.last_group.time_since_epoch().count());
  detail.set_device_bytes((run.block.size + run.plan->activation_bytes()).count());
  if (run.trace != nullptr) {
    for (const Time step : *run.trace) detail.add_step_begin_ns(step.time_since_epoch().count());
  }
  AddOutputs(run, 0, *detail.mutable_outputs());
  for (std::size_t request = 1; request < run.batch.size(); ++request)
    AddOutputs(run, request, *detail.add_members()->mutable_outputs());
  return outcome;
}

namespace {

// Of texts what there is, not what the plan has room for: behind them would lie bytes of others.
Bytes InputBytes(const DevicePlan& plan, const Run* run, std::size_t i) {
  const proto::TensorSpec& spec = plan.inputs()[i];
  if (run == nullptr || spec.type() != proto::BYTES) return plan.input_bytes(i);
  return WholeBytes(run->request.order, PartsOf(run->request.order, spec.name()));
}

}  // namespace

RunLayout::RunLayout(const DevicePlan& plan, const Run* run) {
  const auto place = [this](Bytes size, bool elsewhere) {
    const std::pair<Bytes, Bytes> range(total, elsewhere ? Bytes(0) : size);
    total = AlignUp(total + range.second, kAlignment);
    return range;
  };
  for (std::size_t i = 0; i < plan.inputs().size(); ++i) {
    const std::string& name = plan.inputs()[i].name();
    const bool elsewhere =
        run != nullptr && (IsStateInput(*run, name) || FindReadInPlace(*run, name) != nullptr);
    inputs_.push_back(place(InputBytes(plan, run, i), elsewhere));
  }
  for (std::size_t i = 0; i < plan.outputs().size(); ++i) {
    outputs_.push_back(place(plan.output_bytes(i), run != nullptr && StaysOnDevice(*run, i)));
  }
}

void RunLayout::Bind(DeviceRange block, LaunchArguments& arguments) const {
  for (const auto& [offset, size] : inputs_) arguments.inputs.push_back(block.Part(offset, size));
  for (const auto& [offset, size] : outputs_) arguments.outputs.push_back(block.Part(offset, size));
}

}  // namespace troupe::gpu
