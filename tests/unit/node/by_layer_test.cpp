// Models that pass through a GPU by layer instead of evicting others.
#include "tests/unit/node/scheduler_fixture.hpp"

namespace troupe::node::by_layer_test {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::IsEmpty;

class ByLayer : public SchedulerTest {
 protected:
  explicit ByLayer(bool on = true)
      : SchedulerTest({.by_layer = on ? node::ByLayer::kIdle : node::ByLayer::kOff},
                      *FindSchedulerPolicies(*FindPreset("troupe"))) {
    now = Time(std::chrono::hours(1));
    free = MiB(1);
    Gpus(1, false);
    for (const char* name : {"a", "b", "cold"}) Model(name, 40);
  }
  void Submit(std::uint64_t sequence, const std::string& model) {
    now += milliseconds(1);
    SchedulerTest::Submit(sequence, model);
  }
  Consequences Ran(const Dispatch& dispatch, RunEnd end = RunEnd::kRan) {
    now += milliseconds(1);
    Loaded(dispatch);
    return SchedulerTest::Ran(dispatch, end);
  }
  void Serve(std::uint64_t sequence, const std::string& model) {
    Submit(sequence, model);
    EXPECT_EQ(Ran(Next()).finished.at(0).kind, FinishKind::kServed);
  }
  // Models that are used take 80 of 100 MiB.
  void Fill() {
    Serve(1, "a");
    Serve(2, "b");
  }
};

TEST_F(ByLayer, AModelWithASingleRequestEvictsNoModel) {
  Fill();
  Submit(3, "cold");
  const Dispatch dispatch = Next();
  EXPECT_EQ(dispatch.source, SwapSource::kLayers);
  EXPECT_THAT(dispatch.victims, IsEmpty());
  EXPECT_EQ(scheduler.gpus().at(0).promised, MiB(17));
  EXPECT_EQ(scheduler.FindResident(0, ModelNamed("cold")), nullptr);
  const Consequences effects = Ran(dispatch);
  EXPECT_EQ(effects.finished.at(0).kind, FinishKind::kServed);
  EXPECT_FALSE(effects.finished.at(0).hit);
  EXPECT_EQ(scheduler.gpus().at(0).promised, Bytes());
  EXPECT_EQ(scheduler.gpus().at(0).residents.size(), 2u);
  EXPECT_EQ(scheduler.counts().by_layer, 1u);
  EXPECT_EQ(scheduler.counts().evictions, 0u);
  EXPECT_EQ(scheduler.costs().RunTime("cold"), CostModel(CostDefaults()).RunTime("cold"))
      << "a run by layer teaches nothing about swaps";
}

TEST_F(ByLayer, WhatFitsIsBroughtWhole) {
  Serve(1, "a");
  Submit(2, "cold");
  EXPECT_EQ(Next().source, SwapSource::kHost);
}

TEST_F(ByLayer, AModelThatIsAskedForMoreOftenThanOthersIsBroughtWhole) {
  Fill();
  Serve(3, "cold");
  EXPECT_EQ(scheduler.counts().by_layer, 1u);
  Submit(4, "cold");  // a and b have not been used since the first request for cold
  const Dispatch again = Next();
  EXPECT_EQ(again.source, SwapSource::kHost);
  EXPECT_THAT(again.victims, ElementsAre("a"));
}

TEST_F(ByLayer, AModelThatIsUsedLessThanTheResidentsStaysOut) {
  Fill();
  Serve(3, "cold");
  Serve(4, "a");
  Serve(5, "b");
  Submit(6, "cold");
  EXPECT_EQ(Next().source, SwapSource::kLayers);
}

TEST_F(ByLayer, SeveralThatWaitBringTheirModel) {
  Fill();
  Submit(3, "cold");
  Submit(4, "cold");
  const auto dispatches = scheduler.Decide(now).dispatches;
  ASSERT_FALSE(dispatches.empty());
  EXPECT_EQ(dispatches[0].source, SwapSource::kHost);
}

TEST_F(ByLayer, WithoutRoomForItsWindowItIsBroughtWhole) {
  Fill();
  Submit(3, "cold");
  const Dispatch dispatch = Next();
  EXPECT_THAT(Ran(dispatch, RunEnd::kNoFit).finished, IsEmpty());
  const Dispatch again = Next();
  EXPECT_EQ(again.source, SwapSource::kHost);
  EXPECT_THAT(again.victims, testing::SizeIs(1));
  EXPECT_EQ(Ran(again).finished.at(0).kind, FinishKind::kServed);
}

TEST_F(ByLayer, AWorkerThatDiesInItLosesNoRequest) {
  Fill();
  Submit(3, "cold");
  EXPECT_EQ(Next().source, SwapSource::kLayers);
  scheduler.Apply(WorkerLost{0, "killed"}, now);
  EXPECT_THAT(scheduler.Decide(now).dispatches, IsEmpty());
  Ready(0, false);
  const Dispatch again = Next();
  EXPECT_EQ(again.attempt, 2u);
  EXPECT_EQ(Ran(again).finished.at(0).kind, FinishKind::kServed);
}

TEST_F(ByLayer, NeverForTrials) {
  Fill();
  trial = true;
  Submit(3, "cold");
  EXPECT_EQ(Next().source, SwapSource::kHost);
}

class NotByLayer : public ByLayer {
 protected:
  NotByLayer() : ByLayer(false) {}
};

TEST_F(NotByLayer, IsOffUnlessAskedFor) {
  Fill();
  Submit(3, "cold");
  EXPECT_EQ(Next().source, SwapSource::kHost);
  EXPECT_EQ(SchedulerLimits().by_layer, node::ByLayer::kOff);
}

}  // namespace
}  // namespace troupe::node::by_layer_test
