#include "gpu/worker/run_kept.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/worker/run_inputs.hpp"

namespace troupe::gpu {
namespace {

// Kernels load vectors: a part of a tensor that begins elsewhere is copied to where it is aligned.
constexpr std::uintptr_t kInPlaceAlignment = 64;

TensorStore::Part PartOf(const proto::KeptTensor& tensor) {
  return {.number = tensor.number(), .offset = Bytes(tensor.offset()), .length = Bytes(tensor.length())};
}

}  // namespace

absl::Status UseKept(TensorStore& store, Run& run) {
  for (int i = 0; i < run.request.order.inputs_size(); ++i) {
    const proto::Tensor& tensor = run.request.order.inputs(i);
    if (!tensor.data().has_kept()) continue;
    absl::StatusOr<TensorStore::Input> input = store.Use(PartOf(tensor.data().kept()));
    if (!input.ok()) {
      return absl::DataLossError(
          absl::StrCat("input ", tensor.spec().name(), ": ", input.status().message()));
    }
    run.kept_inputs.push_back({i, tensor.data().kept().number(), *std::move(input)});
  }
  return absl::OkStatus();
}

void LeaveKept(TensorStore& store, Run& run) {
  for (const Run::KeptInput& input : run.kept_inputs) store.Leave(input.number);
}

void ReserveKept(TensorStore& store, Run& run, Bytes inlined) {
  for (const proto::KeepOutput& keep : run.request.order.keep()) {
    for (std::size_t i = 0; i < run.plan->outputs().size(); ++i) {
      if (run.plan->outputs()[i].name() != keep.output() || run.plan->output_bytes(i) <= inlined) continue;
      if (IsStateOutput(run, keep.output()) || FindKeptOutput(run, i) != nullptr) continue;
      if (const auto range = store.Reserve(run.request.order.digest(), run.plan->output_bytes(i)))
        run.kept_outputs.push_back({i, keep.number(), *range});
    }
  }
}

void PlaceKept(Run& run) {
  for (std::size_t i = 0; i < run.plan->inputs().size(); ++i) {
    const std::string& name = run.plan->inputs()[i].name();
    if (const auto* const kept = FindReadInPlace(run, name)) run.arguments.inputs[i] = *kept->input.on_device;
  }
  for (const Run::KeptOutput& output : run.kept_outputs) run.arguments.outputs[output.output] = output.range;
}

void SettleKept(TensorStore& store, Run& run, bool kept) {
  for (const Run::KeptOutput& output : kept ? run.kept_outputs : std::exchange(run.kept_outputs, {})) {
    if (!kept) {
      store.GiveBack(output.range);
      continue;
    }
    // A number that is taken is the daemon's mistake, whose readers find another tensor, or none.
    store.Keep(output.number, output.range, run.output_sizes[output.output], run.request.channel)
        .IgnoreError();
  }
}

const Run::KeptInput* FindKeptInput(const Run& run, int tensor) {
  const auto found = std::ranges::find(run.kept_inputs, tensor, &Run::KeptInput::tensor);
  return found == run.kept_inputs.end() ? nullptr : &*found;
}

const Run::KeptInput* FindReadInPlace(const Run& run, const std::string& input) {
  if (run.kept_inputs.empty()) return nullptr;
  const InputParts parts = PartsOf(run.request.order, input);
  const Run::KeptInput* const kept = parts.size() == 1 ? FindKeptInput(run, parts.first) : nullptr;
  if (kept == nullptr || !kept->input.on_device) return nullptr;
  const auto address = reinterpret_cast<std::uintptr_t>(kept->input.on_device->address);
  return address % kInPlaceAlignment == 0 ? kept : nullptr;
}

const Run::KeptOutput* FindKeptOutput(const Run& run, std::size_t output) {
  const auto found = std::ranges::find(run.kept_outputs, output, &Run::KeptOutput::output);
  return found == run.kept_outputs.end() ? nullptr : &*found;
}

bool StaysOnDevice(const Run& run, std::size_t output) {
  return IsStateOutput(run, run.plan->outputs()[output].name()) || FindKeptOutput(run, output) != nullptr;
}

}  // namespace troupe::gpu
