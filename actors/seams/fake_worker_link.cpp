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

// What the link and the actor that plays its worker have in common. Of one thread.
struct Shared {
  FakeWorkerProfile profile;
  std::shared_ptr<FakeWorkerControl> control;
  WorkerLink::Events events;
  std::uint64_t incarnation = 0;
  std::string runtime;                   // whom the next adopted worker is to serve
  bool death_told = true;                // of this incarnation
  std::uint64_t written = 0, taken = 0;  // orders into and out of the ring
  std::uint64_t sent = 0, answered = 0;  // orders that get an outcome
  std::uint64_t progress = 0;

  void Begin(std::uint64_t life) {
    incarnation = life;
    death_told = false;
    sent = answered = 0;
  }
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
        [this](const proto::WorkerDied&) { Die(0, 15, "ended by its daemon"); },
        [this](const proto::WorkerOrder& order) { Take(order); },
        [this](const proto::Tick& tick) {
          auto node = later_.extract(tick.token());
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
    After(this, at - Now(this), tick);
  }

  void Spawn(std::uint64_t incarnation) {
    auto& control = *shared_->control;
    shared_->Begin(incarnation);
    Forget();
    control.life = {};
    control.life.up = true;
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
    if (life.up && shared_->control->hang) {
      return InTime(Now(this) + shared_->profile.adopt_timeout, [this, from_before] {
        Ready(absl::DeadlineExceededError("nothing from the worker"), from_before);
      });
    }
    if (!life.up) return Ready(absl::NotFoundError("nobody listens"), from_before);
    life.linked = true;
    if (life.runtime.empty()) life.runtime = shared_->runtime;
    Ready(absl::OkStatus(), from_before);
  }

  void Ready(const absl::Status& status, bool from_before) {
    proto::WorkerReady ready;
    ready.set_incarnation(shared_->incarnation);
    ready.set_code(static_cast<int>(status.code()));
    ready.set_message(std::string(status.message()));
    ready.set_same_worker(from_before);
    if (status.ok()) *ready.mutable_description() = Describe();
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
    life = {};
    Forget();
    shared_->events.on_death(std::move(died));
  }

  // What the worker was at.
  void Forget() {
    later_.clear();
    cancelled_.clear();
    link_free_ = compute_free_ = Time{};
  }

  [[nodiscard]] Bytes Free() const { return shared_->profile.memory - shared_->control->used; }

  [[nodiscard]] proto::WorkerDescription Describe() const {
    proto::WorkerDescription out;
    out.set_device("fake:0");
    out.set_memory_bytes(shared_->profile.memory.count());
    out.set_free_bytes(Free().count());
    out.set_largest_free_bytes(Free().count());
    for (const auto& [digest, bytes] : shared_->control->life.resident) {
      auto& resident = *out.add_resident();
      resident.set_digest(digest);
      resident.set_bytes(bytes.count());
    }
    out.set_isolation_key(shared_->control->life.runtime);
    out.set_runs(shared_->control->runs);
    out.set_swaps(shared_->control->swaps);
    out.set_peer_copies(shared_->control->peer_lends != nullptr);
    return out;
  }

  void Take(const proto::WorkerOrder& order) {
    ++shared_->taken;
    if (!shared_->control->life.linked) return;
    if (order.has_cancel()) {
      cancelled_.insert(order.cancel().target());
      return;
    }
    if (order.has_return_()) shared_->control->life.loans.erase(order.return_().loan());
    if (!HasOutcome(order) || shared_->control->hang) return;
    if (order.has_lend()) return Lend(order);
    if (order.has_prepare()) return Prepare(order);
    if (order.has_swap_in()) return SwapIn(order);
    if (order.has_evict()) return Evict(order);
    if (order.has_write_back()) return WriteBack(order);
    if (order.has_run()) return Run(order);
    if (order.has_shutdown()) return Die(0, 0, "shut down");
    proto::WorkerOutcome outcome;
    if (order.has_describe()) *outcome.mutable_description() = Describe();
    Answer(order.sequence(), absl::OkStatus(), std::move(outcome), Now(this));
  }

  void Answer(std::uint64_t sequence, const absl::Status& status, proto::WorkerOutcome outcome, Time begin) {
    ++shared_->progress;
    ++shared_->answered;
    outcome.set_sequence(sequence);
    outcome.set_code(static_cast<int>(status.code()));
    outcome.set_message(std::string(status.message()));
    outcome.set_begin_ns(begin.time_since_epoch().count());
    outcome.set_end_ns(Now(this).time_since_epoch().count());
    proto::WorkerAnswer answer;
    answer.set_incarnation(shared_->incarnation);
    *answer.mutable_outcome() = std::move(outcome);
    shared_->events.on_outcome(std::move(answer));
  }

  void Touch(const std::string& digest) {
    shared_->control->touched.emplace(shared_->control->life.runtime, digest);
  }

  void Prepare(const proto::WorkerOrder& order) {
    Touch(order.prepare().model().digest());
    const auto begin = Now(this);
    InTime(begin + shared_->profile.prepare, [this, order, begin] {
      proto::WorkerOutcome outcome;
      outcome.mutable_prepared()->set_weights_bytes(order.prepare().model().weights().length());
      outcome.mutable_prepared()->set_activation_bytes(shared_->profile.activation.count());
      Answer(order.sequence(), absl::OkStatus(), std::move(outcome), begin);
    });
  }

  void SwapIn(const proto::WorkerOrder& order) {
    const auto& digest = order.swap_in().model().digest();
    Touch(digest);
    const Bytes bytes(order.swap_in().model().weights().length());
    if (Resident().contains(digest)) {
      TakeStates(order.swap_in());
      return Answer(order.sequence(), absl::OkStatus(), {}, Now(this));
    }
    if (bytes > Free()) {
      proto::WorkerOutcome outcome;
      outcome.mutable_no_fit()->set_free(Free().count());
      outcome.mutable_no_fit()->set_largest(Free().count());
      return Answer(order.sequence(), absl::ResourceExhaustedError("no room"), std::move(outcome), Now(this));
    }
    shared_->control->used += bytes;
    ++shared_->control->swaps;
    shared_->control->life.loading[digest] = bytes;
    const auto begin = std::max(Now(this), link_free_);
    const bool from_peer = order.swap_in().has_from_gpu();
    shared_->control->peer_swaps += from_peer ? 1 : 0;
    link_free_ = begin + TransferTime(bytes, from_peer ? shared_->profile.peer_link : shared_->profile.link);
    InTime(link_free_, [this, order, digest, bytes, begin] {
      shared_->control->life.loading.erase(digest);
      const auto& swap = order.swap_in();
      if (swap.has_from_gpu() &&
          !shared_->control->peer_lends(swap.from_gpu(), swap.lent().memory().arena())) {
        shared_->control->used -= bytes;
        return Answer(order.sequence(), absl::UnavailableError("that GPU's worker is gone"), {}, begin);
      }
      Resident()[digest] = bytes;
      TakeStates(swap);
      proto::WorkerOutcome outcome;
      outcome.set_bytes(bytes.count());
      Answer(order.sequence(), absl::OkStatus(), std::move(outcome), begin);
    });
  }

  void Lend(const proto::WorkerOrder& order) {
    const auto& digest = order.lend().digest();
    if (!Resident().contains(digest))
      return Answer(order.sequence(), absl::NotFoundError("not resident"), {}, Now(this));
    const auto loan = ++shared_->control->lent;
    shared_->control->life.loans[loan] = digest;
    proto::WorkerOutcome outcome;
    outcome.mutable_lend()->set_loan(loan);
    proto::LentMemory& weights = *outcome.mutable_lend()->mutable_weights();
    weights.mutable_memory()->set_arena(loan);
    weights.add_ranges()->set_length(Resident().at(digest).count());
    Answer(order.sequence(), absl::OkStatus(), std::move(outcome), Now(this));
  }

  void Evict(const proto::WorkerOrder& order) {
    const auto it = Resident().find(order.evict().digest());
    if (it == Resident().end())
      return Answer(order.sequence(), absl::NotFoundError("not resident"), {}, Now(this));
    for (const auto& [loan, digest] : shared_->control->life.loans) {
      if (digest == it->first)
        return Answer(order.sequence(), absl::FailedPreconditionError("it is lent"), {}, Now(this));
    }
    shared_->control->used -= it->second;
    Resident().erase(it);
    auto outcome = ChangedStates(order.evict().digest());
    std::erase_if(States(), [&](const auto& state) { return state.second.digest == order.evict().digest(); });
    Answer(order.sequence(), absl::OkStatus(), std::move(outcome), Now(this));
  }

  void WriteBack(const proto::WorkerOrder& order) {
    const auto begin = Now(this);
    if (shared_->control->refuse_write_back)
      return Answer(order.sequence(), absl::ResourceExhaustedError("no room for it"), {}, begin);
    InTime(begin + shared_->profile.write_back, [this, order, begin] {
      Answer(order.sequence(), absl::OkStatus(), ChangedStates(order.write_back().digest()), begin);
    });
  }

  void TakeStates(const proto::SwapInOrder& order) {
    for (const auto& image : order.states())
      States()[image.function()] = {order.model().digest(), image, false};
  }

  proto::WorkerOutcome ChangedStates(const std::string& digest) {
    proto::WorkerOutcome outcome;
    outcome.mutable_state();
    for (auto& [function, state] : States()) {
      if (state.digest != digest || !std::exchange(state.changed, false)) continue;
      *outcome.mutable_state()->add_states() = state.image;
    }
    return outcome;
  }

  // The state of a fake function is the number of its runs, which its answer tells.
  void Advance(const std::string& function, proto::RunOutcome& run) {
    auto& state = States().at(function);
    const auto runs = std::to_string(state.image.runs() + 1);
    state.image.set_runs(state.image.runs() + 1);
    for (auto& tensor : *state.image.mutable_tensors()) tensor.mutable_data()->set_inlined(runs);
    state.changed = true;
    auto& output = *run.add_outputs();
    output.mutable_spec()->set_name("runs");
    output.mutable_data()->set_inlined(runs);
  }

  void Run(const proto::WorkerOrder& order) {
    const auto& digest = order.run().digest();
    Touch(digest);
    const bool passes = order.run().by_layer();
    if (!passes && !Resident().contains(digest) && !shared_->control->life.loading.contains(digest))
      return Answer(order.sequence(), absl::NotFoundError("the model is not resident"), {}, Now(this));
    // Copies come first, then the compute engine: one at a time, in the order of arrival.
    const auto begin = std::max(
        {Now(this), compute_free_, shared_->control->life.loading.contains(digest) ? link_free_ : Time{}});
    compute_free_ = begin + shared_->profile.run;
    InTime(compute_free_, [this, order, begin, passes] {
      if (cancelled_.erase(order.sequence()) == 1)
        return Answer(order.sequence(), absl::CancelledError("cancelled"), {}, begin);
      if (!passes && !Resident().contains(order.run().digest()))
        return Answer(order.sequence(), absl::NotFoundError("the model did not come"), {}, begin);
      const auto& function = order.run().stateful();
      if (!function.empty() && !States().contains(function))
        return Answer(order.sequence(), absl::NotFoundError("the state is not here"), {}, begin);
      ++shared_->control->runs;
      shared_->control->by_layer += passes && !Resident().contains(order.run().digest()) ? 1 : 0;
      proto::WorkerOutcome outcome;
      auto& run = *outcome.mutable_run();
      run.set_compute_ns(shared_->profile.run.count());
      // The answer names its question, so that a test can tell them apart.
      for (const auto& input : order.run().inputs()) {
        *run.add_outputs() = input;
        run.mutable_outputs(run.outputs_size() - 1)->mutable_spec()->set_name("out_" + input.spec().name());
      }
      if (!function.empty()) Advance(function, run);
      Answer(order.sequence(), absl::OkStatus(), std::move(outcome), begin);
    });
  }

  std::map<std::string, FakeWorkerLife::State>& States() { return shared_->control->life.states; }
  std::map<std::string, Bytes>& Resident() { return shared_->control->life.resident; }

  std::shared_ptr<Shared> shared_;
  std::map<std::uint64_t, Later> later_;
  std::uint64_t next_ = 1;
  Time link_free_{};
  Time compute_free_{};
  std::set<std::uint64_t> cancelled_;
};

class FakeWorkerLink final : public WorkerLink {
 public:
  FakeWorkerLink(caf::actor_system& system, FakeWorkerProfile profile,
                 std::shared_ptr<FakeWorkerControl> control)
      : system_(system), shared_(std::make_shared<Shared>()) {
    shared_->profile = profile;
    shared_->control = std::move(control);
    worker_ = system.spawn<Worker>(shared_);
    shared_->control->kill = [this] { Kill(); };
  }
  ~FakeWorkerLink() override {
    shared_->events = {[](auto) {}, [](auto) {}, [](auto) {}, [](auto) {}};
    auto& life = shared_->control->life;
    if (!life.linked) life = {};  // nobody had adopted it
    life.linked = false;
    life.loans.clear();
    life.resident.merge(life.loading);  // by the time that somebody comes
    life.loading.clear();
    life.alone_since = Now(&system_);
    shared_->control->kill = nullptr;
    caf::anon_send_exit(worker_, caf::exit_reason::user_shutdown);
  }

  void Bind(Events events) override { shared_->events = std::move(events); }
  void Serve(const std::string& runtime) override { shared_->runtime = runtime; }
  bool Listens() override {
    auto& life = shared_->control->life;
    if (life.up && Now(&system_) - life.alone_since >= shared_->profile.lease) life = {};
    return life.up;
  }
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
    if (!shared_->control->life.linked) return absl::UnavailableError("no worker is connected");
    if (shared_->written - shared_->taken >= shared_->profile.ring)
      return absl::ResourceExhaustedError("the worker's order ring is full");
    ++shared_->written;
    if (HasOutcome(order)) ++shared_->sent;
    caf::anon_send(worker_, order);
    return absl::OkStatus();
  }
  [[nodiscard]] WorkerProgress Progress() const override {
    if (!shared_->control->life.linked) return {};
    return {shared_->progress, shared_->sent > shared_->answered};
  }
  void Kill() override { caf::anon_send(worker_, proto::KillWorker()); }
  void ShutDown() override {
    proto::WorkerOrder order;
    order.mutable_shutdown();
    if (!Send(order).ok()) caf::anon_send(worker_, proto::WorkerDied());
  }

 private:
  caf::actor_system& system_;
  std::shared_ptr<Shared> shared_;
  caf::actor worker_;
};

}  // namespace

std::unique_ptr<WorkerLink> MakeFakeWorkerLink(caf::actor_system& system, FakeWorkerProfile profile,
                                               std::shared_ptr<FakeWorkerControl> control) {
  return std::make_unique<FakeWorkerLink>(system, profile, std::move(control));
}

}  // namespace troupe::actors
