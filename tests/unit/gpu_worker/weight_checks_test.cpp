// Comparisons of what lies on a device with what the host has: the most urgent first, group by group.
#include "gpu/worker/weight_checks.hpp"

#include <latch>
#include <mutex>

#include "gmock/gmock.h"
#include "gpu/device/virtual_device.hpp"
#include "gtest/gtest.h"
#include "transport/steady_clock.hpp"

namespace troupe::gpu {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::size_t kPiece = 4096;

class WeightChecksTest : public testing::Test {
 protected:
  WeightChecksTest() : bytes_(3 * kPiece) {
    VirtualDeviceOptions options;
    options.timed = *ComputeProfile::Parse("default 1ms");
    device_ = *MakeVirtualDevice(std::move(options), *transport::MemoryFile::Create("test", MiB(1)), nullptr);
    range_ = *device_->Allocate(Bytes(bytes_.size()));
    for (std::size_t i = 0; i < bytes_.size(); ++i) bytes_[i] = static_cast<std::byte>(i * 7);
    EXPECT_TRUE(device_->MakeStream()->CopyIn(range_, bytes_, nullptr)->Wait(std::chrono::seconds(30)).ok());
  }
  // A check of the device's range; `first` is called when its first group is equal, before the next is compared.
  WeightCheck Check(
      const std::string& digest, std::span<const std::byte> host, std::function<void()> first = [] {}) {
    WeightCheck check;
    check.host.digest = digest;
    check.host.weights = host;
    check.weights = range_;
    check.load = std::make_shared<ModelLoad>(CutEvenly(Bytes(host.size()), Bytes(kPiece)));
    check.first_group = std::move(first);
    check.done = [this, digest](const absl::Status& status) {
      const std::lock_guard lock(mutex_);
      ended_.push_back(digest);
      status_ = status;
      left_.count_down();
    };
    return check;
  }

  std::vector<std::byte> bytes_;
  std::unique_ptr<Device> device_;
  DeviceRange range_;
  std::mutex mutex_;
  std::vector<std::string> ended_;
  absl::Status status_;
  std::latch left_{3};
};

TEST_F(WeightChecksTest, GroupsArriveUpToTheOneThatDiffers) {
  auto host = bytes_;
  host[kPiece + 5] ^= std::byte{1};
  WeightChecks checks(*device_);
  auto check = Check("m", host);
  const auto load = check.load;
  left_.count_down(2);
  checks.Begin(std::move(check));
  left_.wait();
  EXPECT_EQ(status_.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status_.message()), HasSubstr("between bytes 4096 and 8192"));
  EXPECT_EQ(load->arrived(), 1u);
}

TEST_F(WeightChecksTest, TheMostUrgentGoesFirstAlsoWhenItBecomesSoMeanwhile) {
  WeightChecks checks(*device_);
  std::latch begun(1), go_on(1);
  // The first check holds the thread behind its first group, until the others have come.
  checks.Begin(Check("lazy", bytes_, [&] {
    begun.count_down();
    go_on.wait();
  }));
  begun.wait();
  const Time now = transport::SteadyNow();
  auto late = Check("late", bytes_);
  late.deadline = now + std::chrono::seconds(5);
  auto later = Check("later", bytes_);
  later.deadline = now + std::chrono::seconds(9);
  checks.Begin(std::move(late));
  checks.Begin(std::move(later));
  checks.Hurry("later", now + std::chrono::seconds(1));
  checks.Hurry("late", now + std::chrono::seconds(20));
  go_on.count_down();
  left_.wait();
  EXPECT_THAT(ended_, ElementsAre("later", "late", "lazy"));
  EXPECT_TRUE(status_.ok()) << status_;
}

}  // namespace
}  // namespace troupe::gpu
