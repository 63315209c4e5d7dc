#include "gpu/cuda/device.hpp"

#include <mutex>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "base/status.hpp"
#include "gpu/cuda/fault.hpp"
#include "gpu/cuda/link_rate.hpp"
#include "gpu/cuda/nccl_broadcast.hpp"
#include "gpu/cuda/peers.hpp"
#include "gpu/cuda/plan.hpp"
#include "gpu/cuda/stream.hpp"
#include "gpu/device/device_ranges.hpp"
#include "gpu/device/tensor_bytes.hpp"

namespace troupe::gpu::cuda {
namespace {

// Host memory that the GPU knows. Thread-safe.
class HostPins {
 public:
  explicit HostPins(Context& context) : context_(context) {}

  // Memory that is mapped for reading alone (a region of the daemon's) is registered so, where the GPU can; any
  // other may be copied to as well.
  absl::Status Register(std::span<const std::byte> memory) {
    context_.Enter();
    void* const address = const_cast<std::byte*>(memory.data());
    const std::lock_guard lock(mutex_);
    if (!ranges_.contains({memory.data(), memory.size()})) {
      const auto pin = [&](unsigned flags) {
        return context_.driver().cuMemHostRegister(address, memory.size(),
                                                   CU_MEMHOSTREGISTER_PORTABLE | flags);
      };
      CUresult result = pin(0);
      if (result != CUDA_SUCCESS &&
          context_.Attribute(CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED) != 0)
        result = pin(CU_MEMHOSTREGISTER_READ_ONLY);
      TROUPE_RETURN_IF_ERROR(context_.Check(
          result, absl::StrCat("registering ", FormatBytes(Bytes(memory.size())), " of host memory")));
    }
    ranges_.insert({memory.data(), memory.size()});
    return absl::OkStatus();
  }

  void Unregister(std::span<const std::byte> memory) {
    context_.Enter();
    const std::lock_guard lock(mutex_);
    const auto found = ranges_.find({memory.data(), memory.size()});
    if (found == ranges_.end()) return;
    ranges_.erase(found);
    if (!ranges_.contains({memory.data(), memory.size()}))
      (void)context_.driver().cuMemHostUnregister(const_cast<std::byte*>(memory.data()));
  }

  [[nodiscard]] bool Has(std::span<const std::byte> host) const {
    const std::lock_guard lock(mutex_);
    for (const auto& [begin, size] : ranges_) {
      if (host.data() >= begin && host.data() + host.size() <= begin + size) return true;
    }
    return host.empty();
  }

 private:
  Context& context_;
  mutable std::mutex mutex_;
  std::multiset<std::pair<const std::byte*, std::size_t>> ranges_;  // guarded by mutex_
};

class CudaDevice final : public Device {
 public:
  CudaDevice(std::unique_ptr<Context> context, std::unique_ptr<GreenContexts> shares,
             std::unique_ptr<Memory> memory, const CudaOptions& options)
      : context_(std::move(context)),
        shares_(std::move(shares)),
        memory_(std::move(memory)),
        ranges_(options.name, memory_->home()),
        pins_(*context_),
        form_(options.persistent_kernels ? KernelForm::kPersistent : KernelForm::kWhole),
        tools_{*context_,
               nullptr,
               std::make_unique<Libraries>(*context_, options.blas, options.dnn),
               {},
               std::make_unique<BlasLt>(options.blas_lt)} {
    tools_.graphs.on = options.graphs;
    info_.name = options.name;
    info_.memory = ranges_.use().total;
    info_.concurrency = options.concurrency;
    info_.shares = shares_->ladder();
    info_.remark = shares_->remark();
    shares_->ForEach([this](CUstream stream, std::uint32_t sms) { tools_.libraries->Bound(stream, sms); });
    info_.peer_copies = HasPeers(*context_);
    if (info_.peer_copies) broadcaster_ = std::make_unique<NcclBroadcaster>(*context_, options.nccl);
    info_.link = MeasureLink(*context_, memory_->home());
  }

  [[nodiscard]] const DeviceInfo& info() const override { return info_; }

  absl::StatusOr<DeviceRange> Allocate(Bytes size) override { return ranges_.Allocate(size); }
  void Free(const DeviceRange& range) override { ranges_.Free(range); }
  [[nodiscard]] MemoryUse memory() const override { return ranges_.use(); }

  absl::StatusOr<std::shared_ptr<DevicePlan>> Prepare(const proto::Model& model,
                                                      std::span<const std::byte> weights,
                                                      std::span<const proto::TensorSpec> inputs,
                                                      proto::Precision precision) override {
    TROUPE_RETURN_IF_ERROR(context_->health());
    TROUPE_ASSIGN_OR_RETURN(const auto ordered, OrderInputs(model, inputs));
    const std::lock_guard lock(preparing_);
    context_->Enter();  // the libraries take the thread's GPU
    TROUPE_RETURN_IF_ERROR(LoadKernels());
    return MakePlan(tools_, model, weights, ordered, precision);
  }
  // Without a stream there is nothing to go on with: a GPU that cannot make one is of no use.
  std::unique_ptr<Stream> MakeStream() override {
    auto stream = CudaStream::Make(*context_, meters_, *shares_,
                                   [this](std::span<const std::byte> host) { return pins_.Has(host); });
    TROUPE_CHECK(stream.ok(), std::string(stream.status().message()).c_str());
    return *std::move(stream);
  }

  absl::Status RegisterHost(std::span<const std::byte> memory) override { return pins_.Register(memory); }
  void UnregisterHost(std::span<const std::byte> memory) override { pins_.Unregister(memory); }
  absl::Status UseLinks(std::shared_ptr<transport::LinkBuckets>) override { return absl::OkStatus(); }

  [[nodiscard]] Bytes MappingUnit() const override { return memory_->unit(); }
  absl::StatusOr<DeviceRange> Map(std::uint64_t address, std::span<const DeviceRange> pieces) override {
    return memory_->Map(address, pieces);
  }
  void Unmap(const DeviceRange& mapped) override { memory_->Unmap(mapped); }

  absl::StatusOr<SharedRange> Share(const DeviceRange& range) override {
    return ExportRange(*context_, *memory_, range);
  }
  absl::StatusOr<std::shared_ptr<const PeerMemory>> OpenPeer(std::uint32_t gpu, SharedRange range) override {
    return ImportRange(*context_, static_cast<int>(gpu), std::move(range));
  }

  [[nodiscard]] transport::Broadcaster* broadcaster() override {
    return broadcaster_ != nullptr && broadcaster_->Ready().ok() ? broadcaster_.get() : nullptr;
  }

  [[nodiscard]] absl::Status Health() const override { return context_->health(); }
  [[nodiscard]] EngineState engine(Engine which) const override { return MeterOf(which).state(); }
  [[nodiscard]] Duration compute_busy() const override { return MeterOf(Engine::kCompute).state().busy_time; }

  absl::Status HangCompute() override {
    if (HangIsIllegalAccess()) {
      const std::lock_guard lock(preparing_);
      TROUPE_RETURN_IF_ERROR(LoadKernels());
      return AccessIllegally(*context_, *tools_.kernels);
    }
    meters_[static_cast<std::size_t>(Engine::kCompute)].Freeze(true);
    return absl::OkStatus();
  }
  absl::Status StallCopies() override {
    for (const Engine engine : {Engine::kCopyIn, Engine::kCopyOut, Engine::kCopyPeer})
      meters_[static_cast<std::size_t>(engine)].Freeze(false);
    return absl::OkStatus();
  }

 private:
  [[nodiscard]] const Meter& MeterOf(Engine engine) const {
    return meters_[static_cast<std::size_t>(engine)];
  }

  // Under preparing_.
  absl::Status LoadKernels() {
    if (tools_.kernels != nullptr) return absl::OkStatus();
    TROUPE_ASSIGN_OR_RETURN(tools_.kernels, Kernels::Load(*context_, form_));
    return absl::OkStatus();
  }

  const std::unique_ptr<Context> context_;
  const std::unique_ptr<GreenContexts> shares_;
  const std::unique_ptr<Memory> memory_;
  DeviceRanges ranges_;
  HostPins pins_;
  DeviceInfo info_;
  Meters meters_;
  const KernelForm form_;
  std::mutex preparing_;
  Tools tools_;                                   // its kernels from the first Prepare on
  std::unique_ptr<NcclBroadcaster> broadcaster_;  // null: no other GPU can be reached
};

}  // namespace

std::unique_ptr<Device> MakeDevice(std::unique_ptr<Context> context, std::unique_ptr<GreenContexts> shares,
                                   std::unique_ptr<Memory> memory, const CudaOptions& options) {
  return std::make_unique<CudaDevice>(std::move(context), std::move(shares), std::move(memory), options);
}

}  // namespace troupe::gpu::cuda
