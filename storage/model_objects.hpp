// A canonical model as two objects: the serialised proto::Model, whose digest is the model's, and its weights
// blob.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/model.pb.h"
#include "storage/model_repository.hpp"

namespace troupe::storage {

struct ModelObjects {
  ObjectBytes serialized;  // of `model`
  ObjectBytes weights;
  proto::Model model;
};

// Keeps both objects, weights first, so that a model that is there has its weights; returns the model's digest. The file with
// the weights is taken (ModelRepository::Take). InvalidArgument when the model's weights_bytes or weights_digest do not
// describe it.
[[nodiscard]] absl::StatusOr<std::string> PutModel(ModelRepository& repository, const proto::Model& model,
                                                   const std::string& weights_file);

// Both objects, verified, and agreeing with each other. NotFound names the missing object; DataLoss: damaged.
[[nodiscard]] absl::StatusOr<ModelObjects> OpenModel(ModelRepository& repository, const std::string& digest);

// Removes the model, then its weights unless `keep_weights` (another model has the same).
[[nodiscard]] absl::Status RemoveModel(ModelRepository& repository, const std::string& digest,
                                       bool keep_weights);

}  // namespace troupe::storage
