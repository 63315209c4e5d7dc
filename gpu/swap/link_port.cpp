#include "gpu/swap/link_port.hpp"

#include <utility>

#include "base/check.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::gpu {

LinkPort::LinkPort(Device& device, Direction direction, Options options)
    : direction_(direction),
      options_(options),
      transfers_(options.block, options.batch),
      stream_(device.MakeStream()) {
  TROUPE_CHECK(options_.block > Bytes(0) && options_.batch > 0, "a port sends blocks in batches");
}

LinkPort::~LinkPort() {
  Close();
}

// A thread that submits blocks at this moment finishes first: it uses the stream.
void LinkPort::Close() {
  std::unique_ptr<Stream> stream;
  {
    std::unique_lock lock(mutex_);
    closing_ = true;
    refilled_.wait(lock, [this] { return !refilling_; });
    stream = std::move(stream_);
  }
  stream.reset();
}

LinkPort::Id LinkPort::Put(TransferRequest request) {
  if (request.pieces.empty()) {
    const Time now = transport::SteadyNow();
    if (request.done) request.done({absl::OkStatus(), now, now});
    return 0;
  }
  TROUPE_CHECK((request.peer != nullptr) == (direction_ == Direction::kPeer),
               "a transfer was put to a port of another kind");
  Id id = 0;
  {
    const std::lock_guard lock(mutex_);
    const Urgency urgency = UrgencyOf(options_.sharing, transport::SteadyNow(), request.deadline);
    id = transfers_.Add(std::move(request), urgency);
    ShowDemand();
  }
  Refill();
  return id;
}

void LinkPort::Raise(Id id, Time deadline) {
  const std::lock_guard lock(mutex_);
  if (options_.sharing != LinkSharing::kDeadline) return;
  if (transfers_.Raise(id, UrgencyOf(options_.sharing, deadline, deadline))) ShowDemand();
}

// Copies may end within the call that submits them, and the callback of their end may put more: one thread
// submits at a time, in the order of choosing, without the lock.
void LinkPort::Refill() {
  std::unique_lock lock(mutex_);
  again_ = true;
  if (std::exchange(refilling_, true)) return;
  while (std::exchange(again_, false) && !closing_) {
    const std::vector<Block> blocks = transfers_.Choose();
    lock.unlock();
    for (const Block& block : blocks) Submit(block);
    lock.lock();
  }
  refilling_ = false;
  refilled_.notify_all();
}

void LinkPort::Submit(const Block& block) {
  const auto passed = [this, block](const Completion& completion) { Passed(block, completion); };
  if (block.raises.of != nullptr) stream_->Raise(block.raises);
  switch (direction_) {
    case Direction::kIn:
      stream_->CopyIn(block.device, {block.host, block.device.size.count()}, passed);
      return;
    case Direction::kOut:
      stream_->CopyOut({block.host, block.device.size.count()}, block.device, passed);
      return;
    case Direction::kPeer:
      stream_->CopyPeer(block.device, block.peer, block.at_peer, passed);
      return;
  }
}

void LinkPort::Passed(const Block& block, const Completion& completion) {
  TransferQueue::Passing passing;
  {
    const std::lock_guard lock(mutex_);
    passing = transfers_.Passed(block, completion);
    if (passing.ended) ShowDemand();
  }
  if (passing.landed) passing.landed(passing.piece, completion.end);
  if (passing.done) passing.done(passing.whole);
  Refill();
}

void LinkPort::Announce(std::function<void(const Demand&)> announce) {
  const std::lock_guard lock(mutex_);
  announce_ = std::move(announce);
  ShowDemand();
}

void LinkPort::ShowDemand() {
  if (announce_) announce_(transfers_.demand());
}

LinkPort::State LinkPort::state() const {
  const std::lock_guard lock(mutex_);
  return transfers_.state();
}

}  // namespace troupe::gpu
