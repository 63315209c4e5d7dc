#include "actors/seams/worker_link_state.hpp"

#include <fcntl.h>
#include <signal.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "gpu/worker/exit_codes.hpp"
#include "gpu/worker/weight_record.hpp"

namespace troupe::actors {

namespace {

WorkerSite WithoutReader(WorkerSite site) {
  site.reader.reset();
  return site;
}

class Handler final : public gpu::LinkHandler {
 public:
  Handler(LinkStatePtr state, std::uint64_t life) : state_(std::move(state)), life_(life) {}

  void OnOutcome(proto::WorkerOutcome outcome) override {
    const std::lock_guard lock(state_->mutex);
    if (life_ != state_->incarnation || !state_->events.on_outcome) return;
    ++state_->answered;
    proto::WorkerAnswer answer;
    answer.set_incarnation(life_);
    *answer.mutable_outcome() = std::move(outcome);
    state_->events.on_outcome(std::move(answer));
  }
  void OnDeath(const gpu::WorkerDeath& death) override {
    const int code = death.end && !death.end->signaled ? death.end->code : 0;
    const int signal = death.end && death.end->signaled ? death.end->code : 0;
    if (!death.end) {
      const std::lock_guard lock(state_->mutex);
      if (life_ == state_->incarnation && state_->ending)
        return;  // End has reaped it, and knows how it ended
    }
    state_->TellDeath(life_, code, signal, death.last_words);
  }
  void OnCorrupt(const absl::Status& status) override {
    // Of no use any more: it is ended, and its end is the event.
    std::shared_ptr<gpu::WorkerConnection> connection;
    {
      const std::lock_guard lock(state_->mutex);
      if (life_ == state_->incarnation) {
        connection = state_->connection;
        // It may still write while the next worker begins.
        state_->memory.file.Reset();
      }
    }
    if (connection != nullptr) static_cast<void>(connection->Kill());
    state_->TellDeath(life_, 0, SIGKILL, absl::StrCat("the link is of no use: ", status.message()));
  }

 private:
  LinkStatePtr state_;
  const std::uint64_t life_;
};

}  // namespace

// The memory of the last worker, unless that one served another key: what it left there is not for this one.
absl::Status KeptMemory::Ready(const ProcessWorkerOptions& options, const std::string& runtime, bool begins) {
  const bool strange = !key.empty() && key != runtime;
  const bool unrecorded = begins && options.keep_weights && record == Bytes(0);
  const bool suspect = begins && failed >= kMostFailed;
  if (strange || unrecorded || suspect) file.Reset();
  key = runtime;
  if (file.valid()) {
    failed += begins ? 1 : 0;
    return absl::OkStatus();
  }
  failed = 0;
  record = options.keep_weights ? gpu::WeightRecord::Size() : Bytes(0);
  TROUPE_ASSIGN_OR_RETURN(const auto made,
                          gpu::CreateVirtualMemory(options.command.gpu, options.memory + record));
  file = transport::UniqueFd(fcntl(made.fd(), F_DUPFD_CLOEXEC, 3));
  return absl::OkStatus();
}

void KeptMemory::Offer(const ProcessWorkerOptions& options, proto::AdoptHello& hello) const {
  if (!options.keep_weights) return;
  hello.set_weight_record(record.count());
  hello.set_group_bytes(group_bytes);
  *hello.mutable_link_curve() = link_curve;
}

void KeptMemory::Learn(const proto::WorkerDescription& worker, transport::UniqueFd memory) {
  if (!memory.valid()) return;
  file = std::move(memory);
  failed = 0;
  record = Bytes(worker.weight_record());
  if (worker.link_curve().empty()) return;  // the group size was set, not measured
  group_bytes = worker.group_bytes();
  link_curve = worker.link_curve();
}

LinkState::LinkState(const WorkerSite& s, ProcessWorkerOptions o)
    : site(WithoutReader(s)), options(std::move(o)) {}

void LinkState::TellDeath(std::uint64_t life, int code, int signal, const std::string& last_words) {
  std::shared_ptr<gpu::WorkerConnection> old;
  {
    const std::lock_guard lock(mutex);
    if (life != incarnation || death_told) return;
    death_told = true;
    pid = 0;
    old = std::move(connection);
    leaving.reset();
    region.reset();
    exported.reset();
    proto::WorkerDied died;
    died.set_incarnation(life);
    died.set_exit_code(code);
    died.set_signal(signal);
    // A worker that ended before it had a page to write on still has its exit code's meaning.
    died.set_last_words(last_words.empty() && signal == 0 ? gpu::ExitCodeName(code) : last_words);
    if (events.on_death) events.on_death(std::move(died));
  }
}

std::shared_ptr<gpu::LinkHandler> MakeLinkHandler(LinkStatePtr state, std::uint64_t incarnation) {
  return std::make_shared<Handler>(std::move(state), incarnation);
}

}  // namespace troupe::actors
