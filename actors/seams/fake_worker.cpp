#include "actors/seams/fake_worker.hpp"

#include <algorithm>
#include <caf/event_based_actor.hpp>
#include <caf/send.hpp>
#include <csignal>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/core/protobuf_adapter.hpp"
#include "actors/core/time.hpp"
#include "actors/seams/fake_answers.hpp"
#include "actors/seams/fake_room.hpp"
#include "actors/seams/fake_states.hpp"
#include "base/wire_status.hpp"

namespace troupe::actors {

namespace {

constexpr int kNoDevice = 4;                              // node::kWorkerExitNoDevice
constexpr Duration kLook = std::chrono::milliseconds(1);  // a receiver, how far its sender is

// What happens later is a message to the worker's own actor.
using Later = std::function<void()>;

class Worker : public caf::event_based_actor {
 public:
  Worker(caf::actor_config& config, std::shared_ptr<FakeWorkerShared> shared)
      : caf::event_based_actor(config), shared_(std::move(shared)) {}

  caf::behavior make_behavior() override {
    return {
        [this](const proto::WorkerListening& spawn) { Spawn(spawn.incarnation()); },
        [this](const proto::WorkerReady& adopt) { Adopt(adopt.incarnation()); },
        [this](const proto::KillWorker&) { Die(0, 9, "killed"); },
        [this](const proto::WorkerDied&) { Die(0, 15, "ended by its daemon"); },
        [this](const proto::WorkerOrder& order) { Take(order); },
        [this](const proto::Tick& tick) {
          auto node = later_.extract(tick.token());
          shared_->working = later_.size();
          if (!node.empty() && tick.what() == shared_->incarnation) node.mapped()();
        },
    };
  }

 private:
  void InTime(Time at, Later later) {
    proto::Tick tick;
    tick.set_token(next_++);
    tick.set_what(static_cast<std::uint32_t>(shared_->incarnation));
    later_[tick.token()] = std::move(later);
    shared_->working = later_.size();
    After(this, at - Now(this), tick);
  }

  void Spawn(std::uint64_t incarnation) {
    auto& control = *shared_->control;
    shared_->Begin(incarnation);
    Forget();
    control.Begin();
    control.used = Bytes(0);
    ++control.spawns;
    if (control.refuse_start) return Die(1, 0, "told to refuse");
    if (control.unfit) return Die(kNoDevice, 0, "there is no such device");
    InTime(Now(this) + shared_->profile.start, [this, incarnation] {
      proto::WorkerListening listening;
      listening.set_incarnation(incarnation);
      shared_->events.on_listening(std::move(listening));
    });
  }

  void Adopt(std::uint64_t incarnation) {
    auto& life = shared_->control->life;
    const bool from_before = incarnation != shared_->incarnation;
    if (from_before) shared_->Begin(incarnation);
    if (from_before) device_ = {};
    if (life.up && shared_->control->hang) {
      return InTime(Now(this) + shared_->profile.adopt_timeout, [this, from_before] {
        Ready(absl::DeadlineExceededError("nothing from the worker"), from_before);
      });
    }
    if (!life.up) return Ready(absl::NotFoundError("no worker listens"), from_before);
    life.linked = true;
    life.tensors.Clear();  // of the daemon before
    if (life.runtime.empty()) life.runtime = shared_->runtime;
    if (!from_before) shared_->control->TakeOver();
    Ready(absl::OkStatus(), from_before);
  }

  void Ready(const absl::Status& status, bool from_before) {
    proto::WorkerReady ready;
    ready.set_incarnation(shared_->incarnation);
    SetStatus(status, ready);
    ready.set_same_worker(from_before);
    if (status.ok()) *ready.mutable_description() = DescribeWorker(*shared_);
    shared_->events.on_ready(std::move(ready));
  }

  void Die(int code, int signal, const std::string& why) {
    auto& life = shared_->control->life;
    if (shared_->death_told) return;
    shared_->death_told = true;
    proto::WorkerDied died;
    died.set_incarnation(shared_->incarnation);
    died.set_exit_code(life.up ? code : 0);
    died.set_signal(life.up ? signal : 0);
    died.set_last_words(life.up ? why : "it was gone already");
    if (life.up) shared_->control->kept.Leave(life.runtime, life.resident);
    life.tensors.Clear();
    life = {};
    Forget();
    shared_->events.on_death(std::move(died));
  }

  // What the worker was at.
  void Forget() {
    later_.clear();
    shared_->working = 0;
    cancelled_.clear();
    device_ = {};
  }

  FakeGpu& Gpu() {
    if (device_.gpu) return *device_.gpu;
    device_.gpu = shared_->profile.NewGpu([this](Time at, Later then) { InTime(at, std::move(then)); });
    return *device_.gpu;
  }

  [[nodiscard]] Bytes Free() const { return shared_->profile.memory - shared_->control->used; }

  void Take(const proto::WorkerOrder& order) {
    ++shared_->taken;
    if (!shared_->control->life.linked) return;
    if (order.has_cancel()) {
      cancelled_.insert(order.cancel().target());
      return;
    }
    if (order.has_unpin()) shared_->control->Unpin(order.unpin().pin());
    if (order.has_release()) shared_->control->Release(order.release());
    if (!HasOutcome(order) || shared_->control->hang) return;
    if (order.has_pin()) return AnswerNow(order, shared_->control->Pin(order.pin()));
    if (order.has_prepare()) return Prepare(order);
    if (order.has_swap_in()) return SwapIn(order);
    if (order.has_evict()) return Evict(order);
    if (order.has_write_back()) return WriteBack(order);
    if (order.has_run()) return Read(order);
    if (order.has_export_tensor())
      return AnswerNow(order, shared_->control->life.tensors.Export(order.export_tensor().tensor(),
                                                                    shared_->profile.channel));
    if (order.has_pull()) return Pull(order);
    if (order.has_shutdown()) return Die(0, 0, "shut down");
    if (order.has_fault() && order.fault().kind() == proto::FaultOrder::CRASH)
      return Die(0, SIGSEGV, "a fault was ordered");
    if (order.has_fault()) shared_->control->hang = true;  // from the next order on
    proto::WorkerOutcome outcome;
    if (order.has_describe()) *outcome.mutable_description() = DescribeWorker(*shared_);
    Answer(order.sequence(), absl::OkStatus(), std::move(outcome), Now(this));
  }

  void Answer(std::uint64_t sequence, const absl::Status& status, proto::WorkerOutcome outcome, Time begin) {
    ++shared_->progress;
    ++shared_->answered;
    shared_->control->open = shared_->sent - shared_->answered;
    outcome.set_sequence(sequence);
    SetStatus(status, outcome);
    outcome.set_begin_ns(begin.time_since_epoch().count());
    outcome.set_end_ns(Now(this).time_since_epoch().count());
    proto::WorkerAnswer answer;
    answer.set_incarnation(shared_->incarnation);
    *answer.mutable_outcome() = std::move(outcome);
    shared_->events.on_outcome(std::move(answer));
  }

  void AnswerNow(const proto::WorkerOrder& order, absl::StatusOr<proto::WorkerOutcome> outcome) {
    const auto status = outcome.status();
    Answer(order.sequence(), status, std::move(outcome).value_or(proto::WorkerOutcome()), Now(this));
  }

  void Prepare(const proto::WorkerOrder& order) {
    shared_->control->Touch(order.prepare().model().digest());
    shared_->control->prepared_as.emplace(order.prepare().model().digest(), order.prepare().precision());
    const auto begin = Now(this);
    InTime(begin + shared_->profile.prepare, [this, order, begin] {
      proto::WorkerOutcome outcome;
      const auto& model = order.prepare().model();
      device_.room.Planned(model.digest(), Now(this));
      outcome.mutable_prepared()->set_weights_bytes(model.weights().length());
      outcome.mutable_prepared()->set_activation_bytes(shared_->profile.RunOf(model.digest()).count());
      Answer(order.sequence(), absl::OkStatus(), std::move(outcome), begin);
    });
  }

  void SwapIn(const proto::WorkerOrder& order) {
    const auto& digest = order.swap_in().model().digest();
    shared_->control->Touch(digest);
    const Bytes bytes(order.swap_in().model().weights().length());
    auto& life = shared_->control->life;
    if (shared_->control->Whole(digest) || life.loading.contains(digest)) {
      if (order.swap_in().has_broadcast()) life.meetings[order.swap_in().broadcast().meeting()] = digest;
      TakeStates(order.swap_in(), States(), shared_->control->states_by_model);
      return Answer(order.sequence(), absl::OkStatus(), {}, Now(this));
    }
    if (bytes > Free()) ++shared_->control->no_fit;
    if (bytes > Free() || !device_.room.Has(bytes, Free())) return AnswerNoFit(order);
    shared_->control->used += bytes;
    shared_->control->Fill(device_.room.running());
    ++shared_->control->swaps;
    life.loading[digest] = bytes;
    const auto& swap = order.swap_in();
    shared_->control->peer_swaps += swap.has_from_gpu() ? 1 : 0;
    if (swap.has_from_gpu())
      shared_->control->copied.emplace(shared_->control->life.runtime, swap.pinned().memory().socket());
    FakeGpu::Load load{.digest = digest, .bytes = bytes, .peer = {}, .deadline = DeadlineOf(swap, Now(this))};
    if (swap.has_from_gpu()) load.peer = swap.from_gpu();
    if (swap.has_broadcast() && shared_->control->peer_sends) return Receive(order, load);
    Gpu().Bring(load, Now(this), [this, order, bytes](Time begin) { Brought(order, bytes, begin); });
  }

  // Over the link from the sender, and not before that has all.
  void Receive(const proto::WorkerOrder& order, FakeGpu::Load load) {
    const auto host = load;
    load.peer = order.swap_in().broadcast().gpus(0);
    Gpu().Bring(load, Now(this), [this, order, host](Time begin) { Received(order, host, begin); });
  }

  // When the sender has gone all comes from the host.
  void Received(const proto::WorkerOrder& order, const FakeGpu::Load& host, Time begin) {
    const auto& broadcast = order.swap_in().broadcast();
    const auto all = shared_->control->peer_sends(broadcast.gpus(0), broadcast.meeting());
    if (!all) {
      return Gpu().Bring(host, Now(this),
                         [this, order, host, begin](Time) { Brought(order, host.bytes, begin, host.bytes); });
    }
    if (!*all) return InTime(Now(this) + kLook, [this, order, host, begin] { Received(order, host, begin); });
    ++shared_->control->received;
    Brought(order, host.bytes, begin);
  }

  // `from_host`: of a model that a broadcast was to bring.
  void Brought(const proto::WorkerOrder& order, Bytes bytes, Time begin, Bytes from_host = {}) {
    const auto& swap = order.swap_in();
    shared_->control->life.loading.erase(swap.model().digest());
    const auto& source = swap.pinned().memory();
    if (swap.has_from_gpu() &&
        !shared_->control->peer_pins(swap.from_gpu(), source.socket(), source.arena())) {
      shared_->control->used -= bytes;
      return Answer(order.sequence(), absl::UnavailableError("that GPU's worker is gone"), {}, begin);
    }
    Resident()[swap.model().digest()] = bytes;
    shared_->control->kept.Forget(swap.model().digest());
    TakeStates(swap, States(), shared_->control->states_by_model);
    proto::WorkerOutcome outcome;
    outcome.set_bytes(swap.has_broadcast() ? from_host.count() : bytes.count());
    shared_->control->CountMoved(swap.meter(), Bytes(outcome.bytes()));
    Answer(order.sequence(), absl::OkStatus(), std::move(outcome), begin);
  }

  void Pull(const proto::WorkerOrder& order) {
    const auto begin = Now(this);
    InTime(
        begin + TransferTime(Bytes(order.pull().length()), shared_->profile.peer_link),
        [this, order, begin] { Answer(order.sequence(), shared_->control->Pull(order.pull()), {}, begin); });
  }

  void Evict(const proto::WorkerOrder& order) {
    const auto it = Resident().find(order.evict().digest());
    if (it == Resident().end()) return AnswerNow(order, absl::NotFoundError("not resident"));
    if (shared_->control->life.Pinned(it->first))
      return AnswerNow(order, absl::FailedPreconditionError("it is pinned"));
    shared_->control->used -= it->second;
    Resident().erase(it);
    Gpu().Evict(order.evict().digest());
    shared_->control->kept.Forget(order.evict().digest());
    auto outcome = TakeChangedStates(States(), order.evict().digest());
    std::erase_if(States(), [&](const auto& state) { return state.second.digest == order.evict().digest(); });
    Answer(order.sequence(), absl::OkStatus(), std::move(outcome), Now(this));
  }

  void WriteBack(const proto::WorkerOrder& order) {
    const auto begin = Now(this);
    if (order.write_back().drop()) return AnswerNow(order, *TakeStatesFor(States(), order.write_back()));
    if (shared_->control->refuse_write_back)
      return Answer(order.sequence(), absl::ResourceExhaustedError("no room for it"), {}, begin);
    InTime(begin + shared_->profile.write_back, [this, order, begin] {
      auto outcome = TakeStatesFor(States(), order.write_back(), shared_->control->states_by_model);
      const auto status = outcome ? absl::OkStatus() : absl::NotFoundError("the state is not here");
      Answer(order.sequence(), status, std::move(outcome).value_or(proto::WorkerOutcome()), begin);
    });
  }

  void Read(const proto::WorkerOrder& order) {
    const Duration takes = shared_->profile.ReadingTime(order.run());
    takes == Duration::zero() ? Run(order) : InTime(Now(this) + takes, [this, order] { Run(order); });
  }

  void Run(proto::WorkerOrder order) {
    const auto& control = *shared_->control;
    const auto status =
        control.life.tensors.Resolve(*order.mutable_run(), shared_->profile.channel, control.swaps_parts);
    if (!status.ok()) return AnswerNow(order, status);
    const auto& digest = order.run().digest();
    shared_->control->Touch(digest);
    shared_->control->run_as.emplace(digest, order.run().precision(), order.run().sharing().sm_partition());
    device_.room.Asked(order.sequence(), digest, Now(this));
    if (!shared_->control->Whole(digest) && !order.run().by_layer() && !control.life.loading.contains(digest))
      return AnswerNow(order, absl::NotFoundError("the model is not resident"));
    Turns().Ask(order, Now(this));
  }

  void AnswerNoFit(const proto::WorkerOrder& order) {
    Answer(order.sequence(), absl::ResourceExhaustedError("no room"), NoFitAs(device_.room.Left(Free())),
           Now(this));
  }

  void Compute(const proto::WorkerOrder& order) {
    const auto& digest = order.run().digest();
    const auto run = device_.room.Begin(order.sequence(), shared_->profile.RunOf(digest), Free());
    if (!run) {
      pause_ = Turns().Ended(order, Now(this), Now(this));
      return AnswerNoFit(order);
    }
    shared_->control->Fill(device_.room.running());
    const auto length = shared_->profile.long_runs->OnGpu(digest, Duration(order.run().run_limit_ns()));
    const auto deadline = DeadlineOf(order.run(), Now(this));
    FakeGpu::Ran ran = [this, order, run](Time begin, Time last_weights) {
      device_.room.End(*run);
      pause_ = Turns().Ended(order, begin, Now(this));
      Ran(order, begin, last_weights);
    };
    const auto others = static_cast<std::size_t>(order.run().members_size());
    if (others > 0 && length == Duration::zero())
      return Gpu().RunBatch(others + 1, digest, deadline, Now(this), std::move(ran));
    Gpu().RunFor(length, digest, deadline, Now(this), std::move(ran));
  }

  FakeTurns& Turns() {
    if (device_.turns) return *device_.turns;
    FakeTurns::Calls calls{[this](Time at, Later later) { InTime(at, std::move(later)); },
                           [this](const proto::WorkerOrder& order) { Compute(order); }};
    return *(device_.turns = std::make_unique<FakeTurns>(shared_->profile.quotas, std::move(calls)));
  }

  void Ran(const proto::WorkerOrder& order, Time begin, Time last_weights) {
    if (cancelled_.erase(order.sequence()) == 1)
      return Answer(order.sequence(), absl::CancelledError("cancelled"), {}, begin);
    if (const auto status = shared_->control->life.HasWhatItNeeds(order.run()); !status.ok())
      return Answer(order.sequence(), status, {}, begin);
    const auto& function = order.run().stateful();
    const Duration limit(order.run().run_limit_ns());
    auto& long_runs = *shared_->profile.long_runs;
    const bool cut = limit > Duration::zero() && last_weights == Time() && Now(this) - begin > limit &&
                     !long_runs.never_cuts;
    if (long_runs.Named(order.run().digest()))
      long_runs.seen.push_back({order.run().inputs(0).data().inlined(), begin, Now(this), cut});
    proto::WorkerOutcome outcome;
    auto& run = *outcome.mutable_run();
    run.set_compute_ns((Now(this) - begin).count());
    if (cut) {  // this worker's runs have one step, so it sees at their end that they were too long
      shared_->control->CountRun(order.run(), Now(this) - begin);
      return Answer(order.sequence(), absl::DeadlineExceededError("the run was cut"), std::move(outcome),
                    begin);
    }
    ++shared_->control->runs;
    shared_->control->by_layer +=
        order.run().by_layer() && !Resident().contains(order.run().digest()) ? 1 : 0;
    run.set_next_turn_in_ns(pause_.count());
    run.set_last_group_ns(last_weights.time_since_epoch().count());
    shared_->control->batches += AnswerEach(order.run(), shared_->control->swap_members, run) > 1 ? 1 : 0;
    if (shared_->control->kept.Spoiled(order.run().digest())) Spoil(run);
    shared_->control->life.tensors.Keep(order.run(), run);
    if (!function.empty()) CountRun(States().at(function), run);
    shared_->control->CountRun(order.run(), Now(this) - begin);
    Answer(order.sequence(), absl::OkStatus(), std::move(outcome), begin);
  }

  FakeStates& States() { return shared_->control->life.states; }
  std::map<std::string, Bytes>& Resident() { return shared_->control->life.resident; }
  std::shared_ptr<FakeWorkerShared> shared_;
  std::map<std::uint64_t, Later> later_;
  std::uint64_t next_ = 1;
  std::set<std::uint64_t> cancelled_;
  struct {
    std::unique_ptr<FakeGpu> gpu;
    std::unique_ptr<FakeTurns> turns;
    FakeRoom room;
  } device_;
  Duration pause_{};  // of the function whose run has ended
};

}  // namespace

caf::actor SpawnFakeWorker(caf::actor_system& system, std::shared_ptr<FakeWorkerShared> shared) {
  return system.spawn<Worker>(std::move(shared));
}

}  // namespace troupe::actors
