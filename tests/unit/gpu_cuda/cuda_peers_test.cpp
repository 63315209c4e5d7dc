// Models of many units between workers: their descriptors come in rounds.
#include <cstring>
#include <thread>

#include "gmock/gmock.h"
#include "gpu/cuda/fake/fake_driver.hpp"
#include "gpu/cuda/peer_exports.hpp"
#include "gpu/cuda/peers.hpp"
#include "gtest/gtest.h"
#include "tests/unit/gpu_cuda/fake_cuda.hpp"
#include "transport/steady_clock.hpp"
#include "transport/unix_socket.hpp"

namespace troupe::gpu::test {
namespace {

using cuda::kUnitsInRound;
using transport::SocketLimits;
using transport::UnixConnection;

constexpr Duration kPeerPatience = std::chrono::seconds(30);
constexpr Bytes kUnit = MiB(2);
constexpr std::uint64_t kUnits = 3 * kUnitsInRound + 8;

class CudaPeers : public testing::Test {
 protected:
  void SetUp() override {
    if (RealDriver()) GTEST_SKIP() << "descriptors are counted on the fake driver";
    machine_.emplace("devices=2,memory=2147483648,descriptors=1");
    source_ = DeviceOf(0);
    destination_ = DeviceOf(1);
    model_ = *source_->Allocate(kUnit * kUnits);
  }
  static std::unique_ptr<Device> DeviceOf(int ordinal) {
    CudaOptions options = SmallOptions();
    options.ordinal = ordinal;
    options.memory = kUnit * kUnits;
    CudaOpened opened = cuda::Open(options);
    TROUPE_CHECK(opened.device != nullptr, opened.why.c_str());
    return std::move(opened.device);
  }
  static cuda::fake::FakeDescriptorCounts Counts() {
    void* const library = dlopen(DriverLibrary().c_str(), RTLD_NOW);
    cuda::fake::FakeDescriptorCounts counts;
    reinterpret_cast<void (*)(cuda::fake::FakeDescriptorCounts*)>(dlsym(library, "FakeCudaDescriptors"))(
        &counts);
    return counts;
  }
  std::optional<FakeMachine> machine_;
  std::unique_ptr<Device> source_;
  std::unique_ptr<Device> destination_;
  DeviceRange model_;
};

TEST_F(CudaPeers, AModelOfManyUnitsTakesFewDescriptorsAtATime) {
  const auto in = source_->MakeStream();
  for (std::uint64_t unit = 0; unit < kUnits; ++unit) {
    const std::uint64_t mark = unit * 7 + 1;
    const DeviceRange at = model_.Part(kUnit * unit, Bytes(sizeof(mark)));
    ASSERT_TRUE(in->CopyIn(at, std::as_bytes(std::span(&mark, 1)), nullptr)->Wait(kPeerPatience).ok());
  }
  auto shared = source_->Share(model_);
  ASSERT_TRUE(shared.ok()) << shared.status();
  const auto opened = destination_->OpenPeer(0, *std::move(shared));
  ASSERT_TRUE(opened.ok()) << opened.status();
  const auto counts = Counts();
  EXPECT_EQ(counts.imported, kUnits);
  EXPECT_GT(counts.open, 0u);
  EXPECT_LE(counts.open, 2u * SocketLimits::kDescriptors) << "a message of them at each end";
  EXPECT_LE(counts.on_the_way, kUnitsInRound) << "no round is exported before the last one is imported";
  // In their order.
  const DeviceRange to = *destination_->Allocate(kUnit);
  const auto copy = destination_->MakeStream();
  for (std::uint64_t unit = 0; unit < kUnits; ++unit) {
    std::uint64_t mark = 0;
    const DeviceRange at = to.Part(Bytes(0), Bytes(sizeof(mark)));
    ASSERT_TRUE(copy->CopyPeer(at, *opened, kUnit * unit, nullptr)->Wait(kPeerPatience).ok());
    ASSERT_TRUE(
        copy->CopyOut(std::as_writable_bytes(std::span(&mark, 1)), at, nullptr)->Wait(kPeerPatience).ok());
    EXPECT_EQ(mark, unit * 7 + 1);
  }
}

TEST_F(CudaPeers, ASourceThatEndsInTheMiddleIsNotWaitedFor) {
  auto shared = source_->Share(model_);
  ASSERT_TRUE(shared.ok()) << shared.status();
  source_.reset();
  const auto opened = destination_->OpenPeer(0, *std::move(shared));
  EXPECT_TRUE(absl::IsUnavailable(opened.status())) << opened.status();
  EXPECT_EQ(Counts().imported, kUnitsInRound) << "the first round was there";
}

TEST_F(CudaPeers, ADestinationThatSaysNonsenseGetsNoMore) {
  for (const std::string& said : {std::string("more"), std::string(cuda::kNextRound) + " please"}) {
    auto shared = source_->Share(model_);
    ASSERT_TRUE(shared.ok()) << shared.status();
    auto connection = *UnixConnection::Adopt(std::move(shared->descriptor));
    std::size_t got = 0;
    while (got < kUnitsInRound) {
      const auto message = connection.Receive(kPeerPatience);
      ASSERT_TRUE(message.ok()) << message.status();
      got += message->descriptors.size();
    }
    ASSERT_TRUE(connection.Send(said, {}, kPeerPatience).ok());
    const auto next = connection.Receive(kPeerPatience);
    EXPECT_TRUE(absl::IsUnavailable(next.status())) << next.status();
  }
}

// Ranges of one round need no more; of the others there are so many, until their destinations have gone.
TEST_F(CudaPeers, RangesThatAreNotReadAreBounded) {
  std::vector<SharedRange> shared;
  for (std::size_t i = 0; i < cuda::PeerExports::kMost; ++i) shared.push_back(*source_->Share(model_));
  const auto refused = source_->Share(model_);
  EXPECT_TRUE(absl::IsResourceExhausted(refused.status())) << refused.status();
  EXPECT_TRUE(source_->Share(model_.Part(Bytes(0), kUnit * kUnitsInRound)).ok());
  shared.clear();
  const Time deadline = transport::SteadyNow() + kPeerPatience;
  auto again = source_->Share(model_);
  for (; !again.ok() && transport::SteadyNow() < deadline; again = source_->Share(model_))
    std::this_thread::yield();
  EXPECT_TRUE(again.ok()) << again.status();
}

}  // namespace
}  // namespace troupe::gpu::test
