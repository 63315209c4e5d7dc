// Broadcasts between GPUs: the contract of all broadcasters over NCCL, on the fake library or, where
// TROUPE_CUDA_DRIVER names a real driver, on the machine's own (which needs two GPUs).
#include <algorithm>
#include <cstdlib>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

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
    if (!RealDriver()) machine_.emplace("devices=5,memory=1073741824");  // of all of them
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

// Broadcasts between GPUs of the fake driver, as their workers agree on them: over what all have kept, else over
// a new communicator. `leaves`: that GPU goes before the end.
class NcclKept : public NcclLibrary {
 protected:
  static constexpr std::uint32_t kAllStay = 99;
  void SetUp() override {
    NcclLibrary::SetUp();
    if (!IsSkipped()) members_.emplace(5);
  }
  void Broadcast(const std::vector<std::uint32_t>& gpus, std::uint32_t leaves = kAllStay) {
    const std::string kept = members_->At(gpus[0]).Kept(gpus);
    const bool all =
        std::ranges::all_of(gpus, [&](std::uint32_t gpu) { return members_->At(gpu).Kept(gpus) == kept; });
    const std::string id = kept.empty() || !all ? *members_->At(gpus[0]).NewId() : kept;
    std::vector<std::thread> threads;
    for (std::uint32_t rank = 0; rank < gpus.size(); ++rank) {
      threads.emplace_back([&, rank] {
        const auto end = members_->At(gpus[rank]).Join({id, rank, gpus}, kPatience);
        ASSERT_TRUE(end.ok()) << end.status();
        const bool passed = (*end)->Pass(members_->MemoryOf(gpus[rank], 4096)).ok();
        EXPECT_TRUE(passed || leaves != kAllStay)
            << "one that leaves may do so before the others have the piece";
        if (gpus[rank] == leaves) return;
        EXPECT_EQ((*end)->Finish().ok(), leaves == kAllStay);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  static std::uint64_t Ask(const char* counter) {
    void* const library = dlopen(FakeLibrary("libnccl.so.2").c_str(), RTLD_NOW);
    return reinterpret_cast<std::uint64_t (*)()>(dlsym(library, counter))();
  }
  // How many communicators were made since the last time.
  std::uint64_t Made() { return Ask("FakeNcclMade") - std::exchange(made_, Ask("FakeNcclMade")); }
  static std::uint64_t Alive() { return Ask("FakeNcclAlive"); }

  std::optional<CudaMembers> members_;
  std::uint64_t made_ = RealDriver() ? 0 : Ask("FakeNcclMade");
};

TEST_F(NcclKept, OneCommunicatorServesTheSameGpusWhicheverSends) {
  Broadcast({0, 1, 2});
  EXPECT_EQ(Made(), 3u) << "an end for each";
  Broadcast({0, 1, 2});
  Broadcast({2, 0, 1});
  EXPECT_EQ(Made(), 0u);
  Broadcast({0, 1});
  EXPECT_EQ(Made(), 2u) << "other members need another one";
  EXPECT_EQ(Alive(), 5u);
}

TEST_F(NcclKept, OneThatAMemberBrokeIsMadeAnew) {
  Broadcast({0, 1, 2});
  Broadcast({0, 1, 2}, 1);
  EXPECT_EQ(Made(), 3u);
  EXPECT_EQ(Alive(), 0u) << "a communicator that was broken is aborted, at each member";
  for (const std::uint32_t gpu : {0u, 1u, 2u}) EXPECT_EQ(members_->At(gpu).Kept({0, 1, 2}), "");
  Broadcast({0, 1, 2});
  EXPECT_EQ(Made(), 3u);
}

// As after the restart of one worker: it has nothing, and the others have what is of no use.
TEST_F(NcclKept, WhatOneMemberHasLostTheOthersLetGo) {
  Broadcast({0, 1, 2});
  const std::string old = members_->At(0).Kept({0, 1, 2});
  for (const std::uint32_t other : {2u, 3u, 4u})  // four more sets of GPU 1
    Broadcast({1, other});
  Broadcast({1, 2, 3});
  EXPECT_EQ(members_->At(1).Kept({0, 1, 2}), "") << "one keeps four, and lets go of the oldest";
  EXPECT_EQ(members_->At(0).Kept({2, 1, 0}), old) << "the order is of no account";
  (void)Made();
  Broadcast({0, 1, 2});
  EXPECT_EQ(Made(), 3u);
  EXPECT_NE(members_->At(0).Kept({0, 1, 2}), old);
  EXPECT_EQ(members_->At(0).Join({old, 0, {0, 1, 2}}, kPatience).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(NcclKept, AWorkerKeepsFourAtMost) {
  for (std::uint32_t first = 0; first < 5; ++first)
    for (std::uint32_t second = first + 1; second < 5; ++second) Broadcast({first, second});
  EXPECT_EQ(Alive(), 20u) << "each GPU has four partners";
  for (std::uint32_t left_out = 1; left_out < 5; ++left_out) {
    std::vector<std::uint32_t> gpus;
    for (std::uint32_t gpu = 0; gpu < 5; ++gpu)
      if (gpu != left_out) gpus.push_back(gpu);
    Broadcast(gpus);
    EXPECT_LE(Alive(), 20u);
  }
  members_.reset();
  EXPECT_EQ(Alive(), 0u) << "none outlives its worker";
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
