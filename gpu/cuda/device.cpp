#include "gpu/cuda/device.hpp"

#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "base/status.hpp"
#include "gpu/cuda/fault.hpp"
#include "gpu/cuda/host_pins.hpp"
#include "gpu/cuda/link_rate.hpp"
#include "gpu/cuda/lost_stream.hpp"
#include "gpu/cuda/nccl_broadcast.hpp"
#include "gpu/cuda/peer_exports.hpp"
#include "gpu/cuda/peers.hpp"
#include "gpu/cuda/plan.hpp"
#include "gpu/cuda/signal_words.hpp"
#include "gpu/cuda/stream.hpp"
#include "gpu/device/device_ranges.hpp"
#include "gpu/device/tensor_bytes.hpp"

namespace troupe::gpu::cuda {
namespace {

// The stream of the smallest share; null where the device has no shares.
CUstream StreamOfAShare(GreenContexts& shares) {
  const ShareLadder& ladder = shares.ladder();
  if (ladder.units() < 2) return nullptr;
  const auto place = shares.PlaceOf({.begin = 0, .units = 1, .sms = ladder.unit(), .of = ladder.sms()});
  return place.ok() ? place->stream : nullptr;
}

class CudaDevice final : public Device {
 public:
  CudaDevice(std::unique_ptr<Context> context, std::unique_ptr<GreenContexts> shares,
             std::unique_ptr<Memory> memory, const CudaOptions& options)
      : context_(std::move(context)),
        shares_(std::move(shares)),
        memory_(std::move(memory)),
        ranges_(options.name, memory_->home()),
        host_(*context_, *shares_),
        form_(options.kernels),
        tools_{*context_,
               nullptr,
               std::make_unique<Libraries>(*context_, options.blas, options.dnn),
               {},
               std::make_unique<BlasLt>(options.blas_lt),
               TroubleWords(*context_)},
        peers_{{*context_, *memory_}, nullptr} {
    tools_.graphs.on = options.repeated == RepeatedLaunch::kReplayed;
    info_.name = options.name;
    info_.memory = ranges_.use().total;
    info_.concurrency = options.concurrency;
    info_.shares = shares_->ladder();
    info_.remark = shares_->remark();
    shares_->Watch([this](const GreenContexts::Place& place) {
      tools_.libraries->Bound(place.stream, place.sms, place.context);
    });
    info_.registers_pages = true;
    info_.peer_copies = HasPeers(*context_);
    if (info_.peer_copies) peers_.broadcaster = std::make_unique<NcclBroadcaster>(*context_, options.nccl);
    std::string why;
    const HostPins::Way way = HostPins::WayOfRegions(*context_, why);
    host_.way = absl::StrCat(Describe(way), why.empty() ? "" : " (", why, why.empty() ? "" : ")");
    info_.link = MeasureLink(*context_, memory_->home(), way != HostPins::Way::kNone);
  }

  [[nodiscard]] std::string Summary() const {
    char name[128] = "a GPU";
    (void)context_->driver().cuDeviceGetName(name, sizeof(name), context_->device());
    int version = 0;
    (void)context_->driver().cuDriverGetVersion(&version);
    const ShareLadder& shares = info_.shares;
    return absl::StrCat(
        info_.name, " is ", name, " (sm_", context_->Attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
        context_->Attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR), ", ", shares.sms(),
        " SMs), its driver is for CUDA ", version / 1000, ".", version % 1000 / 10, "; used are ",
        FormatBytes(info_.memory), " in units of ", FormatBytes(memory_->unit()), ", ",
        shares.units() > 1 ? absl::StrCat("shares in steps of ", shares.unit(), " SMs")
                           : std::string("no shares"),
        ", ", info_.peer_copies ? "copies from other GPUs" : "no copies from other GPUs",
        ", host memory registered ", host_.way, ", launches wait for weights ",
        host_.signals.why_not().empty() ? std::string("on the GPU")
                                        : absl::StrCat("by way of the host (", host_.signals.why_not(), ")"),
        ", a link of ", static_cast<std::int64_t>(info_.link.value / 1e6), " MB/s");
  }

  ~CudaDevice() override {
    context_->Enter();
    if (tools_.warm.stream != nullptr) (void)context_->driver().cuStreamDestroy(tools_.warm.stream);
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
    if (tools_.warm.stream == nullptr) MakeWarmingStream();
    return MakePlan(tools_, model, weights, ordered, precision);
  }
  std::unique_ptr<Stream> MakeStream() override {
    auto stream = CudaStream::Make(*context_, meters_, *shares_, host_.pins);
    return stream.ok() ? *std::move(stream) : MakeLostStream(stream.status());
  }
  SignalsPtr MakeSignals(std::size_t count) override { return host_.signals.Take(count); }

  absl::Status RegisterHost(std::span<const std::byte> memory) override {
    return host_.pins.Register(memory);
  }
  void UnregisterHost(std::span<const std::byte> memory) override { host_.pins.Unregister(memory); }
  absl::Status UseLinks(std::shared_ptr<transport::LinkBuckets>) override { return absl::OkStatus(); }

  [[nodiscard]] Bytes MappingUnit() const override { return memory_->unit(); }
  absl::StatusOr<DeviceRange> Map(std::uint64_t address, std::span<const DeviceRange> pieces) override {
    return memory_->Map(address, pieces);
  }
  void Unmap(const DeviceRange& mapped) override { memory_->Unmap(mapped); }

  absl::StatusOr<SharedRange> Share(const DeviceRange& range) override {
    return peers_.exports.Export(range);
  }
  absl::StatusOr<std::shared_ptr<const PeerMemory>> OpenPeer(std::uint32_t gpu, SharedRange range) override {
    return ImportRange(*context_, static_cast<int>(gpu), std::move(range));
  }

  [[nodiscard]] transport::Broadcaster* broadcaster() override {
    return peers_.broadcaster != nullptr && peers_.broadcaster->Ready().ok() ? peers_.broadcaster.get()
                                                                             : nullptr;
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

  // Without it plans load with their first launch.
  void MakeWarmingStream() {
    CUstream stream = nullptr;
    if (context_->driver().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS)
      tools_.warm = {stream, memory_->home()};
  }

  const std::unique_ptr<Context> context_;
  const std::unique_ptr<GreenContexts> shares_;
  const std::unique_ptr<Memory> memory_;
  DeviceRanges ranges_;
  struct HostMemory {
    HostMemory(Context& context, GreenContexts& shares)
        : pins(context), signals(context, StreamOfAShare(shares)) {}
    HostPins pins;
    std::string way;  // how the host region is registered, or why it is not
    SignalWords signals;
  } host_;
  DeviceInfo info_;
  Meters meters_;
  const KernelForm form_;
  std::mutex preparing_;
  Tools tools_;  // its kernels from the first Prepare on
  struct {
    PeerExports exports;
    std::unique_ptr<NcclBroadcaster> broadcaster;  // null: no other GPU can be reached
  } peers_;
};

}  // namespace

std::unique_ptr<Device> MakeDevice(std::unique_ptr<Context> context, std::unique_ptr<GreenContexts> shares,
                                   std::unique_ptr<Memory> memory, const CudaOptions& options,
                                   std::string& summary) {
  auto device =
      std::make_unique<CudaDevice>(std::move(context), std::move(shares), std::move(memory), options);
  summary = device->Summary();
  return device;
}

}  // namespace troupe::gpu::cuda
