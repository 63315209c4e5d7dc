#include "storage/model_objects.hpp"

#include <climits>
#include <cstdint>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/digest.hpp"
#include "base/status.hpp"
#include "storage/disk_status.hpp"

namespace troupe::storage {
namespace {

absl::Status CheckAgainst(const proto::Model& model, std::uint64_t weights) {
  if (model.weights_bytes() == weights) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("model '", model.name(), "' speaks of ",
                                                 model.weights_bytes(), " bytes of weights, there are ",
                                                 weights));
}

absl::StatusOr<proto::Model> Parse(std::span<const std::byte> bytes, const std::string& digest) {
  proto::Model model;
  if (bytes.size() > INT_MAX || !model.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::DataLossError(absl::StrCat("object ", digest, " is not a model"));
  }
  return model;
}

}  // namespace

absl::StatusOr<std::string> PutModel(ModelRepository& repository, const proto::Model& model,
                                     const std::string& weights_file) {
  std::error_code error;
  const auto size = std::filesystem::file_size(weights_file, error);
  if (error) return DiskError(error.value(), "look at", weights_file);
  TROUPE_RETURN_IF_ERROR(CheckAgainst(model, size));
  TROUPE_RETURN_IF_ERROR(CheckDigest(model.weights_digest()));
  TROUPE_RETURN_IF_ERROR(repository.Take(weights_file, model.weights_digest()).status());
  const std::string bytes = model.SerializeAsString();
  return repository.Put(std::as_bytes(std::span(bytes)));
}

absl::StatusOr<ModelObjects> OpenModel(ModelRepository& repository, const std::string& digest) {
  ModelObjects objects;
  TROUPE_ASSIGN_OR_RETURN(objects.serialized, repository.Open(digest));
  TROUPE_ASSIGN_OR_RETURN(objects.model, Parse(objects.serialized.bytes, digest));
  if (!IsSha256Hex(objects.model.weights_digest())) {
    return absl::DataLossError(absl::StrCat("object ", digest, " is not a model: it names no weights"));
  }
  TROUPE_ASSIGN_OR_RETURN(objects.weights, repository.Open(objects.model.weights_digest()));
  if (const absl::Status agrees = CheckAgainst(objects.model, objects.weights.bytes.size()); !agrees.ok()) {
    return absl::DataLossError(std::string(agrees.message()));
  }
  return objects;
}

absl::Status RemoveModel(ModelRepository& repository, const std::string& digest, bool keep_weights) {
  TROUPE_ASSIGN_OR_RETURN(const ObjectBytes serialized, repository.Open(digest));
  TROUPE_ASSIGN_OR_RETURN(const proto::Model model, Parse(serialized.bytes, digest));
  TROUPE_RETURN_IF_ERROR(repository.Remove(digest));
  return keep_weights ? absl::OkStatus() : repository.Remove(model.weights_digest());
}

}  // namespace troupe::storage
