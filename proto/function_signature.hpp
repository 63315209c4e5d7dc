// What callers send to a function and get from it: its model's tensors except its state, which stays on the
// device.
#pragma once

#include <algorithm>

#include "proto/function.pb.h"

namespace troupe::proto {

using TensorSpecs = google::protobuf::RepeatedPtrField<TensorSpec>;

[[nodiscard]] inline TensorSpecs CallerInputs(const FunctionRecord& record) {
  TensorSpecs specs;
  for (const TensorSpec& spec : record.inputs()) {
    const bool state = std::any_of(record.state().begin(), record.state().end(),
                                   [&](const StateTensor& tensor) { return tensor.input() == spec.name(); });
    if (!state) *specs.Add() = spec;
  }
  return specs;
}

[[nodiscard]] inline TensorSpecs CallerOutputs(const FunctionRecord& record) {
  TensorSpecs specs;
  for (const TensorSpec& spec : record.outputs()) {
    const bool state = std::any_of(record.state().begin(), record.state().end(),
                                   [&](const StateTensor& tensor) { return tensor.output() == spec.name(); });
    if (!state) *specs.Add() = spec;
  }
  return specs;
}

}  // namespace troupe::proto
