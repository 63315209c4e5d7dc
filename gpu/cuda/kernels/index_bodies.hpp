// What kernels do for one element whose place depends on indices: gathers, scatters, triangles, running sums.
#pragma once

#include "gpu/cuda/kernels/index_arguments.hpp"
#include "gpu/cuda/kernels/numbers.hpp"

namespace troupe::gpu::cuda {

// -1: outside, which is told.
TROUPE_BODY std::int64_t IndexAt(Element type, const void* indices, std::int64_t i, std::int64_t dim,
                                 std::int32_t* trouble) {
  std::int64_t index = LoadInteger(type, indices, i);
  if (index < 0) index += dim;
  if (index >= 0 && index < dim) return index;
  *trouble = 1;
  return -1;
}

TROUPE_BODY void MoveZero(std::int32_t size, void* to, std::int64_t at) {
  const std::uint64_t zero = 0;
  MoveElement(size, to, at, &zero, 0);
}

TROUPE_BODY void RunGather(const GatherArguments& a, std::int64_t i) {
  const std::int64_t within = i % a.block;
  const std::int64_t place = i / a.block;
  const std::int64_t outer = place / a.chosen;
  const std::int64_t index = IndexAt(a.index_type, a.indices, place % a.chosen, a.dim, a.trouble);
  if (index < 0) return MoveZero(a.element_size, a.out, i);
  MoveElement(a.element_size, a.out, i, a.in, (outer * a.dim + index) * a.block + within);
}

TROUPE_BODY void RunIndexMove(const IndexMoveArguments& a, std::int64_t i) {
  const std::int64_t index = IndexAt(a.index_type, a.indices, i, a.dim, a.trouble);
  const std::int64_t place = OffsetOf(a.box, a.elsewhere, i) + index * a.axis_stride;
  if (a.scatters) {
    if (index >= 0) MoveElement(a.element_size, a.out, place, a.in, i);
  } else if (index >= 0) {
    MoveElement(a.element_size, a.out, i, a.in, place);
  } else {
    MoveZero(a.element_size, a.out, i);
  }
}

TROUPE_BODY void RunTupleMove(const TupleMoveArguments& a, std::int64_t i) {
  const std::int64_t tuple = i / a.block;
  std::int64_t place = tuple / a.tuples;  // its batch
  for (int d = 0; d < a.depth; ++d) {
    const std::int64_t index = IndexAt(a.index_type, a.indices, tuple * a.depth + d, a.dim[d], a.trouble);
    if (index < 0) {
      if (!a.scatters) MoveZero(a.element_size, a.out, i);
      return;
    }
    place = place * a.dim[d] + index;
  }
  place = place * a.block + i % a.block;
  if (a.scatters) {
    MoveElement(a.element_size, a.out, place, a.in, i);
  } else {
    MoveElement(a.element_size, a.out, i, a.in, place);
  }
}

TROUPE_BODY void RunOneHot(const OneHotArguments& a, std::int64_t i) {
  const std::int64_t from = i / (a.depth * a.inner) * a.inner + i % a.inner;
  std::int64_t index = IsReal(a.index_type) ? IntegerOf(LoadReal(a.index_type, a.indices, from))
                                            : LoadInteger(a.index_type, a.indices, from);
  if (index < 0) index += a.depth;
  MoveElement(a.element_size, a.out, i, a.values, index == i / a.inner % a.depth ? 1 : 0);
}

TROUPE_BODY void RunTrilu(const TriluArguments& a, std::int64_t i) {
  const std::int64_t above = i % a.columns - i / a.columns % a.rows;  // of the diagonal
  const std::int64_t k = a.k == nullptr ? 0 : *a.k;
  const bool kept = a.upper ? above >= k : above <= k;
  if (kept) {
    MoveElement(a.element_size, a.out, i, a.in, i);
  } else {
    MoveZero(a.element_size, a.out, i);
  }
}

// The thread that has the first element of a line does all of it.
TROUPE_BODY void RunRunningSum(const RunningSumArguments& a, std::int64_t i) {
  const std::int64_t axis = IndexAt(a.axis_type, a.axis, 0, a.box.rank, a.trouble);
  if (axis < 0) return MoveZero(a.element_size, a.out, i);
  std::int64_t stride = 1;
  for (int d = a.box.rank; --d > axis;) stride *= a.box.size[d];
  const std::int64_t dim = a.box.size[axis];
  if (i / stride % dim != 0) return;
  double real = 0;
  std::int64_t whole = 0;
  const bool is_real = IsReal(a.type);
  for (std::int64_t step = 0; step < dim; ++step) {
    const std::int64_t at = i + (a.reverse ? dim - 1 - step : step) * stride;
    const double before = real;
    const std::int64_t whole_before = whole;
    if (is_real) {
      real += LoadReal(a.type, a.in, at);
      StoreReal(a.type, a.out, at, a.exclusive ? before : real);
    } else {
      whole = static_cast<std::int64_t>(static_cast<std::uint64_t>(whole) +
                                        static_cast<std::uint64_t>(LoadInteger(a.type, a.in, at)));
      StoreInteger(a.type, a.out, at, a.exclusive ? whole_before : whole);
    }
  }
}

}  // namespace troupe::gpu::cuda
