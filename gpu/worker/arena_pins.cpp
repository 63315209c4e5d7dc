#include "gpu/worker/arena_pins.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

#include "transport/steady_clock.hpp"

namespace troupe::gpu {
namespace {

// How often it is looked for what no copy has used for a while.
constexpr Duration kLook = std::chrono::milliseconds(200);
// Ranges that wait. Beyond it the one that was wanted first is forgotten: its copies are the slower ones.
constexpr std::size_t kMostWanted = 64;

// A mapping begins and ends with whole pages.
std::span<const std::byte> WholePages(std::span<const std::byte> bytes) {
  static const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(bytes.data());
  const std::uintptr_t from = begin / page * page;
  const std::uintptr_t to = (begin + bytes.size() + page - 1) / page * page;
  return {bytes.data() - (begin - from), to - from};
}

const std::byte* EndOf(std::span<const std::byte> range) {
  return range.data() + range.size();
}

}  // namespace

ArenaPins::ArenaPins(Calls calls, const Bounds& bounds)
    : calls_(std::move(calls)), bounds_(bounds), thread_([this] { Serve(); }) {}

ArenaPins::~ArenaPins() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
  for (const auto& [begin, pinned] : pinned_) calls_.remove(pinned->range);
}

ArenaPins::Lease ArenaPins::Use(std::span<const std::byte> bytes, Owner owner,
                                std::shared_ptr<const void> memory) {
  const Range range = WholePages(bytes);
  if (Bytes(bytes.size()) < kLeast || Bytes(range.size()) > bounds_.registered) return nullptr;
  const Time now = transport::SteadyNow();
  const std::lock_guard lock(mutex_);
  auto lease = std::make_shared<std::vector<PinnedPtr>>();
  std::size_t missing = range.size();
  auto at = pinned_.upper_bound(range.data());
  if (at != pinned_.begin() && EndOf(std::prev(at)->second->range) > range.data()) --at;
  for (; at != pinned_.end() && at->first < EndOf(range); ++at) {
    const Range there = at->second->range;
    missing -=
        static_cast<std::size_t>(std::min(EndOf(there), EndOf(range)) - std::max(there.data(), range.data()));
    at->second->used = now;
    lease->push_back(at->second);
  }
  const auto same = [&](const Wanted& wanted) {
    return wanted.range.data() == range.data() && wanted.range.size() == range.size();
  };
  if (missing > 0 && !given_up_.contains(owner) && std::ranges::none_of(wanted_, same)) {
    wanted_.push_back({range, owner, std::move(memory)});
    if (wanted_.size() > kMostWanted) wanted_.pop_front();
    changed_.notify_all();
  }
  return lease->empty() ? nullptr : std::move(lease);
}

Bytes ArenaPins::registered() const {
  const std::lock_guard lock(mutex_);
  return registered_;
}

std::optional<ArenaPins::Wanted> ArenaPins::NextChunk() {
  while (!wanted_.empty()) {
    const Wanted& wanted = wanted_.front();
    const std::byte* begin = wanted.range.data();
    auto next = pinned_.upper_bound(begin);
    if (next != pinned_.begin()) begin = std::max(begin, EndOf(std::prev(next)->second->range));
    for (; next != pinned_.end() && next->first <= begin; ++next) begin = EndOf(next->second->range);
    if (begin >= EndOf(wanted.range)) {
      wanted_.pop_front();
      continue;
    }
    const std::byte* until = std::min(EndOf(wanted.range), begin + kChunk.count());
    if (next != pinned_.end()) until = std::min(until, next->first);
    return Wanted{{begin, until}, wanted.owner, wanted.memory};
  }
  return std::nullopt;
}

void ArenaPins::Register(const Wanted& chunk, std::unique_lock<std::mutex>& lock) {
  const Bytes size(chunk.range.size());
  LetGo(TakeFor(size), lock);
  if (registered_ + size > bounds_.registered) {  // copies use all the rest
    wanted_.pop_front();
    return;
  }
  lock.unlock();
  const absl::Status added = calls_.add(chunk.range);
  lock.lock();
  if (added.ok()) {
    pinned_.emplace(chunk.range.data(),
                    std::make_shared<Pinned>(Pinned{chunk.range, chunk.memory, transport::SteadyNow()}));
    registered_ += size;
    return;
  }
  given_up_.insert(chunk.owner);
  std::erase_if(wanted_, [&](const Wanted& wanted) { return wanted.owner == chunk.owner; });
  lock.unlock();
  calls_.refused(chunk.owner, added);
  lock.lock();
}

// A lease is given under the lock, so what the table alone holds has none.
std::vector<ArenaPins::PinnedPtr> ArenaPins::TakeFor(Bytes size) {
  std::vector<PinnedPtr> gone;
  while (registered_ + size > bounds_.registered) {
    auto oldest = pinned_.end();
    for (auto at = pinned_.begin(); at != pinned_.end(); ++at) {
      if (at->second.use_count() > 1) continue;
      if (oldest == pinned_.end() || at->second->used < oldest->second->used) oldest = at;
    }
    if (oldest == pinned_.end()) break;
    registered_ = registered_ - Bytes(oldest->second->range.size());
    gone.push_back(std::move(oldest->second));
    pinned_.erase(oldest);
  }
  return gone;
}

std::vector<ArenaPins::PinnedPtr> ArenaPins::TakeIdle(Time since) {
  std::vector<PinnedPtr> gone;
  std::erase_if(pinned_, [&](auto& entry) {
    if (entry.second.use_count() > 1 || entry.second->used > since) return false;
    registered_ = registered_ - Bytes(entry.second->range.size());
    gone.push_back(std::move(entry.second));
    return true;
  });
  return gone;
}

// Without the lock: the driver waits for what the GPU has to do.
void ArenaPins::LetGo(std::vector<PinnedPtr> gone, std::unique_lock<std::mutex>& lock) {
  if (gone.empty()) return;
  lock.unlock();
  for (const PinnedPtr& pinned : gone) calls_.remove(pinned->range);
  gone.clear();  // and with them the memory, if they were the last to hold it
  lock.lock();
}

void ArenaPins::Serve() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    LetGo(TakeIdle(transport::SteadyNow() - bounds_.idle), lock);
    if (const std::optional<Wanted> chunk = NextChunk()) {
      Register(*chunk, lock);
    } else if (!stopping_) {
      changed_.wait_for(lock, kLook);
    }
  }
}

}  // namespace troupe::gpu
