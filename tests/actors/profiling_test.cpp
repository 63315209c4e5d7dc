// An experiment from the administration's request to its rows: manager, node and fake workers under virtual time, and
// what becomes of it when one of them dies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/actors/world.hpp"

namespace troupe::actors::profiling_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

class Profiling : public testing::Test {
 protected:
  Profiling() : world_(1, 1) {
    EXPECT_TRUE(world_.Deploy("resnet", MiB(50), milliseconds(100)).ok());
    world_.Run(seconds(1));
  }
  proto::AdminReply Begin() {
    proto::AdminRequest request;
    auto& wish = *request.mutable_profile_function();
    wish.mutable_key()->set_name("resnet");
    for (const std::uint32_t share : {50, 100}) wish.mutable_grid()->add_sm_partitions(share);
    wish.mutable_grid()->add_quota_limits(100);
    return *world_.Ask(request);
  }
  proto::AdminReply Show() {
    proto::AdminRequest request;
    request.mutable_show_profile()->mutable_key()->set_name("resnet");
    return *world_.Ask(request);
  }

  World world_;
};

TEST_F(Profiling, AnExperimentMeasuresWhatItsWorkersDo) {
  const auto begun = Begin();
  ASSERT_EQ(begun.code(), 0) << begun.message();
  EXPECT_EQ(begun.experiments(0).state(), proto::EXPERIMENT_RUNNING);
  world_.Run(seconds(30));
  const auto shown = Show();
  ASSERT_EQ(shown.experiments(0).state(), proto::EXPERIMENT_DONE) << shown.DebugString();
  ASSERT_EQ(shown.profiles_size(), 1);
  for (const auto& row : shown.profiles(0).rows()) {
    EXPECT_EQ(row.state(), proto::PROFILE_ROW_MEASURED) << row.DebugString();
    EXPECT_GT(row.throughput(), 80) << row.DebugString();
    EXPECT_LE(row.throughput(), 101) << row.DebugString();
  }
}

TEST_F(Profiling, ADeadNodeIsARowAndTheExperimentGoesOnWhenItIsBack) {
  ASSERT_EQ(Begin().code(), 0);
  world_.Run(milliseconds(500));
  world_.KillNode("node-1");
  world_.Run(seconds(2));
  world_.RestartNode("node-1", sim::World::Kept::kNothing);
  world_.Run(seconds(30));
  const auto shown = Show();
  ASSERT_EQ(shown.experiments(0).state(), proto::EXPERIMENT_DONE) << shown.DebugString();
  EXPECT_EQ(shown.experiments(0).rows(0).state(), proto::PROFILE_ROW_FAILED);
  EXPECT_THAT(shown.experiments(0).rows(0).reason(), HasSubstr("node 'node-1' did not answer"));
}

}  // namespace
}  // namespace troupe::actors::profiling_test
