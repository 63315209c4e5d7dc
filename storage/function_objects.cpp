#include "storage/function_objects.hpp"

#include "absl/strings/str_cat.h"

namespace troupe::storage {

StoredObjects::StoredObjects(const ModelRepository& repository) {
  for (const auto& object : repository.List()) sizes_.emplace(object.digest, object.size);
}

std::vector<std::string> StoredObjects::LackingFor(const proto::FunctionRecord& function) const {
  std::vector<std::string> lacking;
  const auto look = [&](const char* what, const std::string& digest, std::uint64_t bytes) {
    const auto found = sizes_.find(digest);
    if (digest.empty() || (found != sizes_.end() && (bytes == 0 || found->second.count() == bytes))) return;
    lacking.push_back(absl::StrCat(
        what, " ", digest,
        found == sizes_.end() ? " (not there)"
                              : absl::StrCat(" (", found->second.count(), " bytes instead of ", bytes, ")")));
  };
  look("model", function.model_digest(), function.model_bytes());
  look("weights", function.weights_digest(), function.weights_bytes());
  for (const auto& packed : function.packed()) {
    look("packed model", packed.model_digest(), packed.model_bytes());
    look("packed weights", packed.weights_digest(), packed.weights_bytes());
  }
  return lacking;
}

}  // namespace troupe::storage
