#include "actors/node/executor.hpp"

#include <caf/typed_event_based_actor.hpp>

#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/core/call.hpp"
#include "actors/core/time.hpp"
#include "actors/node/worker_life.hpp"
#include "actors/node/worker_orders.hpp"
#include "base/alarm.hpp"
#include "proto/local.pb.h"

namespace troupe::actors {

namespace {

using ExecutorSelf =
    ExecutorActor::extend<Hears<proto::WorkerListening>, Hears<proto::WorkerReady>,
                          Hears<proto::WorkerAnswer>, Hears<proto::WorkerDied>, Hears<proto::Tick>>;

enum : std::uint32_t { kSupervise = 1, kWatch = 2 };

class Executor : public ExecutorSelf::base {
 public:
  Executor(caf::actor_config& config, std::uint32_t gpu, const std::string& label,
           std::shared_ptr<WorkerLink> link, ExecutorListener listener, ExecutorLimits limits)
      : ExecutorSelf::base(config),
        label_(label),
        link_(std::move(link)),
        listener_(std::move(listener)),
        limits_(limits),
        machine_(limits.supervision),
        life_(gpu),
        orders_(*link_, label, limits.backlog) {}

  const char* name() const override { return "executor"; }

  behavior_type make_behavior() override {
    BindLink();
    Feed(node::Begin{link_->Listens()});
    After(this, limits_.watch_every, MakeTick(kWatch));
    return {
        [this](const proto::WorkerOrder& order) { return Order(order); },
        [this](const proto::KillWorker& kill) { Feed(node::Restart{kill.reason()}); },
        [this](const proto::AssignWorker& assign) { Assign(assign); },
        [this](const proto::WorkerListening& event) {
          if (event.incarnation() == life_.incarnation()) Feed(node::Listening{});
        },
        [this](const proto::WorkerReady& ready) { Ready(ready); },
        [this](proto::WorkerAnswer& answer) {
          if (answer.incarnation() == life_.incarnation())
            orders_.Answered(std::move(*answer.mutable_outcome()));
        },
        [this](const proto::WorkerDied& died) {
          if (died.incarnation() != life_.incarnation()) return;
          Feed(node::Exited{died.exit_code(), died.signal(), died.last_words()});
        },
        [this](const proto::Tick& tick) { OnTick(tick); },
    };
  }

  void on_exit() override {
    link_.reset();
    listener_ = nullptr;
    orders_.Clear();
  }

 private:
  void BindLink() {
    // The link calls from its own threads: everything becomes a message. The address is weak, so that a link
    // that outlives its executor for a moment sends into nothing.
    auto post = [self = caf::actor_cast<caf::actor_addr>(this)](auto message) {
      if (auto to = caf::actor_cast<caf::actor>(self)) caf::anon_send(to, std::move(message));
    };
    link_->Bind({post, post, post, post});
  }

  void Feed(const node::ExecutorEvent& event) {
    for (const auto& action : machine_.On(event, Now(this))) Act(action);
    const Time due = machine_.NextDue();
    if (alarm_.Set(due)) After(this, due - Now(this), MakeTick(kSupervise));
  }

  void Act(const node::ExecutorAction& action) {
    using Kind = node::ExecutorActionKind;
    switch (action.kind) {
      case Kind::kSpawn:
        life_.Starting();
        link_->Serve(life_.serves());
        return link_->Spawn(life_.incarnation());
      case Kind::kReportStarting:
        return Report(proto::ExecutorReport::STARTING, action.why);
      case Kind::kAdopt:
        life_.Adopting();
        return link_->Adopt(life_.incarnation());
      case Kind::kKill:
        return link_->Kill();
      case Kind::kShutDown:
        return link_->ShutDown();
      case Kind::kReportReady:
        return Report(proto::ExecutorReport::READY, action.why);
      case Kind::kReportLost:
        Report(proto::ExecutorReport::DOWN, action.why);
        return orders_.FailAll(
            absl::UnavailableError(absl::StrCat("the worker of ", label_, " is gone: ", action.why)));
      case Kind::kReportUnfit:
        Report(proto::ExecutorReport::UNFIT, action.why);
        return orders_.FailAll(absl::UnavailableError(absl::StrCat(label_, " is unfit: ", action.why)));
    }
  }

  void Report(proto::ExecutorReport::State state, const std::string& why) {
    send(listener_, life_.Report(state, why, machine_.restarts(), Now(this)));
  }

  void Assign(const proto::AssignWorker& assign) {
    if (machine_.state() != node::ExecutorState::kReady || assign.incarnation() != life_.incarnation())
      return;
    link_->Serve(assign.isolation_key());
    orders_.FailAll(
        absl::UnavailableError(absl::StrCat("the worker of ", label_, " is given to another key")));
    life_.Assign(assign.isolation_key(), assign.fresh(), Now(this));
    Feed(node::Reassign{assign.fresh()});
  }

  void Ready(const proto::WorkerReady& ready) {
    if (ready.incarnation() != life_.incarnation()) return;
    if (ready.code() != 0) return Feed(node::AdoptFailed{ready.message()});
    life_.Ready(ready.description());
    Feed(node::AdoptSucceeded{ready.same_worker()});
  }

  void OnTick(const proto::Tick& tick) {
    if (tick.what() == kWatch) {
      After(this, limits_.watch_every, tick);
      if (machine_.state() != node::ExecutorState::kReady) return;
      orders_.Drain();  // no outcome may be due that would do it
      const auto progress = link_->Progress();
      Feed(node::Progress{progress.busy, progress.counter});
      if (!progress.unfit.empty()) return Feed(node::DeviceUnfit{progress.unfit});
      if (!progress.hung.empty()) Feed(node::Restart{progress.hung});
      return;
    }
    alarm_.WentOff(Now(this));
    Feed(node::Tick{});
  }

  WorkerOrders::Promise Order(const proto::WorkerOrder& order) {
    auto promise = make_response_promise<proto::WorkerOutcome>();
    if (machine_.state() == node::ExecutorState::kReady) {
      orders_.Add(order, promise);
    } else {
      promise.deliver(
          Refusal(order.sequence(), absl::UnavailableError(absl::StrCat(label_, " has no worker now"))));
    }
    return promise;
  }

  const std::string label_;
  std::shared_ptr<WorkerLink> link_;
  ExecutorListener listener_;
  const ExecutorLimits limits_;
  node::ExecutorMachine machine_;
  WorkerLife life_;
  WorkerOrders orders_;
  Alarm alarm_;
};

}  // namespace

ExecutorActor SpawnExecutor(caf::actor_system& system, std::uint32_t gpu, const std::string& label,
                            std::unique_ptr<WorkerLink> link, ExecutorListener listener,
                            ExecutorLimits limits) {
  return system.spawn<Executor>(gpu, label, std::shared_ptr<WorkerLink>(std::move(link)), std::move(listener),
                                limits);
}

}  // namespace troupe::actors
