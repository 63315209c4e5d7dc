#include "gpu/worker/link_reader.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "base/status.hpp"
#include "gpu/worker/exit_codes.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::gpu {
namespace {

using transport::ErrnoStatus;
using transport::UniqueFd;

// What woke the thread: the low bits of the tag that epoll gives back, above them the connection's id.
enum Source : std::uint64_t { kDoorbell = 0, kProcess = 1, kSocket = 2 };
constexpr std::uint64_t kSources = 4;
constexpr std::uint64_t kWakeTag = ~std::uint64_t{0};
// Outcomes of one connection before the others get their turn.
constexpr int kBatch = 64;
// An answer often follows within microseconds: look again for this long before sleeping.
constexpr Duration kSpin = std::chrono::microseconds(20);

void Watch(int epoll, int fd, std::uint64_t tag) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = tag;
  TROUPE_CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0,
               "a descriptor of a worker link cannot be watched");
}

void Ring(int fd) {
  const std::uint64_t one = 1;
  (void)!write(fd, &one, sizeof(one));
}

}  // namespace

std::string WorkerDeath::ToString() const {
  std::string text = end ? end->ToString() : "ended";
  if (end && !end->signaled && *ExitCodeName(end->code) != 0)
    absl::StrAppend(&text, " (", ExitCodeName(end->code), ")");
  if (!last_words.empty()) absl::StrAppend(&text, "; last words: ", last_words);
  return text;
}

absl::StatusOr<std::unique_ptr<LinkReader>> LinkReader::Start() {
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return ErrnoStatus(errno, "epoll for the worker links");
  UniqueFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return ErrnoStatus(errno, "eventfd for the worker links");
  return std::unique_ptr<LinkReader>(new LinkReader(std::move(epoll), std::move(wake)));
}

LinkReader::LinkReader(UniqueFd epoll, UniqueFd wake) : epoll_(std::move(epoll)), wake_(std::move(wake)) {
  Watch(epoll_.get(), wake_.get(), kWakeTag);
  thread_ = std::thread([this] { Serve(); });
}

LinkReader::~LinkReader() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  Ring(wake_.get());
  thread_.join();
}

LinkReader::Id LinkReader::Add(std::shared_ptr<WorkerConnection> connection,
                               std::shared_ptr<LinkHandler> handler) {
  const std::lock_guard lock(mutex_);
  const Id id = next_++;
  Watch(epoll_.get(), connection->reader().doorbell(), id * kSources + kDoorbell);
  Watch(epoll_.get(), connection->process().fd(), id * kSources + kProcess);
  Watch(epoll_.get(), connection->socket_fd(), id * kSources + kSocket);
  links_.emplace(id, Link{id, std::move(connection), std::move(handler)});
  Ring(wake_.get());
  return id;
}

void LinkReader::Remove(Id id) {
  const std::lock_guard lock(mutex_);
  const auto found = links_.find(id);
  if (found == links_.end()) return;
  Detach(found->second);
}

std::size_t LinkReader::connections() const {
  const std::lock_guard lock(mutex_);
  std::size_t count = 0;
  for (const auto& [id, link] : links_) count += link.over ? 0 : 1;
  return count;
}

// Erased later by Pump: the handler that asks for this may be running out of this very entry.
void LinkReader::Detach(Link& link) {
  if (link.over) return;
  link.over = true;
  for (const int fd : {link.connection->reader().doorbell(), link.connection->process().fd(),
                       link.connection->socket_fd()}) {
    (void)epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);  // a socket that was closed has left by itself
  }
  Ring(wake_.get());
}

void LinkReader::Serve() {
  Time quiet_since = transport::SteadyNow();
  for (;;) {
    bool worked = false;
    bool arm = transport::SteadyNow() - quiet_since > kSpin;
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
      worked = Pump();
      if (!worked && arm) {
        for (auto& [id, link] : links_) {
          if (!link.armed && !(link.armed = link.connection->reader().Arm())) arm = false;
        }
      }
    }
    if (worked) quiet_since = transport::SteadyNow();
    if (!worked) Sleep(arm ? -1 : 0);
  }
}

bool LinkReader::Pump() {
  bool worked = false;
  for (auto it = links_.begin(); it != links_.end();) {
    if (!it->second.over) worked |= Drain(it->second);
    it = it->second.over ? links_.erase(it) : std::next(it);
  }
  return worked;
}

bool LinkReader::Drain(Link& link) {
  bool worked = false;
  for (int i = 0; i < kBatch && !link.over; ++i) {
    proto::WorkerOutcome outcome;
    const absl::StatusOr<bool> received = link.connection->Receive(outcome);
    if (!received.ok()) {
      Detach(link);
      link.handler->OnCorrupt(received.status());
      return true;
    }
    if (!*received) return worked;
    worked = true;
    link.handler->OnOutcome(std::move(outcome));
  }
  return worked;
}

void LinkReader::Sleep(int timeout_ms) {
  epoll_event events[32];
  const int count = epoll_wait(epoll_.get(), events, 32, timeout_ms);
  const std::lock_guard lock(mutex_);
  for (auto& [id, link] : links_) {
    if (link.armed) link.connection->reader().Disarm();
    link.armed = false;
  }
  for (int i = 0; i < count; ++i) Hear(events[i].data.u64);
}

void LinkReader::Hear(std::uint64_t tag) {
  if (tag == kWakeTag) {
    std::uint64_t rings = 0;
    (void)!read(wake_.get(), &rings, sizeof(rings));
    return;
  }
  const auto found = links_.find(tag / kSources);
  if (found == links_.end() || found->second.over || tag % kSources == kDoorbell) return;
  Ended(found->second);
}

// The process ended, or it closed its socket: a dying one does both, in either order.
void LinkReader::Ended(Link& link) {
  // A process that was killed closes its socket first, and on a busy machine frees its memory for a while
  // before it has ended. A process that lives on is killed and started again with back-off, so that it delays
  // the other links once.
  constexpr Duration kDying = std::chrono::seconds(1);
  while (!link.over && Drain(link)) continue;
  if (link.over) return;
  Detach(link);
  const absl::StatusOr<transport::ProcessEnd> end = link.connection->process().Wait(kDying);
  if (!end.ok() && !link.connection->process().IsDead()) {
    link.handler->OnCorrupt(absl::UnavailableError("the worker let go of this daemon"));
    return;
  }
  WorkerDeath death;
  if (end.ok()) death.end = *end;
  death.last_words = link.connection->Progress().last_words;
  link.handler->OnDeath(death);
}

}  // namespace troupe::gpu
