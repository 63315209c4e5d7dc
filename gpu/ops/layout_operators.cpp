// Operators that stay in a device layout: what stands between convolutions would otherwise cost a reorder on
// its way in and one on its way out.
#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "gpu/ops/activation.hpp"
#include "gpu/ops/channel_rows.hpp"
#include "gpu/ops/dnnl_program.hpp"
#include "gpu/ops/layout.hpp"
#include "gpu/ops/op_support.hpp"
#include "gpu/ops/parallel_ranges.hpp"

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
  if (op == "com.microsoft.QuickGelu") return Eltwise{algorithm::eltwise_swish, ctx.Float("alpha", 1.702F)};
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

// A tensor in blocks of channels, and one number for each channel, or for each channel of each image.
class ChannelKernel final : public Kernel {
 public:
  struct Sizes {
    std::int64_t images = 0, blocks = 0, block = 0, places = 0;
    bool of_image = false;  // the numbers are an image's own
  };
  ChannelKernel(RowFunction row, const Sizes& sizes, std::size_t data, std::string layout,
                FusedActivation activation)
      : row_(row), sizes_(sizes), data_(data), layout_(std::move(layout)), activation_(activation) {}
  absl::Status Run(In in, Out out, std::byte*) const override {
    const std::int64_t n = sizes_.places * sizes_.block;
    const auto* numbers = reinterpret_cast<const float*>(in[1 - data_].data);
    ParallelRanges(sizes_.images * sizes_.blocks, n, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t i = first; i < last; ++i) {
        const std::int64_t channels = (sizes_.of_image ? i : i % sizes_.blocks) * sizes_.block;
        const std::size_t at = static_cast<std::size_t>(i * n) * sizeof(float);
        Row row{.n = n, .out = out[0].data + at};
        row.in = {in[data_].data + at, reinterpret_cast<const std::byte*>(numbers + channels)};
        row_(row);
        if (activation_.row == nullptr) continue;
        row.in = {row.out};
        row.step = {1};
        row.parameters = &activation_.parameters;
        activation_.row(row);
      }
    });
    return absl::OkStatus();
  }
  [[nodiscard]] int in_place_input() const override { return static_cast<int>(data_); }
  [[nodiscard]] std::string input_layout(std::size_t i) const override {
    return i == data_ ? layout_ : std::string();
  }
  [[nodiscard]] std::string output_layout(std::size_t) const override { return layout_; }

 private:
  RowFunction row_;
  Sizes sizes_;
  std::size_t data_;  // which input is the tensor
  std::string layout_;
  FusedActivation activation_;
};

// Null where the inputs look otherwise. `first` is the input that has the output's shape.
absl::StatusOr<std::unique_ptr<Kernel>> MakeOfChannels(const StepContext& ctx, Infos in, std::size_t first,
                                                       const memory::desc& data) {
  if (in.size() != 2) return nullptr;
  const std::int64_t block = ChannelBlock(data);
  const RowFunction row = FindChannelRow(ctx.step.op(), block);
  if (row == nullptr) return nullptr;
  const Shape& shape = in[first].shape;
  Shape numbers(shape.size() - in[1 - first].shape.size(), 1);
  numbers.insert(numbers.end(), in[1 - first].shape.begin(), in[1 - first].shape.end());
  const bool of_image = numbers[0] == shape[0];
  if ((!of_image && numbers[0] != 1) || numbers[1] != shape[1] ||
      std::any_of(numbers.begin() + 2, numbers.end(), [](std::int64_t dim) { return dim != 1; }))
    return nullptr;
  TROUPE_ASSIGN_OR_RETURN(const FusedActivation activation, FindFusedActivation(ctx));
  const std::int64_t places =
      std::accumulate(shape.begin() + 2, shape.end(), std::int64_t{1}, std::multiplies<>());
  return std::make_unique<ChannelKernel>(
      row, ChannelKernel::Sizes{shape[0], shape[1] / block, block, places, of_image}, first, LayoutOf(data),
      activation);
}

Made MakeBinary(const StepContext& ctx, Infos in, Infos out) {
  const Shape& shape = out[0].shape;
  if (in.size() < 2) return NotHere();
  TROUPE_ASSIGN_OR_RETURN(const memory::desc data, Reference(in, shape));
  const algorithm function = BinaryOf(ctx.step.op());
  const bool commutes = function == algorithm::binary_add || function == algorithm::binary_mul;
  std::size_t first = 0;
  while (first < in.size() && in[first].shape != shape) ++first;
  if (first == in.size() || (first != 0 && !commutes)) return NotHere();
  TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> of_channels, MakeOfChannels(ctx, in, first, data));
  if (of_channels != nullptr) return of_channels;
  auto program = std::make_unique<DnnlProgram>();
  dnnl::post_ops activation;
  TROUPE_RETURN_IF_ERROR(AppendActivation(ctx, activation));
  // oneDNN 2.6 leaves the last block of channels as it is, when that is padded and something is fused to the operation.
  const bool apart = IsPadded(data) && activation.len() > 0;
  DnnlProgram::Operand left = DnnlProgram::Input(first);
  std::size_t done = 1;
  for (std::size_t i = 0; i < in.size(); ++i) {
    program->SetInputLayout(i, LayoutOf(OperandDesc(in[i], data, shape)));
    if (i == first) continue;
    const memory::desc right = OperandDesc(in[i], data, shape);
    const dnnl::post_ops ops = ++done == in.size() && !apart ? activation : dnnl::post_ops();
    const dnnl::binary::primitive_desc made(dnnl::binary::desc(function, data, right, data),
                                            UserScratchpad(ops), CpuEngine());
    const DnnlProgram::Argument arguments[] = {{DNNL_ARG_SRC_0, data, left},
                                               {DNNL_ARG_SRC_1, right, DnnlProgram::Input(i)},
                                               {DNNL_ARG_DST, data, DnnlProgram::Output(0), true}};
    program->Add(dnnl::binary(made), made, arguments);
    left = DnnlProgram::Output(0);
  }
  if (apart) AddActivation(*program, data, activation);
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
    Entry("com.microsoft.QuickGelu", Guarded<MakeEltwise>),
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
