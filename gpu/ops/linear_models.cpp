// LinearRegressor and LinearClassifier of ai.onnx.ml.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "gpu/ops/attributes.hpp"
#include "gpu/ops/class_labels.hpp"
#include "gpu/ops/convert.hpp"
#include "gpu/ops/families.hpp"
#include "gpu/ops/feature_rows.hpp"
#include "gpu/ops/op_support.hpp"
#include "gpu/ops/parallel_ranges.hpp"
#include "gpu/ops/post_transform.hpp"

namespace troupe::gpu {
namespace {

struct Linear {
  FeatureRows rows;
  std::vector<float> coefficients;  // a row of features for each score
  std::vector<float> intercepts;    // none, or one for each score
  std::int64_t scores = 1;
  std::vector<std::int64_t> labels;  // of a classifier
  PostTransform transform = PostTransform::kNone;
  // Two classes share one score, which is for the second.
  [[nodiscard]] bool one_score() const { return labels.size() == 2 && scores == 1; }
};

absl::StatusOr<Linear> ReadLinear(const StepContext& ctx, Infos in) {
  Linear linear;
  TROUPE_ASSIGN_OR_RETURN(linear.rows, FeatureRowsOf(ctx, in));
  TROUPE_ASSIGN_OR_RETURN(linear.transform, PostTransformOf(ctx));
  const auto coefficients = FloatList(ctx, "coefficients");
  const auto intercepts = FloatList(ctx, "intercepts");
  linear.coefficients.assign(coefficients.begin(), coefficients.end());
  linear.intercepts.assign(intercepts.begin(), intercepts.end());
  if (ctx.step.op() == "ai.onnx.ml.LinearClassifier") {
    TROUPE_ASSIGN_OR_RETURN(linear.labels, ClassLabels(ctx, "classlabels_ints"));
    linear.scores = static_cast<std::int64_t>(linear.labels.size());
    if (linear.labels.size() < 2) return ctx.Error("has one class, at least 2 are needed");
    const bool shared = static_cast<std::int64_t>(coefficients.size()) == linear.rows.features;
    if (linear.labels.size() == 2 && shared) linear.scores = 1;
  } else {
    linear.scores = ctx.Int("targets", 1);
  }
  const auto given = static_cast<std::int64_t>(coefficients.size());
  if (linear.scores < 1 || linear.scores > given)
    return ctx.Error(absl::StrCat("has ", given, " coefficients for ", linear.scores, " targets"));
  if (given % linear.scores != 0 || given / linear.scores != linear.rows.features)
    return ctx.Error(absl::StrCat("has ", given, " coefficients for ", linear.scores, " targets of ",
                                  linear.rows.features, " features"));
  if (!intercepts.empty())
    TROUPE_RETURN_IF_ERROR(
        WantLength(ctx, "intercepts", intercepts.size(), static_cast<std::size_t>(linear.scores)));
  if (linear.one_score() && linear.transform == PostTransform::kProbit)
    return ctx.Error(
        "has coefficients of one class and post_transform PROBIT, which gives no score for the other class");
  return linear;
}

Inferred InferLinear(const StepContext& ctx, Infos in) {
  TROUPE_ASSIGN_OR_RETURN(const Linear linear, ReadLinear(ctx, in));
  const std::int64_t columns = linear.one_score() ? 2 : linear.scores;
  TROUPE_ASSIGN_OR_RETURN(ValueInfo scores, Value(ctx, proto::FP32, {linear.rows.rows, columns}));
  if (linear.labels.empty()) return std::vector<ValueInfo>{std::move(scores)};
  TROUPE_ASSIGN_OR_RETURN(ValueInfo labels, Value(ctx, proto::INT64, {linear.rows.rows}));
  return std::vector<ValueInfo>{std::move(labels), std::move(scores)};
}

void EndRow(const Linear& linear, std::span<float> scores, std::int64_t* label) {
  if (linear.one_score()) {
    const float score = scores[0];
    *label = linear.labels[score > 0 ? 1 : 0];
    const bool logistic = linear.transform == PostTransform::kLogistic;
    scores[1] = logistic ? Logistic(score) : score;
    scores[0] = logistic ? Logistic(-score) : 1 - score;
    return;
  }
  if (label != nullptr)
    *label = linear.labels[static_cast<std::size_t>(std::ranges::max_element(scores) - scores.begin())];
  // onnxruntime leaves a single score as it is, but for PROBIT.
  if (scores.size() > 1 || linear.transform == PostTransform::kProbit) Transform(linear.transform, scores);
}

Made MakeFloat(const StepContext& ctx, Infos in, Infos out) {
  TROUPE_ASSIGN_OR_RETURN(Linear linear, ReadLinear(ctx, in));
  const std::int64_t columns = out.back().shape[1];
  return MakeKernel([linear = std::move(linear), columns](In in, Out out, std::byte*) {
    const std::int64_t features = linear.rows.features;
    const float* x = Data<float>(in[0]);
    float* scores = MutableData<float>(out[out.size() - 1]);
    std::int64_t* labels = linear.labels.empty() ? nullptr : MutableData<std::int64_t>(out[0]);
    ParallelRanges(
        linear.rows.rows, features * linear.scores / 4, [&](std::int64_t first, std::int64_t last) {
          for (std::int64_t row = first; row < last; ++row) {
            const std::span<float> own(scores + row * columns, static_cast<std::size_t>(columns));
            FeatureProducts({x + row * features, static_cast<std::size_t>(features)}, linear.coefficients,
                            linear.intercepts, own.first(static_cast<std::size_t>(linear.scores)));
            EndRow(linear, own, labels == nullptr ? nullptr : labels + row);
          }
        });
    return absl::OkStatus();
  });
}

Made MakeLinear(const StepContext& ctx, Infos in, Infos out) {
  const proto::DataType types[] = {out.size() == 2 ? proto::INT64 : proto::FP32, proto::FP32};
  constexpr proto::DataType kIn[] = {proto::FP32};
  return MakeConverted(&MakeFloat, ctx, in, out, kIn, {types, out.size()});
}

constexpr Operator kOperators[] = {
    {.name = "ai.onnx.ml.LinearRegressor",
     .min_opset = 1,
     .max_opset = kNewestOpset,
     .infer = &InferLinear,
     .make = &MakeLinear,
     .types = kFeatureTypes},
    {.name = "ai.onnx.ml.LinearClassifier",
     .min_opset = 1,
     .max_opset = kNewestOpset,
     .infer = &InferLabelled<&InferLinear>,
     .make = &MakeLabelled<&MakeLinear>,
     .types = kFeatureTypes},
};

}  // namespace

std::span<const Operator> LinearModelOperators() {
  return kOperators;
}

}  // namespace troupe::gpu
