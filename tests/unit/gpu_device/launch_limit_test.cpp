#include "gpu/device/launch_limit.hpp"

#include <memory>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gpu/device/virtual_device.hpp"
#include "gtest/gtest.h"
#include "tests/unit/gpu_device/small_model.hpp"

namespace troupe::gpu {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

Time At(int ms) {
  return Time(milliseconds(5000 + ms));
}

TEST(LaunchLimit, ALaunchWithoutOneIsNeverCut) {
  LaunchLimit limit{Duration::zero()};
  limit.Began(At(0));
  EXPECT_FALSE(limit.Passed(At(0) + hours(5)));
  LaunchLimit negative{milliseconds(-1)};
  negative.Began(At(0));
  EXPECT_FALSE(negative.Passed(At(0) + hours(5)));
}

TEST(LaunchLimit, CutsALaunchThatGoesOnBehindIt) {
  LaunchLimit limit{milliseconds(800)};
  limit.Began(At(0));
  EXPECT_FALSE(limit.Passed(At(0)));
  EXPECT_FALSE(limit.Passed(At(800)));
  EXPECT_FALSE(limit.Passed(At(810)));
  EXPECT_FALSE(limit.Passed(At(909)));
  EXPECT_TRUE(limit.Passed(At(910)));
}

TEST(LaunchLimit, AProcessThatWasStoppedMayEndItsLaunch) {
  LaunchLimit limit{milliseconds(800)};
  limit.Began(At(0));
  EXPECT_FALSE(limit.Passed(At(10)));
  EXPECT_FALSE(limit.Passed(At(60'000)));
  EXPECT_FALSE(limit.Passed(At(60'090)));
  EXPECT_TRUE(limit.Passed(At(60'100)));
}

TEST(LaunchLimit, WaitingForWeightsDoesNotCount) {
  LaunchLimit limit{milliseconds(800)};
  limit.Began(At(0));
  limit.Waited(milliseconds(5000));
  EXPECT_FALSE(limit.Passed(At(5800)));
  EXPECT_EQ(limit.Used(At(5800)), milliseconds(800));
  EXPECT_FALSE(limit.Passed(At(5801)));
  EXPECT_TRUE(limit.Passed(At(5901)));
}

// How the launches of one stream of a virtual device ended.
class Launcher {
 public:
  Launcher() {
    VirtualDeviceOptions options;
    options.timed = *ComputeProfile::Parse("endless 10s\nquick 1ms\n");
    device_ =
        *MakeVirtualDevice(std::move(options), *transport::MemoryFile::Create("device", MiB(1)), nullptr);
    stream_ = device_->MakeStream();
  }
  // `steps` is two at least.
  void Launch(const char* digest, int steps, Duration limit) {
    proto::Model model = test::SmallModel();
    model.set_weights_digest(digest);
    while (model.steps_size() < steps) *model.add_steps() = proto::Step(model.steps(1));
    const std::vector<proto::TensorSpec> inputs = {test::Spec("x", {1, test::kColumns})};
    auto plan = *device_->Prepare(model, test::SmallWeights(), inputs, proto::PRECISION_FP32);
    LaunchArguments arguments;
    arguments.weights = *device_->Allocate(Bytes(64));
    arguments.activations = *device_->Allocate(Bytes(0));
    arguments.inputs = {*device_->Allocate(Bytes(16))};
    arguments.outputs = {*device_->Allocate(Bytes(16))};
    arguments.limit = limit;
    stream_->Launch(plan, arguments,
                    [this](const Completion& completion, auto) { ended_.push_back(completion); });
  }
  std::vector<Completion> Ended() {
    stream_.reset();
    return std::exchange(ended_, {});
  }

 private:
  std::unique_ptr<Device> device_;
  std::vector<Completion> ended_;
  std::unique_ptr<Stream> stream_;
};

TEST(LaunchLimit, ALaunchIsCutBetweenItsStepsAndTheNextOneBegins) {
  Launcher launcher;
  launcher.Launch("endless", 600, milliseconds(80));
  launcher.Launch("quick", 2, milliseconds(80));
  const std::vector<Completion> ended = launcher.Ended();
  ASSERT_EQ(ended.size(), 2u);
  EXPECT_TRUE(absl::IsDeadlineExceeded(ended[0].status)) << ended[0].status;
  EXPECT_THAT(std::string(ended[0].status.message()), testing::HasSubstr("of 600"));
  EXPECT_GE(ended[0].cut_after, milliseconds(80));
  EXPECT_LT(ended[0].end - ended[0].begin, seconds(10));
  EXPECT_TRUE(ended[1].status.ok()) << ended[1].status;
  EXPECT_EQ(ended[1].cut_after, Duration::zero());
}

}  // namespace
}  // namespace troupe::gpu
