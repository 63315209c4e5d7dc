#include "gpu/cuda/lost_stream.hpp"

#include <utility>

#include "gpu/cuda/event.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::gpu::cuda {
namespace {

class LostStream final : public Stream {
 public:
  explicit LostStream(absl::Status why) : why_(std::move(why)) {}
  EventPtr CopyIn(DeviceRange, std::span<const std::byte>, OnComplete done) override { return Fail(done); }
  EventPtr CopyOut(std::span<std::byte>, DeviceRange, OnComplete done) override { return Fail(done); }
  EventPtr CopyWithin(DeviceRange, DeviceRange, OnComplete done) override { return Fail(done); }
  EventPtr CopyPeer(DeviceRange, std::shared_ptr<const PeerMemory>, Bytes, OnComplete done) override {
    return Fail(done);
  }
  EventPtr Launch(std::shared_ptr<DevicePlan>, LaunchArguments, OnLaunched done) override {
    return Fail([&done](const Completion& completion) {
      if (done) done(completion, {});
    });
  }
  void Wait(EventPtr) override {}
  [[nodiscard]] EngineState launches() const override { return {}; }

 private:
  [[nodiscard]] EventPtr Fail(const OnComplete& done) const {
    auto event = std::make_shared<CudaEvent>();
    event->Complete(why_);
    const Time now = transport::SteadyNow();
    if (done) done({why_, now, now});
    return event;
  }
  const absl::Status why_;
};

}  // namespace

std::unique_ptr<Stream> MakeLostStream(absl::Status why) {
  return std::make_unique<LostStream>(std::move(why));
}

}  // namespace troupe::gpu::cuda
