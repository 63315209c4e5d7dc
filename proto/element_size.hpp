// What a tensor's element type means in bytes: one table for all readers of tensor.proto.
#pragma once

#include <cstddef>

#include "proto/tensor.pb.h"

namespace troupe::proto {

// Bytes of one element; 0 for BYTES, whose elements have lengths of their own, and for an unknown type.
[[nodiscard]] constexpr std::size_t ElementSize(DataType type) {
  switch (type) {
    case BOOL:
    case UINT8:
    case INT8:
      return 1;
    case UINT16:
    case INT16:
    case FP16:
    case BF16:
      return 2;
    case UINT32:
    case INT32:
    case FP32:
      return 4;
    case UINT64:
    case INT64:
    case FP64:
      return 8;
    default:
      return 0;
  }
}

}  // namespace troupe::proto
