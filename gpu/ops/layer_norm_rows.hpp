// One row of a layer normalisation.
#pragma once

#include <cstdint>

namespace troupe::gpu {

template <class T>
struct LayerNormRow {
  std::int64_t n;
  const T* in;
  const T* scale;
  const T* bias;  // null: none
  T* out;
  T epsilon;
  T mean;     // results
  T inverse;  // of the standard deviation
};

// For float: compiled for this machine's vector instructions.
using LayerNormFunction = void (*)(LayerNormRow<float>&);
[[nodiscard]] LayerNormFunction FindLayerNormRow();

}  // namespace troupe::gpu
