// Attributes of a step that are lists or tensors, read where they lie. A list that is not there is empty.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "gpu/ops/operator.hpp"

namespace troupe::gpu {

[[nodiscard]] std::span<const std::int64_t> IntList(const StepContext& ctx, const std::string& name);
[[nodiscard]] std::span<const float> FloatList(const StepContext& ctx, const std::string& name);
[[nodiscard]] std::span<const std::string* const> TextList(const StepContext& ctx, const std::string& name);

// The numbers of a tensor attribute of rank 0 or 1; empty when it is not there. Strings, and more elements
// than the attribute has bytes, are errors.
[[nodiscard]] absl::StatusOr<std::vector<double>> TensorList(const StepContext& ctx, const std::string& name);
// The numbers of `name`, or of `name`_as_tensor; both at once are an error.
[[nodiscard]] absl::StatusOr<std::vector<double>> NumberList(const StepContext& ctx, const std::string& name);
// The element type of a tensor attribute; unspecified when it is not there.
[[nodiscard]] proto::DataType TensorTypeOf(const StepContext& ctx, const std::string& name);

// An error unless `have` values were given for each of `want`.
[[nodiscard]] absl::Status WantLength(const StepContext& ctx, const std::string& name, std::size_t have,
                                      std::size_t want);

}  // namespace troupe::gpu
