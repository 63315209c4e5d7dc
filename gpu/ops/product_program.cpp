#include "gpu/ops/product_program.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "base/status.hpp"
#include "gpu/ops/inner_kernel.hpp"
#include "gpu/ops/layout.hpp"
#include "gpu/ops/row_product.hpp"

namespace troupe::gpu {
namespace {

using dnnl::memory;

// From here on a product is worth the conversion of its left side: this many columns of weights.
constexpr std::int64_t kLeastBf16Columns = 16;

struct Chosen {
  dnnl::matmul::primitive_desc descriptor;
  memory::desc a, weights;
};

// Both factors have the type of the weights; what comes out is FP32.
std::optional<Chosen> Create(const Multiplication& product, const memory::desc& weights,
                             const dnnl::primitive_attr& attributes) {
  const memory::desc a = IsBf16(weights) ? InType(product.a, memory::data_type::bf16) : product.a;
  const auto desc = product.bias ? dnnl::matmul::desc(a, weights, product.bias, product.out)
                                 : dnnl::matmul::desc(a, weights, product.out);
  dnnl::matmul::primitive_desc made(desc, attributes, CpuEngine(), true);
  if (!made || !IsExpressible(made.weights_desc())) return std::nullopt;
  return Chosen{made, a, made.weights_desc()};
}

absl::StatusOr<dnnl::primitive_attr> Attributes(const StepContext& ctx, const Multiplication& product) {
  dnnl::post_ops ops;
  if (product.addend) ops.append_binary(dnnl::algorithm::binary_add, product.addend);
  if (product.after_addend != 1)
    ops.append_eltwise(1, dnnl::algorithm::eltwise_linear, product.after_addend, 0);
  TROUPE_RETURN_IF_ERROR(AppendActivation(ctx, ops));
  dnnl::primitive_attr attributes = UserScratchpad(ops);
  if (product.scale != 1) attributes.set_output_scales(0, {product.scale});
  return attributes;
}

memory::desc AnyWeights(const Multiplication& product, memory::data_type type) {
  return {product.b_dims, type, memory::format_tag::any};
}

absl::StatusOr<Chosen> ChooseFor(const StepContext& ctx, const Multiplication& product,
                                 const std::string& layout, const memory::desc& given) {
  TROUPE_ASSIGN_OR_RETURN(const dnnl::primitive_attr attributes, Attributes(ctx, product));
  auto chosen = Create(product, given, attributes);
  if (!chosen || (!layout.empty() && IsReference(chosen->descriptor))) {
    if (auto other = Create(product, AnyWeights(product, given.data_type()), attributes))
      chosen = std::move(other);
  }
  if (!chosen) return ctx.Error("no kernel of this device fits");
  return *std::move(chosen);
}

// The weights are packed in BF16 where the model asks for it and the processor is faster in it.
absl::StatusOr<Chosen> ChooseToPack(const StepContext& ctx, const Multiplication& product) {
  if (ctx.precision == proto::PRECISION_BF16 && ComputesBf16() &&
      product.b_dims.back() >= kLeastBf16Columns) {
    TROUPE_ASSIGN_OR_RETURN(const dnnl::primitive_attr attributes, Attributes(ctx, product));
    auto chosen = Create(product, AnyWeights(product, memory::data_type::bf16), attributes);
    if (chosen && !IsReference(chosen->descriptor)) return *std::move(chosen);
  }
  return ChooseFor(ctx, product, {}, AnyWeights(product, memory::data_type::f32));
}

}  // namespace

Made MakeProduct(const StepContext& ctx, const Multiplication& product, Infos in) {
  if (!in[0].layout.empty() || (in.size() > 2 && !in[2].layout.empty())) {
    return ctx.Error("only the second input may be packed");
  }
  memory::desc given = product.b;
  if (!in[1].layout.empty()) {
    auto parsed = WeightsDescOf(in[1].layout, product.b_dims);
    if (!parsed.ok()) return ctx.Error(std::string(parsed.status().message()));
    given = *parsed;
    TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> of_row, MakeRowProduct(ctx, product, given));
    if (of_row != nullptr) return of_row;
  }
  TROUPE_ASSIGN_OR_RETURN(const Chosen chosen, ChooseFor(ctx, product, in[1].layout, given));
  auto program = std::make_unique<DnnlProgram>();
  const auto a = program->Converted(DnnlProgram::Input(0), product.a, chosen.a);
  const auto weights = program->Reorder(DnnlProgram::Input(1), given, chosen.weights);
  std::vector<DnnlProgram::Argument> arguments = {{DNNL_ARG_SRC, chosen.a, a},
                                                  {DNNL_ARG_WEIGHTS, chosen.weights, weights},
                                                  {DNNL_ARG_DST, product.out, DnnlProgram::Output(0), true}};
  if (product.bias) arguments.push_back({DNNL_ARG_BIAS, product.bias, DnnlProgram::Input(2)});
  if (product.addend) {
    const int id = DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1;
    arguments.push_back({id, product.addend, DnnlProgram::Input(2), true});
    // Described in full: post-operations use the descriptor of the memory. It is dense, so there is no
    // padding to write.
  }
  program->Add(dnnl::matmul(chosen.descriptor), chosen.descriptor, arguments);
  return program;
}

absl::StatusOr<PackedWeight> PackProduct(const StepContext& ctx, const Multiplication& product,
                                         const ValueInfo& weights) {
  TROUPE_ASSIGN_OR_RETURN(const Chosen chosen, ChooseToPack(ctx, product));
  return PackAs(chosen.weights, product.b, weights.constant);
}

namespace {

// Runs a kernel that was made for matrices with an inner dimension of 1, and gives it zeros for both.
class NoTerms final : public Kernel {
 public:
  NoTerms(std::unique_ptr<Kernel> inner, Shape a, Shape b)
      : inner_(std::move(inner)), a_(std::move(a)), b_(std::move(b)) {
    begin_ = parts_.Add(inner_->scratch().count());
    zeros_ = parts_.AddFloats(count());
  }
  [[nodiscard]] Bytes scratch() const override { return parts_.size(); }
  absl::Status Run(In in, Out out, std::byte* scratch) const override {
    std::fill_n(reinterpret_cast<float*>(scratch + zeros_), count(), 0.0F);
    std::vector<TensorView> views(in.begin(), in.end());
    views[0] = FloatView(a_, scratch + zeros_);
    views[1] = FloatView(b_, scratch + zeros_);
    return inner_->Run(views, out, scratch + begin_);
  }

 private:
  [[nodiscard]] std::int64_t count() const { return std::max(Product(a_), Product(b_)); }

  std::unique_ptr<Kernel> inner_;
  Shape a_, b_;
  ScratchParts parts_;
  std::uint64_t begin_ = 0, zeros_ = 0;
};

}  // namespace

Made MakeOfNoTerms(MakeFunction make, const StepContext& ctx, Infos in, Infos out) {
  std::vector<ValueInfo> infos(in.begin(), in.end());
  for (const std::size_t matrix : {0, 1}) {
    // Of a result that is not empty no other dimension is 0.
    Shape shape = in[matrix].shape;
    std::replace(shape.begin(), shape.end(), 0, 1);
    infos[matrix] = FloatInfo(std::move(shape));
  }
  TROUPE_ASSIGN_OR_RETURN(auto inner, make(ctx, infos, out));
  return std::make_unique<NoTerms>(std::move(inner), infos[0].shape, infos[1].shape);
}

}  // namespace troupe::gpu
