#include "gpu/swap/link_port.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::gpu {

LinkPort::LinkPort(Device& device, Direction direction, Options options)
    : direction_(direction), options_(options), stream_(device.MakeStream()) {
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
    id = next_++;
    Transfer& transfer = transfers_[id];
    transfer.urgency = UrgencyOf(options_.sharing, transport::SteadyNow(), request.deadline);
    transfer.request = std::move(request);
    queue_.Add(id, transfer.urgency);
    ShowDemand();
  }
  Refill();
  return id;
}

void LinkPort::Raise(Id id, Time deadline) {
  const std::lock_guard lock(mutex_);
  const auto found = transfers_.find(id);
  if (found == transfers_.end() || options_.sharing != LinkSharing::kDeadline) return;
  Transfer& transfer = found->second;
  transfer.urgency = std::min(transfer.urgency, UrgencyOf(options_.sharing, deadline, deadline));
  queue_.Raise(id, transfer.urgency);
  ShowDemand();
}

// Copies may end within the call that submits them, and the callback of their end may put more: one thread
// submits at a time, in the order of choosing, without the lock.
void LinkPort::Refill() {
  std::unique_lock lock(mutex_);
  again_ = true;
  if (std::exchange(refilling_, true)) return;
  while (std::exchange(again_, false) && !closing_) {
    const std::vector<Block> blocks = Choose();
    lock.unlock();
    for (const Block& block : blocks) Submit(block);
    lock.lock();
  }
  refilling_ = false;
  refilled_.notify_all();
}

std::vector<LinkPort::Block> LinkPort::Choose() {
  std::vector<Block> blocks;
  if (flying_.size() > options_.batch / 2) return blocks;
  while (flying_.size() < options_.batch) {
    const std::optional<Id> next = queue_.Next();
    if (!next) break;
    Transfer& transfer = transfers_.at(*next);
    blocks.push_back(Cut(*next, transfer));
    ++transfer.in_flight;
    flying_.emplace(sent_++, *next);
    if (Sent(transfer)) queue_.Remove(*next);
  }
  return blocks;
}

LinkPort::Block LinkPort::Cut(Id id, Transfer& transfer) {
  const Piece& piece = transfer.request.pieces[transfer.piece];
  const std::uint64_t size = piece.device.size.count();
  const std::uint64_t length = std::min(options_.block.count(), size - transfer.offset);
  const Block block{.transfer = id,
                    .device = piece.device.Part(Bytes(transfer.offset), Bytes(length)),
                    .host = piece.host == nullptr ? nullptr : piece.host + transfer.offset,
                    .peer = transfer.request.peer,
                    .at_peer = piece.at_peer + Bytes(transfer.offset),
                    .last = transfer.offset + length == size};
  transfer.offset += length;
  if (block.last) {
    ++transfer.piece;
    transfer.offset = 0;
  }
  return block;
}

void LinkPort::Submit(const Block& block) {
  const auto passed = [this, block](const Completion& completion) { Passed(block, completion); };
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
  std::function<void(std::size_t, Time)> landed;
  OnComplete done;
  std::size_t piece = 0;
  Completion whole = completion;
  {
    const std::lock_guard lock(mutex_);
    ++passed_;
    flying_.erase(flying_.begin());  // one stream: they pass in the order of sending
    const auto found = transfers_.find(block.transfer);
    Transfer& transfer = found->second;
    --transfer.in_flight;
    if (!transfer.begin) transfer.begin = completion.begin;
    if (!completion.status.ok() && transfer.failed.ok()) {
      transfer.failed = completion.status;
      queue_.Remove(block.transfer);
    }
    if (transfer.failed.ok() && block.last) {
      piece = transfer.landed++;
      landed = transfer.request.landed;
    }
    const bool ended = transfer.in_flight == 0 && (Sent(transfer) || !transfer.failed.ok());
    if (ended) {
      whole = {transfer.failed, *transfer.begin, completion.end};
      done = std::move(transfer.request.done);
      transfers_.erase(found);
    }
    if (ended) ShowDemand();
  }
  if (landed) landed(piece, completion.end);
  if (done) done(whole);
  Refill();
}

void LinkPort::Announce(std::function<void(const Demand&)> announce) {
  const std::lock_guard lock(mutex_);
  announce_ = std::move(announce);
  ShowDemand();
}

void LinkPort::ShowDemand() {
  if (!announce_) return;
  Demand demand;
  demand.transfers = static_cast<std::uint32_t>(transfers_.size());
  for (const auto& [id, transfer] : transfers_) {
    demand.urgency = std::min(demand.urgency.value_or(transfer.urgency), transfer.urgency);
  }
  announce_(demand);
}

LinkPort::State LinkPort::state() const {
  const std::lock_guard lock(mutex_);
  State state{!transfers_.empty(), passed_, 0};
  const Id at = !flying_.empty()      ? flying_.begin()->second
                : !transfers_.empty() ? transfers_.begin()->first
                                      : 0;
  if (const auto found = transfers_.find(at); found != transfers_.end())
    state.order = found->second.request.order;
  return state;
}

}  // namespace troupe::gpu
