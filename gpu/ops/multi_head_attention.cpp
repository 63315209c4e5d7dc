// com.microsoft.MultiHeadAttention: attention over heads of queries, keys and values that are projected already.
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

// Inputs: query, key, value, bias, key_padding_mask, attention_bias, past_key, past_value, past_sequence_length,
// cache_indirection.

struct ManyHeads {
  Attended form;
  bool bias = false;
  bool turned = false;  // keys and values are [batch, heads, length, size]
};

absl::Status ReadKeys(const StepContext& ctx, Infos in, ManyHeads& m) {
  const Shape& q = in[0].shape;
  if (q.size() != 3 || !Present(in, 1) || !Present(in, 2)) {
    return ctx.Error(
        absl::StrCat("query ", FormatShape(q), Present(in, 1) ? "" : " without a key",
                     Present(in, 2) ? "" : " without a value",
                     ": packed queries, keys and values are not supported; export them as three inputs "
                     "[batch, length, heads * size]"));
  }
  const Shape& k = in[1].shape;
  const Shape& v = in[2].shape;
  Attended& form = m.form;
  m.turned = k.size() == 4;
  const std::int64_t heads = form.heads;
  bool fits = q[2] % heads == 0 && (k.size() == 3 || k.size() == 4) && v.size() == k.size() && k[0] == q[0] &&
              v[0] == q[0];
  if (fits && m.turned) {
    fits = k[1] == heads && v[1] == heads && k[2] == v[2] && k[3] * heads == q[2];
    form.keys = k[2];
    form.value_size = v[3];
  } else if (fits) {
    fits = k[1] == v[1] && k[2] == q[2] && v[2] % heads == 0;
    form.keys = k[1];
    form.value_size = v[2] / heads;
  }
  if (!fits || q[2] == 0 || form.value_size == 0) {
    return ctx.Error(absl::StrCat("query ", FormatShape(q), ", key ", FormatShape(k), " and value ",
                                  FormatShape(v), " do not belong together with ", heads, " heads"));
  }
  form.batch = q[0];
  form.rows = q[1];
  form.size = q[2] / heads;
  return absl::OkStatus();
}

absl::Status ReadPastKeys(const StepContext& ctx, Infos in, Attended& form) {
  if (Present(in, 6) != Present(in, 7)) return ctx.Error("past_key and past_value come together");
  if (!Present(in, 6)) return absl::OkStatus();
  const Shape& k = in[6].shape;
  const Shape& v = in[7].shape;
  if (k.size() == 4) form.past = k[2];
  if (k == form.cache(form.past, form.size) && v == form.cache(form.past, form.value_size))
    return absl::OkStatus();
  return ctx.Error(absl::StrCat("past_key ", FormatShape(k), " and past_value ", FormatShape(v), " must be [",
                                form.batch, ",", form.heads, ",length,", form.size, "] and [", form.batch,
                                ",", form.heads, ",length,", form.value_size, "]"));
}

absl::StatusOr<ManyHeads> ReadManyHeads(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckAttributes(ctx, {"mask_filter_value", "num_heads", "scale", "unidirectional"}));
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 1, 10, kTypes));
  TROUPE_RETURN_IF_ERROR(RefuseInput(ctx, in, 8, "past_sequence_length"));
  TROUPE_RETURN_IF_ERROR(RefuseInput(ctx, in, 9, "cache_indirection"));
  TROUPE_RETURN_IF_ERROR(CheckSameTypes(ctx, in, 4));
  ManyHeads m;
  TROUPE_ASSIGN_OR_RETURN(m.form.heads, ReadHeadCount(ctx));
  TROUPE_RETURN_IF_ERROR(ReadKeys(ctx, in, m));
  TROUPE_RETURN_IF_ERROR(ReadPastKeys(ctx, in, m.form));
  const Attended& form = m.form;
  m.bias = Present(in, 3);
  const std::int64_t width = form.heads * (2 * form.size + form.value_size);
  if (m.bias && in[3].shape != Shape{width})
    return ctx.Error(absl::StrCat("bias ", FormatShape(in[3].shape), " must be [", width, "]"));
  TROUPE_ASSIGN_OR_RETURN(m.form.mask, ReadAttentionMask(ctx, in, 4, "key_padding_mask", 5, form.whole()));
  return m;
}

Inferred InferManyHeads(const StepContext& ctx, Infos in) {
  TROUPE_ASSIGN_OR_RETURN(const ManyHeads m, ReadManyHeads(ctx, in));
  if (ctx.step.outputs_size() > 3)
    return ctx.Error("output 3 (qk) is not supported; export the model without it");
  const Attended& form = m.form;
  const Shape shapes[] = {form.result(), form.cache(form.total(), form.size),
                          form.cache(form.total(), form.value_size)};
  std::vector<ValueInfo> out;
  for (int i = 0; i < std::max(ctx.step.outputs_size(), 1); ++i) {
    TROUPE_ASSIGN_OR_RETURN(ValueInfo value, Value(ctx, in[0].type, shapes[i]));
    out.push_back(std::move(value));
  }
  return out;
}

class ManyHeadsKernel final : public Kernel {
 public:
  static Made Make(const StepContext& ctx, Infos in, Infos out) {
    auto kernel = std::make_unique<ManyHeadsKernel>();
    TROUPE_ASSIGN_OR_RETURN(kernel->m_, ReadManyHeads(ctx, in));
    const Attended& form = kernel->m_.form;
    if (kernel->Copies(0)) kernel->copied_[0] = kernel->parts_.AddFloats(Product(form.query()));
    if (kernel->Copies(1)) kernel->copied_[1] = kernel->parts_.AddFloats(Product(form.key()));
    if (kernel->Copies(2)) kernel->copied_[2] = kernel->parts_.AddFloats(Product(form.value()));
    TROUPE_ASSIGN_OR_RETURN(kernel->core_, AttentionCore::Make(ctx, form, out.size() > 1, kernel->parts_));
    return kernel;
  }

  [[nodiscard]] Bytes scratch() const override { return parts_.size(); }

  absl::Status Run(In in, Out out, std::byte* scratch) const override {
    const Attended& form = m_.form;
    const Shape shapes[] = {form.query(), form.key(), form.value()};
    std::array<std::byte*, 3> qkv{};
    std::int64_t place = 0;  // in the bias
    for (std::size_t i = 0; i < 3; ++i) {
      qkv[i] = in[i].data;
      if (Copies(i)) {
        qkv[i] = scratch + copied_[i];
        const std::int64_t size = shapes[i][2] / form.heads;
        const std::int64_t whole = shapes[i][1] * shapes[i][2];
        const bool turned = m_.turned && i > 0;
        const Source source =
            turned ? Source{whole, size, shapes[i][1] * size} : Source{whole, shapes[i][2], size};
        CopyRows(Data<float>(in[i]), source, shapes[i], form.heads,
                 m_.bias ? Data<float>(in[3]) + place : nullptr, reinterpret_cast<float*>(qkv[i]));
      }
      place += shapes[i][2];
    }
    std::array<std::byte*, 2> past{};
    if (form.past > 0) past = {in[6].data, in[7].data};
    std::array<std::byte*, 2> present{};
    for (std::size_t i = 1; i < out.size(); ++i) present[i - 1] = out[i].data;
    return core_->Run(in, qkv, past, out[0].data, present, scratch);
  }

 private:
  // Input i is added to, or lies in another order than the core's.
  [[nodiscard]] bool Copies(std::size_t i) const { return m_.bias || (m_.turned && i > 0); }

  ManyHeads m_;
  std::optional<AttentionCore> core_;
  ScratchParts parts_;
  std::array<std::uint64_t, 3> copied_{};
};

Made MakeManyHeads(const StepContext& ctx, Infos in, Infos out) {
  return ManyHeadsKernel::Make(ctx, in, out);
}

constexpr Operator kOperators[] = {
    {.name = "com.microsoft.MultiHeadAttention",
     .min_opset = 1,
     .max_opset = kNewestOpset,
     .infer = &InferManyHeads,
     .make = &FloatWidened<&MakeManyHeads>,
     .types = kTypes},
};

}  // namespace

std::span<const Operator> ManyHeadOperators() {
  return kOperators;
}

}  // namespace troupe::gpu
