#include "actors/node/executor.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/core/call.hpp"
#include "actors/core/time.hpp"
#include "base/wire_status.hpp"
#include "proto/local.pb.h"

namespace troupe::actors {

namespace {

using ExecutorSelf =
    ExecutorActor::extend<Hears<proto::WorkerListening>, Hears<proto::WorkerReady>,
                          Hears<proto::WorkerAnswer>, Hears<proto::WorkerDied>, Hears<proto::Tick>>;

enum : std::uint32_t { kSupervise = 1, kWatch = 2 };

proto::WorkerOutcome Refusal(std::uint64_t sequence, const absl::Status& status) {
  proto::WorkerOutcome outcome;
  outcome.set_sequence(sequence);
  SetStatus(status, outcome);
  return outcome;
}

class Executor : public ExecutorSelf::base {
 public:
  Executor(caf::actor_config& config, std::uint32_t gpu, const std::string& label,
           std::shared_ptr<WorkerLink> link, ExecutorListener listener, ExecutorLimits limits)
      : ExecutorSelf::base(config),
        gpu_(gpu),
        label_(label),
        link_(std::move(link)),
        listener_(std::move(listener)),
        limits_(limits),
        machine_(limits.supervision) {}

  const char* name() const override { return "executor"; }

  behavior_type make_behavior() override {
    BindLink();
    Feed(node::Begin{link_->Listens()});
    After(this, limits_.watch_every, MakeTick(kWatch));
    return {
        [this](proto::WorkerOrder& order) { return Order(order); },
        [this](const proto::KillWorker& kill) { Feed(node::Restart{kill.reason()}); },
        [this](const proto::AssignWorker& assign) { Assign(assign); },
        [this](const proto::WorkerListening& event) {
          if (event.incarnation() == incarnation_) Feed(node::Listening{});
        },
        [this](const proto::WorkerReady& ready) { Ready(ready); },
        [this](proto::WorkerAnswer& answer) {
          if (answer.incarnation() == incarnation_) Outcome(*answer.mutable_outcome());
        },
        [this](const proto::WorkerDied& died) {
          if (died.incarnation() != incarnation_) return;
          Feed(node::Exited{died.exit_code(), died.signal(), died.last_words()});
        },
        [this](const proto::Tick& tick) { OnTick(tick); },
    };
  }

  void on_exit() override {
    link_.reset();
    listener_ = nullptr;
    orders_.clear();
  }

 private:
  using Promise = caf::typed_response_promise<proto::WorkerOutcome>;

  void BindLink() {
    // The link calls from its own threads: everything becomes a message. The address is weak, so that a link
    // that outlives its executor for a moment sends into nothing.
    auto post = [self = caf::actor_cast<caf::actor_addr>(this)](auto message) {
      if (auto to = caf::actor_cast<caf::actor>(self)) caf::anon_send(to, std::move(message));
    };
    link_->Bind({post, post, post, post});
  }

  // --- supervision ---

  void Feed(const node::ExecutorEvent& event) {
    for (const auto& action : machine_.On(event, Now(this))) Act(action);
    if (machine_.NextDue() != armed_ && machine_.NextDue() != Time::max()) {
      armed_ = machine_.NextDue();
      After(this, armed_ - Now(this), MakeTick(kSupervise));
    }
  }

  void Act(const node::ExecutorAction& action) {
    using Kind = node::ExecutorActionKind;
    switch (action.kind) {
      case Kind::kSpawn:
        ++incarnation_;
        // A worker that starts for another reason than an assignment serves no particular key.
        if (!std::exchange(assigned_, false)) serves_.clear();
        link_->Serve(serves_);
        link_->Spawn(incarnation_);
        return Report(proto::ExecutorReport::STARTING, action.why);
      case Kind::kAdopt:
        if (incarnation_ == 0) ++incarnation_;
        return link_->Adopt(incarnation_);
      case Kind::kKill:
        return link_->Kill();
      case Kind::kShutDown:
        return link_->ShutDown();
      case Kind::kReportReady:
        return Report(proto::ExecutorReport::READY, action.why);
      case Kind::kReportLost:
        Report(proto::ExecutorReport::DOWN, action.why);
        down_since_ = Now(this);
        return FailAll(
            absl::UnavailableError(absl::StrCat("the worker of ", label_, " is gone: ", action.why)));
      case Kind::kReportUnfit:
        Report(proto::ExecutorReport::UNFIT, action.why);
        return FailAll(absl::UnavailableError(absl::StrCat(label_, " is unfit: ", action.why)));
    }
  }

  void Report(proto::ExecutorReport::State state, const std::string& why) {
    proto::ExecutorReport report;
    report.set_gpu(gpu_);
    report.set_state(state);
    report.set_reason(why);
    report.set_restarts(machine_.restarts());
    report.set_incarnation(incarnation_);
    if (state == proto::ExecutorReport::STARTING) report.mutable_worker()->set_isolation_key(serves_);
    if (state == proto::ExecutorReport::READY) {
      *report.mutable_worker() = worker_;
      if (down_since_ != Time{}) report.set_down_ns((Now(this) - down_since_).count());
      down_since_ = Time{};
    }
    send(listener_, std::move(report));
  }

  void Assign(const proto::AssignWorker& assign) {
    if (machine_.state() != node::ExecutorState::kReady || assign.incarnation() != incarnation_) return;
    serves_ = assign.isolation_key();
    assigned_ = assign.fresh();
    link_->Serve(serves_);
    FailAll(absl::UnavailableError(absl::StrCat("the worker of ", label_, " is given to another key")));
    down_since_ = Now(this);
    if (!assign.fresh()) ++incarnation_;  // what the old connection to it still says is dropped
    Feed(node::Reassign{assign.fresh()});
  }

  void Ready(const proto::WorkerReady& ready) {
    if (ready.incarnation() != incarnation_) return;
    if (ready.code() != 0) return Feed(node::AdoptFailed{ready.message()});
    worker_ = ready.description();
    Feed(node::AdoptSucceeded{ready.same_worker()});
  }

  void OnTick(const proto::Tick& tick) {
    if (tick.what() == kWatch) {
      After(this, limits_.watch_every, tick);
      if (machine_.state() != node::ExecutorState::kReady) return;
      DrainBacklog();  // no outcome may be due that would do it
      const auto progress = link_->Progress();
      Feed(node::Progress{progress.busy, progress.counter});
      if (!progress.unfit.empty()) return Feed(node::DeviceUnfit{progress.unfit});
      if (!progress.hung.empty()) Feed(node::Restart{progress.hung});
      return;
    }
    armed_ = Time{};
    Feed(node::Tick{});
  }

  // --- orders ---

  caf::typed_response_promise<proto::WorkerOutcome> Order(proto::WorkerOrder& order) {
    auto promise = make_response_promise<proto::WorkerOutcome>();
    const auto sequence = order.sequence();
    if (machine_.state() != node::ExecutorState::kReady) {
      promise.deliver(Refusal(sequence, absl::UnavailableError(absl::StrCat(label_, " has no worker now"))));
      return promise;
    }
    if (order.has_cancel()) return Cancel(order, std::move(promise));
    if (!HasOutcome(order)) {
      Forward(order);
      promise.deliver(Refusal(sequence, absl::OkStatus()));
      return promise;
    }
    if (!orders_.try_emplace(sequence, promise).second) {
      promise.deliver(
          Refusal(sequence, absl::InvalidArgumentError("an order with this sequence is under way")));
      return promise;
    }
    Forward(order);
    return promise;
  }

  Promise Cancel(const proto::WorkerOrder& order, Promise promise) {
    const auto target = order.cancel().target();
    const auto waiting = std::find_if(backlog_.begin(), backlog_.end(),
                                      [target](const auto& queued) { return queued.sequence() == target; });
    if (waiting != backlog_.end()) {
      backlog_.erase(waiting);
      Answer(Refusal(target, absl::CancelledError("cancelled before it began")));
    } else if (orders_.contains(target)) {
      Forward(order);
    }
    promise.deliver(Refusal(order.sequence(), absl::OkStatus()));
    return promise;
  }

  void Forward(const proto::WorkerOrder& order) {
    if (!backlog_.empty()) return Queue(order);
    const auto status = link_->Send(order);
    if (status.ok()) return;
    if (absl::IsResourceExhausted(status)) return Queue(order);
    Answer(Refusal(order.sequence(), status));
  }

  void Queue(const proto::WorkerOrder& order) {
    // An order that gives something back always waits: a model that is not unpinned, or outputs that are not
    // released, would hold their memory for ever. Each such order follows a swap or a run, so their number is bounded too.
    if (backlog_.size() < limits_.backlog || !HasOutcome(order)) return backlog_.push_back(order);
    Answer(Refusal(order.sequence(), absl::ResourceExhaustedError(absl::StrCat(
                                         limits_.backlog, " orders already wait for ", label_))));
  }

  void DrainBacklog() {
    while (!backlog_.empty()) {
      const auto status = link_->Send(backlog_.front());
      if (absl::IsResourceExhausted(status)) return;
      const auto sequence = backlog_.front().sequence();
      backlog_.pop_front();
      if (!status.ok()) Answer(Refusal(sequence, status));
    }
  }

  void Outcome(proto::WorkerOutcome& outcome) {
    DrainBacklog();
    Answer(std::move(outcome));
  }

  void Answer(proto::WorkerOutcome outcome) {
    const auto it = orders_.find(outcome.sequence());
    if (it == orders_.end()) return;
    auto promise = std::move(it->second);
    orders_.erase(it);
    promise.deliver(std::move(outcome));
  }

  void FailAll(const absl::Status& status) {
    backlog_.clear();
    for (auto& [sequence, promise] : std::exchange(orders_, {})) promise.deliver(Refusal(sequence, status));
  }

  const std::uint32_t gpu_;
  const std::string label_;
  std::shared_ptr<WorkerLink> link_;
  ExecutorListener listener_;
  const ExecutorLimits limits_;
  node::ExecutorMachine machine_;
  proto::WorkerDescription worker_;
  std::uint64_t incarnation_ = 0;
  std::string serves_;     // whom the worker serves, or will
  bool assigned_ = false;  // the next one to be started was asked for
  Time armed_{};
  Time down_since_{};
  std::map<std::uint64_t, Promise> orders_;
  std::deque<proto::WorkerOrder> backlog_;
};

}  // namespace

ExecutorActor SpawnExecutor(caf::actor_system& system, std::uint32_t gpu, const std::string& label,
                            std::unique_ptr<WorkerLink> link, ExecutorListener listener,
                            ExecutorLimits limits) {
  return system.spawn<Executor>(gpu, label, std::shared_ptr<WorkerLink>(std::move(link)), std::move(listener),
                                limits);
}

}  // namespace troupe::actors
