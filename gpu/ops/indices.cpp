#include "gpu/ops/indices.hpp"

#include "absl/strings/str_cat.h"

namespace troupe::gpu {

absl::Status IndexError(const proto::Step& step, std::int64_t index, std::int64_t dim) {
  return absl::InvalidArgumentError(
      absl::StrCat(step.op(), " '", step.name(), "': index ", index, " is outside of a dimension of ", dim));
}

absl::StatusOr<std::int64_t> TupleOffset(const proto::Step& step, const TensorView& indices,
                                         std::int64_t tuple, const Shape& dims) {
  std::int64_t offset = 0;
  const auto depth = static_cast<std::int64_t>(dims.size());
  for (std::int64_t d = 0; d < depth; ++d) {
    const std::int64_t raw = IntAt(indices.type, indices.data, tuple * depth + d);
    const std::int64_t index = WrapIndex(raw, dims[d]);
    if (index < 0) return IndexError(step, raw, dims[d]);
    offset = offset * dims[d] + index;
  }
  return offset;
}

absl::Status CheckIndexBox(const StepContext& ctx, const Shape& data, const Shape& indices,
                           std::int64_t axis) {
  bool fits = data.size() == indices.size();
  for (std::size_t i = 0; fits && i < data.size(); ++i) {
    fits = static_cast<std::int64_t>(i) == axis || indices[i] <= data[i];
  }
  if (fits) return absl::OkStatus();
  return ctx.Error(absl::StrCat("indices ", FormatShape(indices), " reach beyond data ", FormatShape(data)));
}

}  // namespace troupe::gpu
