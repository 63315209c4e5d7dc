#include "gpu/ops/step_kernel.hpp"

#include <algorithm>
#include <new>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "gpu/ops/layout.hpp"
#include "gpu/ops/op_support.hpp"
#include "gpu/ops/texts.hpp"

namespace troupe::gpu {
namespace {

struct AlignedFree {
  void operator()(std::byte* memory) const { ::operator delete[](memory, std::align_val_t{64}); }
};

using AlignedMemory = std::unique_ptr<std::byte[], AlignedFree>;

AlignedMemory Allocate(std::size_t bytes) {
  return AlignedMemory(new (std::align_val_t{64}) std::byte[std::max<std::size_t>(bytes, 1)]);
}

// Moves a tensor of FP32 to memory of another layout.
absl::Status Reorder(const TensorView& from, const std::string& layout, std::byte* to,
                     const std::string& wanted) {
  TROUPE_ASSIGN_OR_RETURN(const auto kernel, MakeReorder(from.shape, layout, wanted));
  const AlignedMemory scratch = Allocate(kernel->scratch().count());
  const TensorView in[] = {from};
  TensorView out[] = {{from.type, from.shape, to}};
  return kernel->Run(in, out, scratch.get());
}

// Room for a tensor in a layout of the kernel's own.
absl::StatusOr<AlignedMemory> RoomFor(const std::string& layout) {
  TROUPE_ASSIGN_OR_RETURN(const Bytes bytes, LayoutBytes(layout));
  return Allocate(bytes.count());
}

class RuntimeKernel final : public Kernel {
 public:
  RuntimeKernel(const Operator& entry, const StepContext& ctx, Infos in, Infos out)
      : entry_(entry), step_(ctx.step), opset_(ctx.opset) {
    for (const ValueInfo& info : in) {
      layouts_.push_back(info.layout);
      texts_.push_back(info.texts);
      // Packed constants are read through their layout; their row-major contents do not exist.
      constant_shapes_.push_back(info.layout.empty() ? Shape() : info.shape);
    }
    for (const ValueInfo& info : out) room_.push_back(info.elements());
  }

  absl::Status Run(In in, Out out, std::byte*) const override {
    const StepContext ctx{step_, opset_};
    std::vector<ValueInfo> infos(in.size());
    for (std::size_t i = 0; i < in.size(); ++i) {
      infos[i].type = in[i].type;
      infos[i].layout = layouts_[i];
      infos[i].texts = texts_[i];
      infos[i].shape = layouts_[i].empty() ? in[i].shape : constant_shapes_[i];
      if (layouts_[i].empty()) infos[i].constant = in[i].data;
    }
    TROUPE_ASSIGN_OR_RETURN(std::vector<ValueInfo> results, entry_.infer(ctx, infos));
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (i >= results.size() || out[i].data == nullptr) continue;
      if (results[i].elements() > room_[i]) {
        return ctx.Error(absl::StrCat("output ", i, " became ", FormatShape(results[i].shape),
                                      ", planned for ", room_[i], " elements"));
      }
      out[i].shape = results[i].shape;
    }
    TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> kernel, entry_.make(ctx, infos, results));
    const AlignedMemory scratch = Allocate(kernel->scratch().count());
    return entry_.any_layout ? RunInLayouts(*kernel, in, out, scratch.get())
                             : kernel->Run(in, out, scratch.get());
  }

  // Inputs stay in the layouts that they had when this was made: row-major, or that of a packed weight.
  [[nodiscard]] std::string input_layout(std::size_t i) const override { return layouts_[i]; }

 private:
  // A kernel that was made just now wants layouts that no plan could foresee.
  absl::Status RunInLayouts(const Kernel& kernel, In in, Out out, std::byte* scratch) const {
    std::vector<AlignedMemory> rooms;
    std::vector<TensorView> inputs(in.begin(), in.end());
    for (std::size_t i = 0; i < in.size(); ++i) {
      const std::string wanted = kernel.input_layout(i);
      if (in[i].data == nullptr || wanted == layouts_[i]) continue;
      const std::size_t bytes = BytesOf(in[i]);
      TROUPE_ASSIGN_OR_RETURN(AlignedMemory room, wanted.empty() ? Allocate(bytes) : RoomFor(wanted));
      TROUPE_RETURN_IF_ERROR(Reorder(in[i], layouts_[i], room.get(), wanted));
      inputs[i].data = room.get();
      rooms.push_back(std::move(room));
    }
    std::vector<TensorView> outputs(out.begin(), out.end());
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::string made = kernel.output_layout(i);
      if (out[i].data == nullptr || made.empty()) continue;
      TROUPE_ASSIGN_OR_RETURN(AlignedMemory room, RoomFor(made));
      outputs[i].data = room.get();
      rooms.push_back(std::move(room));
    }
    TROUPE_RETURN_IF_ERROR(kernel.Run(inputs, outputs, scratch));
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (outputs[i].data != out[i].data)
        TROUPE_RETURN_IF_ERROR(Reorder(outputs[i], kernel.output_layout(i), out[i].data, {}));
    }
    return absl::OkStatus();
  }

  const Operator& entry_;
  proto::Step step_;
  int opset_;
  std::vector<std::string> layouts_;
  std::vector<TextBound> texts_;
  std::vector<Shape> constant_shapes_;
  std::vector<std::int64_t> room_;
};

bool AnyBounded(Infos infos) {
  return std::any_of(infos.begin(), infos.end(), [](const ValueInfo& info) { return info.bounded; });
}

}  // namespace

absl::StatusOr<std::vector<ValueInfo>> InferStep(const Operator& entry, const StepContext& ctx, Infos in) {
  TROUPE_ASSIGN_OR_RETURN(std::vector<ValueInfo> out, entry.infer(ctx, in));
  if (AnyBounded(in)) {
    for (ValueInfo& info : out) {
      info.bounded = true;
      info.constant = nullptr;
    }
  }
  for (ValueInfo& info : out)
    if (info.type == proto::BYTES && !info.makes_texts)
      info.texts = MovedTexts(entry.name, in, info.elements());
  return out;
}

absl::StatusOr<std::unique_ptr<Kernel>> MakeStepKernel(const Operator& entry, const StepContext& ctx,
                                                       Infos in, Infos out) {
  if (AnyBounded(in) || (AnyBounded(out) && !entry.sizes_output)) {
    return std::unique_ptr<Kernel>(std::make_unique<RuntimeKernel>(entry, ctx, in, out));
  }
  return entry.make(ctx, in, out);
}

}  // namespace troupe::gpu
