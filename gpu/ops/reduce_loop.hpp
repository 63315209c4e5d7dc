// REDUCE LOOP: folds the elements of some axes. Neighbouring axes that are treated alike are merged first, so
// that what remains is rows to fold (the last axis goes) or rows to fold into one another (the last axis
// stays).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "gpu/ops/op_support.hpp"

namespace troupe::gpu {

struct ReduceLoop {
  struct Axis {
    std::int64_t size;
    std::int64_t stride;
  };
  ReduceLoop(const Shape& shape, const Shape& sorted_axes);

  std::vector<Axis> kept;     // without `inner` where that is kept; slowest first
  std::vector<Axis> reduced;  // without `inner` where that is reduced
  Axis inner{1, 1};
  bool inner_reduced = true;
  std::int64_t kept_count = 1;     // of `kept`
  std::int64_t reduced_count = 1;  // of `reduced`
  std::int64_t folded = 1;         // elements that make one result
};

// Offset of index number `i` of a box.
[[nodiscard]] inline std::int64_t OffsetOf(const std::vector<ReduceLoop::Axis>& axes, std::int64_t i) {
  std::int64_t offset = 0;
  for (std::size_t d = axes.size(); d-- > 0;) {
    offset += i % axes[d].size * axes[d].stride;
    i /= axes[d].size;
  }
  return offset;
}

// Runs a reduction; `scratch` has room for inner.size accumulators of 16 bytes.
using ReduceFunction = void (*)(const ReduceLoop&, const std::byte* in, std::byte* out, std::byte* scratch);
// By ONNX name; null when there is none for `type` (a wide type).
[[nodiscard]] ReduceFunction FindReduce(std::string_view op, proto::DataType type);

}  // namespace troupe::gpu
