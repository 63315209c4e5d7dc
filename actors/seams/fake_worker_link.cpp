#include "actors/seams/fake_worker_link.hpp"

#include <caf/event_based_actor.hpp>
#include <caf/send.hpp>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/core/protobuf_adapter.hpp"
#include "actors/core/time.hpp"

namespace troupe::actors {

namespace {

constexpr int kNoDevice = 4;  // node::kWorkerExitNoDevice

// The worker's state; one per life. Lives in an actor, so that its time is the actors' time.
struct Life {
  std::uint64_t incarnation = 0;
  bool up = false;
  std::map<std::string, Bytes> resident;
  std::set<std::string> loading;
  Time link_free{};
  Time compute_free{};
  std::set<std::uint64_t> cancelled;
  std::set<std::uint64_t> open;
};

struct Shared {
  FakeWorkerProfile profile;
  std::shared_ptr<FakeWorkerControl> control;
  WorkerLink::Events events;
  Life life;
  std::uint64_t progress = 0;
};

// What happens later is a message to the worker's own actor.
using Later = std::function<void()>;

class Worker : public caf::event_based_actor {
 public:
  Worker(caf::actor_config& config, std::shared_ptr<Shared> shared)
      : caf::event_based_actor(config), shared_(std::move(shared)) {}

  caf::behavior make_behavior() override {
    return {
        [this](const proto::WorkerListening& spawn) { Spawn(spawn.incarnation()); },
        [this](const proto::WorkerReady& adopt) { Adopt(adopt.incarnation()); },
        [this](const proto::KillWorker&) { Die(0, 9, "killed"); },
        [this](const proto::WorkerDied&) { Die(0, 0, "shut down"); },
        [this](const proto::WorkerOrder& order) { Take(order); },
        [this](const proto::Tick& tick) {
          auto node = later_.extract(tick.token());
          if (!node.empty() && tick.what() == shared_->life.incarnation) node.mapped()();
        },
    };
  }

 private:
  void InTime(Time at, Later later) {
    proto::Tick tick;
    tick.set_token(next_++);
    tick.set_what(static_cast<std::uint32_t>(shared_->life.incarnation));
    later_[tick.token()] = std::move(later);
    After(this, at - Now(this), tick);
  }

  void Spawn(std::uint64_t incarnation) {
    shared_->life = Life();
    shared_->life.incarnation = incarnation;
    shared_->life.up = true;
    shared_->control->used = Bytes(0);
    ++shared_->control->spawns;
    if (shared_->control->refuse_start) return Die(1, 0, "told to refuse");
    if (shared_->control->unfit) return Die(kNoDevice, 0, "there is no such device");
    InTime(Now(this) + shared_->profile.start, [this, incarnation] {
      proto::WorkerListening listening;
      listening.set_incarnation(incarnation);
      shared_->events.on_listening(std::move(listening));
    });
  }

  void Adopt(std::uint64_t incarnation) {
    proto::WorkerReady ready;
    ready.set_incarnation(incarnation);
    if (!shared_->life.up) {
      ready.set_code(static_cast<int>(absl::StatusCode::kUnavailable));
      ready.set_message("there is no worker");
    }
    *ready.mutable_description() = Describe();
    shared_->events.on_ready(std::move(ready));
  }

  void Die(int code, int signal, const std::string& why) {
    if (!shared_->life.up) return;
    shared_->life.up = false;
    later_.clear();
    shared_->life.open.clear();
    proto::WorkerDied died;
    died.set_incarnation(shared_->life.incarnation);
    died.set_exit_code(code);
    died.set_signal(signal);
    died.set_last_words(why);
    shared_->events.on_death(std::move(died));
  }

  [[nodiscard]] Bytes Free() const { return shared_->profile.memory - shared_->control->used; }

  [[nodiscard]] proto::WorkerDescription Describe() const {
    proto::WorkerDescription out;
    out.set_device("fake:0");
    out.set_memory_bytes(shared_->profile.memory.count());
    out.set_free_bytes(Free().count());
    out.set_largest_free_bytes(Free().count());
    for (const auto& [digest, bytes] : shared_->life.resident) {
      auto& resident = *out.add_resident();
      resident.set_digest(digest);
      resident.set_bytes(bytes.count());
    }
    out.set_runs(shared_->control->runs);
    out.set_swaps(shared_->control->swaps);
    return out;
  }

  void Take(const proto::WorkerOrder& order) {
    if (!shared_->life.up) return;
    if (order.has_cancel()) {
      shared_->life.cancelled.insert(order.cancel().target());
      return;
    }
    if (order.has_release()) return;
    shared_->life.open.insert(order.sequence());
    if (shared_->control->hang) return;
    if (order.has_prepare()) return Prepare(order);
    if (order.has_swap_in()) return SwapIn(order);
    if (order.has_evict()) return Evict(order);
    if (order.has_run()) return Run(order);
    proto::WorkerOutcome outcome;
    if (order.has_describe()) *outcome.mutable_description() = Describe();
    Answer(order.sequence(), absl::OkStatus(), std::move(outcome), Now(this));
  }

  void Answer(std::uint64_t sequence, const absl::Status& status, proto::WorkerOutcome outcome, Time begin) {
    ++shared_->progress;
    shared_->life.open.erase(sequence);
    outcome.set_sequence(sequence);
    outcome.set_code(static_cast<int>(status.code()));
    outcome.set_message(std::string(status.message()));
    outcome.set_begin_ns(begin.time_since_epoch().count());
    outcome.set_end_ns(Now(this).time_since_epoch().count());
    proto::WorkerAnswer answer;
    answer.set_incarnation(shared_->life.incarnation);
    *answer.mutable_outcome() = std::move(outcome);
    shared_->events.on_outcome(std::move(answer));
  }

  void Prepare(const proto::WorkerOrder& order) {
    const auto begin = Now(this);
    InTime(begin + shared_->profile.prepare, [this, order, begin] {
      proto::WorkerOutcome outcome;
      outcome.mutable_prepared()->set_weights_bytes(order.prepare().model().weights().length());
      outcome.mutable_prepared()->set_activation_bytes(shared_->profile.activation.count());
      Answer(order.sequence(), absl::OkStatus(), std::move(outcome), begin);
    });
  }

  void SwapIn(const proto::WorkerOrder& order) {
    auto& life = shared_->life;
    const auto& digest = order.swap_in().model().digest();
    const Bytes bytes(order.swap_in().model().weights().length());
    if (life.resident.contains(digest)) return Answer(order.sequence(), absl::OkStatus(), {}, Now(this));
    if (bytes > Free()) {
      proto::WorkerOutcome outcome;
      outcome.mutable_no_fit()->set_free(Free().count());
      outcome.mutable_no_fit()->set_largest(Free().count());
      return Answer(order.sequence(), absl::ResourceExhaustedError("no room"), std::move(outcome), Now(this));
    }
    shared_->control->used += bytes;
    ++shared_->control->swaps;
    life.loading.insert(digest);
    const auto begin = std::max(Now(this), life.link_free);
    life.link_free = begin + TransferTime(bytes, shared_->profile.link);
    InTime(life.link_free, [this, order, digest, bytes, begin] {
      shared_->life.loading.erase(digest);
      shared_->life.resident[digest] = bytes;
      proto::WorkerOutcome outcome;
      outcome.set_bytes(bytes.count());
      Answer(order.sequence(), absl::OkStatus(), std::move(outcome), begin);
    });
  }

  void Evict(const proto::WorkerOrder& order) {
    const auto it = shared_->life.resident.find(order.evict().digest());
    if (it == shared_->life.resident.end())
      return Answer(order.sequence(), absl::NotFoundError("not resident"), {}, Now(this));
    shared_->control->used -= it->second;
    shared_->life.resident.erase(it);
    Answer(order.sequence(), absl::OkStatus(), {}, Now(this));
  }

  void Run(const proto::WorkerOrder& order) {
    auto& life = shared_->life;
    const auto& digest = order.run().digest();
    if (!life.resident.contains(digest) && !life.loading.contains(digest))
      return Answer(order.sequence(), absl::NotFoundError("the model is not resident"), {}, Now(this));
    // Copies come first, then the compute engine: one at a time, in the order of arrival.
    const auto begin =
        std::max({Now(this), life.compute_free, life.loading.contains(digest) ? life.link_free : Time{}});
    life.compute_free = begin + shared_->profile.run;
    InTime(life.compute_free, [this, order, begin] {
      if (shared_->life.cancelled.erase(order.sequence()) == 1)
        return Answer(order.sequence(), absl::CancelledError("cancelled"), {}, begin);
      ++shared_->control->runs;
      proto::WorkerOutcome outcome;
      auto& run = *outcome.mutable_run();
      run.set_compute_ns(shared_->profile.run.count());
      // The answer names its question, so that a test can tell them apart.
      for (const auto& input : order.run().inputs()) {
        *run.add_outputs() = input;
        run.mutable_outputs(run.outputs_size() - 1)->mutable_spec()->set_name("out_" + input.spec().name());
      }
      Answer(order.sequence(), absl::OkStatus(), std::move(outcome), begin);
    });
  }

  std::shared_ptr<Shared> shared_;
  std::map<std::uint64_t, Later> later_;
  std::uint64_t next_ = 1;
};

class FakeWorkerLink final : public WorkerLink {
 public:
  FakeWorkerLink(caf::actor_system& system, FakeWorkerProfile profile,
                 std::shared_ptr<FakeWorkerControl> control)
      : shared_(std::make_shared<Shared>()) {
    shared_->profile = profile;
    shared_->control = std::move(control);
    worker_ = system.spawn<Worker>(shared_);
    shared_->control->kill = [this] { Kill(); };
  }
  ~FakeWorkerLink() override {
    shared_->events = {[](auto) {}, [](auto) {}, [](auto) {}, [](auto) {}};
    shared_->control->kill = nullptr;
    caf::anon_send_exit(worker_, caf::exit_reason::user_shutdown);
  }

  void Bind(Events events) override { shared_->events = std::move(events); }
  bool Listens() override { return false; }
  void Spawn(std::uint64_t incarnation) override {
    proto::WorkerListening message;
    message.set_incarnation(incarnation);
    caf::anon_send(worker_, std::move(message));
  }
  void Adopt(std::uint64_t incarnation) override {
    proto::WorkerReady message;
    message.set_incarnation(incarnation);
    caf::anon_send(worker_, std::move(message));
  }
  absl::Status Send(const proto::WorkerOrder& order) override {
    caf::anon_send(worker_, order);
    return absl::OkStatus();
  }
  [[nodiscard]] WorkerProgress Progress() const override {
    return {shared_->progress, !shared_->life.open.empty()};
  }
  void Kill() override { caf::anon_send(worker_, proto::KillWorker()); }
  void ShutDown() override { caf::anon_send(worker_, proto::WorkerDied()); }

 private:
  std::shared_ptr<Shared> shared_;
  caf::actor worker_;
};

}  // namespace

std::unique_ptr<WorkerLink> MakeFakeWorkerLink(caf::actor_system& system, FakeWorkerProfile profile,
                                               std::shared_ptr<FakeWorkerControl> control) {
  return std::make_unique<FakeWorkerLink>(system, profile, std::move(control));
}

}  // namespace troupe::actors
