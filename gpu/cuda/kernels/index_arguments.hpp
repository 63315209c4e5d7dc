// What kernels are told whose elements' places depend on indices.
#pragma once

#include "gpu/cuda/kernels/arguments.hpp"

namespace troupe::gpu::cuda {

// Rows of `block` elements that indices choose; an index outside sets *trouble and gives zeros.
struct GatherArguments {
  std::int64_t count = 0;  // of the output's elements
  std::int32_t element_size = 0;
  const void* in = nullptr;
  const void* indices = nullptr;
  void* out = nullptr;
  Element index_type{};
  std::int64_t chosen = 0;  // indices
  std::int64_t dim = 0;     // that they choose from
  std::int64_t block = 0;
  bool narrow = false;  // 32 bits hold all numbers of elements, here and below
  std::int32_t* trouble = nullptr;
};

// An index for each element says where along one axis it is: out[i] = in[place], or out[place] = in[i] when
// it scatters.
struct IndexMoveArguments {
  std::int64_t count = 0;  // of indices
  std::int32_t element_size = 0;
  bool scatters = false;
  const void* in = nullptr;
  const void* indices = nullptr;
  void* out = nullptr;
  Element index_type{};
  Box box;            // the indices'
  Strides elsewhere;  // in the other tensor, without the axis
  std::int64_t axis_stride = 0;
  std::int64_t dim = 0;
  std::int32_t* trouble = nullptr;
};

// The same for blocks of elements that a tuple of indices chooses.
struct TupleMoveArguments {
  std::int64_t count = 0;
  std::int32_t element_size = 0;
  bool scatters = false;
  const void* in = nullptr;
  const void* indices = nullptr;
  void* out = nullptr;
  Element index_type{};
  std::int64_t tuples = 1;  // of each batch
  std::int64_t block = 1;
  std::int32_t depth = 0;
  std::int64_t dim[kMaxRank] = {};
  bool narrow = false;
  std::int32_t* trouble = nullptr;
};

struct OneHotArguments {
  std::int64_t count = 0;
  std::int32_t element_size = 0;
  Element index_type{};
  const void* indices = nullptr;
  const void* values = nullptr;  // off, on
  void* out = nullptr;
  std::int64_t depth = 1;
  std::int64_t inner = 1;
  bool narrow = false;
};

struct TriluArguments {
  std::int64_t count = 0;
  std::int32_t element_size = 0;
  bool upper = true;
  const void* in = nullptr;
  void* out = nullptr;
  const std::int64_t* k = nullptr;  // null: 0
  std::int64_t rows = 1;
  std::int64_t columns = 1;
  bool narrow = false;
};

// Sums from the begin of a line to each of its elements.
struct RunningSumArguments {
  std::int64_t count = 0;
  std::int32_t element_size = 0;
  Element type{};
  const void* in = nullptr;
  void* out = nullptr;
  const void* axis = nullptr;
  Element axis_type{};
  Box box;
  bool exclusive = false;
  bool reverse = false;
  std::int32_t* trouble = nullptr;
};

}  // namespace troupe::gpu::cuda
