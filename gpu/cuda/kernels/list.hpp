// Our own kernels by name. An entry X has XArguments and RunX (bodies.hpp, row_bodies.hpp), and is TroupeX to
// the driver.
#pragma once

// One thread for each element.
#define TROUPE_CUDA_ELEMENT_KERNELS(X) \
  X(Unary)                             \
  X(Binary)                            \
  X(Where)                             \
  X(Cast)                              \
  X(Move)                              \
  X(Lookup)                            \
  X(Gather)                            \
  X(Pool)                              \
  X(BatchNorm)                         \
  X(Lrn)                               \
  X(Finish)
// One warp for each row.
#define TROUPE_CUDA_ROW_KERNELS(X) \
  X(Softmax)                       \
  X(LayerNorm)                     \
  X(Reduce)
