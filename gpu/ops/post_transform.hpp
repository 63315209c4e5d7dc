// What classic models do to scores at the end, and what their classes are called.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "gpu/ops/operator.hpp"

namespace troupe::gpu {

// Numbered as TreeEnsemble of ai.onnx.ml 5 does.
enum class PostTransform : std::uint8_t { kNone, kSoftmax, kLogistic, kSoftmaxZero, kProbit };

// The attribute post_transform: its text, or its number in TreeEnsemble.
[[nodiscard]] absl::StatusOr<PostTransform> PostTransformOf(const StepContext& ctx);

// For float and double, of all scores of one row.
template <class T>
void Transform(PostTransform transform, std::span<T> scores);
template <class T>
[[nodiscard]] T Logistic(T value);

// The labels of the classes: those of `ints`, or the places of the texts of classlabels_strings, which class_labels.hpp
// makes texts again. Exactly one of the two must be given.
[[nodiscard]] absl::StatusOr<std::vector<std::int64_t>> ClassLabels(const StepContext& ctx, const char* ints);

}  // namespace troupe::gpu
