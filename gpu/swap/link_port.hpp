// LINK PORT: one direction of a device's link, and the order in which transfers share it.
//
// Transfers are cut into blocks. At most a batch of blocks is with the device at any time; when half of it
// has passed, the next blocks are chosen, so that a new transfer waits for less than a batch (004 section
// 7.1).
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
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
  // Piece by piece in order, then the end, once: after it the port uses no memory of the transfer. Called on
  // the device's threads, or on the caller's before Put returns; must be short.
  std::function<void(std::size_t piece, Time at)> landed;
  OnComplete done;
};

// The device's links own it. It ends before the device, and drops unsent transfers without calling back.
// Thread-safe.
class LinkPort {
 public:
  using Id = BlockQueue::Id;
  enum class Direction { kIn, kOut, kPeer };
  struct Options {
    LinkSharing sharing = LinkSharing::kDeadline;
    Bytes block = MiB(2);     // copies smaller than this waste the link
    std::uint32_t batch = 6;  // blocks with the device at a time
  };
  LinkPort(Device& device, Direction direction, Options options);
  ~LinkPort();
  LinkPort(const LinkPort&) = delete;
  LinkPort& operator=(const LinkPort&) = delete;

  // A block that fails fails its transfer: `done` gets its error, and no other transfer notices.
  Id Put(TransferRequest request);
  // Sends nothing more, and waits for the blocks that are with the device. The destructor does it too.
  void Close();
  // A more urgent request waits for the transfer. Nothing happens when it has ended.
  void Raise(Id id, Time deadline);

  // For the watchdog: `progress` counts the blocks that have passed.
  struct State {
    bool busy = false;
    std::uint64_t progress = 0;
    std::uint64_t order = 0;  // of the block that passes now
  };
  [[nodiscard]] State state() const;
  // Called when the demand changes: how urgent the most urgent transfer is, and how many there are; none when
  // the port falls idle. Must not call back.
  struct Demand {
    std::optional<Urgency> urgency;
    std::uint32_t transfers = 0;
  };
  void Announce(std::function<void(const Demand&)> announce);

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
  struct Block {
    Id transfer = 0;
    DeviceRange device;
    std::byte* host = nullptr;
    std::shared_ptr<const PeerMemory> peer;
    Bytes at_peer;
    bool last = false;  // of its piece
  };
  void Refill();
  [[nodiscard]] std::vector<Block> Choose();
  [[nodiscard]] Block Cut(Id id, Transfer& transfer);
  void Submit(const Block& block);
  void Passed(const Block& block, const Completion& completion);
  void ShowDemand();
  [[nodiscard]] static bool Sent(const Transfer& transfer) {
    return transfer.piece == transfer.request.pieces.size();
  }

  const Direction direction_;
  const Options options_;
  mutable std::mutex mutex_;
  std::condition_variable refilled_;
  std::function<void(const Demand&)> announce_;  // guarded by mutex_, as all below
  std::map<Id, Transfer> transfers_;
  BlockQueue queue_;                    // transfers with blocks to send
  std::map<std::uint64_t, Id> flying_;  // transfers of the blocks with the device, in the order of sending
  std::uint64_t sent_ = 0;
  std::uint64_t passed_ = 0;
  Id next_ = 1;
  bool refilling_ = false;
  bool again_ = false;
  bool closing_ = false;
  std::unique_ptr<Stream> stream_;
};

}  // namespace troupe::gpu
