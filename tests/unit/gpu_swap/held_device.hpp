// A device whose copies in end when the test says so.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <utility>

#include "base/check.hpp"
#include "gpu/device/virtual_device.hpp"
#include "tests/unit/gpu_device/small_model.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::gpu::test {

// Wraps another device. While it holds, every copy in waits in the order of its call, until Pass moves its
// bytes or Fail ends it with an error, on the caller's thread; the event that CopyIn gave is null.
class HeldDevice final : public Device {
 public:
  explicit HeldDevice(std::unique_ptr<Device> inner) : inner_(std::move(inner)) {}

  void Hold(bool hold) {
    const std::lock_guard lock(mutex_);
    holds_ = hold;
  }
  [[nodiscard]] std::size_t held() const {
    const std::lock_guard lock(mutex_);
    return copies_.size();
  }
  // The target and size of the oldest copy.
  [[nodiscard]] DeviceRange front() const {
    const std::lock_guard lock(mutex_);
    return copies_.front().to;
  }
  void Pass(std::size_t count = 1) {
    for (; count > 0; --count) {
      Copy copy = Take();
      if (!copy.from.empty()) std::memcpy(copy.to.address, copy.from.data(), copy.from.size());
      const Time now = transport::SteadyNow();
      if (copy.done) copy.done({absl::OkStatus(), now, now});
    }
  }
  void PassAll() {
    while (held() > 0) Pass();
  }
  void Fail(const absl::Status& status) {
    Copy copy = Take();
    const Time now = transport::SteadyNow();
    if (copy.done) copy.done({status, now, now});
  }

  [[nodiscard]] const DeviceInfo& info() const override { return inner_->info(); }
  absl::StatusOr<DeviceRange> Allocate(Bytes size) override { return inner_->Allocate(size); }
  void Free(const DeviceRange& range) override { inner_->Free(range); }
  [[nodiscard]] MemoryUse memory() const override { return inner_->memory(); }
  absl::StatusOr<std::shared_ptr<DevicePlan>> Prepare(const proto::Model& model,
                                                      std::span<const std::byte> weights,
                                                      std::span<const proto::TensorSpec> inputs,
                                                      proto::Precision precision) override {
    return inner_->Prepare(model, weights, inputs, precision);
  }
  std::unique_ptr<Stream> MakeStream() override {
    return std::make_unique<HeldStream>(*this, inner_->MakeStream());
  }
  absl::Status RegisterHost(std::span<const std::byte> memory) override {
    return inner_->RegisterHost(memory);
  }
  void UnregisterHost(std::span<const std::byte> memory) override { inner_->UnregisterHost(memory); }
  absl::Status UseLinks(std::shared_ptr<transport::LinkBuckets> links) override {
    return inner_->UseLinks(std::move(links));
  }
  [[nodiscard]] Bytes MappingUnit() const override { return inner_->MappingUnit(); }
  absl::StatusOr<DeviceRange> Map(std::uint64_t address, std::span<const DeviceRange> pieces) override {
    return inner_->Map(address, pieces);
  }
  void Unmap(const DeviceRange& mapped) override { inner_->Unmap(mapped); }
  absl::StatusOr<SharedRange> Share(const DeviceRange& range) override { return inner_->Share(range); }
  absl::StatusOr<std::shared_ptr<const PeerMemory>> OpenPeer(std::uint32_t gpu, SharedRange range) override {
    return inner_->OpenPeer(gpu, std::move(range));
  }
  [[nodiscard]] absl::Status Health() const override { return inner_->Health(); }
  [[nodiscard]] EngineState engine(Engine which) const override { return inner_->engine(which); }
  [[nodiscard]] Duration compute_busy() const override { return inner_->compute_busy(); }
  absl::Status HangCompute() override { return inner_->HangCompute(); }
  absl::Status StallCopies() override { return inner_->StallCopies(); }

 private:
  struct Copy {
    DeviceRange to;
    std::span<const std::byte> from;
    OnComplete done;
  };
  class HeldStream final : public Stream {
   public:
    HeldStream(HeldDevice& device, std::unique_ptr<Stream> inner)
        : device_(device), inner_(std::move(inner)) {}
    EventPtr CopyIn(DeviceRange to, std::span<const std::byte> from, OnComplete done) override {
      {
        const std::lock_guard lock(device_.mutex_);
        if (device_.holds_) {
          device_.copies_.push_back({to, from, std::move(done)});
          return nullptr;
        }
      }
      return inner_->CopyIn(to, from, std::move(done));
    }
    EventPtr CopyOut(std::span<std::byte> to, DeviceRange from, OnComplete done) override {
      return inner_->CopyOut(to, from, std::move(done));
    }
    EventPtr CopyWithin(DeviceRange to, DeviceRange from, OnComplete done) override {
      return inner_->CopyWithin(to, from, std::move(done));
    }
    EventPtr CopyPeer(DeviceRange to, std::shared_ptr<const PeerMemory> from, Bytes offset,
                      OnComplete done) override {
      return inner_->CopyPeer(to, std::move(from), offset, std::move(done));
    }
    EventPtr Launch(std::shared_ptr<DevicePlan> plan, LaunchArguments arguments, OnLaunched done) override {
      return inner_->Launch(std::move(plan), std::move(arguments), std::move(done));
    }
    void Wait(EventPtr event) override { inner_->Wait(std::move(event)); }
    [[nodiscard]] EngineState launches() const override { return inner_->launches(); }

   private:
    HeldDevice& device_;
    std::unique_ptr<Stream> inner_;
  };
  Copy Take() {
    const std::lock_guard lock(mutex_);
    TROUPE_CHECK(!copies_.empty(), "no copy is held");
    Copy copy = std::move(copies_.front());
    copies_.pop_front();
    return copy;
  }

  std::unique_ptr<Device> inner_;
  mutable std::mutex mutex_;
  bool holds_ = true;        // guarded by mutex_
  std::deque<Copy> copies_;  // guarded by mutex_
};

inline std::unique_ptr<HeldDevice> MakeHeldDevice(Bytes memory, PlanBuilder builder = BuildFakePlan) {
  VirtualDeviceOptions options;
  options.builder = std::move(builder);
  return std::make_unique<HeldDevice>(
      *MakeVirtualDevice(std::move(options), *transport::MemoryFile::Create("held", memory), nullptr));
}

}  // namespace troupe::gpu::test
