// A kernel of the operator table inside another one: what a fused operator is made of.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/units.hpp"
#include "gpu/ops/op_support.hpp"

namespace troupe::gpu {

// Places in the scratch memory of a kernel that has several parts.
class ScratchParts {
 public:
  // The offset of `bytes` bytes, 64-byte aligned.
  [[nodiscard]] std::uint64_t Add(std::uint64_t bytes) {
    const std::uint64_t offset = size_;
    size_ = AlignUp(Bytes(size_ + bytes), Bytes(64)).count();
    return offset;
  }
  [[nodiscard]] std::uint64_t AddFloats(std::int64_t count) {
    return Add(static_cast<std::uint64_t>(count) * sizeof(float));
  }
  [[nodiscard]] Bytes size() const { return Bytes(size_); }

 private:
  std::uint64_t size_ = 0;
};

// An operator of the default domain as a step named like the fused one. `opset` is one that has the operator.
class InnerStep {
 public:
  InnerStep(const StepContext& ctx, std::string_view op, int opset)
      : fused_(ctx.step.op()), entry_(FindOperator(op, opset)), opset_(opset), precision_(ctx.precision) {
    step_.set_op(std::string(op));
    step_.set_name(ctx.step.name());
    step_.add_outputs("output_0");
  }
  void SetInt(std::string_view name, std::int64_t value) { Attribute(name).set_i(value); }
  void SetFloat(std::string_view name, float value) { Attribute(name).set_f(value); }
  void Copy(const proto::Attribute& attribute) { *step_.add_attributes() = attribute; }
  void SetOutputs(int count) {
    step_.clear_outputs();
    for (int i = 0; i < count; ++i) step_.add_outputs(absl::StrCat("output_", i));
  }

  [[nodiscard]] Inferred Infer(Infos in) const {
    Inferred out = entry_->infer(context(), in);
    if (!out.ok()) return Named(out.status());
    return out;
  }
  // The kernel, for row-major tensors.
  [[nodiscard]] Made Make(Infos in) const {
    TROUPE_ASSIGN_OR_RETURN(const std::vector<ValueInfo> out, Infer(in));
    Made kernel = entry_->make(context(), in, out);
    if (!kernel.ok()) return Named(kernel.status());
    if (!(*kernel)->output_layout(0).empty())
      return Named(absl::InternalError("its result is not row-major"));
    return std::unique_ptr<Kernel>(std::make_unique<NamedKernel>(fused_, *std::move(kernel)));
  }
  [[nodiscard]] absl::StatusOr<PackedWeight> Pack(Infos in, int index) const {
    if (entry_->pack == nullptr) return PackedWeight{};
    return entry_->pack(context(), in, index);
  }

 private:
  [[nodiscard]] StepContext context() const { return {step_, opset_, precision_}; }
  // An error of the inner operator names the fused one first.
  [[nodiscard]] static absl::Status Name(const std::string& fused, const absl::Status& error) {
    return absl::Status(error.code(), absl::StrCat(fused, ": ", std::string(error.message())));
  }
  [[nodiscard]] absl::Status Named(const absl::Status& error) const { return Name(fused_, error); }

  class NamedKernel final : public Kernel {
   public:
    NamedKernel(std::string fused, std::unique_ptr<Kernel> inner)
        : fused_(std::move(fused)), inner_(std::move(inner)) {}
    [[nodiscard]] Bytes scratch() const override { return inner_->scratch(); }
    absl::Status Run(In in, Out out, std::byte* scratch) const override {
      absl::Status done = inner_->Run(in, out, scratch);
      return done.ok() ? done : Name(fused_, done);
    }

   private:
    std::string fused_;
    std::unique_ptr<Kernel> inner_;
  };

  proto::Attribute& Attribute(std::string_view name) {
    proto::Attribute& attribute = *step_.add_attributes();
    attribute.set_name(std::string(name));
    return attribute;
  }

  std::string fused_;  // operator
  const Operator* entry_;
  int opset_;
  proto::Precision precision_;
  proto::Step step_;
};

[[nodiscard]] inline ValueInfo FloatInfo(Shape shape) {
  ValueInfo info;
  info.type = proto::FP32;
  info.shape = std::move(shape);
  return info;
}
// A tensor of floats somewhere in memory.
[[nodiscard]] inline TensorView FloatView(Shape shape, std::byte* data) {
  return {proto::FP32, std::move(shape), data};
}

}  // namespace troupe::gpu
