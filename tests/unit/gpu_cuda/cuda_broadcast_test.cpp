// Broadcasts between GPUs: the contract of all broadcasters over NCCL, on the fake library or, where
// TROUPE_CUDA_DRIVER names a real driver, on the machine's own (which needs two GPUs).
#include <cstdlib>
#include <optional>

#include "base/check.hpp"
#include "gpu/cuda/nccl.hpp"
#include "tests/unit/gpu_cuda/fake_cuda.hpp"
#include "tests/unit/transport/broadcast_contract.hpp"

namespace troupe::gpu::test {
namespace {

constexpr Duration kPatience = std::chrono::seconds(60);

CudaOptions OptionsFor(int ordinal) {
  CudaOptions options = SmallOptions();
  options.ordinal = ordinal;
  if (!RealDriver()) options.nccl = FakeLibrary("libnccl.so.2");
  return options;
}

std::uint32_t GpusThatCanBroadcast() {
  if (!RealDriver()) return 3;
  std::uint32_t count = 0;
  for (int ordinal = 0; ordinal < 3; ++ordinal) {
    const CudaOpened opened = cuda::Open(OptionsFor(ordinal));
    if (opened.device == nullptr || opened.device->broadcaster() == nullptr) break;
    ++count;
  }
  return count;
}

// One device for each rank.
class CudaMembers final : public transport::test::BroadcastMembers {
 public:
  explicit CudaMembers(std::uint32_t count) {
    if (!RealDriver()) machine_.emplace("devices=3,memory=1073741824");  // of all of them
    for (std::uint32_t rank = 0; rank < count; ++rank) {
      CudaOpened opened = cuda::Open(OptionsFor(static_cast<int>(rank)));
      TROUPE_CHECK(opened.device != nullptr, opened.why.c_str());
      devices_.push_back(std::move(opened.device));
      TROUPE_CHECK(devices_.back()->broadcaster() != nullptr, "there is no NCCL");
      memory_.push_back(*devices_.back()->Allocate(MiB(8)));
    }
  }
  transport::Broadcaster& At(std::uint32_t rank) override { return *devices_[rank]->broadcaster(); }
  std::span<std::byte> MemoryOf(std::uint32_t rank, std::size_t bytes) override {
    return {memory_[rank].address, bytes};
  }
  void Write(std::span<std::byte> to, const std::string& bytes) override {
    const auto stream = DeviceOf(to.data()).MakeStream();
    const EventPtr done =
        stream->CopyIn({to.data(), Bytes(to.size())}, std::as_bytes(std::span(bytes)), nullptr);
    TROUPE_CHECK(done->Wait(kPatience).ok(), "a copy to the device failed");
  }
  std::string Read(std::span<const std::byte> from) override {
    std::string bytes(from.size(), '\0');
    const auto stream = DeviceOf(from.data()).MakeStream();
    const EventPtr done = stream->CopyOut(std::as_writable_bytes(std::span(bytes)),
                                          {const_cast<std::byte*>(from.data()), Bytes(from.size())}, nullptr);
    TROUPE_CHECK(done->Wait(kPatience).ok(), "a copy from the device failed");
    return bytes;
  }

 private:
  Device& DeviceOf(const std::byte* address) {
    for (std::size_t i = 0; i < memory_.size(); ++i) {
      const std::ptrdiff_t offset = address - memory_[i].address;
      if (offset >= 0 && offset <= static_cast<std::ptrdiff_t>(memory_[i].size.count())) return *devices_[i];
    }
    TROUPE_CHECK(false, "that is not a device's memory");
    return *devices_[0];
  }
  std::optional<FakeMachine> machine_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::vector<DeviceRange> memory_;
};

class NcclLibrary : public testing::Test {
 protected:
  void SetUp() override {
    if (RealDriver()) GTEST_SKIP() << "this is a test of the fake library";
  }
};

TEST_F(NcclLibrary, WithoutItThereAreNoBroadcasts) {
  CudaOptions options = OptionsFor(0);
  options.nccl = "libnccl-that-is-not-there.so";
  const CudaOpened opened = cuda::Open(options);
  ASSERT_NE(opened.device, nullptr);
  EXPECT_EQ(opened.device->broadcaster(), nullptr);
  EXPECT_TRUE(opened.device->info().peer_copies) << "single copies need no library";
}

TEST_F(NcclLibrary, ALibraryThatIsTooOldIsNamed) {
  setenv("TROUPE_FAKE_NCCL_VERSION", "21200", 1);
  const auto loaded = cuda::Nccl::Load(FakeLibrary("libnccl.so.2")).status();
  unsetenv("TROUPE_FAKE_NCCL_VERSION");
  EXPECT_TRUE(absl::IsFailedPrecondition(loaded)) << loaded;
  EXPECT_THAT(std::string(loaded.message()), testing::HasSubstr("21200"));
  EXPECT_TRUE(absl::IsFailedPrecondition(cuda::Nccl::Load(FakeLibrary("libcublas.so.13")).status()))
      << "a library without its calls was taken";
}

TEST_F(NcclLibrary, AGpuAloneHasNoBroadcasts) {
  const FakeMachine machine("devices=1");
  const CudaOpened opened = cuda::Open(OptionsFor(0));
  ASSERT_NE(opened.device, nullptr);
  EXPECT_EQ(opened.device->broadcaster(), nullptr);
}

}  // namespace
}  // namespace troupe::gpu::test

std::vector<troupe::transport::test::BroadcasterKind> troupe::transport::test::BroadcastersUnderTest() {
  return {{"Nccl", gpu::test::GpusThatCanBroadcast(),
           [](std::uint32_t count) { return std::make_unique<gpu::test::CudaMembers>(count); }}};
}
