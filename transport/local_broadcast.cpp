#include "transport/local_broadcast.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.hpp"
#include "transport/arena_client.hpp"
#include "transport/host_id.hpp"
#include "transport/liveness.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::transport {
namespace {

constexpr std::uint32_t kBroadcastMagic = 0x7472'6263;  // "trbc"
constexpr Bytes kPage = KiB(4);
constexpr Bytes kWindow = MiB(4);
// What is moved before the others hear of it.
constexpr Bytes kBlock = KiB(512);
// How often a waiting member looks whether its partners live.
constexpr Duration kSlice = std::chrono::milliseconds(20);
// How far a receiver runs ahead of its link before it sleeps: enough to hide a late wake-up.
constexpr Duration kLead = std::chrono::microseconds(400);
// A link that lets nothing pass is looked at this often.
constexpr Duration kStalled = std::chrono::milliseconds(1);

// The first page of the window's memory. Other processes write to it, one of which may be dying: what is read
// here is checked before it is used.
struct Page {
  std::uint32_t magic;
  std::uint32_t reserved;
  std::uint64_t unique;
  std::atomic<std::uint32_t> bell;  // a futex: something has changed
  std::atomic<std::uint32_t> broken;
  std::atomic<std::uint32_t> members;  // as the sender has them; 0: it has not joined
  std::atomic<std::uint64_t> sent;     // bytes, since the begin
  struct Member {
    std::atomic<std::int32_t> pid;  // 0: it has not joined
    std::atomic<std::uint32_t> finished;
    std::atomic<std::uint64_t> taken;  // bytes
  } member[BroadcastSlot::kMembers];
};
static_assert(sizeof(Page) <= kPage.count());

Page& PageOf(const MemoryFile& memory) {
  return *reinterpret_cast<Page*>(memory.data());
}

timespec TimespecOf(Duration duration) {
  const auto count = std::max<std::int64_t>(duration.count(), 0);
  return {count / 1'000'000'000, count % 1'000'000'000};
}

void Ring(Page& page) {
  page.bell.fetch_add(1, std::memory_order_release);
  (void)syscall(SYS_futex, &page.bell, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

void AwaitBell(Page& page, std::uint32_t seen, Duration timeout) {
  const timespec wait = TimespecOf(timeout);
  (void)syscall(SYS_futex, &page.bell, FUTEX_WAIT, seen, &wait, nullptr, 0);
}

class LocalEnd final : public BroadcastEnd {
 public:
  LocalEnd(MemoryFile memory, std::shared_ptr<const void> shown, BroadcastSlot slot,
           LocalBroadcaster::Way way, Duration patience)
      : memory_(std::move(memory)),
        shown_(std::move(shown)),
        slot_(std::move(slot)),
        way_(std::move(way)),
        patience_(patience) {}
  ~LocalEnd() override {
    if (!finished_) Break();
  }

  absl::Status Join() {
    std::int32_t joined = 0;
    if (!me().pid.compare_exchange_strong(joined, getpid())) {
      finished_ = true;  // the broadcast of the others goes on without it
      return absl::AlreadyExistsError(
          absl::StrCat("rank ", slot_.rank, " of this broadcast has joined already, as process ", joined));
    }
    const auto count = static_cast<std::uint32_t>(slot_.members.size());
    if (slot_.rank == 0) page().members.store(count);
    Ring(page());
    TROUPE_RETURN_IF_ERROR(Await("all members to join", [&] {
      for (std::uint32_t rank = 0; rank < count; ++rank)
        if (page().member[rank].pid.load() == 0) return false;
      return page().members.load() != 0;
    }));
    if (page().members.load() == count) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("this broadcast has ", page().members.load(),
                                                   " members, rank ", slot_.rank, " was told of ", count));
  }

  absl::Status Pass(std::span<std::byte> piece) override {
    while (!piece.empty()) {
      const std::span<std::byte> block = piece.first(std::min<std::size_t>(piece.size(), kBlock.count()));
      TROUPE_RETURN_IF_ERROR(slot_.rank == 0 ? Put(block) : Take(block));
      piece = piece.subspan(block.size());
    }
    return slot_.rank == 0 ? absl::OkStatus() : SleepUntil(due_);
  }

  absl::Status Finish() override {
    me().finished.store(1);
    Ring(page());
    TROUPE_RETURN_IF_ERROR(Await("all members to finish", [&] {
      for (std::size_t rank = 0; rank < slot_.members.size(); ++rank)
        if (page().member[rank].finished.load() == 0) return false;
      return true;
    }));
    finished_ = true;
    return absl::OkStatus();
  }

  void Abort() override {
    aborted_ = true;
    Break();
  }

 private:
  [[nodiscard]] Page& page() const { return PageOf(memory_); }
  [[nodiscard]] Page::Member& me() const { return page().member[slot_.rank]; }
  void Break() {
    page().broken.store(1);
    Ring(page());
  }

  // The rank that holds up the sender: it has taken the least.
  [[nodiscard]] std::uint64_t LeastTaken() const {
    std::uint64_t least = page().sent.load();
    for (std::size_t rank = 1; rank < slot_.members.size(); ++rank)
      least = std::min(least, page().member[rank].taken.load());
    return least;
  }

  absl::Status Put(std::span<const std::byte> block) {
    const std::uint64_t sent = page().sent.load();
    TROUPE_RETURN_IF_ERROR(Await("the receivers to take what was sent",
                                 [&] { return sent + block.size() - LeastTaken() <= kWindow.count(); }));
    Move(sent, block.size(), [&](std::byte* window, std::size_t at, std::size_t size) {
      std::memcpy(window, block.data() + at, size);
    });
    page().sent.store(sent + block.size());
    Ring(page());
    return absl::OkStatus();
  }

  absl::Status Take(std::span<std::byte> block) {
    const std::uint64_t taken = me().taken.load();
    TROUPE_RETURN_IF_ERROR(Await("the sender", [&] { return page().sent.load() - taken >= block.size(); }));
    if (page().sent.load() - taken > kWindow.count()) {
      Break();
      return absl::UnavailableError("the sender of a broadcast has overtaken this end: it makes no sense");
    }
    TROUPE_RETURN_IF_ERROR(BeginWay());
    Move(taken, block.size(), [&](const std::byte* window, std::size_t at, std::size_t size) {
      std::memcpy(block.data() + at, window, size);
    });
    if (way_.links != nullptr) {
      const Time now = SteadyNow();
      due_ = now + way_.links->Reserve(way_.path, Bytes(block.size()), now);
    }
    me().taken.store(taken + block.size());
    Ring(page());
    return due_ - SteadyNow() > kLead ? SleepUntil(due_ - kLead / 2) : absl::OkStatus();
  }

  // The bytes [begin, begin + size) of the stream, as they lie in the window.
  template <class Copy>
  void Move(std::uint64_t begin, std::size_t size, Copy copy) {
    for (std::size_t at = 0; at < size;) {
      const std::uint64_t place = (begin + at) % kWindow.count();
      const std::size_t part = std::min<std::size_t>(size - at, kWindow.count() - place);
      copy(memory_.data() + kPage.count() + place, at, part);
      at += part;
    }
  }

  [[nodiscard]] absl::Status Left() const {
    if (aborted_) return absl::UnavailableError("the broadcast was aborted here");
    if (page().broken.load() != 0) return absl::UnavailableError("a member of the broadcast has left it");
    return absl::OkStatus();
  }

  // Waits until the way lets something pass.
  absl::Status BeginWay() {
    if (way_.links == nullptr) return absl::OkStatus();
    const Time deadline = SteadyNow() + patience_;
    const auto stalled = [this](std::size_t link) { return way_.links->Stalled(link, SteadyNow()); };
    while (std::ranges::any_of(way_.path, stalled)) {
      TROUPE_RETURN_IF_ERROR(Left());
      if (SteadyNow() >= deadline) {
        Break();
        return absl::DeadlineExceededError(absl::StrCat("the link from GPU ", slot_.members[0],
                                                        " let nothing pass for ", FormatDuration(patience_)));
      }
      TROUPE_RETURN_IF_ERROR(SleepUntil(SteadyNow() + kStalled));
    }
    return absl::OkStatus();
  }

  absl::Status SleepUntil(Time when) {
    for (Duration left = when - SteadyNow(); left > Duration(0); left = when - SteadyNow()) {
      TROUPE_RETURN_IF_ERROR(Left());
      const timespec wait = TimespecOf(std::min(left, kSlice));
      (void)nanosleep(&wait, nullptr);
    }
    return absl::OkStatus();
  }

  // The member whose process has ended; nothing when all live. Members that have not joined are unknown.
  [[nodiscard]] absl::Status AllLive() {
    for (std::uint32_t rank = 0; rank < slot_.members.size(); ++rank) {
      const std::int32_t pid = page().member[rank].pid.load();
      if (pid <= 0 || rank == slot_.rank || page().member[rank].finished.load() != 0) continue;
      ProcessHandle& partner = partners_[rank];
      absl::Status there = absl::OkStatus();
      if (!partner.valid()) {
        absl::StatusOr<ProcessHandle> opened = ProcessHandle::Open(pid);
        there = opened.status();
        if (opened.ok()) partner = *std::move(opened);
      }
      if (there.ok() && !partner.IsDead()) continue;
      return absl::UnavailableError(
          absl::StrCat("rank ", rank, " of the broadcast (GPU ", slot_.members[rank], ") is gone"));
    }
    return absl::OkStatus();
  }

  template <class Ready>
  absl::Status Await(const char* what, Ready ready) {
    std::uint64_t moved = Moved();
    Time deadline = SteadyNow() + patience_;
    for (;;) {
      const std::uint32_t seen = page().bell.load(std::memory_order_acquire);
      TROUPE_RETURN_IF_ERROR(Left());
      if (ready()) return absl::OkStatus();
      if (const std::uint64_t now = Moved(); now != moved) {
        moved = now;
        deadline = SteadyNow() + patience_;
      }
      absl::Status alive = AllLive();
      if (alive.ok() && SteadyNow() >= deadline) {
        alive = absl::DeadlineExceededError(
            absl::StrCat("a broadcast waited ", FormatDuration(patience_), " for ", what));
      }
      if (!alive.ok()) {
        Break();
        return alive;
      }
      AwaitBell(page(), seen, std::min(kSlice, deadline - SteadyNow()));
    }
  }
  // Grows with each byte that any member moves.
  [[nodiscard]] std::uint64_t Moved() const {
    std::uint64_t sum = page().sent.load();
    for (std::size_t rank = 1; rank < slot_.members.size(); ++rank) sum += page().member[rank].taken.load();
    return sum;
  }

  const MemoryFile memory_;
  const std::shared_ptr<const void> shown_;  // the sender's
  const BroadcastSlot slot_;
  const LocalBroadcaster::Way way_;
  const Duration patience_;
  ProcessHandle partners_[BroadcastSlot::kMembers];
  std::atomic<bool> aborted_ = false;
  bool finished_ = false;
  Time due_;  // when the way has passed what was taken
};

absl::Status NobodysId() {
  return absl::NotFoundError("there is no broadcast with this id, or it is over");
}

// "UNIQUE:/SOCKET", or "PID:DESCRIPTOR:UNIQUE" of a process whose descriptors can be looked at.
absl::StatusOr<UniqueFd> FindWindow(const std::string& id, std::uint64_t& unique) {
  const std::pair<std::string, std::string> handed = absl::StrSplit(id, absl::MaxSplits(':', 1));
  if (handed.second.starts_with('/')) {
    if (!absl::SimpleAtoi(handed.first, &unique)) return NobodysId();
    ArenaClient client{ArenaClient::Options()};
    proto::ArenaRef ref;
    ref.set_host(HostId());
    ref.set_socket(handed.second);
    ref.set_arena(unique);
    auto asked = client.Ask(ref);
    return asked.ok() ? std::move(asked) : NobodysId();
  }
  const std::vector<std::string> parts = absl::StrSplit(id, ':');
  std::int32_t pid = 0;
  std::int32_t descriptor = 0;
  if (parts.size() != 3 || !absl::SimpleAtoi(parts[0], &pid) || !absl::SimpleAtoi(parts[1], &descriptor) ||
      !absl::SimpleAtoi(parts[2], &unique)) {
    return NobodysId();
  }
  return UniqueFd(open(absl::StrCat("/proc/", pid, "/fd/", descriptor).c_str(), O_RDWR | O_CLOEXEC));
}

// Of another process of this host, or of this one.
absl::StatusOr<MemoryFile> OpenWindow(const std::string& id) {
  std::uint64_t unique = 0;
  TROUPE_ASSIGN_OR_RETURN(UniqueFd opened, FindWindow(id, unique));
  if (!opened.valid()) return NobodysId();
  absl::StatusOr<MemoryFile> memory = MemoryFile::Open(std::move(opened), MemoryFile::Access::kReadWrite);
  // The descriptor's number may have come to mean something else.
  if (!memory.ok() || memory->size() < kPage + kWindow || PageOf(*memory).magic != kBroadcastMagic ||
      PageOf(*memory).unique != unique)
    return NobodysId();
  return memory;
}

}  // namespace

absl::Status CheckSlot(const BroadcastSlot& slot) {
  const std::size_t count = slot.members.size();
  if (count < 2 || count > BroadcastSlot::kMembers || slot.rank >= count) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", slot.rank, " of a broadcast of ", count,
                                                   " members: must be below it, and of 2 to ",
                                                   BroadcastSlot::kMembers));
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (std::ranges::count(slot.members, slot.members[i]) > 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("GPU ", slot.members[i], " has two ranks in one broadcast"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> LocalBroadcaster::NewId() {
  TROUPE_ASSIGN_OR_RETURN(MemoryFile memory, MemoryFile::Create("troupe-broadcast", kPage + kWindow));
  Page& page = PageOf(memory);
  page.magic = kBroadcastMagic;
  page.unique = UniqueId();
  const std::uint64_t unique = page.unique;
  Window window{absl::StrCat(getpid(), ":", memory.fd(), ":", unique), std::move(memory), nullptr};
  const std::lock_guard lock(mutex_);
  if (!socket_.empty()) TROUPE_RETURN_IF_ERROR(Show(window, unique));
  if (open_.size() >= kOpen) open_.pop_front();
  open_.push_back(std::move(window));
  return open_.back().id;
}

absl::Status LocalBroadcaster::Show(Window& window, std::uint64_t unique) {
  if (server_ == nullptr) {
    TROUPE_ASSIGN_OR_RETURN(server_, ArenaServer::Start(socket_));
  }
  UniqueFd copy(fcntl(window.memory.fd(), F_DUPFD_CLOEXEC, 3));
  if (!copy.valid()) return ErrnoStatus(errno, "handing out the window of a broadcast");
  TROUPE_RETURN_IF_ERROR(server_->Add(unique, std::move(copy)));
  window.id = absl::StrCat(unique, ":", socket_);
  window.shown = {nullptr, [server = server_, unique](const void*) { server->Remove(unique); }};
  return absl::OkStatus();
}

absl::StatusOr<LocalBroadcaster::Window> LocalBroadcaster::WindowOf(const BroadcastSlot& slot) {
  if (slot.rank == 0) {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find(open_, slot.id, &Window::id);
    if (found != open_.end()) {
      Window window = std::move(*found);
      open_.erase(found);
      return window;
    }
  }
  TROUPE_ASSIGN_OR_RETURN(MemoryFile memory, OpenWindow(slot.id));
  return Window{slot.id, std::move(memory), nullptr};
}

absl::StatusOr<std::unique_ptr<BroadcastEnd>> LocalBroadcaster::Join(const BroadcastSlot& slot,
                                                                     Duration patience) {
  TROUPE_RETURN_IF_ERROR(CheckSlot(slot));
  Way way;
  if (slot.rank != 0 && way_) {
    TROUPE_ASSIGN_OR_RETURN(way, way_(slot.members[0]));
  }
  TROUPE_ASSIGN_OR_RETURN(Window window, WindowOf(slot));
  auto end = std::make_unique<LocalEnd>(std::move(window.memory), std::move(window.shown), slot,
                                        std::move(way), patience);
  TROUPE_RETURN_IF_ERROR(end->Join());
  return end;
}

}  // namespace troupe::transport
