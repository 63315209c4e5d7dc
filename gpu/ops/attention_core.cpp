#include "gpu/ops/attention_core.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/ops/parallel_ranges.hpp"

namespace troupe::gpu {
namespace {

constexpr int kAttentionOpset = 23;

}  // namespace

absl::StatusOr<std::int64_t> ReadHeadCount(const StepContext& ctx) {
  const std::int64_t heads = ctx.Int("num_heads", 0);
  if (heads < 1) return ctx.Error(absl::StrCat("num_heads is ", heads, ", wants 1 or more"));
  return heads;
}

absl::Status CheckSameTypes(const StepContext& ctx, Infos in, std::size_t mask) {
  for (std::size_t i = 1; i < in.size(); ++i)
    if (i != mask && !in[i].absent() && in[i].type != in[0].type)
      return ctx.Error(absl::StrCat("input ", i, " has type ", proto::DataType_Name(in[i].type),
                                    ", wants that of input 0"));
  return absl::OkStatus();
}

absl::Status RefuseInput(const StepContext& ctx, Infos in, std::size_t index, const char* name) {
  if (!Present(in, index)) return absl::OkStatus();
  return ctx.Error(
      absl::StrCat("input ", index, " (", name, ") is not supported; export the model without it"));
}

void CopyRows(const float* from, const Source& source, const Shape& shape, std::int64_t heads,
              const float* bias, float* to) {
  const std::int64_t rows = shape[1];
  const std::int64_t size = shape[2] / heads;
  ParallelRanges(shape[0] * rows, shape[2], [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t r = first; r < last; ++r) {
      const float* row = from + r / rows * source.batch + r % rows * source.row;
      for (std::int64_t h = 0; h < heads; ++h) {
        float* head = to + (r * heads + h) * size;
        std::copy_n(row + h * source.head, size, head);
        for (std::int64_t i = 0; i < size && bias != nullptr; ++i) head[i] += bias[h * size + i];
      }
    }
  });
}

absl::StatusOr<AttentionCore> AttentionCore::Make(const StepContext& ctx, const Attended& form, bool caches,
                                                  ScratchParts& parts) {
  AttentionCore core;
  core.form_ = form;
  InnerStep step(ctx, "Attention", kAttentionOpset);
  step.SetInt("q_num_heads", form.heads);
  step.SetInt("kv_num_heads", form.heads);
  step.SetInt("is_causal", ctx.Int("unidirectional", 0));
  const float scale = ctx.Float("scale", 0);
  step.SetFloat("scale", scale != 0 ? scale : 1 / std::sqrt(static_cast<float>(form.size)));
  step.SetOutputs(caches ? 3 : 1);
  std::vector<ValueInfo> in = {FloatInfo(form.query()), FloatInfo(form.key()), FloatInfo(form.value())};
  if (form.mask.computed()) {
    core.mask_ = parts.AddFloats(Product(form.mask.shape()));
    in.push_back(FloatInfo(form.mask.shape()));
  } else if (form.mask.has_bias) {
    in.push_back(FloatInfo({form.mask.bias_batch, form.mask.bias_heads, form.rows, form.total()}));
  } else {
    in.emplace_back();
  }
  if (form.past > 0) {
    in.push_back(FloatInfo(form.cache(form.past, form.size)));
    in.push_back(FloatInfo(form.cache(form.past, form.value_size)));
  }
  TROUPE_ASSIGN_OR_RETURN(core.kernel_, step.Make(in));
  core.inner_ = parts.Add(core.kernel_->scratch().count());
  return core;
}

absl::Status AttentionCore::Run(In in, std::array<std::byte*, 3> qkv, std::array<std::byte*, 2> past,
                                std::byte* result, std::array<std::byte*, 2> present,
                                std::byte* scratch) const {
  std::vector<TensorView> inner = {
      FloatView(form_.query(), qkv[0]), FloatView(form_.key(), qkv[1]), FloatView(form_.value(), qkv[2]), {}};
  if (form_.mask.computed()) {
    form_.mask.Fill(in, reinterpret_cast<float*>(scratch + mask_));
    inner[3] = FloatView(form_.mask.shape(), scratch + mask_);
  } else if (form_.mask.has_bias) {
    inner[3] = in[form_.mask.bias];
  }
  if (form_.past > 0) {
    inner.push_back(FloatView(form_.cache(form_.past, form_.size), past[0]));
    inner.push_back(FloatView(form_.cache(form_.past, form_.value_size), past[1]));
  }
  std::vector<TensorView> out = {FloatView(form_.result(), result),
                                 FloatView(form_.cache(form_.total(), form_.size), present[0]),
                                 FloatView(form_.cache(form_.total(), form_.value_size), present[1])};
  return kernel_->Run(inner, out, scratch + inner_);
}

}  // namespace troupe::gpu
