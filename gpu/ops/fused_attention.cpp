// com.microsoft.Attention: queries, keys and values projected by MatMul's kernel, then attention over heads.
#include <algorithm>
#include <array>
#include <optional>

#include "absl/strings/str_cat.h"
#include "gpu/ops/attention_core.hpp"
#include "gpu/ops/convert.hpp"
#include "gpu/ops/families.hpp"

namespace troupe::gpu {
namespace {

constexpr TypeSet kTypes = TypesOf({proto::FP32, proto::FP16, proto::BF16});

// Inputs: input, weights, bias, mask_index, past, attention_bias, past_sequence_length.

struct Projected {
  Attended form;
  std::int64_t width = 0;  // of a row of queries, keys and values together
  bool bias = false;
};

absl::Status ReadWidths(const StepContext& ctx, const Shape& weights, Projected& p) {
  Attended& form = p.form;
  p.width = weights[1];
  Shape widths = ctx.Ints("qkv_hidden_sizes");
  if (widths.empty()) widths.assign(3, p.width / 3);
  const bool fits = widths.size() == 3 && widths[0] > 0 && widths[2] > 0 && widths[0] <= p.width &&
                    widths[2] <= p.width && widths[0] == widths[1] && 2 * widths[0] + widths[2] == p.width &&
                    widths[0] % form.heads == 0 && widths[2] % form.heads == 0;
  if (!fits) {
    return ctx.Error(absl::StrCat("weights ", FormatShape(weights),
                                  " do not split into queries, keys and values of ", FormatShape(widths),
                                  " elements, each of ", form.heads, " heads"));
  }
  form.size = widths[0] / form.heads;
  form.value_size = widths[2] / form.heads;
  return absl::OkStatus();
}

absl::StatusOr<Projected> ReadProjected(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(
      CheckAttributes(ctx, {"do_rotary", "mask_filter_value", "num_heads", "past_present_share_buffer",
                            "qkv_hidden_sizes", "scale", "unidirectional"}));
  for (const char* name : {"do_rotary", "past_present_share_buffer"})
    if (ctx.Int(name, 0) != 0)
      return ctx.Error(absl::StrCat("attribute '", name, "' is not supported; export the model without it"));
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 2, 7, kTypes));
  TROUPE_RETURN_IF_ERROR(RefuseInput(ctx, in, 6, "past_sequence_length"));
  TROUPE_RETURN_IF_ERROR(CheckSameTypes(ctx, in, 3));
  Projected p;
  TROUPE_ASSIGN_OR_RETURN(p.form.heads, ReadHeadCount(ctx));
  const Shape& x = in[0].shape;
  const Shape& w = in[1].shape;
  if (x.size() != 3 || w.size() != 2 || x[2] != w[0]) {
    return ctx.Error(absl::StrCat("input ", FormatShape(x), " and weights ", FormatShape(w),
                                  " must be [batch, length, size] and [size, width]"));
  }
  TROUPE_RETURN_IF_ERROR(ReadWidths(ctx, w, p));
  p.bias = Present(in, 2);
  if (p.bias && in[2].shape != Shape{p.width})
    return ctx.Error(
        absl::StrCat("bias ", FormatShape(in[2].shape), " must be [", p.width, "], as the weights are wide"));
  p.form.batch = x[0];
  p.form.rows = p.form.keys = x[1];
  if (Present(in, 4)) {
    const Shape& past = in[4].shape;
    if (past.size() == 5) p.form.past = past[3];
    if (p.form.size != p.form.value_size ||
        past != Shape{2, p.form.batch, p.form.heads, p.form.past, p.form.size}) {
      return ctx.Error(absl::StrCat("past ", FormatShape(past), " must be [2,", p.form.batch, ",",
                                    p.form.heads, ",length,", p.form.size,
                                    "], and keys and values of one size"));
    }
  }
  TROUPE_ASSIGN_OR_RETURN(p.form.mask, ReadAttentionMask(ctx, in, 3, "mask_index", 5, p.form.whole()));
  return p;
}

Inferred InferProjected(const StepContext& ctx, Infos in) {
  TROUPE_ASSIGN_OR_RETURN(const Projected p, ReadProjected(ctx, in));
  TROUPE_ASSIGN_OR_RETURN(std::vector<ValueInfo> out, OneValue(ctx, in[0].type, p.form.result()));
  if (ctx.step.outputs_size() > 2) return ctx.Error("has more than 2 outputs");
  if (ctx.step.outputs_size() == 2) {
    if (p.form.size != p.form.value_size)
      return ctx.Error("its output 1 (present) wants keys and values of one size");
    TROUPE_ASSIGN_OR_RETURN(
        ValueInfo present,
        Value(ctx, in[0].type, {2, p.form.batch, p.form.heads, p.form.total(), p.form.size}));
    out.push_back(std::move(present));
  }
  return out;
}

// Input, weights and bias, as MatMul's kernel takes them.
std::vector<ValueInfo> ProductInputs(Infos in) {
  return {in.begin(), in.begin() + (Present(in, 2) ? 3 : 2)};
}

class ProjectedKernel final : public Kernel {
 public:
  static Made Make(const StepContext& ctx, Infos in, Infos out) {
    auto kernel = std::make_unique<ProjectedKernel>();
    TROUPE_ASSIGN_OR_RETURN(kernel->p_, ReadProjected(ctx, in));
    const Attended& form = kernel->p_.form;
    TROUPE_ASSIGN_OR_RETURN(kernel->product_, InnerStep(ctx, "MatMul", ctx.opset).Make(ProductInputs(in)));
    ScratchParts& parts = kernel->parts_;
    kernel->inner_ = parts.Add(kernel->product_->scratch().count());
    kernel->joined_ = parts.AddFloats(form.batch * form.rows * kernel->p_.width);
    kernel->split_[0] = parts.AddFloats(Product(form.query()));
    kernel->split_[1] = parts.AddFloats(Product(form.key()));
    kernel->split_[2] = parts.AddFloats(Product(form.value()));
    TROUPE_ASSIGN_OR_RETURN(kernel->core_, AttentionCore::Make(ctx, form, out.size() > 1, parts));
    return kernel;
  }

  [[nodiscard]] Bytes scratch() const override { return parts_.size(); }

  absl::Status Run(In in, Out out, std::byte* scratch) const override {
    const Attended& form = p_.form;
    TensorView joined = FloatView({form.batch, form.rows, p_.width}, scratch + joined_);
    TROUPE_RETURN_IF_ERROR(product_->Run(in.first(p_.bias ? 3 : 2), std::span(&joined, 1), scratch + inner_));
    const Shape shapes[] = {form.query(), form.key(), form.value()};
    std::array<std::byte*, 3> qkv{};
    const float* from = Data<float>(joined);
    for (std::size_t i = 0; i < 3; ++i) {
      qkv[i] = scratch + split_[i];
      const Source source{form.rows * p_.width, p_.width, shapes[i][2] / form.heads};
      CopyRows(from, source, shapes[i], form.heads, nullptr, reinterpret_cast<float*>(qkv[i]));
      from += shapes[i][2];
    }
    const bool present = out.size() > 1 && out[1].data != nullptr;
    return core_->Run(in, qkv, Halves(form.past > 0 ? in[4].data : nullptr, form.past), out[0].data,
                      Halves(present ? out[1].data : nullptr, form.total()), scratch);
  }

 private:
  // Keys and values in a cache of `rows` rows.
  std::array<std::byte*, 2> Halves(std::byte* cache, std::int64_t rows) const {
    if (cache == nullptr) return {};
    const auto half = static_cast<std::uint64_t>(Product(p_.form.cache(rows, p_.form.size))) * sizeof(float);
    return {cache, cache + half};
  }

  Projected p_;
  std::unique_ptr<Kernel> product_;
  std::optional<AttentionCore> core_;
  ScratchParts parts_;
  std::uint64_t inner_ = 0, joined_ = 0;
  std::array<std::uint64_t, 3> split_{};
};

Made MakeProjected(const StepContext& ctx, Infos in, Infos out) {
  return ProjectedKernel::Make(ctx, in, out);
}

absl::StatusOr<PackedWeight> PackProjected(const StepContext& ctx, Infos in, int index) {
  TROUPE_RETURN_IF_ERROR(ReadProjected(ctx, in).status());
  if (index != 1) return PackedWeight{};
  return InnerStep(ctx, "MatMul", ctx.opset).Pack(ProductInputs(in), 1);
}

constexpr Operator kOperators[] = {
    {.name = "com.microsoft.Attention",
     .min_opset = 1,
     .max_opset = kNewestOpset,
     .infer = &InferProjected,
     .make = &FloatWidened<&MakeProjected>,
     .pack = &PackProjected,
     .types = kTypes},
};

}  // namespace

std::span<const Operator> FusedAttentionOperators() {
  return kOperators;
}

}  // namespace troupe::gpu
