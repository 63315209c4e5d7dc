#include "actors/seams/fake_worker_link.hpp"

#include <algorithm>
#include <caf/send.hpp>
#include <utility>

#include "actors/core/protobuf_adapter.hpp"
#include "actors/core/time.hpp"
#include "actors/seams/fake_answers.hpp"
#include "actors/seams/fake_worker.hpp"
#include "base/status.hpp"

namespace troupe::actors {

namespace {

class FakeWorkerLink final : public WorkerLink {
 public:
  FakeWorkerLink(caf::actor_system& system, FakeWorkerProfile profile,
                 std::shared_ptr<FakeWorkerControl> control)
      : system_(system), shared_(std::make_shared<FakeWorkerShared>()) {
    shared_->profile = profile;
    shared_->control = std::move(control);
    shared_->control->kept.on = profile.keeps;
    shared_->control->kept.spoil_every = profile.spoil_every;
    worker_ = SpawnFakeWorker(system, shared_);
    shared_->control->kill = [this] { Kill(); };
  }
  ~FakeWorkerLink() override {
    shared_->events = {[](auto) {}, [](auto) {}, [](auto) {}, [](auto) {}};
    auto& life = shared_->control->life;
    if (!life.linked) life = {};  // it was never adopted
    shared_->control->kept.Lose();
    life.linked = false;
    life.pins.clear();
    life.resident.merge(life.loading);  // loads have ended by the time that a daemon comes
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
    if (HasOutcome(order)) {
      ++shared_->sent;
      ++shared_->control->open;
    }
    shared_->control->given += order.has_run() ? 1 : 0;
    caf::anon_send(worker_, order);
    return absl::OkStatus();
  }
  [[nodiscard]] WorkerProgress Progress() const override {
    if (!shared_->control->life.linked) return {};
    // What it has begun moves all the time, also in the middle of a long run.
    if (shared_->working > 0) shared_->moved = Now(&system_);
    const auto moved = static_cast<std::uint64_t>(shared_->moved.time_since_epoch().count());
    return {shared_->progress + moved, shared_->sent > shared_->answered, "", shared_->control->problem};
  }
  void Kill() override { caf::anon_send(worker_, proto::KillWorker()); }
  void ShutDown() override {
    proto::WorkerOrder order;
    order.mutable_shutdown();
    if (!Send(order).ok()) caf::anon_send(worker_, proto::WorkerDied());
  }

 private:
  caf::actor_system& system_;
  std::shared_ptr<FakeWorkerShared> shared_;
  caf::actor worker_;
};

}  // namespace

proto::WorkerDescription DescribeWorker(const FakeWorkerShared& shared) {
  const FakeWorkerControl& control = *shared.control;
  const Bytes free = shared.profile.memory - control.used;
  proto::WorkerDescription out;
  out.set_device("fake:0");
  out.set_memory_bytes(shared.profile.memory.count());
  out.set_free_bytes(free.count());
  out.set_largest_free_bytes(free.count());
  for (const auto& [digest, bytes] : control.life.resident) {
    auto& resident = *out.add_resident();
    resident.set_digest(digest);
    resident.set_bytes(bytes.count());
  }
  out.mutable_kept()->set_models(static_cast<std::uint32_t>(control.kept.unchecked()));
  out.set_isolation_key(control.life.runtime);
  out.set_runs(control.runs);
  out.set_swaps(control.swaps);
  out.set_input_parts(control.input_parts);
  out.set_peer_copies(control.peer_pins != nullptr);
  out.set_broadcasts(control.peer_sends != nullptr);
  out.set_broadcast_socket("fake");
  return out;
}

absl::StatusOr<proto::WorkerOutcome> FakeWorkerControl::Pin(const proto::PinOrder& order) {
  const auto pin = ++pinned;
  if (order.has_tensor()) {
    TROUPE_RETURN_IF_ERROR(life.tensors.Pin(pin, order.tensor()));
    return PinnedAs(pin, life.runtime, Bytes(order.tensor().length()));
  }
  const auto found = life.resident.find(order.digest());
  if (found == life.resident.end() || kept.Unchecked(order.digest()))
    return absl::NotFoundError("not resident");
  life.pins[pin] = order.digest();
  return PinnedAs(pin, life.runtime, found->second);
}

absl::Status FakeWorkerControl::Pull(const proto::PullOrder& pull) {
  const auto& source = pull.pinned().memory();
  auto bytes = peer_tensor(pull.from_gpu(), source.socket(), source.arena());
  if (!bytes) return absl::UnavailableError("that GPU's worker is gone");
  if (spoils_copies) std::ranges::fill(*bytes, '?');
  life.tensors.Take(pull.number(), *std::move(bytes));
  ++pulled;
  return absl::OkStatus();
}

std::unique_ptr<WorkerLink> MakeFakeWorkerLink(caf::actor_system& system, FakeWorkerProfile profile,
                                               std::shared_ptr<FakeWorkerControl> control) {
  return std::make_unique<FakeWorkerLink>(system, profile, std::move(control));
}

}  // namespace troupe::actors
