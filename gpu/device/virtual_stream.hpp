// A stream of the virtual GPU: operations in order, each handed to its engine when the one before has ended.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "gpu/device/compute_lanes.hpp"
#include "gpu/device/device.hpp"
#include "gpu/device/virtual_engine.hpp"

namespace troupe::gpu {

// Shared by the stream and the operations on their way, which outlive a call.
class StreamState : public std::enable_shared_from_this<StreamState> {
 public:
  EventPtr Push(std::shared_ptr<VirtualOperation> operation, VirtualEngine& engine);
  void Wait(std::shared_ptr<VirtualEvent> event);
  void Drain();

 private:
  struct Next;
  void Advance();
  Next TakeNext();
  void Finish(VirtualOperation& operation);

  std::mutex mutex_;
  std::condition_variable empty_;
  std::deque<std::shared_ptr<VirtualOperation>>
      operations_;                                    // guarded by mutex_; the first may be at its engine
  std::vector<std::shared_ptr<VirtualEvent>> waits_;  // guarded by mutex_; for the next operation
};

// Makes operations out of calls; the device says of what kind.
class VirtualStream final : public Stream {
 public:
  struct Factory {
    std::function<std::shared_ptr<VirtualOperation>(DeviceRange, std::span<const std::byte>, OnComplete)>
        copy_in;
    std::function<std::shared_ptr<VirtualOperation>(DeviceRange, DeviceRange, OnComplete)> copy_within;
    std::function<std::shared_ptr<VirtualOperation>(std::span<std::byte>, DeviceRange, OnComplete)> copy_out;
    std::function<std::shared_ptr<VirtualOperation>(DeviceRange, const std::shared_ptr<const PeerMemory>&,
                                                    Bytes offset, OnComplete)>
        copy_peer;
    VirtualEngine* in = nullptr;
    VirtualEngine* out = nullptr;
    VirtualEngine* peer = nullptr;
    ComputeLanes* compute = nullptr;
  };
  explicit VirtualStream(Factory factory) : factory_(std::move(factory)) {}
  ~VirtualStream() override { state_->Drain(); }
  EventPtr CopyIn(DeviceRange to, std::span<const std::byte> from, OnComplete done) override;
  EventPtr CopyOut(std::span<std::byte> to, DeviceRange from, OnComplete done) override;
  EventPtr CopyWithin(DeviceRange to, DeviceRange from, OnComplete done) override;
  EventPtr CopyPeer(DeviceRange to, std::shared_ptr<const PeerMemory> from, Bytes offset,
                    OnComplete done) override;
  EventPtr Launch(std::shared_ptr<DevicePlan> plan, LaunchArguments arguments, OnLaunched done) override;
  void Wait(EventPtr event) override;
  [[nodiscard]] EngineState launches() const override;

 private:
  VirtualEngine& Lane();
  Factory factory_;
  std::once_flag launched_;
  std::atomic<VirtualEngine*> lane_ = nullptr;  // from the first launch on
  std::shared_ptr<StreamState> state_ = std::make_shared<StreamState>();
};

}  // namespace troupe::gpu
