#include "gpu/ops/strided_copy.hpp"

#include <algorithm>
#include <cstring>

#include "gpu/ops/op_support.hpp"
#include "gpu/ops/parallel_ranges.hpp"

namespace troupe::gpu {
namespace {

// Rows of a transposition are read in tiles of this many elements each way, so that a cache line is used up.
constexpr std::int64_t kTile = 16;

template <class U>
void CopyTile(std::int64_t rows, std::int64_t columns, const std::byte* from, std::int64_t from_row,
              std::int64_t from_column, std::byte* to, std::int64_t to_row, std::int64_t to_column) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::byte* source = from + r * from_row;
    std::byte* target = to + r * to_row;
    for (std::int64_t c = 0; c < columns; ++c) {
      *reinterpret_cast<U*>(target + c * to_column) = *reinterpret_cast<const U*>(source + c * from_column);
    }
  }
}

}  // namespace

StridedCopy::StridedCopy(const Shape& box, const Shape& from_strides, const Shape& to_strides,
                         std::size_t element_size)
    : size_(element_size) {
  const auto size = static_cast<std::int64_t>(element_size);
  std::vector<Dim> dims;  // fastest first
  for (std::size_t d = box.size(); d-- > 0;) {
    if (box[d] == 0) outer_count_ = 0;
    if (box[d] == 1) continue;
    const Dim dim{box[d], from_strides[d] * size, to_strides[d] * size};
    if (!dims.empty() && dim.from == dims.back().from * dims.back().size &&
        dim.to == dims.back().to * dims.back().size) {
      dims.back().size *= dim.size;
    } else {
      dims.push_back(dim);
    }
  }
  if (outer_count_ == 0) return;
  if (!dims.empty()) inner_ = dims.front();
  contiguous_ = dims.empty() || (inner_.from == size && inner_.to == size);
  std::size_t middle = 1;
  if (!contiguous_) {  // the other side of a transposition: where the source runs without gaps
    for (std::size_t d = 1; d < dims.size(); ++d) {
      if (std::abs(dims[d].from) < std::abs(dims[middle].from) && dims[d].from != 0) middle = d;
    }
  }
  if (dims.size() > 1) middle_ = dims[middle];
  for (std::size_t d = dims.size(); d-- > 1;) {
    if (d == middle) continue;
    outer_.push_back(dims[d]);
    outer_count_ *= dims[d].size;
  }
}

void StridedCopy::Run(const std::byte* from, std::byte* to) const {
  if (outer_count_ > 1) {
    ParallelRanges(outer_count_, middle_.size * inner_.size,
                   [&](std::int64_t first, std::int64_t last) { RunOuter(first, last, from, to); });
  } else if (outer_count_ == 1) {
    RunInner(from, to);
  }
}

void StridedCopy::RunOuter(std::int64_t first, std::int64_t last, const std::byte* from,
                           std::byte* to) const {
  for (std::int64_t i = first; i < last; ++i) {
    std::int64_t rest = i;
    std::int64_t from_offset = 0;
    std::int64_t to_offset = 0;
    for (std::size_t d = outer_.size(); d-- > 0;) {
      const std::int64_t index = rest % outer_[d].size;
      rest /= outer_[d].size;
      from_offset += index * outer_[d].from;
      to_offset += index * outer_[d].to;
    }
    RunInner(from + from_offset, to + to_offset);
  }
}

void StridedCopy::RunInner(const std::byte* from, std::byte* to) const {
  if (contiguous_) {
    const std::size_t bytes = static_cast<std::size_t>(inner_.size) * size_;
    for (std::int64_t r = 0; r < middle_.size; ++r) {
      std::memcpy(to + r * middle_.to, from + r * middle_.from, bytes);
    }
    return;
  }
  ForElementSize(size_, [&](auto zero) {
    using U = decltype(zero);
    for (std::int64_t r = 0; r < middle_.size; r += kTile) {
      const std::int64_t rows = std::min(kTile, middle_.size - r);
      for (std::int64_t c = 0; c < inner_.size; c += kTile) {
        CopyTile<U>(rows, std::min(kTile, inner_.size - c), from + r * middle_.from + c * inner_.from,
                    middle_.from, inner_.from, to + r * middle_.to + c * inner_.to, middle_.to, inner_.to);
      }
    }
  });
}

}  // namespace troupe::gpu
