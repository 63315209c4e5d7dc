#include "gpu/ops/post_transform.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "gpu/ops/attributes.hpp"

namespace troupe::gpu {
namespace {

constexpr std::string_view kNames[] = {"NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"};

template <class T>
void Softmax(std::span<T> scores, bool keep_zeros) {
  if (scores.empty()) return;
  const T largest = *std::ranges::max_element(scores);
  T sum = 0;
  for (T& score : scores) {
    if (keep_zeros && std::abs(score) <= T(1e-7)) {
      score *= std::exp(-largest);
      continue;
    }
    score = std::exp(score - largest);
    sum += score;
  }
  for (T& score : scores) score /= sum;
}

// The inverse of the error function in Winitzki's approximation (a = 0.147), which onnxruntime uses too; its
// relative error is at most 0.002.
template <class T>
T InverseErf(T x) {
  constexpr T kA = T(0.147);
  const T log = std::log((1 - x) * (1 + x));
  const T half = T(2) / (T(3.14159265358979) * kA) + log / 2;
  const T root = std::sqrt(-half + std::sqrt(half * half - log / kA));
  return x < 0 ? -root : root;
}

}  // namespace

absl::StatusOr<PostTransform> PostTransformOf(const StepContext& ctx) {
  const proto::Attribute* attribute = ctx.Find("post_transform");
  if (attribute == nullptr) return PostTransform::kNone;
  if (attribute->has_i()) {
    if (attribute->i() >= 0 && attribute->i() < static_cast<std::int64_t>(std::size(kNames)))
      return static_cast<PostTransform>(attribute->i());
    return ctx.Error(absl::StrCat("post_transform ", attribute->i(), " is not known"));
  }
  const auto* name = std::ranges::find(kNames, std::string_view(attribute->s()));
  if (name != std::end(kNames)) return static_cast<PostTransform>(name - kNames);
  return ctx.Error(absl::StrCat("post_transform '", attribute->s(), "' is not known"));
}

template <class T>
T Logistic(T value) {
  const T positive = 1 / (1 + std::exp(-std::abs(value)));
  return value < 0 ? 1 - positive : positive;
}

template <class T>
void Transform(PostTransform transform, std::span<T> scores) {
  switch (transform) {
    case PostTransform::kNone:
      return;
    case PostTransform::kSoftmax:
      return Softmax(scores, false);
    case PostTransform::kSoftmaxZero:
      return Softmax(scores, true);
    case PostTransform::kLogistic:
      for (T& score : scores) score = Logistic(score);
      return;
    case PostTransform::kProbit:
      for (T& score : scores) score = T(1.41421356237309505) * InverseErf(2 * score - 1);
      return;
  }
}

template float Logistic(float);
template double Logistic(double);
template void Transform(PostTransform, std::span<float>);
template void Transform(PostTransform, std::span<double>);

absl::StatusOr<std::vector<std::int64_t>> ClassLabels(const StepContext& ctx, const char* ints) {
  const auto numbers = IntList(ctx, ints);
  const auto texts = TextList(ctx, "classlabels_strings");
  if (numbers.empty() == texts.empty())
    return ctx.Error(absl::StrCat("must have the labels of its classes in exactly one of '", ints,
                                  "' and 'classlabels_strings', has ", numbers.size(), " and ",
                                  texts.size()));
  std::vector<std::int64_t> labels(numbers.begin(), numbers.end());
  if (!labels.empty()) return labels;
  labels.resize(texts.size());
  std::iota(labels.begin(), labels.end(), 0);
  return labels;
}

}  // namespace troupe::gpu
