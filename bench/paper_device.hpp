// A device that has only memory, and that only as addresses that must not be used.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "gpu/device/device.hpp"
#include "transport/range_allocator.hpp"

namespace troupe::gpu::bench {

class PaperDevice final : public Device {
 public:
  explicit PaperDevice(Bytes memory) : ranges_(0, memory, Bytes(256)) {
    info_.name = "paper:0";
    info_.memory = memory;
  }
  [[nodiscard]] const DeviceInfo& info() const override { return info_; }
  absl::StatusOr<DeviceRange> Allocate(Bytes size) override {
    const auto offset = ranges_.Allocate(size);
    if (!offset) return absl::ResourceExhaustedError("the paper device is full");
    return DeviceRange{reinterpret_cast<std::byte*>(kBase + *offset), size};
  }
  void Free(const DeviceRange& range) override {
    (void)ranges_.Free(reinterpret_cast<std::uint64_t>(range.address) - kBase);
  }
  [[nodiscard]] MemoryUse memory() const override {
    return {ranges_.capacity(), ranges_.free(), ranges_.largest_free()};
  }
  absl::StatusOr<std::shared_ptr<DevicePlan>> Prepare(const proto::Model&, std::span<const std::byte>,
                                                      std::span<const proto::TensorSpec>,
                                                      proto::Precision) override {
    return absl::UnimplementedError("a paper device computes nothing");
  }
  std::unique_ptr<Stream> MakeStream() override { return nullptr; }
  absl::Status RegisterHost(std::span<const std::byte>) override { return absl::OkStatus(); }
  void UnregisterHost(std::span<const std::byte>) override {}
  absl::Status UseLinks(std::shared_ptr<transport::LinkBuckets>) override { return absl::OkStatus(); }
  absl::StatusOr<SharedRange> Share(const DeviceRange&) override {
    return absl::UnimplementedError("a device on paper has no memory to share");
  }
  absl::StatusOr<std::shared_ptr<const PeerMemory>> OpenPeer(std::uint32_t, SharedRange) override {
    return absl::UnimplementedError("a device on paper copies nothing");
  }
  [[nodiscard]] absl::Status Health() const override { return absl::OkStatus(); }
  [[nodiscard]] EngineState engine(Engine) const override { return {}; }
  [[nodiscard]] Duration compute_busy() const override { return {}; }
  absl::Status HangCompute() override { return absl::OkStatus(); }
  absl::Status StallCopies() override { return absl::OkStatus(); }

 private:
  static constexpr std::uint64_t kBase = std::uint64_t{1} << 40;
  transport::RangeAllocator ranges_;
  DeviceInfo info_;
};

}  // namespace troupe::gpu::bench
