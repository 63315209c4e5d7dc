#include "gpu/ops/feature_rows.hpp"

#include "absl/strings/str_cat.h"
#include "gpu/ops/attention_rows.hpp"

namespace troupe::gpu {

absl::StatusOr<FeatureRows> FeatureRowsOf(const StepContext& ctx, Infos in, TypeSet types) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 1, 1, types));
  const Shape& shape = in[0].shape;
  if (shape.size() == 1) return FeatureRows{1, shape[0]};
  if (shape.size() == 2) return FeatureRows{shape[0], shape[1]};
  return ctx.Error(absl::StrCat("wants rows of features [N,F], has ", FormatShape(shape)));
}

void FeatureProducts(std::span<const float> x, std::span<const float> weights, std::span<const float> add,
                     std::span<float> out) {
  static const AttentionLoops<float> kLoops = FindAttentionLoops();
  const auto length = static_cast<std::int64_t>(x.size());
  kLoops.score({weights.data(), static_cast<std::int64_t>(out.size()), length, length}, x.data(), 1.0F,
               out.data());
  for (std::size_t i = 0; i < add.size(); ++i) out[i] += add[i];
}

}  // namespace troupe::gpu
