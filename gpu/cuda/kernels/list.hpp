// Our own kernels by name. An entry X has XArguments and RunX (bodies.hpp and the files beside it), and is
// TroupeX to the driver.
#pragma once

// One thread for each element.
#define TROUPE_CUDA_ELEMENT_KERNELS(X) \
  X(Unary)                             \
  X(Binary)                            \
  X(Test)                              \
  X(Where)                             \
  X(Cast)                              \
  X(Move)                              \
  X(Lookup)                            \
  X(Gather)                            \
  X(IndexMove)                         \
  X(TupleMove)                         \
  X(OneHot)                            \
  X(Trilu)                             \
  X(RunningSum)                        \
  X(Quantize)                          \
  X(Dequantize)                        \
  X(IntegerProduct)                    \
  X(Pool)                              \
  X(ConvTranspose)                     \
  X(Taps)                              \
  X(BatchNorm)                         \
  X(Lrn)                               \
  X(Finish)
// One warp for each row.
#define TROUPE_CUDA_ROW_KERNELS(X) \
  X(Softmax)                       \
  X(LayerNorm)                     \
  X(Reduce)                        \
  X(Arg)                           \
  X(TopK)                          \
  X(Range)
