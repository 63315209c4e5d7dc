// STRIDED COPY: moves a box of elements from one strided place to another; what Transpose, Slice, Concat,
// Split, Expand, Tile, Pad and the depth/space operators are made of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gpu/ops/operator.hpp"

namespace troupe::gpu {

class StridedCopy {
 public:
  // Strides are in elements and may be negative or 0 (source only); element sizes are 1, 2, 4 or 8 bytes. The
  // caller guarantees that every element of the box lies within both tensors.
  StridedCopy(const Shape& box, const Shape& from_strides, const Shape& to_strides, std::size_t element_size);
  void Run(const std::byte* from, std::byte* to) const;

 private:
  struct Dim {
    std::int64_t size;
    std::int64_t from;  // bytes
    std::int64_t to;
  };
  void RunOuter(std::int64_t first, std::int64_t last, const std::byte* from, std::byte* to) const;
  void RunInner(const std::byte* from, std::byte* to) const;

  std::vector<Dim> outer_;  // slowest first
  std::int64_t outer_count_ = 1;
  Dim middle_{1, 0, 0};  // with inner_: the two dimensions that one call of RunInner covers
  Dim inner_{1, 0, 0};
  std::size_t size_;
  bool contiguous_ = false;  // the inner dimension is one memcpy
};

}  // namespace troupe::gpu
