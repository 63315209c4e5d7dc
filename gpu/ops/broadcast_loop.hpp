// BROADCAST LOOP: runs an element-wise function over up to three broadcast inputs, one row at a time.
//
// Made once per kernel: dimensions are merged as far as the inputs allow, so that equal shapes are one long
// row and a bias is one row per vector. The row function is the only part compiled per operator and type.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gpu/ops/operator.hpp"

namespace troupe::gpu {

inline constexpr std::size_t kMaxRowInputs = 3;

// `n` elements of one row. step[i] is 1, or 0 where input i gives the same element again and again. `out` is
// either apart from every input or begins exactly where one with step 1 does.
struct Row {
  std::int64_t n = 0;
  std::array<const std::byte*, kMaxRowInputs> in{};
  std::array<std::int64_t, kMaxRowInputs> step{};
  std::byte* out = nullptr;
  const void* parameters = nullptr;
};
using RowFunction = void (*)(const Row&);

class BroadcastLoop {
 public:
  // Each shape must broadcast to `out`. Element sizes are in bytes.
  BroadcastLoop(std::span<const Shape> in, std::span<const std::size_t> element_sizes, const Shape& out,
                std::size_t out_element_size);

  // Calls `row` for every row, on several threads when the tensor is large; then `after` (may be null) in
  // place on the row just written.
  void Run(RowFunction row, std::span<const std::byte* const> in, std::byte* out, const void* parameters,
           RowFunction after = nullptr, const void* after_parameters = nullptr) const;

 private:
  struct Dim {
    std::int64_t size;
    std::array<std::int64_t, kMaxRowInputs> step;  // bytes
  };
  void RunRows(std::int64_t first, std::int64_t last, RowFunction row, Row state, RowFunction after,
               const void* after_parameters) const;

  std::size_t inputs_;
  std::size_t out_size_;
  std::vector<Dim> outer_;  // slowest first
  std::int64_t rows_ = 1;
  std::int64_t row_length_ = 1;
  std::array<std::int64_t, kMaxRowInputs> row_step_{};
  std::array<std::size_t, kMaxRowInputs> sizes_{};
};

}  // namespace troupe::gpu
