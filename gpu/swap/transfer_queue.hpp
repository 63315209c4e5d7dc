// TRANSFER QUEUE: the transfers of one direction of a device's link, cut into blocks, the most urgent first. At most
// a batch of blocks is with the device at any time; when half of it has passed, the next blocks are chosen, so
// that a new transfer waits for less than a batch (004 section 7.1).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "base/units.hpp"
#include "gpu/device/device.hpp"
#include "gpu/swap/block_queue.hpp"
#include "gpu/swap/swap_policy.hpp"

namespace troupe::gpu {

// One range on the device and one at the other end, which stay valid until the transfer has ended. Blocks
// never span two pieces.
struct Piece {
  DeviceRange device;
  std::byte* host = nullptr;  // only read on the way in
  Bytes at_peer{};            // with TransferRequest::peer instead: offset in its memory
};

struct TransferRequest {
  std::uint64_t order = 0;  // the order that the transfer belongs to, for the watchdog
  std::optional<Time> deadline;
  std::vector<Piece> pieces;
  // For a port of a link between GPUs, and only there: where the pieces come from.
  std::shared_ptr<const PeerMemory> peer;
  // The device raises one for each piece as it lands: from `first_signal` on, in the pieces' order. Null: none.
  SignalsPtr signals;
  std::size_t first_signal = 0;
  // Piece by piece in order, then the end, once: after it the port uses no memory of the transfer. Called on
  // the device's threads, or on the caller's before Put returns; must be short.
  std::function<void(std::size_t piece, Time at)> landed;
  OnComplete done;
};

// Pure; its owner locks it.
class TransferQueue {
 public:
  using Id = BlockQueue::Id;
  // Blocks are of `block` bytes at most, and at most `batch` of them are with the device.
  TransferQueue(Bytes block, std::uint32_t batch) : block_(block), batch_(batch) {}

  // The request has pieces.
  Id Add(TransferRequest request, Urgency urgency);
  // False when the transfer has ended. It never becomes less urgent.
  bool Raise(Id id, Urgency urgency);

  struct Block {
    Id transfer = 0;
    DeviceRange device;
    std::byte* host = nullptr;
    std::shared_ptr<const PeerMemory> peer;
    Bytes at_peer;
    bool last = false;  // of its piece
    Signal raises;      // when it has ended; the last of a piece may have one
  };
  // What is to be sent next, in this order.
  [[nodiscard]] std::vector<Block> Choose();
  // What the end of a block is to be told of, when the queue is not locked any more.
  struct Passing {
    std::function<void(std::size_t piece, Time at)> landed;  // empty: no piece has landed
    std::size_t piece = 0;
    bool ended = false;  // the transfer; then:
    OnComplete done;     // may be empty
    Completion whole;
  };
  // The first of the blocks with the device has ended, well or not. A block that fails fails its transfer.
  [[nodiscard]] Passing Passed(const Block& block, const Completion& completion);

  // For the watchdog: `progress` counts the blocks that have passed.
  struct State {
    bool busy = false;
    std::uint64_t progress = 0;
    std::uint64_t order = 0;  // of the block that passes now
  };
  [[nodiscard]] State state() const;
  // How urgent the most urgent transfer is, and how many there are.
  struct Demand {
    std::optional<Urgency> urgency;
    std::uint32_t transfers = 0;
  };
  [[nodiscard]] Demand demand() const;

 private:
  struct Transfer {
    TransferRequest request;
    std::size_t piece = 0;  // where the next block begins
    std::uint64_t offset = 0;
    std::size_t landed = 0;  // pieces
    std::uint32_t in_flight = 0;
    Urgency urgency = 0;
    absl::Status failed;
    std::optional<Time> begin;
  };
  [[nodiscard]] Block Cut(Id id, Transfer& transfer);
  [[nodiscard]] static bool Sent(const Transfer& transfer) {
    return transfer.piece == transfer.request.pieces.size();
  }

  const Bytes block_;
  const std::uint32_t batch_;
  std::map<Id, Transfer> transfers_;
  BlockQueue queue_;       // transfers with blocks to send
  std::deque<Id> flying_;  // transfers of the blocks with the device, in the order of sending
  std::uint64_t passed_ = 0;
  Id next_ = 1;
};

}  // namespace troupe::gpu
