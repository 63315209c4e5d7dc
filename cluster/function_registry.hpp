// FUNCTION REGISTRY: the manager's functions. It changes only by applying commands, and the commands are what
// the store keeps: Validate first, then persist the command with its revision, then Apply it. Replaying the
// same commands gives the same registry.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "cluster/function_table.hpp"
#include "proto/admin.pb.h"
#include "proto/cluster.pb.h"
#include "proto/function.pb.h"

namespace troupe::cluster {

using Revision = std::uint64_t;

inline constexpr double kDefaultPercentile = 98;

struct RegistryLimits {
  std::size_t max_functions = 100000;
  std::size_t max_changes = 4096;      // kept for deltas; who is further behind gets a snapshot
  std::size_t max_open = 16'384;       // functions whose records stay open (cluster/function_records.hpp)
  std::size_t part_bytes = 1U << 20U;  // of a snapshot's functions in one message
};

// InvalidArgument with what was found and what is expected. Workflows have names of the same form.
[[nodiscard]] absl::Status ValidateName(const std::string& what, const std::string& name);
[[nodiscard]] absl::Status ValidateSlo(const proto::Slo& slo);

// What a command changes in a function's record.
void SetIn(proto::FunctionRecord& record, const proto::SetFunctionLoaded& command);
void SetIn(proto::FunctionRecord& record, const proto::SetVersionShare& command);
void SetIn(proto::FunctionRecord& record, const proto::SetFunctionSharing& command);
void SetIn(proto::FunctionRecord& record, const proto::SetFunctionPlaces& command);

class FunctionRegistry {
 public:
  explicit FunctionRegistry(RegistryLimits limits = {}) : limits_(limits), table_(limits.max_open) {}

  // The record as it would be stored: version filled in ("" becomes the next), percentile defaulted. Errors:
  // InvalidArgument (name, version, SLO, digests, tensors), AlreadyExists, ResourceExhausted.
  [[nodiscard]] absl::StatusOr<proto::DeployFunction> ValidateDeploy(const proto::DeployFunction& wish) const;
  // Keys with an empty version are resolved to the newest. NotFound says what exists. A version with a share of
  // the requests is not removed: FailedPrecondition.
  [[nodiscard]] absl::StatusOr<proto::RemoveFunction> ValidateRemove(const proto::RemoveFunction& wish) const;
  [[nodiscard]] absl::StatusOr<proto::SetFunctionLoaded> ValidateLoaded(
      const proto::SetFunctionLoaded& wish) const;
  // One command for each version whose share or role changes. Errors: as SplitVersions.
  [[nodiscard]] absl::StatusOr<std::vector<proto::SetVersionShare>> ValidateSplit(
      const proto::SplitFunction& wish) const;
  // The whole sharing as it would be stored. Errors: as ValidateLoaded, and InvalidArgument.
  [[nodiscard]] absl::StatusOr<proto::SetFunctionSharing> ValidateSharing(
      const proto::UpdateFunction& wish) const;

  // Commands that passed validation; `revision` is larger than any before. A command that does not fit the
  // table (a damaged store) is a bug of the caller and ends the process.
  void Apply(const proto::DeployFunction& command, Revision revision);
  void Apply(const proto::RemoveFunction& command, Revision revision);
  void Apply(const proto::SetFunctionLoaded& command, Revision revision);
  void Apply(const proto::SetVersionShare& command, Revision revision);
  void Apply(const proto::SetFunctionSharing& command, Revision revision);
  void Apply(const proto::SetFunctionPlaces& command, Revision revision);

  // The model of a function cannot be brought to nodes: not a change, and not kept. Before members join.
  void NoteProblem(const proto::FunctionKey& key, std::string problem);

  // Folds the functions that nothing has happened to for longest. No record that was found before may be used after it.
  void FoldCold() { table_.FoldCold(); }

  // The registry was read from the store: what happened up to `revision` is not known one by one.
  void BeginAt(Revision revision);
  // What changed after `since`; the first part of a snapshot when that is too long ago or `since` is 0 or ahead of us.
  // Only the function fields are filled in.
  [[nodiscard]] proto::ClusterUpdate ChangesSince(Revision since) const;
  // The part of a snapshot that begins behind the function `after`, with the functions as they are now.
  [[nodiscard]] proto::ClusterUpdate SnapshotAfter(const std::string& after) const;

  [[nodiscard]] const FunctionTable& table() const { return table_; }
  [[nodiscard]] Revision revision() const { return revision_; }

 private:
  struct Change {
    Revision revision;
    proto::FunctionKey key;
  };
  void Remember(const proto::FunctionKey& key, Revision revision);
  template <class Command>
  void ChangeRecord(const Command& command, Revision revision);

  RegistryLimits limits_;
  FunctionTable table_;
  std::deque<Change> changes_;
  Revision forgotten_ = 0;  // changes up to here are no longer kept
  Revision revision_ = 0;
};

}  // namespace troupe::cluster
