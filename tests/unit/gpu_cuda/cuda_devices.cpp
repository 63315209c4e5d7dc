#include "tests/unit/gpu_cuda/fake_cuda.hpp"
#include "tests/unit/gpu_device/device_fixture.hpp"

namespace troupe::gpu::test {

std::vector<DeviceKind> DevicesUnderTest() {
  const auto make = [](std::size_t concurrency) {
    CudaOptions options = SmallOptions();
    options.concurrency = concurrency;
    CudaOpened opened = cuda::Open(options);
    TROUPE_CHECK(opened.device != nullptr, opened.why.c_str());
    return std::move(opened.device);
  };
  return {{"Cuda", true, [make] { return make(1); }}, {"CudaStreams", true, [make] { return make(3); }}};
}

}  // namespace troupe::gpu::test
