#include "shell/top.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace troupe::shell {
namespace {

using testing::HasSubstr;
using testing::Not;

proto::GpuStatus TopGpu(std::int64_t busy_ns, std::uint64_t runs, const std::string& generation = "g1") {
  proto::GpuStatus gpu;
  gpu.set_node("node-a");
  gpu.mutable_gpu()->set_state("ready");
  auto& worker = *gpu.mutable_worker();
  worker.set_generation(generation);
  worker.set_memory_bytes(1 << 30);
  worker.set_free_bytes(1 << 29);
  worker.set_busy_ns(busy_ns);
  worker.set_runs(runs);
  return gpu;
}

TEST(Top, BusyShareIsTheDeltaOfBusyTime) {
  const auto before = TopGpu(1000, 10);
  EXPECT_DOUBLE_EQ(BusyShare(TopGpu(1250, 20), &before, Duration(1000)), 0.25);
  EXPECT_DOUBLE_EQ(BusyShare(TopGpu(9999, 20), &before, Duration(1000)), 1.0);
  EXPECT_LT(BusyShare(TopGpu(1250, 20), nullptr, Duration(1000)), 0);
  EXPECT_LT(BusyShare(TopGpu(1250, 20, "g2"), &before, Duration(1000)), 0)
      << "the GPU has another worker now";
  EXPECT_LT(BusyShare(TopGpu(500, 20), &before, Duration(1000)), 0);
  EXPECT_LT(BusyShare(TopGpu(1250, 20), &before, Duration(0)), 0);
}

TEST(Top, AFrameShowsRatesBetweenTwoSamples) {
  TopSample before;
  *before.gpus.add_gpus() = TopGpu(0, 10);
  TopSample now;
  now.at = before.at + std::chrono::seconds(2);
  *now.gpus.add_gpus() = TopGpu(1000000000, 110);
  const Style plain(false);
  const auto frame = RenderTop(now, &before, Screen{}, plain);
  EXPECT_THAT(frame, HasSubstr("node-a/0"));
  EXPECT_THAT(frame, HasSubstr("  50  "));
  EXPECT_THAT(frame, HasSubstr("50 %"));
  EXPECT_THAT(frame, HasSubstr("[#####-----]"));
  EXPECT_THAT(RenderTop(now, nullptr, Screen{}, plain), Not(HasSubstr("50 %")));
}

TEST(Top, AFrameFitsTheScreen) {
  TopSample now;
  for (int i = 0; i < 100; ++i) *now.gpus.add_gpus() = TopGpu(0, 0);
  const auto frame = RenderTop(now, nullptr, Screen{.columns = 30, .rows = 12}, Style(false));
  EXPECT_EQ(std::count(frame.begin(), frame.end(), '\n'), 12);
  std::size_t begin = 0;
  for (std::size_t end = 0; (end = frame.find('\n', begin)) != std::string::npos; begin = end + 1)
    EXPECT_LE(end - begin, 30U);
}

}  // namespace
}  // namespace troupe::shell
