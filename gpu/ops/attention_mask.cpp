#include "gpu/ops/attention_mask.hpp"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace troupe::gpu {
namespace {

using Kind = AttentionMask::Kind;

absl::StatusOr<Kind> KindOf(const StepContext& ctx, const ValueInfo& info, const char* name,
                            const Shape& whole) {
  const std::int64_t batch = whole[0];
  if (info.type != proto::INT32) {
    return ctx.Error(absl::StrCat(name, " has type ", proto::DataType_Name(info.type),
                                  ", wants INT32; put a Cast before it"));
  }
  if (info.shape == Shape{batch}) return Kind::kEnds;
  if (info.shape == Shape{2 * batch}) return Kind::kEndsAndStarts;
  if (info.shape == Shape{batch, whole[3]}) return Kind::kKeys;
  if (info.shape == Shape{batch, whole[2], whole[3]}) return Kind::kQueries;
  return ctx.Error(absl::StrCat(name, " ", FormatShape(info.shape), " is not supported; it must be [", batch,
                                "], [", 2 * batch, "], [", batch, ",", whole[3], "] or [", batch, ",",
                                whole[2], ",", whole[3], "]"));
}

}  // namespace

absl::StatusOr<AttentionMask> ReadAttentionMask(const StepContext& ctx, Infos in, std::size_t mask,
                                                const char* mask_name, std::size_t bias, Shape whole) {
  AttentionMask read;
  read.mask = mask;
  read.bias = bias;
  read.batch = whole[0];
  read.heads = whole[1];
  read.rows = whole[2];
  read.total = whole[3];
  read.filter = ctx.Float("mask_filter_value", -10000);
  if (Present(in, mask)) {
    TROUPE_ASSIGN_OR_RETURN(read.kind, KindOf(ctx, in[mask], mask_name, whole));
  }
  if (!Present(in, bias)) return read;
  const Shape& shape = in[bias].shape;
  const bool fits = shape.size() == 4 && (shape[0] == 1 || shape[0] == whole[0]) &&
                    (shape[1] == 1 || shape[1] == whole[1]) && shape[2] == whole[2] && shape[3] == whole[3];
  if (!fits || in[bias].type != in[0].type) {
    return ctx.Error(absl::StrCat("attention_bias ", proto::DataType_Name(in[bias].type), FormatShape(shape),
                                  " must be ", proto::DataType_Name(in[0].type), "[", whole[0], " or 1,",
                                  whole[1], " or 1,", whole[2], ",", whole[3], "]"));
  }
  read.has_bias = true;
  read.bias_batch = shape[0];
  read.bias_heads = shape[1];
  return read;
}

Shape AttentionMask::shape() const {
  const bool each_row = has_bias || kind == Kind::kQueries;
  return {batch, has_bias ? bias_heads : 1, each_row ? rows : 1, total};
}

void AttentionMask::Fill(In in, float* out) const {
  const Shape sizes = shape();
  const std::int32_t* values = Data<std::int32_t>(in[mask]);
  for (std::int64_t b = 0; b < batch; ++b) {
    // Both are clamped: the values come with the request.
    std::int64_t first = 0;
    std::int64_t last = total;
    if (kind == Kind::kEnds || kind == Kind::kEndsAndStarts)
      last = std::clamp<std::int64_t>(values[b], 0, total);
    if (kind == Kind::kEndsAndStarts) first = std::clamp<std::int64_t>(values[batch + b], 0, total);
    for (std::int64_t i = 0; i < sizes[1] * sizes[2]; ++i, out += total) {
      const std::int64_t head = i / sizes[2];
      const std::int64_t row = i % sizes[2];
      const std::int32_t* seen = kind == Kind::kKeys      ? values + b * total
                                 : kind == Kind::kQueries ? values + (b * rows + row) * total
                                                          : nullptr;
      for (std::int64_t t = 0; t < total; ++t) {
        const bool visible = seen != nullptr ? seen[t] > 0 : first <= t && t < last;
        out[t] = visible ? 0 : filter;
      }
      if (!has_bias) continue;
      const std::int64_t from = (bias_batch == 1 ? 0 : b) * bias_heads + head;
      const float* added = Data<float>(in[bias]) + (from * rows + row) * total;
      for (std::int64_t t = 0; t < total; ++t) out[t] += added[t];
    }
  }
}

}  // namespace troupe::gpu
