#include "actors/manager/cluster_manager.hpp"

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "actors/core/call.hpp"
#include "actors/core/continuations.hpp"
#include "actors/core/deliver.hpp"
#include "actors/core/time.hpp"
#include "actors/manager/admin_desk.hpp"
#include "actors/manager/catalogue.hpp"
#include "actors/manager/member_links.hpp"
#include "actors/manager/mutations.hpp"
#include "actors/manager/placement_board.hpp"
#include "base/status.hpp"
#include "cluster/event_log.hpp"
#include "proto/local.pb.h"

namespace troupe::actors {

namespace {

using ManagerSelf = ClusterManagerActor::extend<Hears<proto::Continue>, Hears<proto::Tick>>;
using JoinPromise = caf::typed_response_promise<proto::JoinReply>;
using AdminPromise = caf::typed_response_promise<proto::AdminReply>;
using RunPromise = caf::typed_response_promise<proto::RunReply>;
enum : std::uint32_t { kPulse = 1, kRelease = 2 };

template <class Reply>
Reply Failure(const absl::Status& status) {
  Reply reply;
  reply.set_code(static_cast<int>(status.code()));
  reply.set_message(std::string(status.message()));
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
        board_(options_.replicas, options_.placement_retry),
        mutations_([this](storage::Batch batch, std::function<void(absl::Status)> done) {
          Commit(std::move(batch), std::move(done));
        }) {
    members_.SetEpochFloor(catalogue_.last_epoch());
  }

  const char* name() const override { return "cluster_manager"; }

  behavior_type make_behavior() override {
    set_down_handler([this](caf::down_msg& down) { Down(down); });
    After(this, options_.tick, MakeTick(kPulse));
    Commit(catalogue_.BirthBatch(), [](const absl::Status&) {});
    return {
        [this](const proto::JoinRequest& join, const NodeControllerActor& node) {
          return Join(
              join, [node](MemberLinks& links, const std::string& name) { links.AddNode(name, node); }, node);
        },
        [this](const proto::JoinRequest& join, const RouterActor& router) {
          return Join(
              join, [router](MemberLinks& links, const std::string& name) { links.AddGateway(name, router); },
              router);
        },
        [this](const proto::Heartbeat& heartbeat) { return Hear(heartbeat); },
        [this](const proto::LeaveRequest& leave) {
          if (members_.Leave(leave, Now(this)).ok()) Pulse();
        },
        [this](proto::AdminRequest& request) { return Admin(request); },
        [this](proto::UploadChunk& chunk) { return Upload(chunk); },
        [this](const proto::FetchObject& part) { return Fetch(part); },
        [this](const proto::ReleaseFetched& release) { ReleasePart(release.release()); },
        [this](const proto::ReportEvents& report) {
          for (const auto& event : report.events()) Keep(event);
        },
        [this](proto::StartRun& command) { return Start(command); },
        [this](const proto::CommitStep& command) { return Record(command, command.run()); },
        [this](const proto::FinishRun& command) { return Record(command, command.run()); },
        [this](const proto::StoreBlob& blob) { return Keep(blob); },
        [this](const proto::Continue& message) { continuations_.Resume(message); },
        [this](const proto::Tick& tick) { OnTick(tick); },
    };
  }

  void on_exit() override {
    continuations_.Clear();
    mutations_.Clear();
    links_.Clear();
  }

 private:
  void Commit(storage::Batch batch, std::function<void(absl::Status)> done) {
    auto callback = continuations_.Make<bool>(
        this, [done = std::move(done)](const absl::StatusOr<bool>& committed) { done(committed.status()); });
    store_.Commit(std::move(batch), [callback](absl::Status status) {
      callback(status.ok() ? absl::StatusOr<bool>(true) : absl::StatusOr<bool>(std::move(status)));
    });
  }

  // --- membership ---

  template <class Link, class Handle>
  JoinPromise Join(const proto::JoinRequest& join, Link link, const Handle& member) {
    auto promise = make_response_promise<proto::JoinReply>();
    const auto epoch = members_.Join(join, Now(this));
    if (!epoch.ok()) {
      Deliver(promise, Failure<proto::JoinReply>(epoch.status()));
      return promise;
    }
    const auto name = join.member().name();
    link(links_, name);
    monitor(member);
    board_.NodeJoined(name, {join.adopted().begin(), join.adopted().end()});
    // No epoch is ever given twice, not even by a manager that forgot everything else.
    Commit(catalogue_.EpochBatch(*epoch),
           [this, promise, name, epoch = *epoch](const absl::Status& status) mutable {
             if (!status.ok()) return Deliver(promise, Failure<proto::JoinReply>(status));
             catalogue_.ApplyEpoch(epoch);
             Tell(name, "member-joined", absl::StrCat("epoch ", epoch));
             Changed();
             proto::JoinReply reply;
             reply.set_epoch(epoch);
             reply.set_cluster(catalogue_.cluster());
             reply.set_heartbeat_ns(options_.membership.heartbeat.count());
             *reply.mutable_state() = Snapshot();
             Deliver(promise, std::move(reply));
           });
    return promise;
  }

  proto::HeartbeatReply Hear(const proto::Heartbeat& heartbeat) {
    proto::HeartbeatReply reply;
    reply.set_known(members_.Hear(heartbeat, Now(this)).ok());
    reply.set_revision(catalogue_.revision());
    return reply;
  }

  void Down(const caf::down_msg& down) {
    calls_.PeerDown(down.source);
    const auto name = links_.Remove(down.source);
    if (name.empty()) return;
    if (const auto* member = members_.Find(name))
      members_.ConnectionLost(name, member->record.epoch(), Now(this));
    Pulse();
  }

  // Acts on every change of membership since the last pulse.
  void Pulse() {
    bool changed = false;
    for (const auto& transition : members_.Tick(Now(this))) {
      const bool gone = transition.to == proto::MEMBER_DEAD || transition.to == proto::MEMBER_LEFT;
      if (gone) {
        board_.NodeGone(transition.name);
        links_.Forget(transition.name);
      }
      // Suspicion is news for people; others act on it only when it has become certain.
      changed |= transition.to != proto::MEMBER_SUSPECT && transition.from != proto::MEMBER_SUSPECT;
      changed |= gone;
      const bool joined = transition.to == proto::MEMBER_ALIVE && transition.from != proto::MEMBER_SUSPECT &&
                          transition.from != proto::MEMBER_DRAINING;
      if (joined) continue;  // told when it joined
      Tell(transition.name, absl::StrCat("member-", StateName(transition.to)),
           absl::StrCat("was ", StateName(transition.from), ", silent for ",
                        FormatDuration(transition.silent)));
    }
    if (changed) Changed();
    Place();
  }

  // --- what members see ---

  void Changed() {
    catalogue_.Advance();
    const auto update = Snapshot();
    for (const auto& [name, node] : links_.nodes()) send(node, update);
    for (const auto& [name, gateway] : links_.gateways()) send(gateway, update);
    Place();
  }

  [[nodiscard]] proto::ClusterUpdate Snapshot() const {
    auto update = catalogue_.functions().ChangesSince(0);
    update.set_snapshot(true);
    update.set_revision(catalogue_.revision());
    for (auto& record : members_.Records()) *update.add_members() = std::move(record);
    for (auto& record : board_.Records()) *update.add_placements() = std::move(record);
    update.set_workflows_listed(true);
    for (const auto& [name, versions] : catalogue_.workflows().workflows())
      for (const auto& [version, record] : versions) *update.add_workflows() = record;
    return update;
  }

  // --- host copies ---

  void Place() {
    for (const auto& move : board_.Plan(catalogue_.functions().table(), members_, Now(this))) {
      const auto node = links_.Node(move.node);
      if (!node) continue;
      if (move.adopt) {
        Adopt(move.digest, move.node, node);
      } else {
        proto::DisownModel disown;
        disown.set_model_digest(move.digest);
        send(node, std::move(disown));
        board_.Disowned(move.digest, move.node);
      }
    }
  }

  void Adopt(const std::string& digest, const std::string& name, const NodeControllerActor& node) {
    const auto* record = catalogue_.functions().table().UserOf(digest);
    if (record == nullptr) return board_.Disowned(digest, name);
    proto::AdoptModel adopt;
    *adopt.mutable_function() = *record;
    Call<proto::AdoptModelReply>(
        this, calls_, node, options_.adopt_timeout, std::move(adopt),
        [this, digest, name, function = record->key().name()](absl::StatusOr<proto::AdoptModelReply> reply) {
          auto status = reply.status();
          if (reply.ok()) status = {static_cast<absl::StatusCode>(reply->code()), reply->message()};
          if (status.ok()) {
            board_.Adopted(digest, name);
          } else {
            board_.AdoptFailed(digest, name, Now(this));
            Tell(name, "adoption-failed", absl::StrCat("function '", function, "': ", status.message()));
          }
          AdoptionEnded(digest, status);
        });
  }

  void AdoptionEnded(const std::string& digest, const absl::Status& status) {
    const auto [begin, end] = deploying_.equal_range(digest);
    std::vector<std::function<void(absl::Status)>> waiting;
    for (auto it = begin; it != end; ++it) waiting.push_back(std::move(it->second));
    deploying_.erase(begin, end);
    for (auto& done : waiting) done(status);
  }

  // --- models and blobs ---

  caf::typed_response_promise<proto::UploadReply> Upload(proto::UploadChunk& chunk) {
    auto promise = make_response_promise<proto::UploadReply>();
    const auto received = chunk.offset() + chunk.data().size();
    repository_.Receive(absl::StrCat("upload-", chunk.upload()), chunk.offset(),
                        std::move(*chunk.mutable_data()), chunk.last(), chunk.digest(),
                        continuations_.Make<std::uint64_t>(
                            this, [promise, received](const absl::StatusOr<std::uint64_t>& size) mutable {
                              auto reply = Failure<proto::UploadReply>(size.status());
                              reply.set_received(received);
                              Deliver(promise, std::move(reply));
                            }));
    return promise;
  }

  caf::typed_response_promise<proto::FetchReply> Fetch(const proto::FetchObject& part) {
    auto promise = make_response_promise<proto::FetchReply>();
    repository_.Read(part, continuations_.Make<proto::FetchReply>(
                               this, [this, promise](absl::StatusOr<proto::FetchReply> reply) mutable {
                                 if (!reply.ok())
                                   return Deliver(promise, Failure<proto::FetchReply>(reply.status()));
                                 if (reply->release() != 0) {
                                   unreleased_.insert(reply->release());
                                   auto tick = MakeTick(kRelease);
                                   tick.set_token(reply->release());
                                   After(this, options_.release_after, tick);
                                 }
                                 Deliver(promise, std::move(*reply));
                               }));
    return promise;
  }

  void ReleasePart(std::uint64_t release) {
    if (unreleased_.erase(release) == 1) repository_.Release(release);
  }

  caf::typed_response_promise<proto::StoreBlobReply> Keep(const proto::StoreBlob& blob) {
    auto promise = make_response_promise<proto::StoreBlobReply>();
    repository_.Keep(
        blob.data().data(),
        continuations_.Make<std::string>(this, [promise](const absl::StatusOr<std::string>& digest) mutable {
          auto reply = Failure<proto::StoreBlobReply>(digest.status());
          if (digest.ok()) reply.set_digest(*digest);
          Deliver(promise, std::move(reply));
        }));
    return promise;
  }

  // --- runs ---

  RunPromise Start(proto::StartRun& command) {
    auto promise = make_response_promise<proto::RunReply>();
    const auto* workflow = catalogue_.workflows().Find(command.workflow(), command.version());
    auto status = catalogue_.runs().ValidateStart(command);
    if (workflow == nullptr)
      status = absl::NotFoundError(absl::StrCat("there is no workflow '", command.workflow(), "'"));
    if (!status.ok()) {
      Deliver(promise, Failure<proto::RunReply>(status));
      return promise;
    }
    command.set_version(workflow->spec().version());
    if (catalogue_.runs().Find(command.run()) != nullptr) {
      Deliver(promise, RunAnswer(command.run()));
      return promise;
    }
    return CommitRun(promise, command, command.run());
  }

  template <class Command>
  RunPromise Record(const Command& command, const std::string& run) {
    auto promise = make_response_promise<proto::RunReply>();
    if (const auto status = catalogue_.runs().ValidateCommit(run); !status.ok()) {
      Deliver(promise, Failure<proto::RunReply>(status));
      return promise;
    }
    return CommitRun(promise, command, run);
  }

  template <class Command>
  RunPromise CommitRun(RunPromise promise, const Command& command, const std::string& run) {
    Commit(catalogue_.BatchFor(command), [this, promise, command, run](const absl::Status& status) mutable {
      if (!status.ok()) return Deliver(promise, Failure<proto::RunReply>(status));
      catalogue_.Apply(command);
      Deliver(promise, RunAnswer(run));
      if (auto surplus = catalogue_.TakeSurplusRuns(); !surplus.empty())
        Commit(std::move(surplus), [](const absl::Status&) {});
    });
    return promise;
  }

  [[nodiscard]] proto::RunReply RunAnswer(const std::string& run) const {
    proto::RunReply reply;
    if (const auto* record = catalogue_.runs().Find(run)) {
      *reply.mutable_run() = *record;
      if (const auto* workflow =
              catalogue_.workflows().Find(record->start().workflow(), record->start().version()))
        *reply.mutable_workflow() = *workflow;
    }
    return reply;
  }

  // --- administration ---

  AdminPromise Admin(proto::AdminRequest& request) {
    auto promise = make_response_promise<proto::AdminReply>();
    using Case = proto::AdminRequest;
    switch (request.request_case()) {
      case Case::kDeploy:
        Deploy(promise, request.deploy());
        break;
      case Case::kRemove:
        Remove(promise, request.remove());
        break;
      case Case::kLoad:
        SetLoaded(promise, request.load());
        break;
      case Case::kSubmitWorkflow:
        SubmitWorkflow(promise, request.submit_workflow());
        break;
      case Case::kRemoveWorkflow:
        RemoveWorkflow(promise, request.remove_workflow());
        break;
      case Case::kCancelRun:
        CancelRun(promise, request.cancel_run());
        break;
      case Case::kDrain:
        Drain(promise, request.drain());
        break;
      case Case::kKillGpu:
        KillGpu(promise, request.kill_gpu());
        break;
      case Case::kListGpus:
        AskNodes(promise, request.list_gpus().node(), GpusOf);
        break;
      case Case::kListFunctions:
        ShowFunctions(promise, {});
        break;
      case Case::kShowFunction:
        ShowFunctions(promise, request.show_function().key());
        break;
      default:
        Deliver(promise, AnswerFromState(request, {catalogue_, members_, board_, events_, Now(this)}));
    }
    return promise;
  }

  // Imports first: nothing is stored of a file that cannot be served. Answered when the first node has
  // adopted it.
  void Deploy(AdminPromise promise, const proto::DeployRequest& wish) {
    if (const auto status = cluster::ValidateName("function", wish.name()); !status.ok())
      return Deliver(promise, Failure<proto::AdminReply>(status));
    repository_.Import(
        wish.onnx_digest(),
        continuations_.Make<proto::FunctionRecord>(
            this, [this, promise, wish](absl::StatusOr<proto::FunctionRecord> imported) mutable {
              if (!imported.ok()) return Deliver(promise, Failure<proto::AdminReply>(imported.status()));
              Imported(promise, wish, std::move(*imported));
            }));
  }

  void Imported(AdminPromise promise, const proto::DeployRequest& wish, proto::FunctionRecord record) {
    record.mutable_key()->set_name(wish.name());
    record.mutable_key()->set_version(wish.version());
    record.set_tenant(wish.tenant());
    *record.mutable_slo() = wish.has_slo() ? wish.slo() : options_.default_slo;
    record.set_loaded(true);
    record.set_deployed_unix_ns(options_.unix_now());
    auto command = std::make_shared<proto::DeployFunction>();
    *command->mutable_record() = std::move(record);
    Mutate<proto::DeployFunction>(
        command,
        [this, command]() -> absl::Status {
          if (catalogue_.workflows().HasName(command->record().key().name()))
            return absl::AlreadyExistsError("a workflow has this name; choose another");
          TROUPE_RETURN_IF_ERROR(PlacementBoard::CheckFits(command->record(), members_));
          TROUPE_ASSIGN_OR_RETURN(*command, catalogue_.functions().ValidateDeploy(*command));
          return absl::OkStatus();
        },
        [this, promise, command](const absl::Status& status) mutable {
          if (!status.ok()) return Deliver(promise, Failure<proto::AdminReply>(status));
          AwaitAdoption(promise, command->record());
        });
  }

  void AwaitAdoption(AdminPromise promise, const proto::FunctionRecord& record) {
    Tell("manager", "function-deployed", cluster::Describe(record.key()));
    const auto& digest = record.model_digest();
    auto answer = [this, promise, record](const absl::Status& status) mutable {
      if (status.ok() || absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
          absl::IsResourceExhausted(status))
        return Deliver(
            promise, AnswerFunctions({&record}, {catalogue_, members_, board_, events_, Now(this)}, status));
      // No node can serve it: it is taken back, and the developer is told why.
      auto removal = std::make_shared<proto::RemoveFunction>();
      *removal->mutable_key() = record.key();
      removal->set_unix_ns(options_.unix_now());
      Mutate<proto::RemoveFunction>(
          removal, [] { return absl::OkStatus(); },
          [promise, status](const absl::Status&) mutable {
            Deliver(promise, Failure<proto::AdminReply>(status));
          });
    };
    if (!board_.HoldersOf(digest).empty() || !board_.BeingAdopted(digest)) {
      answer(absl::OkStatus());
      return;
    }
    deploying_.emplace(digest, std::move(answer));
  }

  // Validates and commits `command` when its turn comes, then tells everyone; `answer` runs last.
  template <class Command>
  void Mutate(std::shared_ptr<Command> command, std::function<absl::Status()> validate,
              std::function<void(absl::Status)> answer) {
    mutations_.Add({[this, command, validate]() -> absl::StatusOr<storage::Batch> {
                      TROUPE_RETURN_IF_ERROR(validate());
                      return catalogue_.BatchFor(*command);
                    },
                    [this, command] {
                      catalogue_.Apply(*command);
                      Changed();
                    },
                    std::move(answer)});
  }

  template <class Command>
  void MutateAndAnswer(AdminPromise promise, std::shared_ptr<Command> command,
                       std::function<absl::Status()> validate, const std::string& event,
                       const std::string& what) {
    Mutate<Command>(command, std::move(validate),
                    [this, promise, event, what](const absl::Status& status) mutable {
                      if (status.ok()) Tell("manager", event, what);
                      Deliver(promise, Failure<proto::AdminReply>(status));
                    });
  }

  void Remove(AdminPromise promise, const proto::RemoveRequest& wish) {
    auto command = std::make_shared<proto::RemoveFunction>();
    *command->mutable_key() = wish.key();
    command->set_unix_ns(options_.unix_now());
    MutateAndAnswer<proto::RemoveFunction>(
        promise, command,
        [this, command]() -> absl::Status {
          TROUPE_ASSIGN_OR_RETURN(*command, catalogue_.functions().ValidateRemove(*command));
          return absl::OkStatus();
        },
        "function-removed", cluster::Describe(wish.key()));
  }

  void SetLoaded(AdminPromise promise, const proto::LoadRequest& wish) {
    auto command = std::make_shared<proto::SetFunctionLoaded>();
    *command->mutable_key() = wish.key();
    command->set_loaded(wish.load());
    command->set_unix_ns(options_.unix_now());
    MutateAndAnswer<proto::SetFunctionLoaded>(
        promise, command,
        [this, command]() -> absl::Status {
          TROUPE_ASSIGN_OR_RETURN(*command, catalogue_.functions().ValidateLoaded(*command));
          return absl::OkStatus();
        },
        wish.load() ? "function-loaded" : "function-unloaded", cluster::Describe(wish.key()));
  }

  void SubmitWorkflow(AdminPromise promise, const proto::SubmitWorkflow& wish) {
    auto command = std::make_shared<proto::WorkflowRecord>();
    Mutate<proto::WorkflowRecord>(
        command,
        [this, command, yaml = wish.yaml()]() -> absl::Status {
          TROUPE_ASSIGN_OR_RETURN(*command, ReadWorkflow(yaml, catalogue_, options_.unix_now()));
          return absl::OkStatus();
        },
        [this, promise, command](const absl::Status& status) mutable {
          auto reply = Failure<proto::AdminReply>(status);
          if (status.ok()) {
            *reply.add_workflows() = *command;
            Tell("manager", "workflow-submitted", command->spec().name());
          }
          Deliver(promise, std::move(reply));
        });
  }

  void RemoveWorkflow(AdminPromise promise, const proto::RemoveWorkflow& wish) {
    auto command = std::make_shared<proto::RemoveWorkflow>(wish);
    MutateAndAnswer<proto::RemoveWorkflow>(
        promise, command,
        [this, command]() -> absl::Status {
          const auto* known = catalogue_.workflows().Find(command->name(), command->version());
          if (known == nullptr)
            return absl::NotFoundError(absl::StrCat("there is no workflow '", command->name(), "'"));
          command->set_version(known->spec().version());
          return absl::OkStatus();
        },
        "workflow-removed", wish.name());
  }

  void CancelRun(AdminPromise promise, const proto::CancelRun& wish) {
    if (catalogue_.runs().Find(wish.run()) == nullptr)
      return Deliver(promise, Failure<proto::AdminReply>(
                                  absl::NotFoundError(absl::StrCat("there is no run '", wish.run(), "'"))));
    proto::FinishRun command;
    command.set_run(wish.run());
    command.set_state(proto::RUN_CANCELLED);
    command.set_message("cancelled by an operator");
    command.set_unix_ns(options_.unix_now());
    Commit(catalogue_.BatchFor(command), [this, promise, command](const absl::Status& status) mutable {
      if (status.ok()) catalogue_.Apply(command);
      Deliver(promise, Failure<proto::AdminReply>(status));
    });
  }

  void Drain(AdminPromise promise, const proto::DrainNode& wish) {
    const auto node = links_.Node(wish.name());
    auto status = members_.SetDraining(wish.name(), wish.drain());
    if (status.ok() && !node) status = absl::UnavailableError("the node is not connected");
    if (!status.ok()) return Deliver(promise, Failure<proto::AdminReply>(status));
    Pulse();
    Call<proto::DrainReply>(this, calls_, node, options_.ask_timeout, wish,
                            [promise](const absl::StatusOr<proto::DrainReply>& reply) mutable {
                              Deliver(promise, Failure<proto::AdminReply>(reply.status()));
                            });
  }

  void KillGpu(AdminPromise promise, const proto::KillGpu& wish) {
    const auto node = links_.Node(wish.node());
    if (!node) {
      return Deliver(promise, Failure<proto::AdminReply>(absl::NotFoundError(
                                  absl::StrCat("there is no node '", wish.node(), "' that is connected"))));
    }
    const auto* member = members_.Find(wish.node());
    if (member == nullptr || wish.gpu() >= static_cast<std::uint32_t>(member->record.gpus_size())) {
      return Deliver(promise, Failure<proto::AdminReply>(absl::NotFoundError(
                                  absl::StrCat("node '", wish.node(), "' has no GPU ", wish.gpu()))));
    }
    Tell(wish.node(), "gpu-killed", absl::StrCat("GPU ", wish.gpu(), ", by an operator"));
    send(node, wish);
    Deliver(promise, proto::AdminReply());
  }

  // Asks one node, or all, for what they have, and puts the answers together.
  template <class Merge>
  void AskNodes(AdminPromise promise, const std::string& only, Merge merge) {
    std::vector<NodeControllerActor> asked;
    for (const auto& [name, node] : links_.nodes())
      if (only.empty() || only == name) asked.push_back(node);
    if (asked.empty() && !only.empty())
      return Deliver(promise, Failure<proto::AdminReply>(
                                  absl::NotFoundError(absl::StrCat("there is no node '", only, "'"))));
    auto reply = std::make_shared<proto::AdminReply>();
    auto open = std::make_shared<std::size_t>(asked.size() + 1);
    auto close = [promise, reply, open]() mutable {
      if (--*open == 0) Deliver(promise, std::move(*reply));
    };
    for (const auto& node : asked) {
      Call<proto::NodeDescription>(
          this, calls_, node, options_.ask_timeout, proto::DescribeNode(),
          [reply, close, merge](absl::StatusOr<proto::NodeDescription> description) mutable {
            if (description.ok()) merge(*description, *reply);
            close();
          });
    }
    close();
  }

  void ShowFunctions(AdminPromise promise, const proto::FunctionKey& key) {
    auto listed = AnswerFunctionQuery(key, {catalogue_, members_, board_, events_, Now(this)});
    if (listed.code() != 0) return Deliver(promise, std::move(listed));
    AskNodes(promise, "",
             [listed = std::make_shared<proto::AdminReply>(std::move(listed))](
                 const proto::NodeDescription& node, proto::AdminReply& reply) {
               if (reply.functions_size() == 0) *reply.mutable_functions() = listed->functions();
               AddResidency(node, reply);
             });
  }

  // --- small things ---

  void Tell(const std::string& member, const std::string& kind, const std::string& message) {
    proto::Event event;
    event.set_unix_ns(options_.unix_now());
    event.set_member(member);
    event.set_kind(kind);
    event.set_message(message);
    Keep(event);
  }

  void Keep(const proto::Event& event) {
    events_.Add(event);
    if (options_.on_event) options_.on_event(event);
  }

  void OnTick(const proto::Tick& tick) {
    if (tick.what() == kRelease) return ReleasePart(tick.token());
    After(this, options_.tick, tick);
    Pulse();
  }

  static proto::Tick MakeTick(std::uint32_t what) {
    proto::Tick tick;
    tick.set_what(what);
    return tick;
  }

  const ManagerOptions options_;
  Catalogue catalogue_;
  storage::MetadataStore& store_;
  ModelRepository& repository_;
  cluster::MembershipTable members_;
  PlacementBoard board_;
  Mutations mutations_;
  MemberLinks links_;
  cluster::EventLog events_;
  PendingCalls calls_;
  Continuations continuations_;
  std::multimap<std::string, std::function<void(absl::Status)>> deploying_;  // by model digest
  std::set<std::uint64_t> unreleased_;
};

}  // namespace

absl::StatusOr<ClusterManagerActor> SpawnClusterManager(caf::actor_system& system, ManagerOptions options,
                                                        storage::MetadataStore& store,
                                                        ModelRepository& repository) {
  TROUPE_ASSIGN_OR_RETURN(auto catalogue, Catalogue::Load(store, options.new_cluster_id));
  return caf::actor_cast<ClusterManagerActor>(system.spawn<ClusterManager>(
      std::move(options), std::move(catalogue), std::ref(store), std::ref(repository)));
}

}  // namespace troupe::actors
