// Numbers for names: that they are used again, and that the scheduler keeps none without a use.
#include <gmock/gmock.h>

#include "node/scheduling/names.hpp"
#include "node/scheduling/swap_scheduler.hpp"

namespace troupe::node::names_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Names, ANumberIsANamesUntilItIsForgotten) {
  Names names;
  const NameId a = names.Intern("a");
  const NameId b = names.Intern("b");
  EXPECT_NE(a, b);
  EXPECT_EQ(names.Intern("a"), a);
  EXPECT_EQ(names.Find("b"), b);
  EXPECT_EQ(names.at(b), "b");
  EXPECT_EQ(names.Find("c"), kNoName);
  names.Forget(a);
  EXPECT_EQ(names.Find("a"), kNoName);
  EXPECT_EQ(names.Intern("c"), a) << "tables by number do not grow";
  EXPECT_EQ(names.at(a), "c");
  EXPECT_EQ(names.size(), 2u);
  EXPECT_EQ(names.end(), 2u);
}

class SchedulerNames : public testing::Test {
 protected:
  SchedulerNames() : scheduler({}, *FindSchedulerPolicies({})) {
    scheduler.AddGpu(0, MiB(100));
    Ready({});
  }
  void Ready(std::vector<ResidentReport> resident) {
    scheduler.Apply(
        WorkerReady{.gpu = 0, .memory = MiB(100), .free = MiB(100), .resident = std::move(resident)}, now);
  }
  void Submit(std::uint64_t sequence, const std::string& model) {
    EXPECT_TRUE(
        scheduler.Submit({.id = {1, sequence}, .function = "f" + model, .model = model}, now).accepted);
  }

  SwapScheduler scheduler;
  Time now{std::chrono::seconds(1)};
};

TEST_F(SchedulerNames, ModelsThatComeAndGoLeaveNothing) {
  for (int i = 0; i < 1000; ++i) {
    const std::string model = "model" + std::to_string(i);
    scheduler.DescribeModel(model, MiB(10), MiB(1));
    scheduler.DeclareState("s" + model, model, MiB(1));
    EXPECT_EQ(scheduler.names(), 1u);
    scheduler.ForgetState("s" + model);
    scheduler.ForgetModel(model);
    EXPECT_EQ(scheduler.names(), 0u);
    scheduler.Check();
  }
}

TEST_F(SchedulerNames, ANameInUseKeepsItsNumberUntilItsLastUseHasEnded) {
  scheduler.DescribeModel("a", MiB(10), MiB(1));
  Submit(1, "a");
  ASSERT_EQ(scheduler.Decide(now).dispatches.size(), 1u);
  EXPECT_THAT(scheduler.ForgetModel("a").evictions, IsEmpty());
  EXPECT_FALSE(scheduler.Knows("a"));
  scheduler.Apply(SwapInDone{.gpu = 0, .model = "a"}, now);
  scheduler.Check();
  // Another model does not take the place of its number meanwhile.
  scheduler.DescribeModel("b", MiB(10), MiB(1));
  EXPECT_EQ(scheduler.names(), 2u);
  const Consequences effects = scheduler.Apply(RunDone{.gpu = 0, .request = {1, 1}}, now);
  ASSERT_EQ(effects.evictions.size(), 1u);
  EXPECT_EQ(effects.evictions[0].model, "a");
  EXPECT_THAT(scheduler.EvictingOn(0), ElementsAre("a"));
  scheduler.Apply(EvictDone{0, "a", {}}, now);
  EXPECT_EQ(scheduler.names(), 1u);
  scheduler.Check();
}

TEST_F(SchedulerNames, WhatAWorkerReportsHasANumberAsLongAsItIsThere) {
  Ready({{"stranger", MiB(10)}, {"other", MiB(10)}});
  EXPECT_EQ(scheduler.names(), 2u);
  EXPECT_THAT(scheduler.ResidentModels(), ElementsAre("other", "stranger"));
  EXPECT_EQ(scheduler.HolderCount("stranger"), 1u);
  scheduler.Check();
  scheduler.Apply(WorkerLost{0, "killed"}, now);
  EXPECT_EQ(scheduler.names(), 0u);
  EXPECT_EQ(scheduler.FindResident(0, "stranger"), nullptr);
  scheduler.Apply(EvictDone{0, "absent", {}}, now);
  scheduler.Apply(SwapInDone{.gpu = 0, .model = "absent"}, now);
  EXPECT_EQ(scheduler.names(), 0u);
  scheduler.Check();
}

}  // namespace
}  // namespace troupe::node::names_test
