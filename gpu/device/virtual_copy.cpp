#include "gpu/device/virtual_copy.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/status.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::gpu {
namespace {

using transport::SteadyNow;

// How far a copy runs ahead of its link before it waits: enough to hide a late wake-up, little enough that a
// copy that arrives meanwhile does not wait long. Beside others it has to come back for each turn.
constexpr Duration kLead = std::chrono::microseconds(400);
constexpr Duration kWake = kLead / 2;
// A wait this short is not worth another thread.
constexpr Duration kWaitHere = std::chrono::microseconds(20);
// How late a copy may be begun and lose no time: the engine that would have begun it was woken late.
constexpr Duration kLate = std::chrono::microseconds(250);
// A less urgent copy looks again this soon, and goes on after this long whatever the others say.
constexpr Duration kLookAgain = std::chrono::microseconds(100);
constexpr Duration kLongestYield = std::chrono::milliseconds(200);
// A link that lets nothing pass is looked at this often.
constexpr Duration kStalled = std::chrono::milliseconds(1);

std::size_t SizeOf(const std::vector<CopySpan>& spans) {
  std::size_t size = 0;
  for (const CopySpan& span : spans) size += span.size;
  return size;
}

}  // namespace

absl::Status CopyPath::Use(std::shared_ptr<transport::LinkBuckets> links, const std::string& name) {
  std::vector<std::size_t> path;
  BytesPerSecond slowest;
  Duration copy_time{};
  if (links != nullptr) {
    TROUPE_ASSIGN_OR_RETURN(const std::size_t link, links->Find(name));
    path = links->PathOf(link);
    for (const std::size_t each : path) {
      const BytesPerSecond bandwidth = links->bandwidth(each);
      if (bandwidth.value > 0 && (slowest.value == 0 || bandwidth.value < slowest.value)) slowest = bandwidth;
      copy_time = std::max(copy_time, links->copy_time(each));
    }
  }
  const std::lock_guard lock(mutex_);
  links_ = std::move(links);
  path_ = std::move(path);
  slowest_ = slowest;
  cost_ = Bytes(static_cast<std::uint64_t>(slowest.value * ToSeconds(copy_time)));
  return absl::OkStatus();
}

Bytes CopyPath::CostOfCopy() const {
  const std::lock_guard lock(mutex_);
  return cost_;
}

Time CopyPath::Pass(Bytes size, Time ready, const transport::LinkTurn& turn, Time now) {
  const std::lock_guard lock(mutex_);
  if (links_ == nullptr) return now;
  if (due_ < now - kLate) taken_ = Bytes(0);  // not used in time
  const Time from = std::max({due_, ready, now - kLate});
  due_ = from + TransferTime(size, slowest_);
  if (taken_ < size) {
    const Bytes whole =
        turn.contended ? std::max(Bytes(CopyOperation::kBlock) * turn.blocks, turn.missed) : size;
    const Bytes more = std::max(size, whole) - taken_;
    const Time end = now + links_->Reserve(path_, more, now);
    due_ = std::max(due_, end - TransferTime(more, slowest_) + TransferTime(size - taken_, slowest_));
    taken_ += more;
  }
  taken_ -= size;
  return due_;
}

bool CopyPath::Stalled(Time now) const {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(path_, [&](std::size_t link) { return links_->Stalled(link, now); });
}

transport::LinkTurn CopyPath::TurnOf(Time now) {
  const std::lock_guard lock(mutex_);
  transport::LinkTurn turn;
  for (std::size_t i = 0; i < path_.size(); ++i) {
    const transport::LinkTurn here = links_->TurnOf(path_[i], now);
    turn.blocks = i == 0 ? here.blocks : std::min(turn.blocks, here.blocks);
    if (here.contended) turn.missed = turn.contended ? std::min(turn.missed, here.missed) : here.missed;
    turn.contended |= here.contended;
  }
  return turn;
}

SpanCursor::SpanCursor(std::vector<CopySpan> spans) : spans_(std::move(spans)), size_(SizeOf(spans_)) {}

CopySpan SpanCursor::Next(std::size_t most) const {
  const CopySpan span = span_ < spans_.size() ? spans_[span_] : CopySpan();
  return {span.to + within_, span.from + within_, std::min(most, span.size - within_)};
}

void SpanCursor::Moved(std::size_t count) {
  moved_ += count;
  within_ += count;
  if (span_ < spans_.size() && within_ == spans_[span_].size) {
    ++span_;
    within_ = 0;
  }
}

CopyOperation::CopyOperation(std::vector<CopySpan> spans, bool staged, CopyPath& path, OnComplete done,
                             std::shared_ptr<const void> keeps)
    : cursor_(std::move(spans)),
      staged_(staged),
      path_(path),
      done_(std::move(done)),
      keeps_(std::move(keeps)) {}

bool CopyOperation::Turn(VirtualEngine& engine) {
  const Time now = SteadyNow();
  if (!begun_) {
    begun_ = true;
    completion.begin = due_ = now;
  }
  if (engine.stopping()) return End(absl::CancelledError("the device is closing"));
  // What a link holds has not arrived, though it is in the device's memory already.
  if (path_.Stalled(now)) return Again(now + kStalled);
  if (all_moved_) return End(absl::OkStatus());
  transport::LinkTurn turn;
  if (!small() && Yields(now, turn)) return Again(now + kLookAgain);
  if (absl::Status moved = MoveBlock(turn, engine); !moved.ok()) return End(moved);
  all_moved_ = cursor_.AtEnd();
  const Duration ahead = due_ - SteadyNow();
  if (all_moved_) return ahead <= kWaitHere ? End(engine.SleepUntil(due_)) : Again(due_);
  if (staged_) return Again(due_);
  return Again(ahead > (turn.contended ? kWake : kLead) ? due_ - kWake : now);
}

bool CopyOperation::Yields(Time now, transport::LinkTurn& turn) {
  turn = path_.TurnOf(now);
  if (turn.blocks > 0) {
    yielding_since_.reset();
    return false;
  }
  if (!yielding_since_) yielding_since_ = now;
  if (now - *yielding_since_ < kLongestYield) return true;
  yielding_since_ = now;  // one block, and then it yields again
  turn.blocks = 1;
  return false;
}

absl::Status CopyOperation::MoveBlock(const transport::LinkTurn& turn, VirtualEngine& engine) {
  const CopySpan span = cursor_.Next(kBlock);
  const std::byte* from = span.from;
  Time ready = pushed;
  if (staged_) {
    static thread_local std::vector<std::byte> buffer(kBlock);
    std::memcpy(buffer.data(), from, span.size);
    from = buffer.data();
    ready = SteadyNow();
  }
  // A device makes one copy of each span; a copy from memory that it does not know becomes one copy for each block.
  const Bytes cost = cursor_.BeginsSpan() || staged_ ? path_.CostOfCopy() : Bytes(0);
  due_ = path_.Pass(Bytes(span.size) + cost, ready, turn, SteadyNow());
  if (span.size > 0) std::memcpy(span.to, from, span.size);
  cursor_.Moved(span.size);
  return engine.Tick();
}

bool CopyOperation::Again(Time when) {
  not_before = when;
  return false;
}

bool CopyOperation::End(absl::Status status) {
  completion.status = std::move(status);
  completion.end = SteadyNow();
  return true;
}

void CopyOperation::Report() {
  if (done_) done_(completion);
}

}  // namespace troupe::gpu
