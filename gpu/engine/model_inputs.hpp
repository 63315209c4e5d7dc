// What a plan demands of a model and of the inputs before it looks at a single step.
#pragma once

#include <cstddef>
#include <span>

#include "absl/status/status.h"
#include "proto/model.pb.h"

namespace troupe::gpu {

// Names are unique, every weight lies inside the blob and has the size that its shape or layout says.
absl::Status CheckWeights(const proto::Model& model, std::span<const std::byte> weights);
// `inputs` are the model's, in order, concrete, with its types and fixed dimensions.
absl::Status CheckInputSpecs(const proto::Model& model, std::span<const proto::TensorSpec> inputs);
// Every operator is known; one error lists all that are not.
absl::Status CheckOperators(const proto::Model& model);

}  // namespace troupe::gpu
