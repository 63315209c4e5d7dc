// Conv and ConvTranspose by oneDNN.
//
// Weights come packed (their layout is what the primitive wants, nothing is copied) or row-major (reordered
// in scratch memory by every run: correct everywhere, and slow, which is why models are packed). Weights that are packed
// in BF16 are multiplied in it, and the source is converted in scratch memory. Tensors that the file has in FP16 and BF16 are
// computed in FP32: they stay row-major and are converted on their way in and out.
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "gpu/ops/convert.hpp"
#include "gpu/ops/dnnl_program.hpp"
#include "gpu/ops/families.hpp"
#include "gpu/ops/layout.hpp"
#include "gpu/ops/op_support.hpp"
#include "gpu/ops/window.hpp"

namespace troupe::gpu {
namespace {

using dnnl::memory;

// What both operators need to know; dimensions as oneDNN names them.
struct Convolution {
  bool transposed = false;
  std::int64_t groups = 1;
  Window window;
  Shape source;       // N, C, spatial
  Shape destination;  // N, O, spatial
  Shape weights;      // [G,] O/G, I/G, kernel
  bool bias = false;
  bool residual = false;  // input 3, of the output's shape, is added before the activation
};

constexpr TypeSet kTypes = TypesOf({proto::FP32, proto::FP16, proto::BF16});

absl::Status CheckTypes(const StepContext& ctx, std::span<const ValueInfo> in) {
  // A fourth input is the residual that the importer fused into Conv.
  if (in.size() < 2 || in.size() > 4) {
    return ctx.Error(absl::StrCat("has ", in.size(), " inputs, expected 2 or 3"));
  }
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (i >= 2 && in[i].absent()) continue;
    if (!Has(kTypes, in[i].type) || in[i].type != in[0].type) {
      return ctx.Error(absl::StrCat("input ", i, " has type ", proto::DataType_Name(in[i].type),
                                    ", not supported here; all inputs must be FP32, FP16 or BF16 alike"));
    }
    TROUPE_RETURN_IF_ERROR(CountElements(in[i].shape).status());
  }
  return absl::OkStatus();
}

absl::Status CheckBias(const StepContext& ctx, std::span<const ValueInfo> in, std::int64_t channels) {
  if (in.size() < 3 || in[2].absent()) return absl::OkStatus();
  if (in[2].shape == Shape{channels}) return absl::OkStatus();
  return ctx.Error(absl::StrCat("bias has shape ", FormatShape(in[2].shape), ", expected [", channels, "]"));
}

// Channel counts of the weights: ONNX keeps [O, I/G, k...] for Conv and [I, O/G, k...] for ConvTranspose.
absl::Status ReadChannels(const StepContext& ctx, const Shape& x, const Shape& w, Convolution& conv) {
  const std::int64_t channels = x[1];
  if (conv.groups < 1 || channels < 1 || w[0] < 1 || w[1] < 1 || w[0] % conv.groups != 0 ||
      channels % conv.groups != 0) {
    return ctx.Error(absl::StrCat("group ", conv.groups, " does not divide input ", FormatShape(x),
                                  " or weights ", FormatShape(w)));
  }
  const std::int64_t expected = conv.transposed ? w[0] : w[1] * conv.groups;
  if (expected != channels) {
    return ctx.Error(absl::StrCat("input ", FormatShape(x), " has ", channels, " channels, weights ",
                                  FormatShape(w), " with group ", conv.groups, " expect ", expected));
  }
  const std::int64_t out = conv.transposed ? w[1] * conv.groups : w[0];
  if (conv.groups > 1) conv.weights.push_back(conv.groups);
  conv.weights.push_back(out / conv.groups);
  conv.weights.push_back(channels / conv.groups);
  conv.weights.insert(conv.weights.end(), w.begin() + 2, w.end());
  conv.destination = {x[0], out};
  return absl::OkStatus();
}

absl::StatusOr<Convolution> Read(const StepContext& ctx, std::span<const ValueInfo> in, bool transposed) {
  TROUPE_RETURN_IF_ERROR(CheckTypes(ctx, in));
  const Shape& x = in[0].shape;
  const Shape& w = in[1].shape;
  if (x.size() < 3 || x.size() > 5 || w.size() != x.size()) {
    return ctx.Error(absl::StrCat("input ", FormatShape(x), " and weights ", FormatShape(w),
                                  " must have the same 3 to 5 dimensions"));
  }
  Convolution conv;
  conv.transposed = transposed;
  conv.groups = ctx.Int("group", 1);
  conv.source = x;
  TROUPE_RETURN_IF_ERROR(ReadChannels(ctx, x, w, conv));
  TROUPE_RETURN_IF_ERROR(CheckBias(ctx, in, conv.destination[1]));
  conv.bias = in.size() > 2 && !in[2].absent();
  const Shape kernel(w.begin() + 2, w.end());
  const Shape asked = ctx.Ints("kernel_shape");
  if (!asked.empty() && asked != kernel) {
    return ctx.Error(
        absl::StrCat("kernel_shape ", FormatShape(asked), " differs from the weights ", FormatShape(w)));
  }
  const std::span spatial = std::span(x).subspan(2);
  if (transposed) {
    TROUPE_ASSIGN_OR_RETURN(conv.window, ReadTransposedWindow(ctx, spatial, kernel));
  } else {
    TROUPE_ASSIGN_OR_RETURN(conv.window, ReadWindow(ctx, spatial, kernel));
    conv.window.end = ExactEndPadding(conv.window, spatial);
  }
  conv.destination.insert(conv.destination.end(), conv.window.out.begin(), conv.window.out.end());
  TROUPE_RETURN_IF_ERROR(CountElements(conv.destination).status());
  conv.residual = in.size() > 3 && !in[3].absent();
  if (conv.residual && (transposed || in[3].shape != conv.destination)) {
    return ctx.Error(absl::StrCat("the residual has shape ", FormatShape(in[3].shape), ", expected ",
                                  FormatShape(conv.destination)));
  }
  return conv;
}

// How the row-major ONNX weights look to oneDNN.
memory::desc PlainWeights(const Convolution& conv) {
  if (!conv.transposed) return RowMajorDesc(conv.weights);
  // [I, O/G, k...] is [G, I/G, O/G, k...]: the two channel dimensions change places.
  const int lead = conv.groups > 1 ? 1 : 0;
  std::vector<int> order;
  for (int d = 0; d < static_cast<int>(conv.weights.size()); ++d) order.push_back(d);
  std::swap(order[static_cast<std::size_t>(lead)], order[static_cast<std::size_t>(lead) + 1]);
  return PermutedDesc(conv.weights, order);
}

memory::desc AnyDesc(const Shape& dims, memory::data_type type = memory::data_type::f32) {
  return {dims, type, memory::format_tag::any};
}

Shape Minus1(const Shape& values) {
  Shape less = values;
  for (std::int64_t& value : less) value -= 1;
  return less;
}

// A primitive descriptor and the two things that tell Conv from ConvTranspose.
struct Chosen {
  dnnl::primitive_desc descriptor;
  memory::desc source, weights, destination;
  dnnl::primitive primitive;
};

template <class Primitive, class Descriptor>
std::optional<Chosen> Create(const Descriptor& descriptor, const dnnl::primitive_attr& attributes) {
  typename Primitive::primitive_desc made(descriptor, attributes, CpuEngine(), true);
  if (!made) return std::nullopt;
  return Chosen{made, made.src_desc(), made.weights_desc(), made.dst_desc(), Primitive(made)};
}

// The best primitive for these weights, which reads its source in their type; nullopt when oneDNN has none.
std::optional<Chosen> Choose(const Convolution& conv, const memory::desc& weights,
                             const dnnl::post_ops& post_ops) {
  const memory::desc source = AnyDesc(conv.source, weights.data_type());
  const memory::desc destination = AnyDesc(conv.destination);
  const memory::desc bias = conv.bias ? RowMajorDesc(Shape{conv.destination[1]}) : memory::desc();
  const dnnl::primitive_attr attributes = UserScratchpad(post_ops);
  const auto kind = dnnl::prop_kind::forward_inference;
  const Window& w = conv.window;
  const Shape dilations = Minus1(w.dilations);
  if (conv.transposed) {
    const dnnl::deconvolution_forward::desc desc(kind, dnnl::algorithm::deconvolution_direct, source, weights,
                                                 bias, destination, w.strides, dilations, w.begin, w.end);
    return Create<dnnl::deconvolution_forward>(desc, attributes);
  }
  const dnnl::convolution_forward::desc desc(kind, dnnl::algorithm::convolution_direct, source, weights, bias,
                                             destination, w.strides, dilations, w.begin, w.end);
  return Create<dnnl::convolution_forward>(desc, attributes);
}

bool Usable(const Chosen& chosen) {
  return IsExpressible(chosen.source) && IsExpressible(chosen.weights) && IsExpressible(chosen.destination);
}

bool IsFast(const std::optional<Chosen>& chosen) {
  return chosen && Usable(*chosen) && !IsReference(chosen->descriptor);
}

absl::StatusOr<dnnl::post_ops> PostOps(const StepContext& ctx, const Convolution& conv) {
  dnnl::post_ops post_ops;
  if (conv.residual) post_ops.append_sum(1);
  TROUPE_RETURN_IF_ERROR(AppendActivation(ctx, post_ops));
  return post_ops;
}

// Weights in the layout they have when the primitive is fast on them; else in the layout that it likes best.
absl::StatusOr<Chosen> ChooseFor(const StepContext& ctx, const Convolution& conv, const std::string& layout,
                                 const memory::desc& given) {
  TROUPE_ASSIGN_OR_RETURN(const dnnl::post_ops post_ops, PostOps(ctx, conv));
  if (!layout.empty()) {
    auto packed = Choose(conv, given, post_ops);
    if (IsFast(packed)) return *packed;
  }
  auto chosen = Choose(conv, AnyDesc(conv.weights, given.data_type()), post_ops);
  if (!chosen) return ctx.Error("no kernel of this device fits");
  if (!Usable(*chosen)) return ctx.Error("the device asks for a weight layout that cannot be stored");
  return *chosen;
}

// The weights are packed in BF16 where the model asks for it and the processor is faster in it. A depthwise convolution stays
// in FP32: it has too few products for each element of its source, which would have to be converted.
absl::StatusOr<Chosen> ChooseToPack(const StepContext& ctx, const Convolution& conv) {
  const bool depthwise = conv.groups > 1 && conv.groups == conv.source[1];
  if (ctx.precision == proto::PRECISION_BF16 && ComputesBf16() && !depthwise) {
    TROUPE_ASSIGN_OR_RETURN(const dnnl::post_ops post_ops, PostOps(ctx, conv));
    const auto chosen = Choose(conv, AnyDesc(conv.weights, memory::data_type::bf16), post_ops);
    if (IsFast(chosen)) return *chosen;
  }
  return ChooseFor(ctx, conv, {}, PlainWeights(conv));
}

template <bool transposed>
absl::StatusOr<std::vector<ValueInfo>> Infer(const StepContext& ctx, std::span<const ValueInfo> in) {
  TROUPE_ASSIGN_OR_RETURN(const Convolution conv, Read(ctx, in, transposed));
  ValueInfo out;
  out.type = in[0].type;
  out.shape = conv.destination;
  return std::vector<ValueInfo>{out};
}

absl::StatusOr<std::unique_ptr<Kernel>> MakeProgram(const StepContext& ctx, const Convolution& conv,
                                                    std::span<const ValueInfo> in) {
  const std::string& layout = in[1].layout;
  memory::desc given = PlainWeights(conv);
  if (!layout.empty()) {
    auto parsed = WeightsDescOf(layout, conv.weights);
    if (!parsed.ok()) return ctx.Error(std::string(parsed.status().message()));
    given = *parsed;
  }
  TROUPE_ASSIGN_OR_RETURN(const Chosen chosen, ChooseFor(ctx, conv, layout, given));
  auto program = std::make_unique<DnnlProgram>();
  // Tensors stay FP32 between steps.
  const memory::desc from = InType(chosen.source, memory::data_type::f32);
  const auto source = program->Converted(DnnlProgram::Input(0), from, chosen.source);
  const auto weights = program->Reorder(DnnlProgram::Input(1), given, chosen.weights);
  std::vector<DnnlProgram::Argument> arguments = {
      {DNNL_ARG_SRC, chosen.source, source},
      {DNNL_ARG_WEIGHTS, chosen.weights, weights},
      {DNNL_ARG_DST, chosen.destination, DnnlProgram::Output(0), true}};
  if (conv.bias) {
    arguments.push_back({DNNL_ARG_BIAS, RowMajorDesc(Shape{conv.destination[1]}), DnnlProgram::Input(2)});
  }
  program->Add(chosen.primitive, chosen.descriptor, arguments);
  if (conv.residual) {
    program->StartFrom(3, chosen.destination.get_size());
    program->SetInputLayout(3, LayoutOf(chosen.destination));
  }
  program->SetInputLayout(0, LayoutOf(from));
  program->SetInputLayout(1, layout);
  program->SetOutputLayout(0, LayoutOf(chosen.destination));
  return program;
}

// For tensors that are row-major before and after; the primitive's layouts are in scratch memory.
absl::StatusOr<std::unique_ptr<Kernel>> MakeRowMajorProgram(const StepContext& ctx, const Convolution& conv) {
  TROUPE_ASSIGN_OR_RETURN(const Chosen chosen, ChooseFor(ctx, conv, {}, PlainWeights(conv)));
  auto program = std::make_unique<DnnlProgram>();
  const auto source = program->Reorder(DnnlProgram::Input(0), RowMajorDesc(conv.source), chosen.source);
  const auto weights = program->Reorder(DnnlProgram::Input(1), PlainWeights(conv), chosen.weights);
  const memory::desc result = RowMajorDesc(conv.destination);
  const bool direct = chosen.destination == result;
  const auto destination = direct ? DnnlProgram::Output(0) : program->Scratch(chosen.destination.get_size());
  std::vector<DnnlProgram::Argument> arguments = {{DNNL_ARG_SRC, chosen.source, source},
                                                  {DNNL_ARG_WEIGHTS, chosen.weights, weights},
                                                  {DNNL_ARG_DST, chosen.destination, destination, true}};
  if (conv.bias) {
    arguments.push_back({DNNL_ARG_BIAS, RowMajorDesc(Shape{conv.destination[1]}), DnnlProgram::Input(2)});
  }
  program->Add(chosen.primitive, chosen.descriptor, arguments);
  if (!direct) program->ReorderTo(destination, chosen.destination, DnnlProgram::Output(0), result);
  return program;
}

template <bool transposed>
Made MakeRowMajor(const StepContext& ctx, Infos in, Infos) {
  TROUPE_ASSIGN_OR_RETURN(const Convolution conv, Read(ctx, in, transposed));
  if (conv.residual) return ctx.Error("a residual is fused into convolutions in FP32 only");
  return GuardDnnl(ctx, [&] { return MakeRowMajorProgram(ctx, conv); });
}

template <bool transposed>
absl::StatusOr<std::unique_ptr<Kernel>> Make(const StepContext& ctx, std::span<const ValueInfo> in,
                                             std::span<const ValueInfo> out) {
  TROUPE_ASSIGN_OR_RETURN(const Convolution conv, Read(ctx, in, transposed));
  if (out[0].elements() == 0) return EmptyKernel();
  if (in[0].type != proto::FP32) return MakeWidened(&MakeRowMajor<transposed>, &FloatWideType, ctx, in, out);
  return GuardDnnl(ctx, [&] { return MakeProgram(ctx, conv, in); });
}

absl::StatusOr<PackedWeight> PackWeights(const StepContext& ctx, const Convolution& conv,
                                         const ValueInfo& weights) {
  TROUPE_ASSIGN_OR_RETURN(const Chosen chosen, ChooseToPack(ctx, conv));
  return PackAs(chosen.weights, PlainWeights(conv), weights.constant);
}

template <bool transposed>
absl::StatusOr<PackedWeight> Pack(const StepContext& ctx, std::span<const ValueInfo> in, int index) {
  TROUPE_ASSIGN_OR_RETURN(const Convolution conv, Read(ctx, in, transposed));
  if (index != 1 || in[0].type != proto::FP32 || CountElements(conv.destination).value_or(0) == 0)
    return PackedWeight{};
  return GuardDnnl(ctx, [&] { return PackWeights(ctx, conv, in[1]); });
}

constexpr Operator kOperators[] = {
    With({.any_layout = true, .activation = true, .addend = true},
         {"Conv", 1, kNewestOpset, Infer<false>, Make<false>, Pack<false>, kTypes}),
    With({.any_layout = true, .activation = true, .addend = false},
         {"ConvTranspose", 1, kNewestOpset, Infer<true>, Make<true>, Pack<true>, kTypes}),
};

}  // namespace

std::span<const Operator> ConvolutionOperators() {
  return kOperators;
}

}  // namespace troupe::gpu
