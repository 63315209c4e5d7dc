// What kernels do for one element whose place depends on indices: gathers, scatters, triangles, running sums.
#pragma once

#include "gpu/cuda/kernels/index_arguments.hpp"
#include "gpu/cuda/kernels/numbers.hpp"

namespace troupe::gpu::cuda {

// The place along the dimension that the index means; -1 for an index outside of it, which sets `trouble`.
TROUPE_BODY std::int64_t IndexAt(Element type, const void* indices, std::int64_t i, std::int64_t dim,
                                 std::int32_t* trouble) {
  std::int64_t index = LoadInteger(type, indices, i);
  if (index < 0) index += dim;
  if (index >= 0 && index < dim) return index;
  *trouble = 1;
  return -1;
}

TROUPE_BODY void MoveZero(std::int32_t size, void* to, std::int64_t at) {
  const FourWords zero{};
  MoveElement(size, to, at, &zero, 0);
}

// Index is the integer that all numbers of elements fit into: of 32 bits where they do, since a GPU divides those faster.
template <class Index>
TROUPE_BODY void GatherOne(const GatherArguments& a, Index i) {
  const auto block = static_cast<Index>(a.block);
  const auto chosen = static_cast<Index>(a.chosen);
  const Index within = i % block;
  const Index place = i / block;
  const Index outer = place / chosen;
  const std::int64_t index = IndexAt(a.index_type, a.indices, place % chosen, a.dim, a.trouble);
  if (index < 0) return MoveZero(a.element_size, a.out, i);
  MoveElement(a.element_size, a.out, i, a.in,
              (outer * static_cast<Index>(a.dim) + static_cast<Index>(index)) * block + within);
}
TROUPE_BODY void RunGather(const GatherArguments& a, std::int64_t i) {
  if (a.narrow) return GatherOne(a, static_cast<std::uint32_t>(i));
  GatherOne(a, i);
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

template <class Index>
TROUPE_BODY void TupleMoveOne(const TupleMoveArguments& a, Index i) {
  const auto block = static_cast<Index>(a.block);
  const Index tuple = i / block;
  Index place = tuple / static_cast<Index>(a.tuples);  // its batch
  for (int d = 0; d < a.depth; ++d) {
    const std::int64_t index =
        IndexAt(a.index_type, a.indices, static_cast<std::int64_t>(tuple) * a.depth + d, a.dim[d], a.trouble);
    if (index < 0) {
      if (!a.scatters) MoveZero(a.element_size, a.out, i);
      return;
    }
    place = place * static_cast<Index>(a.dim[d]) + static_cast<Index>(index);
  }
  place = place * block + i % block;
  if (a.scatters) {
    MoveElement(a.element_size, a.out, place, a.in, i);
  } else {
    MoveElement(a.element_size, a.out, i, a.in, place);
  }
}
TROUPE_BODY void RunTupleMove(const TupleMoveArguments& a, std::int64_t i) {
  if (a.narrow) return TupleMoveOne(a, static_cast<std::uint32_t>(i));
  TupleMoveOne(a, i);
}

template <class Index>
TROUPE_BODY void OneHotOne(const OneHotArguments& a, Index i) {
  const auto inner = static_cast<Index>(a.inner);
  const Index line = i / inner;
  const auto depth = static_cast<Index>(a.depth);
  const Index from = line / depth * inner + i % inner;
  std::int64_t index = IsReal(a.index_type) ? IntegerOf(LoadReal(a.index_type, a.indices, from))
                                            : LoadInteger(a.index_type, a.indices, from);
  if (index < 0) index += a.depth;
  MoveElement(a.element_size, a.out, i, a.values, index == static_cast<std::int64_t>(line % depth) ? 1 : 0);
}
TROUPE_BODY void RunOneHot(const OneHotArguments& a, std::int64_t i) {
  if (a.narrow) return OneHotOne(a, static_cast<std::uint32_t>(i));
  OneHotOne(a, i);
}

template <class Index>
TROUPE_BODY void TriluOne(const TriluArguments& a, Index i) {
  const auto columns = static_cast<Index>(a.columns);
  const std::int64_t above = static_cast<std::int64_t>(i % columns) -
                             static_cast<std::int64_t>(i / columns % static_cast<Index>(a.rows));
  const std::int64_t k = a.k == nullptr ? 0 : *a.k;
  const bool kept = a.upper ? above >= k : above <= k;
  if (kept) {
    MoveElement(a.element_size, a.out, i, a.in, i);
  } else {
    MoveZero(a.element_size, a.out, i);
  }
}
TROUPE_BODY void RunTrilu(const TriluArguments& a, std::int64_t i) {
  if (a.narrow) return TriluOne(a, static_cast<std::uint32_t>(i));
  TriluOne(a, i);
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
