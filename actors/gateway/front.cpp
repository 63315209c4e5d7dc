#include "actors/gateway/front.hpp"

#include <caf/typed_event_based_actor.hpp>

#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/core/continuations.hpp"
#include "actors/core/deliver.hpp"
#include "actors/core/inbox.hpp"
#include "actors/core/time.hpp"
#include "actors/gateway/kept_inputs.hpp"
#include "actors/gateway/shell_tensors.hpp"
#include "actors/gateway/workflow_run.hpp"
#include "base/random.hpp"
#include "base/wire_status.hpp"

namespace troupe::actors {

namespace {

using FrontSelf =
    FrontActor::extend<Hears<proto::Job>, Hears<proto::Continue>,
                       caf::reacts_to<proto::PeerUp, caf::strong_actor_ptr>, Hears<proto::PeerLost>>;

// Begins the name of each run without a key of its caller. A key cannot begin so, so the name cannot be taken
// from outside.
constexpr char kOwnRun[] = ".";

proto::InferReply Failed(const absl::Status& status) {
  proto::InferReply reply;
  SetStatus(status, reply);
  return reply;
}
proto::InferReply Unavailable(const std::string& message) {
  return Failed(absl::UnavailableError(message));
}

absl::Status CheckRunKey(const std::string& key) {
  if (!key.starts_with(kOwnRun)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the Idempotency-Key '", key,
      "' begins with '.', as the names of runs do that have no key: choose a key that begins with a "
      "letter, a digit, '-' or '_'"));
}

class Front : public FrontSelf::base {
 public:
  Front(caf::actor_config& config, FrontOptions options, RouterActor router,
        std::shared_ptr<Inbox<Front>> inbox, PeerDirectory& directory, transport::TensorChannel& channel)
      : FrontSelf::base(config),
        options_(std::move(options)),
        router_(std::move(router)),
        inbox_(std::move(inbox)),
        directory_(directory),
        channel_(channel),
        random_(options_.incarnation) {}

  const char* name() const override { return "front"; }

  behavior_type make_behavior() override {
    set_down_handler([this](caf::down_msg& down) { living_.erase(down.source.id()); });
    directory_.Watch(options_.manager, system().message_types<ClusterManagerActor>(),
                     caf::actor_cast<PeerWatcherActor>(this));
    return {
        [this](proto::InferRequest& request) {
          auto promise = make_response_promise<proto::InferReply>();
          request.set_call(0);  // numbers of others mean nothing here
          auto placed = std::make_shared<PlacedInputs>(channel_);
          if (const auto status = placed->Place(request); !status.ok()) {
            Deliver(promise, Failed(status));
            return promise;
          }
          Infer(std::move(request), [this, promise, placed](proto::InferReply reply) mutable {
            placed.reset();
            Answer(promise, std::move(reply));
          });
          return promise;
        },
        [this](const proto::DescribeGateway& ask) {
          return options_.describe ? options_.describe(ask, Now(this)) : proto::GatewayDescription();
        },
        [](const proto::ReleaseOutputs&) {},
        [this](const proto::Continue& message) { continuations_.Resume(message); },
        [this](const proto::Job& job) { inbox_->Run(job, *this); },
        [this](const proto::PeerUp& up, const caf::strong_actor_ptr& peer) {
          manager_ = caf::actor_cast<ClusterManagerActor>(peer);
          TellRuns(up, peer);
        },
        [this](const proto::PeerLost& lost) {
          manager_ = ClusterManagerActor();
          TellRuns(lost);
        },
        [this](const proto::ContinueRun& message) { Continue(message); },
    };
  }

  void on_exit() override {
    inbox_->Close();
    continuations_.Clear();
    runs_.clear();
    for (const auto& [id, run] : living_) send_exit(run, caf::exit_reason::user_shutdown);
    living_.clear();
    router_ = RouterActor();
    manager_ = ClusterManagerActor();
  }

  // A router and a run answer every request, within its timeout; the error is their own end.
  void Infer(proto::InferRequest message, FrontClient::Done done) {
    message
        .clear_workflow();  // only runs say by which workflow they call, and have tensors kept between their steps
    message.clear_keep();
    if (!HolderOf(message).empty())
      return done(Failed(
          absl::InvalidArgumentError("a request brings its inputs: it cannot name what a node keeps")));
    const auto view = options_.view->Get();
    const auto& key = message.function();
    const auto* workflow = view->FindWorkflow(key.name(), key.version());
    auto failed = [done](const caf::error& error) { done(Unavailable(caf::to_string(error))); };
    if (workflow == nullptr) {
      request(router_, caf::infinite, std::move(message))
          .then([done](proto::InferReply& reply) { done(std::move(reply)); }, failed);
      return;
    }
    if (const auto status = CheckRunKey(message.run_key()); !status.ok()) return done(Failed(status));
    if (message.has_sequence())
      return done(Failed(absl::UnimplementedError(
          absl::StrCat("a sequence was named ('", message.sequence().id(), "'), and '", key.name(),
                       "' is a workflow, which keeps nothing from one run to the next: leave it out"))));
    WorkflowRunOptions options;
    options.keyed = !message.run_key().empty();
    options.logged = options.keyed || workflow->spec().stages() == 0;
    if (!manager_ && options.logged)
      return done(Unavailable("the cluster manager is away: workflow runs wait for it; try again"));
    const auto call = message.call();
    options.run = options.keyed ? message.run_key()
                                : absl::StrCat(kOwnRun, options_.gateway, "-",
                                               absl::Hex(options_.incarnation), "-", next_run_++);
    if (!options.keyed) options.trace = message.client_id();
    auto run = Spawn(std::move(options), workflow->spec());
    if (call != 0) runs_[call] = run;
    request(run, caf::infinite, std::move(message))
        .then(
            [this, call, done, began = Now(this)](proto::InferReply& reply) {
              runs_.erase(call);
              if (options_.on_run) options_.on_run(reply.function(), reply.code(), Now(this) - began);
              done(std::move(reply));
            },
            [this, call, failed](const caf::error& error) {
              runs_.erase(call);
              failed(error);
            });
  }

  // A call of a thread, through the front client.
  void Cancel(std::uint64_t call) {
    const auto run = runs_.find(call);
    if (run != runs_.end()) {
      proto::CancelInfer cancel;
      cancel.set_call(call);
      send(run->second, std::move(cancel));
    } else {
      options_.router_inbox->Post(router_, [call](RouterClient& router) { router.Cancel(call); });
    }
  }

 private:
  WorkflowRunActor Spawn(WorkflowRunOptions options, const proto::WorkflowSpec& spec) {
    options.gateway = options_.gateway;
    if (options.trace.empty()) options.trace = options.run;
    options.seed = random_();
    options.view = options_.view;
    options.adopt = [inbox = inbox_, front = caf::weak_actor_ptr(ctrl())](
                        const WorkflowRunActor& run, const ClusterManagerActor& manager) {
      const auto self = caf::actor_cast<caf::strong_actor_ptr>(front);
      if (self) inbox->Post(self, [run, manager](Front& adopter) { adopter.Adopt(run, manager); });
    };
    auto run = SpawnWorkflowRun(system(), std::move(options), spec, router_, manager_, channel_);
    monitor(run);
    living_[run->id()] = run;
    return run;
  }

  // A run that a step of another one has begun. It may have ended by now, and the manager that it knows may have gone.
  void Adopt(const WorkflowRunActor& run, const ClusterManagerActor& manager) {
    monitor(run);
    living_[run->id()] = run;
    const auto watcher = caf::actor_cast<PeerWatcherActor>(run);
    if (manager == manager_) return;
    if (!manager_) return send(watcher, proto::PeerLost());
    send(watcher, proto::PeerUp(), caf::actor_cast<caf::strong_actor_ptr>(manager_));
  }

  // A shell may be gone without a word as soon as it has the answer. So the outputs go into the answer, and what the
  // worker keeps of them is released before it leaves.
  void Answer(caf::typed_response_promise<proto::InferReply> promise, proto::InferReply reply) {
    proto::ReleaseOutputs read;
    read.set_release(reply.release());
    reply.clear_release();
    BringOutputs(
        channel_, std::move(reply),
        [this](FetchDone done) { return continuations_.Make<transport::TensorData>(this, std::move(done)); },
        [this, promise, read = std::move(read)](proto::InferReply whole) mutable {
          if (read.release() != 0) send(router_, std::move(read));
          Deliver(promise, std::move(whole));
        });
  }

  // It was committed as ours. Should its own gateway live after all, what that commits is refused.
  void Continue(const proto::ContinueRun& message) {
    WorkflowRunOptions options;
    options.run = message.run().start().run();
    options.record = message.run();
    options.parent = message.run().start().parent();
    options.parent_step = message.run().start().parent_step();
    options.depth = message.run().start().depth();
    Spawn(std::move(options), message.workflow().spec());
  }

  template <class... Message>
  void TellRuns(const Message&... message) {
    for (const auto& [id, run] : living_) send(caf::actor_cast<PeerWatcherActor>(run), message...);
  }

  const FrontOptions options_;
  RouterActor router_;
  std::shared_ptr<Inbox<Front>> inbox_;
  PeerDirectory& directory_;
  transport::TensorChannel& channel_;
  ClusterManagerActor manager_;
  std::map<std::uint64_t, WorkflowRunActor> runs_;  // by call
  // Until their end: a run that has answered may still be storing its own. They end with us.
  std::map<caf::actor_id, WorkflowRunActor> living_;
  Continuations continuations_;
  std::uint64_t next_run_ = 1;
  Random random_;
};

// A call of a thread, which is answered also when the actor that has it ends.
struct FrontCall {
  proto::InferRequest request;
  FrontClient::Done done;

  FrontCall(proto::InferRequest r, FrontClient::Done d) : request(std::move(r)), done(std::move(d)) {}
  FrontCall(const FrontCall&) = delete;
  FrontCall& operator=(const FrontCall&) = delete;
  ~FrontCall() {
    if (done) done(Unavailable("the gateway is stopping; try again"));
  }
};

class ActorFrontClient final : public FrontClient {
 public:
  ActorFrontClient(caf::actor_system& system, const FrontOptions& options, RouterActor router,
                   PeerDirectory& directory, transport::TensorChannel& channel)
      : view_(options.view),
        router_(router),
        router_inbox_(options.router_inbox),
        inbox_(std::make_shared<Inbox<Front>>()),
        front_(caf::actor_cast<caf::actor>(system.spawn<Front>(options, std::move(router), inbox_,
                                                               std::ref(directory), std::ref(channel)))) {}
  ~ActorFrontClient() override { caf::anon_send_exit(front_, caf::exit_reason::user_shutdown); }

  [[nodiscard]] FrontActor actor() const override { return caf::actor_cast<FrontActor>(front_); }
  void Infer(proto::InferRequest request, Done done) override {
    const auto& key = request.function();
    const bool is_workflow = view_->Get()->FindWorkflow(key.name(), key.version()) != nullptr;
    auto call = std::make_shared<FrontCall>(std::move(request), std::move(done));
    const auto ask = [call = std::move(call)](auto& actor) {
      actor.Infer(std::move(call->request),
                  [call](proto::InferReply reply) { std::exchange(call->done, nullptr)(std::move(reply)); });
    };
    if (is_workflow) {
      inbox_->Post(front_, ask);
    } else {
      router_inbox_->Post(router_, ask);
    }
  }
  void Cancel(std::uint64_t call) override {
    inbox_->Post(front_, [call](Front& front) { front.Cancel(call); });
  }
  void Release(std::uint64_t release) override {
    proto::ReleaseOutputs message;
    message.set_release(release);
    caf::anon_send(router_, std::move(message));
  }

 private:
  const std::shared_ptr<ViewCell> view_;
  const RouterActor router_;
  const std::shared_ptr<RouterInbox> router_inbox_;
  const std::shared_ptr<Inbox<Front>> inbox_;
  const caf::actor front_;
};

}  // namespace

std::unique_ptr<FrontClient> MakeFrontClient(caf::actor_system& system, FrontOptions options,
                                             RouterActor router, PeerDirectory& directory,
                                             transport::TensorChannel& channel) {
  return std::make_unique<ActorFrontClient>(system, options, std::move(router), directory, channel);
}

}  // namespace troupe::actors
