#include "transport/link_state.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <new>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.hpp"
#include "base/status.hpp"

namespace troupe::transport {
namespace {

constexpr std::uint64_t kLinksMagic = 0x7472'7570'6c69'6e6b;  // "truplink"
constexpr std::uint32_t kLinksVersion = 4;
constexpr std::size_t kNameSize = 32;
// The longest wait for a link: a longer one was written by a broken process.
constexpr Duration kLongestQueue = std::chrono::hours(1);

struct Header {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t count;
};
constexpr std::size_t kLinksHeaderSize = 128;
constexpr std::uint32_t kNothingBehind = ~std::uint32_t{0};
// A user that was silent for this long has lost its slot to any user that wants it.
constexpr Duration kForgotten = std::chrono::seconds(1);
constexpr std::uint32_t kMostTransfers = 64;  // that count in a share

}  // namespace

// Where one user says what it wants. Its fields are read one by one: a mixture of two demands lasts for one
// turn at most.
struct LinkBuckets::UserSlot {
  std::atomic<std::uint64_t> user;  // 0: free
  std::atomic<std::int64_t> urgency;
  std::atomic<std::int64_t> fresh_until;
  std::atomic<std::uint32_t> transfers;
  std::atomic<std::uint64_t> passed;  // bytes per transfer; only differences mean something

  [[nodiscard]] bool Wants(std::int64_t at) const {
    const std::int64_t until = fresh_until.load(std::memory_order_relaxed);
    return transfers.load(std::memory_order_acquire) > 0 && until > at && until <= at + 2 * kFresh.count();
  }
  // How much further another user has come.
  [[nodiscard]] std::int64_t Behind(const UserSlot& other) const {
    return static_cast<std::int64_t>(other.passed.load(std::memory_order_relaxed) -
                                     passed.load(std::memory_order_relaxed));
  }
};

// One cache line of constants, one of what changes, and the slots.
struct LinkBuckets::Slot {
  char name[kNameSize];
  double bandwidth;
  std::int64_t burst;
  std::int64_t copy_time;
  std::uint32_t behind;
  alignas(64) std::atomic<std::int64_t> busy_until;  // CLOCK_MONOTONIC, nanoseconds
  std::atomic<std::int64_t> stalled_until;
  std::atomic<std::uint64_t> passed;
  std::atomic<std::uint64_t> stalled_beyond;  // bytes passed; zero: none
  alignas(64) UserSlot slots[kUsers];
};

absl::StatusOr<LinkBuckets> LinkBuckets::Create(const std::vector<LinkConfig>& links) {
  if (links.empty() || links.size() > kLinks) {
    return absl::InvalidArgumentError(absl::StrCat(links.size(), " links: must be 1 to ", kLinks));
  }
  LinkBuckets buckets;
  buckets.count_ = links.size();
  TROUPE_ASSIGN_OR_RETURN(
      buckets.memory_,
      MemoryFile::Create("troupe-links", Bytes(kLinksHeaderSize + links.size() * sizeof(Slot))));
  new (buckets.memory_.data()) Header{kLinksMagic, kLinksVersion, static_cast<std::uint32_t>(links.size())};
  for (std::size_t i = 0; i < links.size(); ++i) {
    const LinkConfig& link = links[i];
    if (link.name.empty() || link.name.size() >= kNameSize || !std::isfinite(link.bandwidth.value) ||
        link.bandwidth.value < 0 || link.burst < Duration::zero() || link.copy_time < Duration::zero()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "link '", link.name, "': needs a name of 1 to ", kNameSize - 1,
          " bytes, a bandwidth of zero (unlimited) or more, a burst and a time of each copy of zero or more"));
    }
    auto* slot = new (&buckets.slot(i)) Slot{};
    link.name.copy(slot->name, kNameSize - 1);
    slot->bandwidth = link.bandwidth.value;
    slot->burst = link.burst.count();
    slot->copy_time = link.copy_time.count();
    slot->behind = kNothingBehind;
    if (link.behind.empty()) continue;
    TROUPE_ASSIGN_OR_RETURN(const std::size_t behind, buckets.Find(link.behind));
    if (behind >= i) {
      return absl::InvalidArgumentError(absl::StrCat("link '", link.name, "': what is behind it, '",
                                                     link.behind, "', has to be named before it"));
    }
    slot->behind = static_cast<std::uint32_t>(behind);
  }
  buckets.BecomeUser();
  return buckets;
}

absl::StatusOr<LinkBuckets> LinkBuckets::Open(UniqueFd fd) {
  LinkBuckets buckets;
  TROUPE_ASSIGN_OR_RETURN(buckets.memory_, MemoryFile::Open(std::move(fd), MemoryFile::Access::kReadWrite));
  const auto& header = *reinterpret_cast<const Header*>(buckets.memory_.data());
  const std::size_t count = header.count;
  if (header.magic != kLinksMagic || header.version != kLinksVersion || count == 0 || count > kLinks ||
      !buckets.memory_.Contains(kLinksHeaderSize, count * sizeof(Slot))) {
    return absl::InvalidArgumentError("received shared memory holds no links of this version of Troupe");
  }
  buckets.count_ = count;
  buckets.BecomeUser();
  return buckets;
}

void LinkBuckets::BecomeUser() {
  static std::atomic<std::uint32_t> users = 0;
  user_ = static_cast<std::uint64_t>(getpid()) << 32 | ++users;
}

LinkBuckets::Slot& LinkBuckets::slot(std::size_t link) const {
  TROUPE_CHECK(link < count_, "a link id comes from Find");
  return reinterpret_cast<Slot*>(memory_.data() + kLinksHeaderSize)[link];
}

// The bucket is one number: when the link will have passed all that was reserved. A reservation moves it on
// by its own time, from now or, for a user that comes a little late, from where the link would have been.
Duration LinkBuckets::Reserve(std::size_t link, Bytes size, Time now) {
  Slot& slot = this->slot(link);
  const std::int64_t at = now.time_since_epoch().count();
  const std::int64_t limit = at + kLongestQueue.count();
  const double bandwidth = slot.bandwidth;
  const bool sane = std::isfinite(bandwidth) && bandwidth >= 0;
  const std::int64_t time =
      std::min(TransferTime(size, BytesPerSecond{sane ? bandwidth : 0}), kLongestQueue).count();
  const std::int64_t earliest = at - std::clamp<std::int64_t>(slot.burst, 0, kLongestQueue.count());
  slot.passed.fetch_add(size.count(), std::memory_order_relaxed);
  if (UserSlot* mine = SlotOf(link)) {
    const std::uint32_t transfers =
        std::clamp(mine->transfers.load(std::memory_order_relaxed), 1u, kMostTransfers);
    mine->passed.fetch_add(size.count() / transfers, std::memory_order_relaxed);
  }
  std::int64_t busy = slot.busy_until.load(std::memory_order_relaxed);
  std::int64_t end = 0;
  do {
    const std::int64_t base = busy > limit ? at : std::max(busy, earliest);
    end = base + time;
  } while (!slot.busy_until.compare_exchange_weak(busy, end, std::memory_order_relaxed));
  return Duration(std::max<std::int64_t>(end - at, 0));
}

Duration LinkBuckets::Reserve(std::span<const std::size_t> path, Bytes size, Time now) {
  Duration longest = Duration::zero();
  for (const std::size_t link : path) longest = std::max(longest, Reserve(link, size, now));
  return longest;
}

// Bounded, whatever another process has written.
std::vector<std::size_t> LinkBuckets::PathOf(std::size_t link) const {
  std::vector<std::size_t> path = {link};
  while (path.size() < count_ && slot(path.back()).behind < path.back())
    path.push_back(slot(path.back()).behind);
  return path;
}

LinkBuckets::UserSlot* LinkBuckets::SlotOf(std::size_t link) const {
  for (UserSlot& each : slot(link).slots) {
    if (each.user.load(std::memory_order_relaxed) == user_) return &each;
  }
  return nullptr;
}

LinkBuckets::UserSlot* LinkBuckets::TakeSlot(std::size_t link, Time now) {
  const std::int64_t forgotten = (now - kForgotten).time_since_epoch().count();
  for (UserSlot& each : slot(link).slots) {
    std::uint64_t user = each.user.load(std::memory_order_relaxed);
    if (user != 0 && each.fresh_until.load(std::memory_order_relaxed) > forgotten) continue;
    if (each.user.compare_exchange_strong(user, user_, std::memory_order_relaxed)) return &each;
  }
  return nullptr;
}

void LinkBuckets::BeginLevel(std::size_t link, UserSlot& mine, Time now) {
  std::int64_t behind = 0;
  for (const UserSlot& each : slot(link).slots) {
    if (&each != &mine && each.Wants(now.time_since_epoch().count()))
      behind = std::max(behind, mine.Behind(each));
  }
  mine.passed.fetch_add(static_cast<std::uint64_t>(behind), std::memory_order_relaxed);
}

void LinkBuckets::Want(std::size_t link, const LinkDemand& demand, Time now) {
  UserSlot* mine = SlotOf(link);
  if (mine == nullptr && demand.transfers > 0) mine = TakeSlot(link, now);
  if (mine == nullptr) return;
  if (demand.transfers > 0 && !mine->Wants(now.time_since_epoch().count())) BeginLevel(link, *mine, now);
  mine->urgency.store(demand.urgency, std::memory_order_relaxed);
  mine->fresh_until.store((now + kFresh).time_since_epoch().count(), std::memory_order_relaxed);
  mine->transfers.store(demand.transfers, std::memory_order_release);
}

LinkTurn LinkBuckets::TurnOf(std::size_t link, Time now) {
  LinkTurn turn;
  UserSlot* mine = SlotOf(link);
  if (mine == nullptr) return turn;
  const std::uint32_t transfers = mine->transfers.load(std::memory_order_acquire);
  if (transfers == 0) return turn;
  const std::int64_t at = now.time_since_epoch().count();
  mine->fresh_until.store(at + kFresh.count(), std::memory_order_relaxed);
  const std::int64_t urgency = mine->urgency.load(std::memory_order_relaxed);
  turn.blocks = std::min(transfers, kMostTransfers);
  std::int64_t behind = 0;
  for (const UserSlot& each : slot(link).slots) {
    if (&each == mine || !each.Wants(at)) continue;
    turn.contended = true;
    const std::int64_t other = each.urgency.load(std::memory_order_relaxed);
    if (other < urgency) turn.blocks = 0;
    if (other == urgency) behind = std::max(behind, mine->Behind(each));
  }
  turn.missed = Forgive(link, *mine, behind) * turn.blocks;
  return turn;
}

// What was missed long ago is forgotten: a user that comes back after a pause must not keep the link for
// itself.
Bytes LinkBuckets::Forgive(std::size_t link, UserSlot& mine, std::int64_t behind) {
  const double bandwidth = slot(link).bandwidth;
  const double most = bandwidth * std::chrono::duration<double>(kCatchUp).count();
  if (!std::isfinite(most) || most < 0) return Bytes(0);
  const auto kept = std::min(behind, static_cast<std::int64_t>(most));
  mine.passed.fetch_add(static_cast<std::uint64_t>(behind - kept), std::memory_order_relaxed);
  return Bytes(static_cast<std::uint64_t>(kept));
}

void LinkBuckets::Stall(std::size_t link, Time until) {
  slot(link).stalled_until.store(until.time_since_epoch().count(), std::memory_order_relaxed);
}

void LinkBuckets::StallBeyond(std::size_t link, Bytes passed) {
  slot(link).stalled_beyond.store(passed.count(), std::memory_order_relaxed);
}

bool LinkBuckets::Stalled(std::size_t link, Time now) const {
  const std::uint64_t beyond = slot(link).stalled_beyond.load(std::memory_order_relaxed);
  if (beyond != 0 && passed(link).count() > beyond) return true;
  const Time until{Duration(slot(link).stalled_until.load(std::memory_order_relaxed))};
  return until > now && until <= now + kLongestQueue;
}

absl::StatusOr<std::size_t> LinkBuckets::Find(const std::string& name) const {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < count_; ++i) {
    names.emplace_back(slot(i).name, strnlen(slot(i).name, kNameSize));
    if (names.back() == name) return i;
  }
  return absl::NotFoundError(absl::StrCat("no link '", name, "'; there are: ", absl::StrJoin(names, ", ")));
}

Duration LinkBuckets::copy_time(std::size_t link) const {
  return std::clamp(Duration(slot(link).copy_time), Duration::zero(), kLongestQueue);
}

BytesPerSecond LinkBuckets::bandwidth(std::size_t link) const {
  return BytesPerSecond{slot(link).bandwidth};
}
Bytes LinkBuckets::passed(std::size_t link) const {
  return Bytes(slot(link).passed.load(std::memory_order_relaxed));
}

}  // namespace troupe::transport
