// CATALOGUE: the durable part of the cluster manager: registries, run log, cluster id, epochs. It is read
// from the store once, at start, and from then on changes only by commands: ChangesFor(command) is committed
// first, Apply(command) follows its acknowledgement. So memory never knows more than the disk.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/function_registry.hpp"
#include "cluster/records/key_registry.hpp"
#include "cluster/records/profile_registry.hpp"
#include "cluster/records/usage_totals.hpp"
#include "cluster/runs/run_log.hpp"
#include "cluster/workflow_registry.hpp"
#include "proto/admin.pb.h"

namespace troupe::cluster {

// The homes of functions' states when the manager began.
struct StoredHomes {
  std::map<std::string, proto::PlacementRecord> by_model{};  // by digest
  std::uint64_t last_term = 0;                               // no home had a larger one
};

// What a store has of a cluster.
struct CatalogueRecords {
  std::optional<std::string> cluster{};  // absent: the store is new
  std::uint64_t last_epoch = 0;
  std::uint64_t revision = 0;
  std::vector<proto::FunctionRecord> functions{};
  std::vector<proto::WorkflowRecord> workflows{};
  std::vector<proto::PlacementRecord> homes{};
  std::uint64_t last_term = 0;  // of homes that were given up
  std::vector<std::string> drained{};
  std::vector<proto::ApiKeyRecord> keys{};
  std::vector<proto::RunRecord> runs{};
  std::vector<proto::CommitStep> steps{};
  std::vector<proto::UsageAmount> usage{};
  std::vector<proto::UsageLedger> ledgers{};
  std::vector<proto::FunctionProfile> profiles{};
  std::vector<proto::ProfilingExperiment> experiments{};
};

class Catalogue {
 public:
  // `cluster_id` is what a new store gets; an existing one keeps its own. DataLoss names a record that could
  // never be applied.
  static absl::StatusOr<Catalogue> Of(CatalogueRecords records, const std::string& cluster_id);

  [[nodiscard]] const std::string& cluster() const { return cluster_; }
  [[nodiscard]] std::uint64_t last_epoch() const { return last_epoch_; }
  [[nodiscard]] std::uint64_t revision() const { return revision_; }
  // A change that is not kept (membership) still counts.
  void Advance() { ++revision_; }
  [[nodiscard]] const FunctionRegistry& functions() const { return functions_; }
  void NoteProblem(const proto::FunctionKey& key, std::string problem) {
    functions_.NoteProblem(key, std::move(problem));
  }
  // As FunctionRegistry::FoldCold.
  void FoldCold() { functions_.FoldCold(); }
  [[nodiscard]] const WorkflowRegistry& workflows() const { return workflows_; }
  // Of their last change; 0: none since the store was read.
  [[nodiscard]] std::uint64_t workflows_revision() const { return workflows_revision_; }
  [[nodiscard]] const KeyRegistry& keys() const { return keys_; }
  // Of their last change; 0: none since the store was read.
  [[nodiscard]] std::uint64_t keys_revision() const { return keys_revision_; }
  [[nodiscard]] const ProfileRegistry& profiles() const { return profiles_; }
  // It changes nothing that members see.
  void ApplyExperiment(const proto::ProfilingExperiment& experiment) { profiles_.Apply(experiment); }
  [[nodiscard]] const RunLog& runs() const { return runs_; }
  // A start is on its way to the store, and did not get there; see RunLog.
  void BeginStart(const proto::StartRun& command) { runs_.BeginStart(command); }
  void StartFailed(const std::string& run) { runs_.StartFailed(run); }
  // The run's next claim, for `gateway`; see RunLog.
  [[nodiscard]] proto::ClaimRun BeginClaim(const std::string& run, const std::string& gateway) {
    return runs_.BeginClaim(run, gateway);
  }
  void ClaimFailed(const std::string& run) { runs_.ClaimFailed(run); }
  // Where the models of functions that keep state are, as it was when the store was read, by digest.
  [[nodiscard]] const StoredHomes& homes() const { return nodes_.homes; }

  // Nodes that an operator drained: they stay drained when they or the manager restart.
  [[nodiscard]] bool Drained(const std::string& node) const { return nodes_.drained.contains(node); }
  void ApplyDrain(const std::string& node, bool drain) {
    drain ? static_cast<void>(nodes_.drained.insert(node)) : static_cast<void>(nodes_.drained.erase(node));
  }

  // What functions used. It changes nothing that members see.
  [[nodiscard]] const UsageTotals& usage() const { return usage_; }
  void ApplyUsage(const UsageChange& change) { usage_.Apply(change); }

  void ApplyEpoch(std::uint64_t epoch) { last_epoch_ = epoch; }

  // The model whose users a command changes; empty: of none. Ask before it is applied.
  template <class Command>
  [[nodiscard]] std::string ModelOf(const Command& command) const {
    if constexpr (std::is_same_v<Command, proto::DeployFunction>) {
      return command.record().model_digest();
    } else if constexpr (std::is_same_v<Command, proto::RemoveFunction> ||
                         std::is_same_v<Command, proto::SetFunctionLoaded>) {
      const auto* record = functions_.table().Find(command.key());
      return record == nullptr ? std::string() : record->model_digest();
    } else {
      return {};
    }
  }
  template <class Command>
  void Apply(const Command& command) {
    ++revision_;
    ApplyTo(command);
  }
  // Run records do not change what members see: no revision.
  void Apply(const proto::StartRun& command) { runs_.Apply(command); }
  void Apply(const proto::ClaimRun& command) { runs_.Apply(command); }
  void Apply(const proto::CommitStep& command) { runs_.Apply(command); }
  void Apply(const proto::FinishRun& command) { runs_.Apply(command); }
  // Ended runs beyond what is kept; they are forgotten here, and RemovalOf removes them from the store.
  [[nodiscard]] std::vector<proto::RunRecord> TakeSurplusRuns() { return runs_.TakeSurplus(); }
  // The objects that functions and runs refer to.
  [[nodiscard]] Digests Objects() const;

 private:
  // Of functions, and the removal of a profile.
  template <class Command>
  void ApplyTo(const Command& command) {
    if constexpr (std::is_same_v<Command, proto::DropProfile>) {
      profiles_.Apply(command, revision_);
    } else {
      functions_.Apply(command, revision_);
    }
  }
  void ApplyTo(const proto::WorkflowRecord& command) {
    workflows_.Apply(command, revision_);
    workflows_revision_ = revision_;
  }
  void ApplyTo(const proto::RemoveWorkflow& command) {
    workflows_.ApplyRemoval(command.name(), command.version());
    workflows_revision_ = revision_;
  }
  void ApplyTo(const proto::KeepProfile& command) { profiles_.Apply(command, functions_.table(), revision_); }
  void ApplyTo(const proto::CreateApiKey& command) {
    keys_.Apply(command);
    keys_revision_ = revision_;
  }
  void ApplyTo(const proto::RevokeApiKey& command) {
    keys_.Apply(command);
    keys_revision_ = revision_;
  }
  void TakeRuns(std::vector<proto::RunRecord> runs, const std::vector<proto::CommitStep>& steps);

  std::string cluster_;
  std::uint64_t last_epoch_ = 0;
  std::uint64_t revision_ = 0;
  FunctionRegistry functions_;
  WorkflowRegistry workflows_;
  std::uint64_t workflows_revision_ = 0;
  KeyRegistry keys_;
  std::uint64_t keys_revision_ = 0;
  RunLog runs_;
  struct {
    StoredHomes homes{};
    std::set<std::string> drained{};
  } nodes_;
  ProfileRegistry profiles_;
  UsageTotals usage_;
};

}  // namespace troupe::cluster
