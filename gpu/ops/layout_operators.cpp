// Operators that stay in a device layout: what stands between convolutions would otherwise cost a reorder on
// its way in and one on its way out.
#include <array>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "gpu/ops/dnnl_program.hpp"
#include "gpu/ops/layout.hpp"
#include "gpu/ops/op_support.hpp"

namespace troupe::gpu {
namespace {

using dnnl::algorithm;
using dnnl::memory;

absl::Status NotHere() {
  return absl::UnimplementedError("not in a device layout");
}

// The descriptor of the first input that stands in a layout and has the output's shape.
absl::StatusOr<memory::desc> Reference(Infos in, const Shape& shape) {
  for (const ValueInfo& info : in) {
    if (!info.layout.empty() && info.shape == shape) return DescOf(info.layout, shape);
  }
  return NotHere();
}

// --- one input ---

struct Eltwise {
  algorithm function;
  float alpha = 0;
  float beta = 0;
};

std::optional<Eltwise> EltwiseOf(const StepContext& ctx) {
  const std::string& op = ctx.step.op();
  if (op == "Relu") return Eltwise{algorithm::eltwise_relu};
  if (op == "LeakyRelu") return Eltwise{algorithm::eltwise_relu, ctx.Float("alpha", 0.01F)};
  if (op == "Elu") return Eltwise{algorithm::eltwise_elu, ctx.Float("alpha", 1)};
  if (op == "Sigmoid") return Eltwise{algorithm::eltwise_logistic};
  if (op == "Tanh") return Eltwise{algorithm::eltwise_tanh};
  if (op == "HardSwish") return Eltwise{algorithm::eltwise_hardswish};
  if (op == "Abs") return Eltwise{algorithm::eltwise_abs};
  if (op == "Exp") return Eltwise{algorithm::eltwise_exp};
  return std::nullopt;
}

Made MakeEltwise(const StepContext& ctx, Infos in, Infos out) {
  const auto eltwise = EltwiseOf(ctx);
  if (!eltwise || in.size() != 1 || !ctx.step.activation().empty()) return NotHere();
  TROUPE_ASSIGN_OR_RETURN(const memory::desc data, Reference(in, out[0].shape));
  const dnnl::eltwise_forward::desc desc(dnnl::prop_kind::forward_inference, eltwise->function, data,
                                         eltwise->alpha, eltwise->beta);
  const dnnl::eltwise_forward::primitive_desc made(desc, UserScratchpad(), CpuEngine());
  auto program = std::make_unique<DnnlProgram>();
  const DnnlProgram::Argument arguments[] = {{DNNL_ARG_SRC, data, DnnlProgram::Input(0)},
                                             {DNNL_ARG_DST, data, DnnlProgram::Output(0), true}};
  program->Add(dnnl::eltwise_forward(made), made, arguments);
  program->SetInputLayout(0, LayoutOf(data));
  program->SetOutputLayout(0, LayoutOf(data));
  program->SetInPlace(0);
  return program;
}

class ViewKernel final : public Kernel {
 public:
  explicit ViewKernel(std::string layout, std::size_t bytes) : layout_(std::move(layout)), bytes_(bytes) {}
  absl::Status Run(In in, Out out, std::byte*) const override {
    CopyBytes(out[0].data, in[0].data, bytes_);
    return absl::OkStatus();
  }
  [[nodiscard]] int view_of_input() const override { return 0; }
  [[nodiscard]] std::string input_layout(std::size_t) const override { return layout_; }
  [[nodiscard]] std::string output_layout(std::size_t) const override { return layout_; }

 private:
  std::string layout_;
  std::size_t bytes_;
};

Made MakeView(const StepContext& ctx, Infos in, Infos) {
  if (in.size() != 1 || ctx.step.outputs_size() != 1) return NotHere();
  TROUPE_ASSIGN_OR_RETURN(const Bytes bytes, ValueBytes(in[0]));
  return std::make_unique<ViewKernel>(in[0].layout, bytes.count());
}

// --- two or more inputs of one shape, or of shapes that broadcast ---

algorithm BinaryOf(const std::string& op) {
  if (op == "Sub") return algorithm::binary_sub;
  if (op == "Mul") return algorithm::binary_mul;
  if (op == "Div") return algorithm::binary_div;
  return algorithm::binary_add;
}

// How the smaller input looks: row-major with leading dimensions of 1, or like the output when it has its
// shape.
memory::desc OperandDesc(const ValueInfo& info, const memory::desc& data, const Shape& shape) {
  if (info.shape == shape) return data;
  Shape dims(shape.size() - info.shape.size(), 1);
  dims.insert(dims.end(), info.shape.begin(), info.shape.end());
  return RowMajorDesc(dims);
}

Made MakeBinary(const StepContext& ctx, Infos in, Infos out) {
  const Shape& shape = out[0].shape;
  if (in.size() < 2) return NotHere();
  TROUPE_ASSIGN_OR_RETURN(const memory::desc data, Reference(in, shape));
  const algorithm function = BinaryOf(ctx.step.op());
  const bool commutes = function == algorithm::binary_add || function == algorithm::binary_mul;
  std::size_t first = 0;
  while (first < in.size() && in[first].shape != shape) ++first;
  if (first != 0 && !commutes) return NotHere();
  auto program = std::make_unique<DnnlProgram>();
  DnnlProgram::Operand left = DnnlProgram::Input(first);
  std::size_t done = 1;
  for (std::size_t i = 0; i < in.size(); ++i) {
    program->SetInputLayout(i, LayoutOf(OperandDesc(in[i], data, shape)));
    if (i == first) continue;
    const memory::desc right = OperandDesc(in[i], data, shape);
    dnnl::post_ops ops;
    if (++done == in.size()) TROUPE_RETURN_IF_ERROR(AppendActivation(ctx, ops));
    const dnnl::binary::primitive_desc made(dnnl::binary::desc(function, data, right, data),
                                            UserScratchpad(ops), CpuEngine());
    const DnnlProgram::Argument arguments[] = {{DNNL_ARG_SRC_0, data, left},
                                               {DNNL_ARG_SRC_1, right, DnnlProgram::Input(i)},
                                               {DNNL_ARG_DST, data, DnnlProgram::Output(0), true}};
    program->Add(dnnl::binary(made), made, arguments);
    left = DnnlProgram::Output(0);
  }
  program->SetOutputLayout(0, LayoutOf(data));
  if (in.size() == 2) program->SetInPlace(static_cast<int>(first));
  return program;
}

// --- Concat ---

Made MakeConcat(const StepContext& ctx, Infos in, Infos out) {
  TROUPE_ASSIGN_OR_RETURN(const std::int64_t axis,
                          NormalizeAxis(ctx, ctx.Int("axis", 1), out[0].shape.size()));
  std::size_t laid_out = 0;
  while (laid_out < in.size() && in[laid_out].layout.empty()) ++laid_out;
  if (laid_out == in.size()) return NotHere();
  TROUPE_ASSIGN_OR_RETURN(const memory::desc like, DescOf(in[laid_out].layout, in[laid_out].shape));
  std::vector<memory::desc> sources;
  std::vector<DnnlProgram::Argument> arguments;
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (in[i].elements() == 0) return NotHere();
    sources.push_back(DescLike(like, in[i].shape));
    arguments.push_back({DNNL_ARG_MULTIPLE_SRC + static_cast<int>(i), sources.back(), DnnlProgram::Input(i)});
  }
  const memory::desc result = DescLike(like, out[0].shape);
  const dnnl::concat::primitive_desc made(result, static_cast<int>(axis), sources, CpuEngine(),
                                          UserScratchpad());
  arguments.push_back({DNNL_ARG_DST, result, DnnlProgram::Output(0), true});
  auto program = std::make_unique<DnnlProgram>();
  program->Add(dnnl::concat(made), made, arguments);
  for (std::size_t i = 0; i < in.size(); ++i) program->SetInputLayout(i, LayoutOf(sources[i]));
  program->SetOutputLayout(0, LayoutOf(result));
  return program;
}

template <Made (*make)(const StepContext&, Infos, Infos)>
Made Guarded(const StepContext& ctx, Infos in, Infos out) {
  if (out[0].elements() == 0 || out[0].shape.size() < 3) return NotHere();
  return GuardDnnl(ctx, [&] { return make(ctx, in, out); });
}

constexpr Operator Entry(std::string_view name, Made (*make)(const StepContext&, Infos, Infos)) {
  return With({.any_layout = true}, {name, 1, kNewestOpset, nullptr, make});
}

constexpr auto kOperators = std::to_array<Operator>({
    Entry("Relu", Guarded<MakeEltwise>),
    Entry("LeakyRelu", Guarded<MakeEltwise>),
    Entry("Elu", Guarded<MakeEltwise>),
    Entry("Sigmoid", Guarded<MakeEltwise>),
    Entry("Tanh", Guarded<MakeEltwise>),
    Entry("HardSwish", Guarded<MakeEltwise>),
    Entry("Abs", Guarded<MakeEltwise>),
    Entry("Exp", Guarded<MakeEltwise>),
    Entry("Identity", Guarded<MakeView>),
    Entry("Dropout", Guarded<MakeView>),
    Entry("Add", Guarded<MakeBinary>),
    Entry("Sub", Guarded<MakeBinary>),
    Entry("Mul", Guarded<MakeBinary>),
    Entry("Div", Guarded<MakeBinary>),
    Entry("Sum", Guarded<MakeBinary>),
    Entry("Concat", Guarded<MakeConcat>),
});

}  // namespace

const Operator* FindLayoutOperator(std::string_view name) {
  for (const Operator& entry : kOperators) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

}  // namespace troupe::gpu
