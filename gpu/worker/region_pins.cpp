#include "gpu/worker/region_pins.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace troupe::gpu {
namespace {

// How long pages that the daemon gave back stay in memory on account of a registration.
constexpr Duration kLook = std::chrono::milliseconds(200);
// Ranges that wait. Beyond it the one that was wanted first is forgotten: its copies are the slower ones.
constexpr std::size_t kMostWanted = 4096;

bool Overlap(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.data() < b.data() + b.size() && b.data() < a.data() + a.size();
}

}  // namespace

RegionPins::RegionPins(Calls calls, transport::HostRegionView region)
    : calls_(std::move(calls)),
      region_(std::move(region)),
      mark_(region_.GivenBackMark()),
      thread_([this] { Serve(); }) {}

RegionPins::~RegionPins() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
  for (const auto& [begin, size] : pinned_) calls_.remove({begin, size});
}

RegionPtr RegionPins::RegionOf(std::shared_ptr<RegionPins> pins) {
  const transport::HostRegionView* const region = &pins->region_;
  return {std::move(pins), region};
}

void RegionPins::Want(std::span<const std::byte> bytes, bool urgent) {
  std::unique_lock lock(mutex_);
  DropExchanged(lock);
  if (given_up_ || bytes.empty()) return;
  const auto same = [&](Range range) { return range.data() == bytes.data() && range.size() == bytes.size(); };
  std::erase_if(wanted_, same);
  if (urgent) {
    wanted_.push_front(bytes);
  } else {
    wanted_.push_back(bytes);
  }
  if (wanted_.size() > kMostWanted) wanted_.pop_back();
  changed_.notify_all();
}

RegionPins::State RegionPins::state() const {
  const std::lock_guard lock(mutex_);
  State state;
  for (const auto& [begin, size] : pinned_) state.registered += Bytes(size);
  for (const Range range : wanted_) {
    std::size_t left = range.size();
    for (const auto& [begin, size] : pinned_) {
      if (!Overlap(range, {begin, size})) continue;
      left -= static_cast<std::size_t>(std::min(range.data() + range.size(), begin + size) -
                                       std::max(range.data(), begin));
    }
    state.wanted += Bytes(left);
  }
  return state;
}

// A chunk that is being registered at this moment cannot be let go of: its end is waited for.
void RegionPins::DropExchanged(std::unique_lock<std::mutex>& lock) {
  for (const Range exchanged : region_.GivenBackSince(mark_)) {
    const auto gone = [&](Range range) { return Overlap(range, exchanged); };
    std::erase_if(wanted_, gone);
    std::erase_if(pinned_, [&](const auto& chunk) {
      const Range range(chunk.first, chunk.second);
      if (!gone(range)) return false;
      calls_.remove(range);
      return true;
    });
    if (registering_ && gone(*registering_)) doomed_ = true;
  }
  changed_.wait(lock, [this] { return !doomed_; });
}

std::optional<RegionPins::Range> RegionPins::NextChunk() {
  while (!wanted_.empty()) {
    const Range range = wanted_.front();
    const std::byte* const end = range.data() + range.size();
    const std::byte* begin = range.data();
    auto next = pinned_.upper_bound(begin);
    if (next != pinned_.begin() && std::prev(next)->first + std::prev(next)->second > begin)
      begin = std::prev(next)->first + std::prev(next)->second;
    for (; next != pinned_.end() && next->first <= begin; ++next) begin = next->first + next->second;
    if (begin >= end) {
      wanted_.pop_front();
      continue;
    }
    const std::byte* until = std::min(end, begin + kChunk.count());
    if (next != pinned_.end()) until = std::min(until, next->first);
    return Range(begin, static_cast<std::size_t>(until - begin));
  }
  return std::nullopt;
}

void RegionPins::Register(Range chunk, std::unique_lock<std::mutex>& lock) {
  registering_ = chunk;
  lock.unlock();
  const absl::Status status = calls_.add(chunk);
  lock.lock();
  if (status.ok() && doomed_) calls_.remove(chunk);
  if (status.ok() && !doomed_) pinned_.emplace(chunk.data(), chunk.size());
  registering_.reset();
  doomed_ = false;
  changed_.notify_all();
  if (status.ok()) return;
  given_up_ = true;
  wanted_.clear();
  lock.unlock();
  calls_.refused(status);
  lock.lock();
}

void RegionPins::Serve() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    DropExchanged(lock);
    const std::optional<Range> chunk = NextChunk();
    if (chunk) {
      Register(*chunk, lock);
    } else {
      changed_.wait_for(lock, kLook);
    }
  }
}

}  // namespace troupe::gpu
