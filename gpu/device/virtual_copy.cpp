#include "gpu/device/virtual_copy.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/status.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::gpu {
namespace {

using transport::SteadyNow;

// How far a copy runs ahead of its link before it sleeps: enough to hide a late wake-up, little enough that a
// copy that arrives meanwhile does not wait long.
constexpr Duration kLead = std::chrono::microseconds(400);
// A wait this short is not worth another thread.
constexpr Duration kWaitHere = std::chrono::microseconds(20);

}  // namespace

absl::Status CopyPath::Use(std::shared_ptr<transport::LinkBuckets> links, const std::string& name) {
  std::size_t link = 0;
  if (links != nullptr) {
    TROUPE_ASSIGN_OR_RETURN(link, links->Find(name));
  }
  const std::lock_guard lock(mutex_);
  links_ = std::move(links);
  link_ = link;
  return absl::OkStatus();
}

Time CopyPath::Pass(Bytes size, Bytes before, Time begin, Time now) {
  const std::lock_guard lock(mutex_);
  if (links_ == nullptr) return now;
  const Time alone = begin + TransferTime(before + size, links_->bandwidth(link_));
  return std::max(alone, now + links_->Reserve(link_, size, now));
}

CopyOperation::CopyOperation(std::byte* to, const std::byte* from, std::size_t size, CopyPath& path,
                             OnComplete done)
    : to_(to), from_(from), size_(size), path_(path), done_(std::move(done)) {}

bool CopyOperation::Turn(VirtualEngine& engine) {
  if (!begun_) {
    begun_ = true;
    completion.begin = due_ = SteadyNow();
  }
  if (all_moved_) return End(engine.SleepUntil(due_));
  if (absl::Status moved = MoveBlock(engine); !moved.ok()) return End(moved);
  all_moved_ = moved_ == size_;
  const Duration ahead = due_ - SteadyNow();
  if (all_moved_) return ahead <= kWaitHere ? End(engine.SleepUntil(due_)) : false;
  if (ahead <= kLead) return false;
  if (absl::Status slept = engine.SleepUntil(due_ - kLead / 2); !slept.ok()) return End(slept);
  return false;
}

absl::Status CopyOperation::MoveBlock(VirtualEngine& engine) {
  const std::size_t block = std::min(kBlock, size_ - moved_);
  due_ = path_.Pass(Bytes(block), Bytes(moved_), completion.begin, SteadyNow());
  if (block > 0) std::memcpy(to_ + moved_, from_ + moved_, block);
  moved_ += block;
  return engine.Tick();
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
