// The cluster manager's class, private to its sources: cluster_manager.cpp (membership, what members see,
// host copies), manager_objects.cpp (models, blobs), manager_runs.cpp (runs of workflows and who has them),
// manager_provisioning.cpp (machines for nodes),
// manager_admin.cpp (administration), manager_audit.cpp (its lines). Contract:
// actors/interfaces/cluster_manager.hpp.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "actors/core/call.hpp"
#include "actors/core/continuations.hpp"
#include "actors/core/deliver.hpp"
#include "actors/core/time.hpp"
#include "actors/manager/admin_answers.hpp"
#include "actors/manager/admin_promise.hpp"
#include "actors/manager/catalogue.hpp"
#include "actors/manager/cluster_manager.hpp"
#include "actors/manager/member_links.hpp"
#include "actors/manager/mutations.hpp"
#include "actors/manager/placement_table.hpp"
#include "actors/manager/run_links.hpp"
#include "actors/manager/update_feed.hpp"
#include "base/status.hpp"
#include "base/wire_status.hpp"
#include "cluster/event_log.hpp"
#include "cluster/exclusive_lease.hpp"
#include "proto/local.pb.h"

namespace troupe::actors {

using ManagerSelf =
    ClusterManagerActor::extend<Hears<proto::Continue>, Hears<proto::Tick>, Hears<AllowFaults>>;
using JoinPromise = caf::typed_response_promise<proto::JoinReply>;
using AdminReplyPromise = caf::typed_response_promise<proto::AdminReply>;
using RunPromise = caf::typed_response_promise<proto::RunReply>;
enum : std::uint32_t { kPulse = 1, kRelease = 2, kTakeBack = 3 };

// A reply that says what went wrong (or, for OK, nothing).
template <class Reply>
Reply Failure(const absl::Status& status) {
  Reply reply;
  SetStatus(status, reply);
  return reply;
}

class ClusterManager : public ManagerSelf::base {
 public:
  ClusterManager(caf::actor_config& config, ManagerOptions options, Catalogue catalogue,
                 storage::MetadataStore& store, ModelRepository& repository)
      : ManagerSelf::base(config),
        options_(std::move(options)),
        catalogue_(std::move(catalogue)),
        store_(store),
        repository_(repository),
        members_(options_.membership),
        feed_(catalogue_),
        placement_(options_.replicas, options_.placement_retry,
                   cluster::ExclusiveLease(options_.member_lease)),
        mutations_([this](storage::Batch batch, std::function<void(absl::Status)> done) {
          Commit(std::move(batch), std::move(done));
        }),
        provisioning_(options_.provisioning) {
    members_.SetEpochFloor(catalogue_.last_epoch());
  }
  const char* name() const override { return "cluster_manager"; }
  behavior_type make_behavior() override;
  void on_exit() override;

 private:
  void Commit(storage::Batch batch, std::function<void(absl::Status)> done);
  // --- membership ---
  template <class Link, class Handle>
  JoinPromise Join(const proto::JoinRequest& join, Link link, const Handle& member);
  // The member's epoch. FailedPrecondition for one of another cluster, AlreadyExists for one whose name
  // another has.
  absl::StatusOr<std::uint64_t> Welcome(const proto::JoinRequest& join, const std::string& daemon,
                                        const Peer& sender);
  // An event, once for each name.
  void TellRefused(const proto::JoinRequest& join, const absl::Status& why);
  // The process that sent the message being handled. A promise takes the sender away: ask before making one.
  [[nodiscard]] std::shared_ptr<const Peer> Sender() { return PeerOf(options_.identities, current_sender()); }
  // For one that has joined and has missed something.
  [[nodiscard]] proto::JoinReply CatchUp(const proto::JoinRequest& ask) const;
  [[nodiscard]] proto::JoinReply JoinedAs(std::uint64_t epoch, std::uint64_t known_revision) const;
  proto::HeartbeatReply Hear(const proto::Heartbeat& heartbeat);
  void Down(const caf::down_msg& down);
  // Acts on every change of membership since the last pulse.
  void Pulse();
  // A pulse that comes late: this process stood still, or what came before took long. What members said
  // meanwhile may lie unread behind it.
  void ExcuseStandstill();
  // --- what members see ---
  void Changed();
  // --- host copies ---
  void Place();
  void Adopt(const std::string& digest, const std::string& name, const NodeControllerActor& node);
  PlacementTable::Homes KeepHomes();
  // Functions whose models' objects the store lacks, at the start.
  void TellLacking();
  // Functions whose state is on a node that is not there: once each.
  void TellUnreachable();
  // The node was asked in a life of it that is over.
  void AdoptionLost(const std::string& digest, const std::string& name);
  void AdoptionEnded(const std::string& digest, const absl::Status& status);
  // --- models and blobs ---
  caf::typed_response_promise<proto::UploadReply> Upload(proto::UploadChunk& chunk);
  caf::typed_response_promise<proto::FetchReply> Fetch(const proto::FetchObject& part);
  void ReleasePart(std::uint64_t release) {
    if (unreleased_.erase(release) == 1) repository_.Release(release);
  }
  caf::typed_response_promise<proto::StoreBlobReply> Keep(const proto::StoreBlob& blob);
  // --- runs ---
  // `asker`: the actor that submits the run; empty: the run has no owner yet. It is answered with a run that
  // has not ended when it is the run's owner now, and else with the run's end.
  RunPromise Start(proto::StartRun& command, const WorkflowRunActor& asker);
  [[nodiscard]] absl::Status CheckStart(proto::StartRun& command) const;
  void Own(const proto::StartRun& command, const WorkflowRunActor& asker, RunPromise promise);
  RunPromise Record(const proto::CommitStep& command);
  // Runs whose start could not be stored leave the store, sooner or later.
  void TakeBack(const std::set<std::string>& runs);
  void TakeBackNow();
  void TellRecomputed(const proto::CommitStep& command);
  // False: the same is being committed, and `promise` is answered with it.
  bool BeginCommit(const std::string& what, const RunPromise& promise);
  void EndCommit(const std::string& what, const std::string& run, const absl::Status& status);
  RunPromise Record(const proto::FinishRun& command);
  // Stores the end of a run, unless it has ended: the first end counts, in the store as in memory. `done`
  // runs once, when the run's end is settled or could not be stored.
  void EndRun(const proto::FinishRun& command, std::function<void(absl::Status)> done);
  void RunOver(const std::string& run, const absl::Status& status);
  // Gives the run to `gateway`, if it is `wanted` when its turn has come. Cancelled when it is not,
  // FailedPrecondition when it has ended. kAllowed: a run that failed for a passing reason is begun again.
  enum class Reopening { kNone, kAllowed };
  void Claim(const std::string& run, const std::string& gateway, Reopening reopening,
             std::function<bool()> wanted, std::function<void(absl::Status)> done);
  // Runs without an owner get another gateway.
  void RelinkRuns();
  void TakeOver();
  // It was claimed for `gateway`, which is told to go on with it.
  void GoOnAt(const std::string& gateway, const std::string& run);
  // `former`, empty or not, had `run` before the claim that it has now.
  void TellTaken(const WorkflowRunActor& former, const proto::RunRecord& run);
  void OwnerLost(const std::string& run);
  void GatewayLost(const std::string& gateway);
  // To an owner from before.
  RunPromise Refuse(RunPromise promise, const std::string& run, std::uint64_t claim,
                    const absl::Status& status);
  [[nodiscard]] proto::RunReply RunAnswer(const std::string& run) const;
  // --- administration ---
  AdminReplyPromise Admin(proto::AdminRequest& request);
  void Answer(AdminPromise promise, proto::AdminRequest& request);
  // --- the audit (manager_audit.cpp) ---
  AdminPromise Audited(const AdminReplyPromise& promise, storage::AuditLine line);
  // Writes into `line` for whom `peer` asked, and through which gateway.
  void SetSender(const proto::AdminRequest& request, const Peer& peer, storage::AuditLine& line);
  // `then` when the line is durable, or known to be late.
  void WriteDown(storage::AuditLine line, std::function<void()> then);
  // The imports of one file, or all of them for an empty digest.
  [[nodiscard]] proto::AdminReply ShowImport(const proto::ShowImport& wish) const;
  // Imports first: nothing is stored of a file that cannot be served. Answered when the first node has
  // adopted it.
  void Deploy(AdminPromise promise, const proto::DeployRequest& wish);
  void Imported(AdminPromise promise, const proto::DeployRequest& wish, proto::FunctionRecord record);
  void AwaitAdoption(AdminPromise promise, const proto::FunctionRecord& record);
  // Validates and commits `command` when its turn comes, then tells everyone; `answer` runs last.
  template <class Command>
  void Mutate(std::shared_ptr<Command> command, std::function<absl::Status()> validate,
              std::function<void(absl::Status)> answer);
  void Remove(AdminPromise promise, const proto::RemoveRequest& wish);
  void SetLoaded(AdminPromise promise, const proto::LoadRequest& wish);
  void SubmitWorkflow(AdminPromise promise, const proto::SubmitWorkflow& wish);
  void RemoveWorkflow(AdminPromise promise, const proto::RemoveWorkflow& wish);
  void CreateKey(AdminPromise promise, const proto::CreateKey& wish);
  void ListKeys(AdminPromise promise);
  void RevokeKey(AdminPromise promise, const proto::RevokeKey& wish);
  void CancelRun(AdminPromise promise, const proto::CancelRun& wish);
  void Drain(AdminPromise promise, const proto::DrainNode& wish);
  void Drained(AdminPromise promise, const proto::DrainNode& wish, const absl::Status& stored);
  void KillGpu(AdminPromise promise, const proto::KillGpu& wish);
  // Hands it to the member, or does it here (manager_faults.cpp).
  void InjectFault(AdminPromise promise, const proto::InjectFault& wish);
  // Asks one node, or all, for what they have, and puts the answers together with what is `known` already.
  template <class Merge>
  void AskNodes(AdminPromise promise, const std::string& only, Merge merge, proto::AdminReply known = {});
  void ShowFunctions(AdminPromise promise, const proto::FunctionKey& key);
  // --- machines for nodes (manager_provisioning.cpp) ---
  void Provision();
  void BeginDrain(const std::string& name);
  void Order(const cluster::ProvisionAction& action);
  void Provisioned(const cluster::ProvisionAction& action, const absl::Status& status);
  // --- small things ---
  void Tell(const std::string& member, const std::string& kind, const std::string& message) {
    proto::Event event;
    event.set_unix_ns(options_.unix_now());
    event.set_member(member);
    event.set_kind(kind);
    event.set_message(message);
    Keep(event);
  }
  void Keep(const proto::Event& event);
  void OnTick(const proto::Tick& tick);
  void CollectObjects();

  const ManagerOptions options_;
  FaultHook faults_;  // into this process; empty: no faults in this cluster
  Catalogue catalogue_;
  storage::MetadataStore& store_;
  ModelRepository& repository_;
  cluster::MembershipTable members_;
  Time last_pulse_{};
  Time last_collected_{};
  UpdateFeed feed_;
  PlacementTable placement_;
  std::set<std::string> refused_;      // members that are another's, or another's name; told once each
  std::set<std::string> unreachable_;  // models whose home is not there, as it was told
  Mutations mutations_;
  cluster::Provisioning provisioning_;
  std::set<std::string> leaving_;  // nodes that drain and are given back then
  MemberLinks links_;
  RunLinks run_links_;
  // Commands of runs on their way to the disk, and who waits for each.
  std::map<std::string, std::vector<RunPromise>> committing_;
  std::set<std::string> unwritten_;  // runs whose start failed, and may lie in the store
  cluster::EventLog events_;
  PendingCalls calls_;
  Continuations continuations_;
  std::multimap<std::string, std::function<void(absl::Status)>> deploying_;  // by model digest
  std::set<std::uint64_t> unreleased_;
};

}  // namespace troupe::actors
