// LINK PORT: one direction of a device's link, and the order in which transfers share it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "base/units.hpp"
#include "gpu/device/device.hpp"
#include "gpu/swap/swap_policy.hpp"
#include "gpu/swap/transfer_queue.hpp"

namespace troupe::gpu {

// The device's links own it. It ends before the device, and drops unsent transfers without calling back.
// Thread-safe.
class LinkPort {
 public:
  using Id = TransferQueue::Id;
  using State = TransferQueue::State;
  using Demand = TransferQueue::Demand;
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

  [[nodiscard]] State state() const;
  // Called when the demand changes; it has no urgency when the port falls idle. Must not call back.
  void Announce(std::function<void(const Demand&)> announce);

 private:
  using Block = TransferQueue::Block;
  void Refill();
  void Submit(const Block& block);
  void Passed(const Block& block, const Completion& completion);
  void ShowDemand();

  const Direction direction_;
  const Options options_;
  mutable std::mutex mutex_;
  std::condition_variable refilled_;
  std::function<void(const Demand&)> announce_;  // guarded by mutex_, as all below
  TransferQueue transfers_;
  bool refilling_ = false;
  bool again_ = false;
  bool closing_ = false;
  std::unique_ptr<Stream> stream_;
};

}  // namespace troupe::gpu
