#include "gpu/swap/transfer_queue.hpp"

#include <algorithm>
#include <utility>

namespace troupe::gpu {

TransferQueue::Id TransferQueue::Add(TransferRequest request, Urgency urgency) {
  const Id id = next_++;
  Transfer& transfer = transfers_[id];
  transfer.urgency = urgency;
  transfer.request = std::move(request);
  queue_.Add(id, urgency);
  return id;
}

bool TransferQueue::Raise(Id id, Urgency urgency) {
  const auto found = transfers_.find(id);
  if (found == transfers_.end()) return false;
  Transfer& transfer = found->second;
  transfer.urgency = std::min(transfer.urgency, urgency);
  queue_.Raise(id, transfer.urgency);
  return true;
}

std::vector<TransferQueue::Block> TransferQueue::Choose() {
  std::vector<Block> blocks;
  if (flying_.size() > batch_ / 2) return blocks;
  while (flying_.size() < batch_) {
    const std::optional<Id> next = queue_.Next();
    if (!next) break;
    Transfer& transfer = transfers_.at(*next);
    blocks.push_back(Cut(*next, transfer));
    ++transfer.in_flight;
    flying_.push_back(*next);
    if (Sent(transfer)) queue_.Remove(*next);
  }
  return blocks;
}

TransferQueue::Block TransferQueue::Cut(Id id, Transfer& transfer) {
  const Piece& piece = transfer.request.pieces[transfer.piece];
  const std::uint64_t size = piece.device.size.count();
  const std::uint64_t length = std::min(block_.count(), size - transfer.offset);
  Block block{.transfer = id,
              .device = piece.device.Part(Bytes(transfer.offset), Bytes(length)),
              .host = piece.host == nullptr ? nullptr : piece.host + transfer.offset,
              .peer = transfer.request.peer,
              .at_peer = piece.at_peer + Bytes(transfer.offset),
              .last = transfer.offset + length == size,
              .raises = {}};
  if (block.last) block.raises = {transfer.request.signals, transfer.request.first_signal + transfer.piece};
  transfer.offset += length;
  if (block.last) {
    ++transfer.piece;
    transfer.offset = 0;
  }
  return block;
}

TransferQueue::Passing TransferQueue::Passed(const Block& block, const Completion& completion) {
  Passing passing;
  ++passed_;
  flying_.pop_front();  // one stream: they pass in the order of sending
  const auto found = transfers_.find(block.transfer);
  Transfer& transfer = found->second;
  --transfer.in_flight;
  if (!transfer.begin) transfer.begin = completion.begin;
  if (!completion.status.ok() && transfer.failed.ok()) {
    transfer.failed = completion.status;
    queue_.Remove(block.transfer);
  }
  if (transfer.failed.ok() && block.last) {
    passing.piece = transfer.landed++;
    passing.landed = transfer.request.landed;
  }
  if (transfer.in_flight == 0 && (Sent(transfer) || !transfer.failed.ok())) {
    passing.whole = {transfer.failed, *transfer.begin, completion.end};
    passing.done = std::move(transfer.request.done);
    passing.ended = true;
    transfers_.erase(found);
  }
  return passing;
}

TransferQueue::Demand TransferQueue::demand() const {
  Demand demand;
  demand.transfers = static_cast<std::uint32_t>(transfers_.size());
  for (const auto& [id, transfer] : transfers_) {
    demand.urgency = std::min(demand.urgency.value_or(transfer.urgency), transfer.urgency);
  }
  return demand;
}

TransferQueue::State TransferQueue::state() const {
  State state{!transfers_.empty(), passed_, 0};
  const Id at = !flying_.empty() ? flying_.front() : !transfers_.empty() ? transfers_.begin()->first : 0;
  if (const auto found = transfers_.find(at); found != transfers_.end())
    state.order = found->second.request.order;
  return state;
}

}  // namespace troupe::gpu
