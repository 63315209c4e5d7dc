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
#include "transport/host_id.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::gpu {
namespace {

using transport::SteadyNow;

constexpr Duration kBeat = std::chrono::milliseconds(50);
// While there is work, sockets and signals are looked at this often.
constexpr Duration kPollWhileBusy = std::chrono::milliseconds(1);
// Orders often follow an outcome within microseconds: look again for this long before sleeping.
constexpr Duration kSpin = std::chrono::microseconds(20);
// The daemon that started this worker is about to come, whatever the lease.
constexpr Duration kFirstAdoption = std::chrono::seconds(10);
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
      generation_(absl::StrCat(absl::Hex(transport::UniqueId()))),
      refusals_(std::move(refusals)),
      acceptor_(std::move(acceptor)),
      page_(std::move(page)),
      queue_(std::move(queue)) {}

Worker::~Worker() {
  // Kept open until the process ends: a device takes a while to be given up, and a daemon that saw its socket
  // closed before would think that it was let go of by a worker that lives on.
  if (session_ != nullptr) (void)fcntl(session_->control_fd(), F_DUPFD_CLOEXEC, 0);
  session_.reset();
}

int Worker::Run(int signals) {
  signals_ = signals;
  waiting_since_ = next_beat_ = next_poll_ = idle_since_ = SteadyNow();
  for (;;) {
    if (const std::optional<int> code = Step(SteadyNow())) return *code;
  }
}

std::optional<int> Worker::Step(Time now) {
  bool worked = queue_->Run();
  if (session_ != nullptr) worked |= ReadOrders();
  if (handler_ != nullptr && handler_->NextDue() <= now) handler_->Tick(now);
  if (now >= next_beat_ || terminated_ || (handler_ != nullptr && handler_->shutting_down())) {
    if (const std::optional<int> code = Beat(now)) return code;
  }
  if (worked) idle_since_ = now;
  if (worked || now - idle_since_ < kSpin) {
    if (now >= next_poll_) Poll(now);
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
  next_beat_ = now + kBeat;
  PageOf(page_).heartbeat.fetch_add(1, std::memory_order_relaxed);
  EndSilentHandshakes(now);
  PageOf(page_).refused.store(refusals_->total(), std::memory_order_relaxed);
  if (handler_ == nullptr) {
    if (terminated_) return kExitClean;
  } else {
    handler_->Tick(now);
    if (const absl::Status health = handler_->device().Health(); !health.ok()) {
      Say(absl::StrCat("device lost: ", health.message()));
      stuck_ = true;
      return kExitDeviceLost;
    }
    if (terminated_ && !handler_->shutting_down()) handler_->BeginShutdown();
  }
  if (handler_ != nullptr && handler_->shutting_down()) {
    if (!shutdown_deadline_) shutdown_deadline_ = now + options_.limits.shutdown;
    stuck_ = !handler_->idle();
    if (stuck_ && now < *shutdown_deadline_) return std::nullopt;
    Say(stuck_ ? "shut down while a run was still computing" : "shut down");
    handler_->FinishShutdown();
    return kExitClean;
  }
  const Duration lease = sessions_ == 0 ? std::max(options_.lease, kFirstAdoption) : options_.lease;
  if (session_ == nullptr && now - waiting_since_ >= lease) {
    Say(absl::StrCat("no daemon came within the lease of ", FormatDuration(lease)));
    stuck_ = handler_ != nullptr && !handler_->idle();
    return kExitLeaseExpired;
  }
  return std::nullopt;
}

Time Worker::NextDue() const {
  Time due = next_beat_;
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
  next_poll_ = SteadyNow() + kPollWhileBusy;
  enum : std::size_t { kQueue, kSignals, kListener, kDoorbell, kControl, kHandshakes };
  std::vector<pollfd> fds(kHandshakes + handshakes_.size(), pollfd{-1, POLLIN, 0});
  fds[kQueue].fd = queue_->fd();
  fds[kSignals].fd = signals_;
  fds[kListener].fd = acceptor_.fd(SteadyNow());
  if (session_ != nullptr) {
    fds[kDoorbell].fd = session_->orders().doorbell();
    fds[kControl].fd = session_->control_fd();
  }
  for (std::size_t i = 0; i < handshakes_.size(); ++i)
    fds[kHandshakes + i].fd = handshakes_[i].connection.fd();
  const auto wait = std::max<std::int64_t>(0, (until - SteadyNow()).count());
  const timespec timeout{wait / 1'000'000'000, wait % 1'000'000'000};
  if (ppoll(fds.data(), fds.size(), &timeout, nullptr) <= 0) return;
  if (fds[kSignals].revents != 0) {
    signalfd_siginfo info{};
    terminated_ |= read(signals_, &info, sizeof(info)) == sizeof(info);
  }
  if (fds[kControl].revents != 0 && session_ != nullptr && !session_->StillThere())
    DropSession("the daemon is gone");
  for (std::size_t i = handshakes_.size(); i-- > 0;) {
    if (fds[kHandshakes + i].revents == 0) continue;
    Handshake handshake = std::move(handshakes_[i]);
    handshakes_.erase(handshakes_.begin() + static_cast<std::ptrdiff_t>(i));
    Greet(handshake);
  }
  if (fds[kListener].revents != 0) Accept();
}

void Worker::Say(const std::string& words) {
  WriteLastWords(PageOf(page_), words);
}

}  // namespace troupe::gpu
