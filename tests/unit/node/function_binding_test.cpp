#include "node/scheduling/function_binding.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "node/scheduling/swap_scheduler.hpp"
#include "tests/unit/node/numbered.hpp"

namespace troupe::node::function_binding_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using testing::HasSubstr;

const auto kNoneInUse = [](ModelId) { return false; };

TEST(PauseHistogram, PercentilesAreAtMostAQuarterTooLong) {
  PauseHistogram pauses;
  EXPECT_EQ(pauses.Percentile(99), Duration());
  for (int i = 0; i < 98; ++i) pauses.Add(milliseconds(100));
  pauses.Add(seconds(20));
  pauses.Add(seconds(300));
  EXPECT_GE(pauses.Percentile(50), milliseconds(100));
  EXPECT_LE(pauses.Percentile(50), milliseconds(125));
  EXPECT_GE(pauses.Percentile(99), seconds(20));
  EXPECT_LE(pauses.Percentile(99), seconds(25));
}

constexpr ModelId kA = 0, kB = 1, kC = 2, kD = 3;

TEST(FunctionBinding, NoDeviceIsBoundBeyondItsMemory) {
  FunctionBinding binding(BindingRule::kFixed);
  const FunctionBinding::Devices devices = {{0, MiB(100)}, {1, MiB(80)}};
  const auto bind = [&](ModelId model, Bytes bytes) {
    static_cast<void>(binding.Asked(model, Time{}));
    return binding.Bind(model, bytes, devices, Time{} + minutes(60), kNoneInUse);
  };
  EXPECT_TRUE(bind(kA, MiB(60)));
  EXPECT_EQ(binding.Home(kA), 0u);
  EXPECT_TRUE(bind(kB, MiB(60)));
  EXPECT_EQ(binding.Home(kB), 1u);
  EXPECT_TRUE(bind(kC, MiB(40)));
  EXPECT_EQ(binding.Home(kC), 0u);
  EXPECT_FALSE(bind(kD, MiB(21)));  // no function is unbound for it, however long it was idle
  EXPECT_FALSE(binding.Bound(kD));
  EXPECT_TRUE(bind(kA, MiB(60)));
  EXPECT_EQ(binding.BoundTo(0), MiB(100));
  EXPECT_FALSE(bind(kA, MiB(70)));  // the function grew, and no longer fits beside c
  binding.Forget(kC);
  EXPECT_TRUE(bind(kA, MiB(70)));
}

TEST(FunctionBinding, KeepAliveEndsAfterAnUnusualPause) {
  FunctionBinding binding(BindingRule::kKeepAlive);
  const FunctionBinding::Devices devices = {{0, MiB(100)}};
  Time now{};
  for (int i = 0; i < 20; ++i, now += seconds(1)) {
    EXPECT_FALSE(binding.Asked(kA, now));
    EXPECT_TRUE(binding.Bind(kA, MiB(80), devices, now, kNoneInUse));
  }
  now += seconds(3);  // three times its longest pause
  static_cast<void>(binding.Asked(kB, now));
  EXPECT_FALSE(binding.Bind(kB, MiB(80), devices, now, [](ModelId model) { return model == kA; }));
  EXPECT_TRUE(binding.Bind(kB, MiB(80), devices, now, kNoneInUse));
  EXPECT_FALSE(binding.Bound(kA));
  // Function b has not been seen often enough to know its usual pauses: it has ten minutes.
  EXPECT_FALSE(binding.Asked(kB, now + minutes(9)));
  EXPECT_TRUE(binding.Asked(kB, now + minutes(20)));
}

TEST(FunctionBinding, AFunctionWithoutRoomIsRefusedAndNoModelIsEvicted) {
  SwapScheduler scheduler({}, *FindSchedulerPolicies(*FindPreset("native")));
  scheduler.AddGpu(0, MiB(100));
  Time now{};
  scheduler.Apply(WorkerReady{.gpu = 0, .memory = MiB(100), .free = MiB(100)}, now);
  scheduler.DescribeModel(ModelNamed("a"), MiB(60), MiB(1));
  scheduler.DescribeModel(ModelNamed("b"), MiB(60), MiB(1));
  const auto ask = [&](std::uint64_t sequence, const std::string& model) {
    return scheduler.Submit(
        {.id = {1, sequence}, .function = FunctionNamed(model), .model = ModelNamed(model)}, now);
  };
  ASSERT_TRUE(ask(1, "a").accepted);
  const auto dispatches = scheduler.Decide(now).dispatches;
  ASSERT_EQ(dispatches.size(), 1u);
  scheduler.Apply(SwapInDone{.gpu = 0, .model = ModelNamed("a")}, now);
  scheduler.Apply(RunDone{.gpu = 0, .request = {1, 1}}, now);
  now += minutes(60);
  const auto refused = ask(2, "b");
  EXPECT_FALSE(refused.accepted);
  EXPECT_EQ(refused.finished.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.finished.status.message()), HasSubstr("function 'b' needs 61 MiB"));
  EXPECT_EQ(scheduler.counts().evictions, 0u);
  EXPECT_EQ(FindSchedulerPolicies({.gpu = "random", .binding = "fixed"}).status().code(),
            absl::StatusCode::kInvalidArgument);
  scheduler.Check();
}

}  // namespace
}  // namespace troupe::node::function_binding_test
