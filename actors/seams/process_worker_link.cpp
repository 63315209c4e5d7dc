#include "actors/seams/process_worker_link.hpp"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <mutex>
#include <utility>

#include "absl/strings/match.h"
#include "actors/seams/worker_link_state.hpp"
#include "base/status.hpp"
#include "base/wire_status.hpp"
#include "gpu/worker/exit_codes.hpp"
#include "transport/steady_clock.hpp"
#include "transport/unix_socket.hpp"

namespace troupe::actors {

namespace {

using ReaderPtr = std::shared_ptr<gpu::LinkReader>;

class ProcessWorkerLink final : public WorkerLink {
 public:
  ProcessWorkerLink(const WorkerSite& site, ProcessWorkerOptions options)
      : reader_(site.reader), state_(std::make_shared<LinkState>(site, std::move(options))) {}

  ~ProcessWorkerLink() override {
    gpu::LinkReader::Id reading = 0;
    {
      const std::lock_guard lock(state_->mutex);
      state_->events = {};
      reading = std::exchange(state_->reading, 0);
    }
    if (reading != 0) reader_->Remove(reading);
    const std::lock_guard lock(state_->mutex);
    if (state_->connection == nullptr && state_->fresh) EndFresh(*state_);
    state_->connection.reset();  // the worker lives on for its lease
    state_->exported.reset();
  }

  void Bind(Events events) override {
    const std::lock_guard lock(state_->mutex);
    state_->events = std::move(events);
  }

  // A socket that a killed worker left behind has no owner. The connect itself never waits.
  bool Listens() override {
    return !absl::IsNotFound(
        transport::ConnectUnix(state_->options.command.socket, Duration::zero()).status());
  }

  void Serve(const std::string& runtime) override {
    const std::lock_guard lock(state_->mutex);
    state_->runtime = runtime;
  }

  void Spawn(std::uint64_t incarnation) override {
    Begin(incarnation);
    Post(incarnation, [state = state_, incarnation] { SpawnNow(state, incarnation); });
  }

  void Adopt(std::uint64_t incarnation) override {
    {
      const std::lock_guard lock(state_->mutex);
      if (incarnation != state_->incarnation) {
        // Letting go before the worker has us again would begin its lease, which may be none.
        auto leaving = std::move(state_->connection);
        const auto pid = leaving == nullptr ? 0 : state_->pid;
        BeginLocked(incarnation);
        state_->leaving = std::move(leaving);
        state_->pid = pid;
      }
    }
    Post(incarnation,
         [state = state_, reader = reader_, incarnation] { AdoptNow(state, reader, incarnation); });
  }

  absl::Status Send(const proto::WorkerOrder& order) override {
    std::shared_ptr<gpu::WorkerConnection> connection;
    {
      const std::lock_guard lock(state_->mutex);
      connection = state_->connection;
      if (connection != nullptr && HasOutcome(order)) ++state_->sent;
    }
    if (connection == nullptr) return absl::UnavailableError("no worker is connected");
    auto status = connection->Send(order);
    if (!status.ok()) {
      const std::lock_guard lock(state_->mutex);
      if (HasOutcome(order)) --state_->sent;
    }
    return status;
  }

  [[nodiscard]] WorkerProgress Progress() const override {
    const std::lock_guard lock(state_->mutex);
    if (state_->connection == nullptr) return {};
    const auto seen = state_->connection->Progress();
    const Time now = transport::SteadyNow();
    state_->watch.Observe(seen, now);
    if (state_->options.refused) state_->options.refused(seen.refused);
    const bool busy = state_->sent > state_->answered;
    return {seen.progress(), busy, busy ? state_->watch.Hung(now).value_or("") : "",
            state_->options.problem ? state_->options.problem() : ""};
  }

  void Kill() override { End(SIGKILL); }

  void ShutDown() override {
    proto::WorkerOrder order;
    order.mutable_shutdown();
    if (!Send(order).ok()) End(SIGTERM);
  }

 private:
  void Begin(std::uint64_t incarnation) {
    const std::lock_guard lock(state_->mutex);
    BeginLocked(incarnation);
  }
  void BeginLocked(std::uint64_t incarnation) {
    state_->incarnation = incarnation;
    state_->connection.reset();
    state_->leaving.reset();
    state_->region.reset();
    state_->exported.reset();
    state_->pid = 0;
    state_->fresh = false;
    state_->death_told = false;
    state_->ending = false;
    state_->sent = state_->answered = 0;
  }

  void Post(std::uint64_t incarnation, std::function<void()> job) {
    const auto status = state_->site.pool.Post(std::move(job));
    if (!status.ok()) state_->TellDeath(incarnation, 0, 0, std::string(status.message()));
  }

  // After the signal its end is waited for on the pool: before an adoption no other thread watches the
  // process.
  void End(int signal) {
    pid_t pid = 0;
    std::uint64_t life = 0;
    {
      const std::lock_guard lock(state_->mutex);
      pid = state_->pid;
      life = state_->incarnation;
    }
    auto process = pid == 0 ? absl::NotFoundError("none") : transport::ProcessHandle::Open(pid);
    if (!process.ok()) return state_->TellDeath(life, 0, 0, "it was gone already");
    {
      const std::lock_guard lock(state_->mutex);
      if (life == state_->incarnation) state_->ending = true;
    }
    static_cast<void>(process->Signal(signal));
    Post(life, [state = state_, life, signal,
                process = std::make_shared<transport::ProcessHandle>(std::move(*process))] {
      // Of an unknown process, or of a child that was reaped elsewhere, nothing is known but the signal.
      const auto end = process->Wait(std::chrono::seconds(5));
      if (!end.ok() && !process->IsDead()) {
        // The reader did not see its end either: it may still write while the next worker begins.
        const std::lock_guard lock(state->mutex);
        if (life == state->incarnation) state->memory.file.Reset();
      }
      const auto how = end.ok() ? *end : transport::ProcessEnd{.signaled = true, .code = signal};
      state->TellDeath(life, how.signaled ? 0 : how.code, how.signaled ? how.code : 0, "ended by its daemon");
    });
  }

  // A worker that was never adopted holds nothing, and would only wait for a daemon.
  static void EndFresh(LinkState& state) {
    const auto process = transport::ProcessHandle::Open(state.pid);
    if (process.ok()) static_cast<void>(process->Signal(SIGKILL));
    state.fresh = false;
  }

  // Anything else (no memory, no descriptor) may be better in a moment.
  static bool StartWillNeverDo(const absl::Status& status) {
    return absl::IsNotFound(status) || absl::IsPermissionDenied(status) || absl::IsInvalidArgument(status);
  }

  static void SpawnNow(const LinkStatePtr& state, std::uint64_t life) {
    auto process = gpu::StartWorker(state->options.command);
    if (!process.ok()) {
      return state->TellDeath(life, StartWillNeverDo(process.status()) ? gpu::kExitUsage : gpu::kExitNotNow,
                              0, std::string(process.status().message()));
    }
    const std::lock_guard lock(state->mutex);
    if (life != state->incarnation) return;
    state->pid = process->pid();
    state->fresh = true;
    if (!state->events.on_listening) return EndFresh(*state);  // the link let go meanwhile
    proto::WorkerListening listening;
    listening.set_incarnation(life);
    state->events.on_listening(std::move(listening));
  }

  static void AdoptNow(const LinkStatePtr& state, const ReaderPtr& reader, std::uint64_t life) {
    pid_t pid = 0;
    {
      const std::lock_guard lock(state->mutex);
      if (life != state->incarnation || !state->events.on_ready) return;
      pid = state->pid;
    }
    std::shared_ptr<transport::HostRegion> region;
    auto connection = Shake(*state, pid, region);
    if (!connection.ok() && pid == 0) {
      // A worker that listens and does not answer can be killed only if its process is known.
      const auto stuck = transport::ConnectUnix(state->options.command.socket, Duration::zero());
      const std::lock_guard lock(state->mutex);
      if (life == state->incarnation && stuck.ok()) state->pid = stuck->peer_pid();
    }
    if (!connection.ok() && pid != 0) {
      // It ended before it was adopted: its exit code says whether another start makes sense.
      const auto process = transport::ProcessHandle::Open(pid);
      const auto end =
          process.ok() ? process->Wait(Duration::zero()) : absl::StatusOr<transport::ProcessEnd>();
      if (process.ok() && end.ok()) {
        return state->TellDeath(life, end->signaled ? 0 : end->code, end->signaled ? end->code : 0,
                                std::string(connection.status().message()));
      }
    }
    proto::WorkerReady ready;
    ready.set_incarnation(life);
    ready.set_same_worker(pid == 0);
    SetStatus(connection.status(), ready);
    std::shared_ptr<gpu::WorkerConnection> shared;
    gpu::LinkReader::Id old_reading = 0;
    if (connection.ok()) {
      shared = std::move(*connection);
      *ready.mutable_description() = shared->description();
    }
    {
      const std::lock_guard lock(state->mutex);
      if (life != state->incarnation || !state->events.on_ready) return;
      if (shared != nullptr) {
        state->memory.Learn(shared->description(), shared->TakeDeviceMemory());
        state->pid = shared->process().pid();
        state->fresh = false;
        state->connection = shared;
        state->watch = gpu::ProgressWatch(state->options.watch);
        state->region = std::move(region);
        old_reading = std::exchange(state->reading, 0);
        if (state->site.exports != nullptr)
          state->exported = state->site.exports->Add(shared->output_arena().arena(), shared->output_memory());
      }
      state->leaving.reset();
      state->events.on_ready(std::move(ready));
    }
    if (old_reading != 0) reader->Remove(old_reading);
    // The reader's lock is taken outside ours: its handlers take ours inside its.
    if (shared == nullptr) return;
    const auto reading = reader->Add(shared, MakeLinkHandler(state, life));
    {
      const std::lock_guard lock(state->mutex);
      if (life == state->incarnation && state->events.on_outcome) {
        state->reading = reading;
        return;
      }
    }
    reader->Remove(reading);  // the link let go meanwhile
  }

  // A worker from before goes on serving whom it served: it says so, and is adopted as that.
  static absl::StatusOr<std::unique_ptr<gpu::WorkerConnection>> Shake(
      LinkState& state, pid_t pid, std::shared_ptr<transport::HostRegion>& region) {
    std::string runtime;
    {
      const std::lock_guard lock(state.mutex);
      runtime = state.runtime;
    }
    auto connection = ShakeAs(state, pid, runtime, region);
    const auto serves = gpu::ServedRuntime(connection.status());
    if (connection.ok() || pid != 0 || !serves) return connection;
    return ShakeAs(state, pid, *serves, region);
  }

  static absl::StatusOr<std::unique_ptr<gpu::WorkerConnection>> ShakeAs(
      LinkState& state, pid_t pid, const std::string& runtime,
      std::shared_ptr<transport::HostRegion>& region) {
    transport::ProcessHandle process;
    if (pid != 0) {
      auto opened = transport::ProcessHandle::Open(pid);
      if (opened.ok()) process = std::move(*opened);
    }
    gpu::AdoptionGifts gifts;
    TROUPE_ASSIGN_OR_RETURN(region, state.site.region_of(runtime));
    gifts.host_region = region->fd();
    const bool is_virtual = absl::StartsWith(state.options.command.device, "virtual:");
    if (is_virtual) {
      gifts.links = state.site.links;
      TROUPE_RETURN_IF_ERROR(state.memory.Ready(state.options, runtime, pid != 0));
      gifts.device_memory = state.memory.file.get();
    }
    proto::AdoptHello hello;
    if (is_virtual) state.memory.Offer(state.options, hello);
    hello.set_node(state.options.command.node);
    hello.set_gpu(state.options.command.gpu);
    hello.set_daemon_epoch(state.site.daemon_epoch);
    hello.set_run_directory(state.site.arena_root);
    hello.set_host(state.site.host);
    hello.set_endpoint(state.site.endpoint);
    hello.set_isolation_key(runtime);
    return gpu::WorkerConnection::Adopt(state.options.command.socket, hello, gifts, std::move(process),
                                        state.options.adopt_timeout);
  }

  const ReaderPtr reader_;
  LinkStatePtr state_;
};

}  // namespace

std::unique_ptr<WorkerLink> MakeProcessWorkerLink(const WorkerSite& site, ProcessWorkerOptions options) {
  return std::make_unique<ProcessWorkerLink>(site, std::move(options));
}

}  // namespace troupe::actors
