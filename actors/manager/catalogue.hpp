// CATALOGUE: the durable part of the cluster manager: registries, run log, cluster id, epochs. It is read
// from the store once, at start, and from then on changes only by commands: Batch(command) is committed
// first, Apply(command) follows its acknowledgement. So memory never knows more than the disk.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "actors/manager/run_log.hpp"
#include "cluster/function_registry.hpp"
#include "cluster/workflow_registry.hpp"
#include "proto/admin.pb.h"
#include "security/api_keys.hpp"
#include "storage/metadata_store.hpp"

namespace troupe::actors {

class Catalogue {
 public:
  // `cluster_id` is what a new store gets; an existing one keeps its own. DataLoss names a damaged record.
  static absl::StatusOr<Catalogue> Load(const storage::MetadataStore& store, const std::string& cluster_id);

  [[nodiscard]] const std::string& cluster() const { return cluster_; }
  [[nodiscard]] std::uint64_t last_epoch() const { return last_epoch_; }
  // The revision that the next command gets.
  [[nodiscard]] std::uint64_t NextRevision() const { return revision_ + 1; }
  [[nodiscard]] std::uint64_t revision() const { return revision_; }
  // A change that is not kept (membership) still counts.
  void Advance() { ++revision_; }
  [[nodiscard]] const cluster::FunctionRegistry& functions() const { return functions_; }
  void NoteProblem(const proto::FunctionKey& key, std::string problem) {
    functions_.NoteProblem(key, std::move(problem));
  }
  [[nodiscard]] const cluster::WorkflowRegistry& workflows() const { return workflows_; }
  // Of their last change; 0: none since the store was read.
  [[nodiscard]] std::uint64_t workflows_revision() const { return workflows_revision_; }
  [[nodiscard]] const security::ApiKeyTable& keys() const { return keys_; }
  // Of their last change; 0: none since the store was read.
  [[nodiscard]] std::uint64_t keys_revision() const { return keys_revision_; }
  [[nodiscard]] const RunLog& runs() const { return runs_; }
  // A start is on its way to the store, and did not get there; see RunLog.
  void BeginStart(const proto::StartRun& command) { runs_.BeginStart(command); }
  void StartFailed(const std::string& run) { runs_.StartFailed(run); }
  // What a start left there that failed, if anything.
  [[nodiscard]] static storage::Batch NoStartBatch(const std::set<std::string>& runs);
  // The run's next claim, for `gateway`; see RunLog.
  [[nodiscard]] proto::ClaimRun BeginClaim(const std::string& run, const std::string& gateway) {
    return runs_.BeginClaim(run, gateway);
  }
  void ClaimFailed(const std::string& run) { runs_.ClaimFailed(run); }
  // Where the models of functions that keep state are, as it was when the store was read: digest -> node.
  [[nodiscard]] const std::map<std::string, std::string>& homes() const { return homes_; }
  [[nodiscard]] static storage::Batch HomeBatch(const std::string& digest, const std::string& node);
  [[nodiscard]] static storage::Batch NoHomeBatch(const std::vector<std::string>& digests);

  // Nodes that an operator drained: they stay so, also when the node or the manager restarts.
  [[nodiscard]] bool Drained(const std::string& node) const { return drained_.contains(node); }
  [[nodiscard]] static storage::Batch DrainBatch(const std::string& node, bool drain);
  void ApplyDrain(const std::string& node, bool drain) {
    drain ? static_cast<void>(drained_.insert(node)) : static_cast<void>(drained_.erase(node));
  }

  // What makes a new store this cluster's.
  [[nodiscard]] storage::Batch BirthBatch() const;
  [[nodiscard]] storage::Batch EpochBatch(std::uint64_t epoch) const;
  void ApplyEpoch(std::uint64_t epoch) { last_epoch_ = epoch; }

  [[nodiscard]] storage::Batch BatchFor(const proto::DeployFunction& command) const;
  [[nodiscard]] storage::Batch BatchFor(const proto::RemoveFunction& command) const;
  [[nodiscard]] storage::Batch BatchFor(const proto::SetFunctionLoaded& command) const;
  [[nodiscard]] storage::Batch BatchFor(const proto::WorkflowRecord& command) const;
  [[nodiscard]] storage::Batch BatchFor(const proto::RemoveWorkflow& command) const;
  [[nodiscard]] storage::Batch BatchFor(const proto::CreateApiKey& command) const;
  [[nodiscard]] storage::Batch BatchFor(const proto::RevokeApiKey& command) const;
  [[nodiscard]] storage::Batch BatchFor(const proto::StartRun& command) const;
  [[nodiscard]] storage::Batch BatchFor(const proto::ClaimRun& command) const;
  [[nodiscard]] storage::Batch BatchFor(const proto::CommitStep& command) const;
  [[nodiscard]] storage::Batch BatchFor(const proto::FinishRun& command) const;

  // The model whose users a command changes; empty: of none. Ask before it is applied.
  [[nodiscard]] std::string ModelOf(const proto::DeployFunction& command) const {
    return command.record().model_digest();
  }
  [[nodiscard]] std::string ModelOf(const proto::RemoveFunction& command) const {
    return ModelOf(command.key());
  }
  [[nodiscard]] std::string ModelOf(const proto::SetFunctionLoaded& command) const {
    return ModelOf(command.key());
  }
  [[nodiscard]] std::string ModelOf(const proto::WorkflowRecord&) const { return {}; }
  [[nodiscard]] std::string ModelOf(const proto::RemoveWorkflow&) const { return {}; }
  [[nodiscard]] std::string ModelOf(const proto::CreateApiKey&) const { return {}; }
  [[nodiscard]] std::string ModelOf(const proto::RevokeApiKey&) const { return {}; }
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
  // The removal of runs that are kept no longer; empty when there are none.
  [[nodiscard]] storage::Batch TakeSurplusRuns();
  // The objects that functions and runs refer to.
  [[nodiscard]] cluster::Digests Objects() const;

 private:
  [[nodiscard]] std::string ModelOf(const proto::FunctionKey& key) const {
    const auto* record = functions_.table().Find(key);
    return record == nullptr ? std::string() : record->model_digest();
  }
  void ApplyTo(const proto::DeployFunction& command) { functions_.Apply(command, revision_); }
  void ApplyTo(const proto::RemoveFunction& command) { functions_.Apply(command, revision_); }
  void ApplyTo(const proto::SetFunctionLoaded& command) { functions_.Apply(command, revision_); }
  void ApplyTo(const proto::WorkflowRecord& command) {
    workflows_.Apply(command, revision_);
    workflows_revision_ = revision_;
  }
  void ApplyTo(const proto::RemoveWorkflow& command) {
    workflows_.ApplyRemoval(command.name(), command.version());
    workflows_revision_ = revision_;
  }
  void ApplyTo(const proto::CreateApiKey& command) {
    keys_.Apply(command);
    keys_revision_ = revision_;
  }
  void ApplyTo(const proto::RevokeApiKey& command) {
    keys_.Apply(command);
    keys_revision_ = revision_;
  }
  absl::Status LoadRuns(const storage::MetadataStore& store);

  std::string cluster_;
  std::uint64_t last_epoch_ = 0;
  std::uint64_t revision_ = 0;
  cluster::FunctionRegistry functions_;
  cluster::WorkflowRegistry workflows_;
  std::uint64_t workflows_revision_ = 0;
  security::ApiKeyTable keys_;
  std::uint64_t keys_revision_ = 0;
  RunLog runs_;
  std::map<std::string, std::string> homes_;
  std::set<std::string> drained_;
};

}  // namespace troupe::actors
