// Pooling as plain loops: every meaning that ONNX gives it, on row-major FP32 and FP64.
#pragma once

#include "gpu/ops/op_support.hpp"
#include "gpu/ops/window.hpp"

namespace troupe::gpu {

enum class PoolKind { kMax, kAverage, kLp };

struct Pooling {
  PoolKind kind = PoolKind::kMax;
  Window window;
  Shape source;       // N, C, spatial
  Shape destination;  // N, C, window.out
  bool count_padding = false;
  bool column_major = false;  // of the indices that MaxPool tells
  std::int64_t p = 2;
};

// Output 1, where it is there, gets the index of each maximum in the whole input (INT64).
[[nodiscard]] Made MakePoolingLoop(proto::DataType type, const Pooling& pooling);

}  // namespace troupe::gpu
