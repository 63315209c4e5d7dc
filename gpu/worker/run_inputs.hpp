// RUN INPUTS: which tensors of a run's order are which of its inputs. An input is one tensor, or several that follow each
// other along the first dimension (proto::Tensor.continues), each from where its bytes are: what the calls of a workflow's
// for_each gave comes together in the memory of the run that reads it (004 StreamBox, section 6.1).
#pragma once

#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/units.hpp"
#include "proto/worker.pb.h"

namespace troupe::gpu {

// The tensors of one input, by their index among the order's: from `first` on, up to and without `last`.
struct InputParts {
  int first = 0;
  int last = 0;
  [[nodiscard]] int size() const { return last - first; }
};
[[nodiscard]] InputParts PartsOf(const proto::RunOrder& order, std::string_view input);

// Inputs have different names, and what continues one goes with it: the same name, type and shape but for the first dimension,
// and no more rows than a shape can have. At most as many inputs, and parts of one, as a worker takes. InvalidArgument names
// the tensor.
[[nodiscard]] absl::Status CheckParts(const proto::RunOrder& order);

// The inputs of the order's first request, each as a whole, as the run's plan needs them. CheckParts has accepted the order.
[[nodiscard]] std::vector<proto::TensorSpec> WholeInputs(const proto::RunOrder& order);
[[nodiscard]] Bytes WholeBytes(const proto::RunOrder& order, const InputParts& parts);

}  // namespace troupe::gpu
