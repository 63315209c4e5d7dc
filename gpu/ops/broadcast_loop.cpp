#include "gpu/ops/broadcast_loop.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "gpu/ops/op_support.hpp"
#include "gpu/ops/parallel_ranges.hpp"

namespace troupe::gpu {
namespace {

// Strides of `shape` seen as `rank` dimensions, in elements; 0 where it is broadcast.
Shape BroadcastStrides(const Shape& shape, std::size_t rank) {
  Shape strides(rank, 0);
  std::int64_t stride = 1;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const std::int64_t dim = shape[shape.size() - 1 - i];
    if (dim != 1) strides[rank - 1 - i] = stride;
    stride *= dim;
  }
  return strides;
}

}  // namespace

BroadcastLoop::BroadcastLoop(std::span<const Shape> in, std::span<const std::size_t> element_sizes,
                             const Shape& out, std::size_t out_element_size)
    : inputs_(in.size()), out_size_(out_element_size) {
  TROUPE_CHECK(in.size() <= kMaxRowInputs, "a row function takes at most three inputs");
  std::array<Shape, kMaxRowInputs> strides;
  for (std::size_t k = 0; k < inputs_; ++k) {
    TROUPE_CHECK(in[k].size() <= out.size(), "an input does not broadcast to the output");
    strides[k] = BroadcastStrides(in[k], out.size());
    sizes_[k] = element_sizes[k];
  }
  std::vector<Dim> dims;  // fastest first, strides in elements
  for (std::size_t d = out.size(); d-- > 0;) {
    if (out[d] == 1) continue;
    Dim dim{out[d], {}};
    for (std::size_t k = 0; k < inputs_; ++k) dim.step[k] = strides[k][d];
    bool merges = !dims.empty();
    for (std::size_t k = 0; merges && k < inputs_; ++k) {
      merges = dim.step[k] == dims.back().step[k] * dims.back().size;
    }
    if (merges) {
      dims.back().size *= dim.size;
    } else {
      dims.push_back(dim);
    }
  }
  if (!dims.empty()) {
    row_length_ = dims.front().size;
    row_step_ = dims.front().step;
  }
  for (std::size_t d = dims.size(); d-- > 1;) {
    rows_ *= dims[d].size;
    for (std::size_t k = 0; k < inputs_; ++k) dims[d].step[k] *= static_cast<std::int64_t>(sizes_[k]);
    outer_.push_back(dims[d]);
  }
  if (std::find(out.begin(), out.end(), 0) != out.end()) rows_ = 0;
}

void BroadcastLoop::Run(RowFunction row, std::span<const std::byte* const> in, std::byte* out,
                        const void* parameters, RowFunction after, const void* after_parameters) const {
  Row state;
  state.n = row_length_;
  state.step = row_step_;
  state.parameters = parameters;
  if (rows_ == 1) {  // one long row: cut inside it
    ParallelRanges(row_length_, 1, [&](std::int64_t first, std::int64_t last) {
      Row part = state;
      part.n = last - first;
      for (std::size_t k = 0; k < inputs_; ++k) {
        part.in[k] = in[k] + first * row_step_[k] * static_cast<std::int64_t>(sizes_[k]);
      }
      part.out = out + first * static_cast<std::int64_t>(out_size_);
      RunRows(0, 1, row, part, after, after_parameters);
    });
    return;
  }
  for (std::size_t k = 0; k < inputs_; ++k) state.in[k] = in[k];
  state.out = out;
  ParallelRanges(rows_, row_length_, [&](std::int64_t first, std::int64_t last) {
    RunRows(first, last, row, state, after, after_parameters);
  });
}

void BroadcastLoop::RunRows(std::int64_t first, std::int64_t last, RowFunction row, Row state,
                            RowFunction after, const void* after_parameters) const {
  std::vector<std::int64_t> index(outer_.size(), 0);
  std::int64_t rest = first;
  for (std::size_t d = outer_.size(); d-- > 0;) {
    index[d] = rest % outer_[d].size;
    rest /= outer_[d].size;
    for (std::size_t k = 0; k < inputs_; ++k) state.in[k] += index[d] * outer_[d].step[k];
  }
  state.out += first * state.n * static_cast<std::int64_t>(out_size_);
  for (std::int64_t r = first; r < last; ++r) {
    row(state);
    if (after != nullptr) {
      after(Row{state.n, {state.out}, {1}, state.out, after_parameters});
    }
    state.out += state.n * static_cast<std::int64_t>(out_size_);
    for (std::size_t d = outer_.size(); d-- > 0;) {
      for (std::size_t k = 0; k < inputs_; ++k) state.in[k] += outer_[d].step[k];
      if (++index[d] < outer_[d].size) break;
      for (std::size_t k = 0; k < inputs_; ++k) state.in[k] -= outer_[d].size * outer_[d].step[k];
      index[d] = 0;
    }
  }
}

}  // namespace troupe::gpu
