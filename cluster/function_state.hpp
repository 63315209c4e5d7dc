// The device state that functions declare: what one run gives as `output`, the next gets as `input`. Pure.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/units.hpp"
#include "proto/function.pb.h"

namespace troupe::cluster {

// Of other nodes with copies of one function's state.
inline constexpr std::uint32_t kMostStateReplicas = 3;

// InvalidArgument, with what was found, unless state_replicas is in range and goes with a state, each pair names an input and
// an output of the same type and the same concrete shape, and no tensor is named twice.
[[nodiscard]] absl::Status ValidateState(const proto::FunctionRecord& record);

// Who a state belongs to: one deployment of one version. A function that was removed and deployed again under
// its old name and version begins anew.
[[nodiscard]] std::string StateKey(const proto::FunctionRecord& record);

// The state of one sequence of the function's requests; `state_key` is the function's, which is also the name of its one
// state for requests that belong to no sequence.
[[nodiscard]] std::string SequenceKey(const std::string& state_key, const std::string& sequence);
// What the keys of all of the function's sequences begin with, and no other key.
[[nodiscard]] std::string SequencePrefix(const std::string& state_key);

// The specs of the state's tensors, named as the inputs; the record has been validated.
[[nodiscard]] std::vector<proto::TensorSpec> StateSpecs(const proto::FunctionRecord& record);
// Of one copy of the state.
[[nodiscard]] Bytes StateBytes(const proto::FunctionRecord& record);

}  // namespace troupe::cluster
