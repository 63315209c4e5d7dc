// The run log as it lies on a disk: each run with its steps, read past the manager.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "proto/workflow.pb.h"
#include "sim/checkers/store_watch.hpp"
#include "storage/metadata_store.hpp"

namespace troupe::sim {

[[nodiscard]] absl::StatusOr<std::vector<proto::RunRecord>> RunLogOf(const storage::MetadataStore& store);
// Runs that have not ended. With `watch`: without runs whose start was never acknowledged, which their
// manager does not know.
[[nodiscard]] absl::StatusOr<std::vector<proto::RunRecord>> OpenRunsOf(const storage::MetadataStore& store,
                                                                       const StoreWatch* watch);

}  // namespace troupe::sim
