// STORED CATALOGUE: the records of a cluster as the manager's store keeps them: read at the start, and changes
// of them as a batch.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "cluster/records/catalogue.hpp"
#include "cluster/records/changes.hpp"
#include "storage/metadata_store.hpp"

namespace troupe::actors {

// `cluster_id` is what a new store gets; an existing one keeps its own. DataLoss names a damaged record.
[[nodiscard]] absl::StatusOr<cluster::Catalogue> LoadCatalogue(const storage::MetadataStore& store,
                                                               const std::string& cluster_id);
[[nodiscard]] storage::Batch BatchOf(const cluster::Changes& changes);

}  // namespace troupe::actors
