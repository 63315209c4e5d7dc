// CONDITION: whether the tensor of a step's `when` lets the step run. Pure.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "proto/tensor.pb.h"

namespace troupe::cluster {

// BOOL and the integer types.
[[nodiscard]] bool MayBeCondition(proto::DataType type);
// Whether its one element is not zero. InvalidArgument, with the value's name and what it is: another type, another
// number of elements than one, or fewer bytes than its type has.
[[nodiscard]] absl::StatusOr<bool> IsNotZero(const std::string& value, const proto::TensorSpec& spec,
                                             std::string_view bytes);

}  // namespace troupe::cluster
