// The scheduler with models whose host copy is only on disk, or that leave the host region before their run.
#include "tests/unit/node/scheduler_fixture.hpp"

namespace troupe::node::third_tier_test {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;

class ThirdTierTest : public SchedulerTest {
 protected:
  explicit ThirdTierTest(SchedulerLimits limits = {}) : SchedulerTest(limits) {
    Gpus(1, false);
    for (const char* model : {"a", "b"}) Model(model, 60);
  }
  std::vector<std::string> Decide() {
    std::vector<std::string> models;
    for (Dispatch& dispatch : scheduler.Decide(now).dispatches) {
      models.push_back(dispatch.model.text());
      dispatches.push_back(std::move(dispatch));
    }
    scheduler.Check();
    return models;
  }

  std::vector<Dispatch> dispatches;
};

TEST_F(ThirdTierTest, NothingIsDispatchedBeforeTheHostCopyIsThere) {
  scheduler.SetInRegion(ModelNamed("a"), false);
  Submit(1, "a");
  Submit(2, "b");
  EXPECT_TRUE(scheduler.Waits(ModelNamed("a")));
  EXPECT_THAT(Decide(), ElementsAre("b"));
  Loaded(dispatches[0]);
  Ran(dispatches[0]);
  scheduler.DescribeModel(ModelNamed("a"), MiB(60),
                          MiB(2));  // the model was prepared on another GPU: it stays on disk
  EXPECT_THAT(Decide(), ElementsAre());
  scheduler.SetInRegion(ModelNamed("a"), true);
  EXPECT_THAT(Decide(), ElementsAre("a"));
  EXPECT_FALSE(scheduler.Waits(ModelNamed("a")));
}

TEST_F(ThirdTierTest, ItsRequestsExpireWhereTheyWait) {
  scheduler.SetInRegion(ModelNamed("a"), false);
  expiry = Time(milliseconds(5));
  Submit(1, "a");
  EXPECT_EQ(scheduler.NextDue(), expiry);
  now = expiry;
  const Consequences effects = scheduler.Expire(now);
  ASSERT_EQ(effects.finished.size(), 1u);
  EXPECT_EQ(effects.finished[0].kind, FinishKind::kExpired);
  EXPECT_FALSE(scheduler.Waits(ModelNamed("a")));
}

struct LittlePatience : ThirdTierTest {
  LittlePatience() : ThirdTierTest({.swap_ahead = 1, .max_passed = 2}) {}
};

TEST_F(LittlePatience, NoGpuIsKeptForAModelThatIsNotThere) {
  scheduler.DescribeModel(ModelNamed("c"), MiB(20), MiB(1));
  Submit(1, "a");
  EXPECT_THAT(Decide(), ElementsAre("a"));
  Submit(2, "b");  // request 2 finds the GPU busy
  EXPECT_THAT(Decide(), ElementsAre());
  scheduler.SetInRegion(ModelNamed("b"), false);
  Loaded(dispatches[0]);
  Ran(dispatches[0]);
  for (std::uint64_t i = 3; i < 10; ++i) {
    Submit(i, "c");
    EXPECT_THAT(Decide(), ElementsAre("c")) << i;
    Loaded(dispatches.back());
    Ran(dispatches.back());
  }
  scheduler.SetInRegion(ModelNamed("b"), true);
  EXPECT_THAT(Decide(), ElementsAre("b"));
}

// A run may end before its model has been loaded: it was cancelled, or its plan could not be made.
TEST_F(ThirdTierTest, ARunThatEndsBeforeItsSwapLeavesAModelThatCanGo) {
  Submit(1, "a");
  EXPECT_THAT(Decide(), ElementsAre("a"));
  Ran(dispatches[0], RunEnd::kRan, absl::InvalidArgumentError("no such shape"));
  Submit(2, "b");
  EXPECT_THAT(Decide(), ElementsAre()) << "a model that is being loaded is not a victim";
  Loaded(dispatches[0]);
  EXPECT_THAT(Decide(), ElementsAre("b"));
  EXPECT_THAT(dispatches[1].victims, ElementsAre("a"));
}

}  // namespace
}  // namespace troupe::node::third_tier_test
