// Indices that come with the data: what Gather*, Scatter* and their like share. Nothing is followed
// unchecked.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/ops/op_support.hpp"

namespace troupe::gpu {

// `index` in [0, dim), counting negative ones from the end; -1 when outside.
[[nodiscard]] inline std::int64_t WrapIndex(std::int64_t index, std::int64_t dim) {
  if (index < 0) index += dim;
  return index < 0 || index >= dim ? -1 : index;
}
[[nodiscard]] absl::Status IndexError(const proto::Step& step, std::int64_t index, std::int64_t dim);

// Tuple number `tuple` of `indices` ([..., dims.size()]) as an offset into a row-major box of `dims`.
[[nodiscard]] absl::StatusOr<std::int64_t> TupleOffset(const proto::Step& step, const TensorView& indices,
                                                       std::int64_t tuple, const Shape& dims);

// The indices of GatherElements and ScatterElements reach no further than the data, except along `axis`.
[[nodiscard]] absl::Status CheckIndexBox(const StepContext& ctx, const Shape& data, const Shape& indices,
                                         std::int64_t axis);

// Walks the indices of GatherElements and ScatterElements.
class IndexBoxWalk {
 public:
  IndexBoxWalk(const Shape& data, const Shape& indices, std::int64_t axis)
      : strides_(RowMajorStrides(data)),
        axis_(static_cast<std::size_t>(axis)),
        dim_(data[axis_]),
        box_(indices) {}

  // f(place, target): the element number in the indices, and the one in the data that it names.
  template <class F>
  absl::Status Run(const proto::Step& step, const TensorView& indices, F&& f) const {
    const std::int64_t count = Product(box_);
    Shape at(box_.size(), 0);
    std::int64_t base = 0;  // of the data, without the axis
    for (std::int64_t place = 0; place < count; ++place) {
      const std::int64_t raw = IntAt(indices.type, indices.data, place);
      const std::int64_t index = WrapIndex(raw, dim_);
      if (index < 0) return IndexError(step, raw, dim_);
      f(place, base + index * strides_[axis_]);
      for (std::size_t d = box_.size(); d-- > 0;) {
        if (d != axis_) base += strides_[d];
        if (++at[d] < box_[d]) break;
        if (d != axis_) base -= strides_[d] * box_[d];
        at[d] = 0;
      }
    }
    return absl::OkStatus();
  }

 private:
  Shape strides_;
  std::size_t axis_;
  std::int64_t dim_;
  Shape box_;
};

}  // namespace troupe::gpu
