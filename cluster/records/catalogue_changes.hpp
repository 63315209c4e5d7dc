// CATALOGUE CHANGES: what each command changes in the store, and how the catalogue lies there. It is committed
// first; the catalogue applies the command once that is acknowledged.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "cluster/records/catalogue.hpp"
#include "cluster/records/changes.hpp"

namespace troupe::cluster {

// What makes a new store this cluster's.
[[nodiscard]] Changes BirthChanges(const Catalogue& catalogue);
[[nodiscard]] Changes EpochChanges(const Catalogue& catalogue, std::uint64_t epoch);
[[nodiscard]] Changes DrainChanges(const std::string& node, bool drain);
// See proto::PlacementRecord.
[[nodiscard]] Changes HomeChanges(const std::string& digest, const std::string& node, std::uint64_t term,
                                  const std::set<std::string>& in_step = {}, bool home_is_empty = false);
// `last_term`: the largest that a home has had.
[[nodiscard]] Changes NoHomeChanges(const std::vector<std::string>& digests, std::uint64_t last_term);
// What a start left there that failed, if anything.
[[nodiscard]] Changes NoStartChanges(const std::set<std::string>& runs);
// Of runs that are kept no longer; empty when there are none.
[[nodiscard]] Changes RemovalOf(const std::vector<proto::RunRecord>& runs);

[[nodiscard]] Changes ChangesFor(const Catalogue& catalogue, const proto::DeployFunction& command);
[[nodiscard]] Changes ChangesFor(const Catalogue& catalogue, const proto::RemoveFunction& command);
[[nodiscard]] Changes ChangesFor(const Catalogue& catalogue, const proto::SetFunctionLoaded& command);
[[nodiscard]] Changes ChangesFor(const Catalogue& catalogue, const proto::SetVersionShare& command);
[[nodiscard]] Changes ChangesFor(const Catalogue& catalogue, const proto::SetFunctionSharing& command);
[[nodiscard]] Changes ChangesFor(const Catalogue& catalogue, const proto::SetFunctionPlaces& command);
[[nodiscard]] Changes ChangesFor(const Catalogue& catalogue, const proto::WorkflowRecord& command);
[[nodiscard]] Changes ChangesFor(const Catalogue& catalogue, const proto::RemoveWorkflow& command);
[[nodiscard]] Changes ChangesFor(const Catalogue& catalogue, const proto::CreateApiKey& command);
[[nodiscard]] Changes ChangesFor(const Catalogue& catalogue, const proto::RevokeApiKey& command);
[[nodiscard]] Changes ChangesFor(const Catalogue& catalogue, const proto::KeepProfile& command);
[[nodiscard]] Changes ChangesFor(const Catalogue& catalogue, const proto::DropProfile& command);
// Of an experiment that goes on.
[[nodiscard]] Changes ChangesFor(const Catalogue& catalogue, const proto::ProfilingExperiment& experiment);
[[nodiscard]] Changes ChangesFor(const Catalogue& catalogue, const proto::StartRun& command);
[[nodiscard]] Changes ChangesFor(const Catalogue& catalogue, const proto::ClaimRun& command);
[[nodiscard]] Changes ChangesFor(const Catalogue& catalogue, const proto::CommitStep& command);
[[nodiscard]] Changes ChangesFor(const Catalogue& catalogue, const proto::FinishRun& command);

}  // namespace troupe::cluster
