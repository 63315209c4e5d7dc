// STORED CATALOGUE: the records of a cluster as the manager's store keeps them: read at the start, and changes
// of them as a batch.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/events.hpp"
#include "cluster/records/catalogue.hpp"
#include "cluster/records/changes.hpp"
#include "storage/metadata_store.hpp"

namespace troupe::actors {

// `cluster_id` is what a new store gets; an existing one keeps its own. DataLoss names a damaged record.
[[nodiscard]] absl::StatusOr<cluster::Catalogue> LoadCatalogue(const storage::MetadataStore& store,
                                                               const std::string& cluster_id);
// What a manager knew when it began, from its store.
struct Recovered {
  std::size_t functions = 0;
  std::size_t workflows = 0;
  std::size_t runs = 0;
  std::size_t unfinished_runs = 0;
};

[[nodiscard]] Recovered CountRecovered(const cluster::Catalogue& catalogue);
// Of its functions, those of whose model `lacking` names objects that the store lacks; none when it is empty.
[[nodiscard]] std::vector<cluster::Lacking> FindLacking(
    const cluster::Catalogue& catalogue,
    const std::function<std::vector<std::string>(const proto::FunctionRecord&)>& lacking);
[[nodiscard]] storage::Batch BatchOf(const cluster::Changes& changes);

}  // namespace troupe::actors
