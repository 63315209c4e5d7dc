// Whether one run of a model can answer several requests, as far as a tensor says.
#pragma once

#include "proto/tensor.pb.h"

namespace troupe::proto {

// The leading dimension is open (-1): it is as large as the run that the tensor is part of.
[[nodiscard]] inline bool LeadingIsOpen(const TensorSpec& spec) {
  return !spec.shape().empty() && spec.shape(0) < 0;
}

}  // namespace troupe::proto
