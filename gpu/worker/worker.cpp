// The main loop. Adoption is in worker_adoption.cpp.
#include "gpu/worker/worker.hpp"

#include <fcntl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "gpu/worker/exit_codes.hpp"
#include "gpu/worker/last_words.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::gpu {
namespace {

using transport::SteadyNow;

constexpr Duration kBeat = std::chrono::milliseconds(50);
// While there is work, sockets and signals are looked at this often.
constexpr Duration kPollWhileBusy = std::chrono::milliseconds(1);
// Orders often follow an outcome within microseconds: look again for this long before sleeping.
constexpr Duration kSpin = std::chrono::microseconds(20);
// How soon a full outcome ring is tried again: its reader does not ring when it makes room.
constexpr Duration kRetryOutcomes = std::chrono::milliseconds(1);
// Orders taken before the loop looks at what has finished.
constexpr int kBatch = 32;

// Arena sockets of a worker that was killed at this very socket.
void RemoveLeftOvers(const std::string& socket) {
  const std::filesystem::path path(socket);
  const std::string prefix = path.filename().string() + ".a";
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(path.parent_path(), ignored)) {
    if (entry.path().filename().string().starts_with(prefix) && entry.is_socket(ignored)) {
      std::filesystem::remove(entry.path(), ignored);
    }
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Worker>> Worker::Create(WorkerOptions options) {
  auto refusals = std::make_shared<transport::SocketRefusals>();
  TROUPE_ASSIGN_OR_RETURN(auto acceptor, transport::UnixAcceptor::Listen(options.socket, refusals));
  RemoveLeftOvers(options.socket);
  TROUPE_ASSIGN_OR_RETURN(auto page, CreateControlPage(getpid()));
  TROUPE_ASSIGN_OR_RETURN(auto queue, TaskQueue::Create());
  WriteLastWordsOnCrash(PageOf(page));
  return std::unique_ptr<Worker>(new Worker(std::move(options), std::move(refusals), std::move(acceptor),
                                            std::move(page), std::move(queue)));
}

Worker::Worker(WorkerOptions options, std::shared_ptr<transport::SocketRefusals> refusals,
               transport::UnixAcceptor acceptor, transport::MemoryFile page, std::unique_ptr<TaskQueue> queue)
    : options_(std::move(options)),
      refusals_(std::move(refusals)),
      page_(std::move(page)),
      queue_(std::move(queue)),
      handshakes_(std::move(acceptor), refusals_, options_.limits.handshakes, options_.limits.handshake),
      ownership_(options_.lease) {}

Worker::~Worker() {
  // Kept open until the process ends: a device takes a while to be given up, and a daemon that saw its socket
  // closed before would think that it was let go of by a worker that lives on.
  if (session_ != nullptr) (void)fcntl(session_->control_fd(), F_DUPFD_CLOEXEC, 0);
  session_.reset();
}

int Worker::Run(int signals) {
  signals_ = signals;
  const Time now = SteadyNow();
  ownership_.Wait(now);
  pace_ = {now, now, now};
  for (;;) {
    if (const std::optional<int> code = Step(SteadyNow())) return *code;
  }
}

std::optional<int> Worker::Step(Time now) {
  bool worked = queue_->Run();
  if (session_ != nullptr) worked |= ReadOrders();
  if (handler_ != nullptr && handler_->NextDue() <= now) handler_->Tick(now);
  if (now >= pace_.next_beat || ending_.terminated || (handler_ != nullptr && handler_->shutting_down())) {
    if (const std::optional<int> code = Beat(now)) return code;
  }
  if (worked) pace_.idle_since = now;
  if (worked || now - pace_.idle_since < kSpin) {
    if (now >= pace_.next_poll) Poll(now);
    return std::nullopt;
  }
  if (Arm()) Poll(NextDue());
  Disarm();
  return std::nullopt;
}

bool Worker::ReadOrders() {
  if (!session_->Flush()) return false;
  for (int i = 0; i < kBatch; ++i) {
    transport::RingRecord record;
    const absl::StatusOr<bool> read = session_->Read(record);
    if (!read.ok()) {
      DropSession(absl::StrCat("the order ring makes no sense: ", read.status().message()));
      return true;
    }
    if (!*read) return i > 0;
    handler_->Take(session_, record);
    if (session_->broken()) {
      DropSession("the outcome ring makes no sense");
      return true;
    }
    if (!session_->Flush()) return true;
  }
  return true;
}

std::optional<int> Worker::Beat(Time now) {
  pace_.next_beat = now + kBeat;
  PageOf(page_).heartbeat.fetch_add(1, std::memory_order_relaxed);
  handshakes_.EndSilent(now);
  PageOf(page_).refused.store(refusals_->total(), std::memory_order_relaxed);
  if (handler_ == nullptr) {
    if (ending_.terminated) return kExitClean;
  } else {
    handler_->Tick(now);
    if (const absl::Status health = handler_->device().Health(); !health.ok()) {
      Say(absl::StrCat("device lost: ", health.message()));
      ending_.stuck = true;
      return kExitDeviceLost;
    }
    if (ending_.terminated && !handler_->shutting_down()) handler_->BeginShutdown();
  }
  if (handler_ != nullptr && handler_->shutting_down()) {
    if (!ending_.deadline) ending_.deadline = now + options_.limits.shutdown;
    ending_.stuck = !handler_->idle();
    if (ending_.stuck && now < *ending_.deadline) return std::nullopt;
    Say(ending_.stuck ? "shut down while a run was still computing" : "shut down");
    handler_->FinishShutdown();
    return kExitClean;
  }
  if (session_ == nullptr && ownership_.LeaseIsOver(now)) {
    Say(absl::StrCat("no daemon came within the lease of ", FormatDuration(ownership_.lease())));
    ending_.stuck = handler_ != nullptr && !handler_->idle();
    return kExitLeaseExpired;
  }
  return std::nullopt;
}

Time Worker::NextDue() const {
  Time due = pace_.next_beat;
  if (handler_ != nullptr) due = std::min(due, handler_->NextDue());
  if (session_ != nullptr && !session_->Flush()) due = std::min(due, SteadyNow() + kRetryOutcomes);
  return due;
}

bool Worker::Arm() {
  const bool quiet = queue_->Arm();
  // With outcomes that wait for room no orders are read, so none should wake the loop.
  if (session_ == nullptr || !session_->Flush()) return quiet;
  return session_->orders().Arm() && quiet;
}

void Worker::Disarm() {
  queue_->Disarm();
  if (session_ != nullptr) session_->orders().Disarm();
}

void Worker::Poll(Time until) {
  pace_.next_poll = SteadyNow() + kPollWhileBusy;
  enum : std::size_t { kQueue, kSignals, kListener, kDoorbell, kControl, kHandshakes };
  std::vector<pollfd> fds(kHandshakes + handshakes_.size(), pollfd{-1, POLLIN, 0});
  fds[kQueue].fd = queue_->fd();
  fds[kSignals].fd = signals_;
  fds[kListener].fd = handshakes_.listener(SteadyNow());
  if (session_ != nullptr) {
    fds[kDoorbell].fd = session_->orders().doorbell();
    fds[kControl].fd = session_->control_fd();
  }
  for (std::size_t i = 0; i < handshakes_.size(); ++i) fds[kHandshakes + i].fd = handshakes_.fd(i);
  const auto wait = std::max<std::int64_t>(0, (until - SteadyNow()).count());
  const timespec timeout{wait / 1'000'000'000, wait % 1'000'000'000};
  if (ppoll(fds.data(), fds.size(), &timeout, nullptr) <= 0) return;
  if (fds[kSignals].revents != 0) {
    signalfd_siginfo info{};
    ending_.terminated |= read(signals_, &info, sizeof(info)) == sizeof(info);
  }
  if (fds[kControl].revents != 0 && session_ != nullptr && !session_->StillThere())
    DropSession("the daemon is gone");
  for (std::size_t i = handshakes_.size(); i-- > 0;) {
    if (fds[kHandshakes + i].revents == 0) continue;
    if (auto hello = handshakes_.Take(i))
      (void)Adopt(std::move(hello->connection), std::move(hello->message));
  }
  if (fds[kListener].revents != 0) handshakes_.Accept(SteadyNow());
}

void Worker::Say(const std::string& words) {
  WriteLastWords(PageOf(page_), words);
}

}  // namespace troupe::gpu
