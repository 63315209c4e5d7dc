#include "gpu/import/evaluate.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"

namespace troupe::gpu {
namespace {

constexpr std::size_t kAlignment = 64;

struct AlignedDelete {
  void operator()(std::byte* p) const { ::operator delete[](p, std::align_val_t{kAlignment}); }
};
using Buffer = std::unique_ptr<std::byte[], AlignedDelete>;

Buffer Allocate(std::size_t size) {
  auto* memory = static_cast<std::byte*>(::operator new[](size + kAlignment, std::align_val_t{kAlignment}));
  std::memset(memory, 0, size + kAlignment);
  return Buffer(memory);
}

TensorView ViewOf(const ValueInfo& info) {
  TensorView view;
  view.type = info.type;
  view.shape = info.shape;
  // Kernels only read their inputs; the view has one pointer for both directions.
  view.data = const_cast<std::byte*>(info.constant);
  return view;
}

}  // namespace

ValueInfo InfoOf(const Constant& constant) {
  ValueInfo info;
  info.type = constant.type;
  info.shape = constant.shape;
  if (constant.type != proto::BYTES)
    info.constant = reinterpret_cast<const std::byte*>(constant.data->data());
  return info;
}

absl::StatusOr<std::vector<ValueInfo>> Infer(const StepContext& context, std::span<const ValueInfo> in) {
  const Operator* op = FindOperator(context.step.op(), context.opset);
  if (op == nullptr) return context.Error("this operator is not supported");
  TROUPE_ASSIGN_OR_RETURN(std::vector<ValueInfo> out, op->infer(context, in));
  if (out.size() < static_cast<std::size_t>(context.step.outputs_size()))
    return context.Error(
        absl::StrCat("it has ", context.step.outputs_size(), " outputs, but produces ", out.size()));
  for (const ValueInfo& info : out)
    if (auto count = CountElements(info.shape); !count.ok())
      return context.Error(absl::StrCat("its output is impossible: ", count.status().message()));
  return out;
}

absl::StatusOr<std::vector<Constant>> Evaluate(const StepContext& context, std::span<const ValueInfo> in,
                                               std::span<const ValueInfo> out) {
  const Operator* op = FindOperator(context.step.op(), context.opset);
  if (op == nullptr) return context.Error("this operator is not supported");
  TROUPE_ASSIGN_OR_RETURN(const std::unique_ptr<Kernel> kernel, op->make(context, in, out));
  // A kernel that wants device layouts is for plans, which reorder; folding stays row-major.
  for (std::size_t i = 0; op->any_layout && i < std::max(in.size(), out.size()); ++i)
    if (!kernel->input_layout(i).empty() || !kernel->output_layout(i).empty())
      return absl::UnimplementedError("this kernel works on device layouts");
  std::vector<TensorView> inputs;
  for (const ValueInfo& info : in) inputs.push_back(ViewOf(info));
  std::vector<TensorView> outputs;
  std::vector<Buffer> memory;
  for (const ValueInfo& info : out) {
    outputs.push_back(ViewOf(info));
    memory.push_back(Allocate(static_cast<std::size_t>(info.elements()) * ElementSize(info.type)));
    outputs.back().data = memory.back().get();
  }
  const Buffer scratch = Allocate(kernel->scratch().count());
  TROUPE_RETURN_IF_ERROR(kernel->Run(inputs, outputs, scratch.get()));
  std::vector<Constant> results;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    TROUPE_ASSIGN_OR_RETURN(const std::int64_t count, CountElements(outputs[i].shape));
    if (count > out[i].elements()) return context.Error("it produced more than it announced");
    const std::size_t bytes = static_cast<std::size_t>(count) * ElementSize(outputs[i].type);
    results.push_back({outputs[i].type, outputs[i].shape, HoldBytes(outputs[i].data, bytes)});
    memory[i].reset();
  }
  return results;
}

}  // namespace troupe::gpu
