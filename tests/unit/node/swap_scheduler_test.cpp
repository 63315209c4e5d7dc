#include "node/scheduling/swap_scheduler.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/node/numbered.hpp"

namespace troupe::node::swap_scheduler_test {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;

Time At(int ms) {
  return Time(milliseconds(ms));
}

class SwapSchedulerTest : public testing::Test {
 protected:
  explicit SwapSchedulerTest(SchedulerLimits limits = {}) : scheduler(limits, *FindSchedulerPolicies({})) {}

  void Gpus(int count, Bytes memory = MiB(100)) {
    for (int gpu = 0; gpu < count; ++gpu) {
      scheduler.AddGpu(static_cast<GpuIndex>(gpu), memory);
      Ready(static_cast<GpuIndex>(gpu), memory);
    }
  }
  void Ready(GpuIndex gpu, Bytes memory = MiB(100)) {
    scheduler.Apply(WorkerReady{.gpu = gpu, .memory = memory, .free = memory}, now);
  }
  Submitted Submit(std::uint64_t sequence, const std::string& model, std::uint32_t priority = 0) {
    NodeRequest request;
    request.id = {1, sequence};
    request.function = FunctionNamed("f-" + model);
    request.model = ModelNamed(model);
    request.priority = priority;
    request.expiry = expiry;
    return scheduler.Submit(request, now);
  }
  // Decides; one dispatch is expected.
  Dispatch Next() {
    const auto dispatches = scheduler.Decide(now).dispatches;
    EXPECT_EQ(dispatches.size(), 1u);
    return dispatches.empty() ? Dispatch{} : dispatches[0];
  }
  Consequences Done(const Dispatch& dispatch, absl::Status status = absl::OkStatus()) {
    for (const auto& victim : dispatch.victims)
      scheduler.Apply(EvictDone{dispatch.gpu, victim, absl::OkStatus()}, now);
    if (dispatch.source == SwapSource::kHost)
      scheduler.Apply(SwapInDone{.gpu = dispatch.gpu, .model = dispatch.model}, now);
    return scheduler.Apply(
        RunDone{.gpu = dispatch.gpu, .request = dispatch.request, .status = status, .took = milliseconds(1)},
        now);
  }
  Consequences NoFit(const Dispatch& dispatch, Bytes free, Bytes largest) {
    for (const auto& victim : dispatch.victims)
      scheduler.Apply(EvictDone{dispatch.gpu, victim, absl::OkStatus()}, now);
    return scheduler.Apply(RunDone{.gpu = dispatch.gpu,
                                   .request = dispatch.request,
                                   .end = RunEnd::kNoFit,
                                   .free = free,
                                   .largest = largest},
                           now);
  }
  void Model(const std::string& name, Bytes weights, Bytes activation = MiB(1)) {
    scheduler.DescribeModel(ModelNamed(name), weights, activation);
  }

  SwapScheduler scheduler;
  Time now{};
  Time expiry = Time::max();
};

TEST_F(SwapSchedulerTest, OneDecisionGivesGpuSourceAndVictims) {
  Gpus(1);
  Model("a", MiB(60));
  Model("b", MiB(30));
  Model("c", MiB(50));
  ASSERT_TRUE(Submit(1, "a").accepted);
  Dispatch first = Next();
  EXPECT_EQ(first.source, SwapSource::kHost);
  EXPECT_TRUE(first.victims.empty());
  EXPECT_FALSE(Done(first).finished[0].hit);
  now = At(1);
  Submit(2, "b");
  Done(Next());
  now = At(2);
  Submit(3, "a");
  const Dispatch hit = Next();
  EXPECT_EQ(hit.source, SwapSource::kResident);
  const Consequences effects = Done(hit);
  ASSERT_EQ(effects.finished.size(), 1u);
  EXPECT_EQ(effects.finished[0].kind, FinishKind::kServed);
  EXPECT_TRUE(effects.finished[0].hit);
  now = At(3);
  Submit(4, "c");  // b is the least recently used, and too small; a alone suffices, so only a goes
  const Dispatch swap = Next();
  EXPECT_EQ(swap.source, SwapSource::kHost);
  EXPECT_THAT(swap.victims, ElementsAre("a"));
  scheduler.Check();
}

TEST_F(SwapSchedulerTest, ARequestPrefersItsResidentThenTheEmptiestGpu) {
  Gpus(2);
  Model("a", MiB(40));
  Model("b", MiB(20));
  Submit(1, "a");
  Done(Next());  // this run was on GPU 0
  Submit(2, "b");
  const Dispatch other = Next();
  EXPECT_EQ(other.gpu, 1u);
  Done(other);
  Submit(3, "a");
  EXPECT_EQ(Next().gpu, 0u);
  Submit(4, "b");
  EXPECT_EQ(Next().gpu, 1u);
}

// A new daemon adopts a worker first and learns of its models one by one.
TEST_F(SwapSchedulerTest, AModelThatAnAdoptedWorkerHeldAllAlongIsNotLoadedAgain) {
  scheduler.AddGpu(0, MiB(100));
  scheduler.Apply(WorkerReady{.gpu = 0, .memory = MiB(100), .free = MiB(30)}, now);
  scheduler.FoundResident(0, {ModelNamed("a"), MiB(60)}, now);
  Model("a", MiB(60));
  Submit(1, "a");
  const Dispatch hit = Next();
  EXPECT_NE(hit.source, SwapSource::kHost);
  Done(hit);
  // Memory in which no model was found stays out of reach; the models that were found can be evicted.
  Model("b", MiB(90));
  EXPECT_EQ(scheduler.gpus().at(0).overhead, MiB(10));
  Submit(2, "b");
  EXPECT_THAT(Next().victims, ElementsAre("a"));
}

TEST_F(SwapSchedulerTest, AResidentThatDoesNotAddUpIsIgnored) {
  scheduler.AddGpu(0, MiB(100));
  scheduler.FoundResident(0, {ModelNamed("a"), MiB(60)}, now);  // the GPU has no worker
  scheduler.Apply(WorkerReady{.gpu = 0, .memory = MiB(100), .free = MiB(100)}, now);
  scheduler.FoundResident(0, {ModelNamed("b"), MiB(101)}, now);
  EXPECT_EQ(scheduler.gpus().at(0).Free(), MiB(100));
}

TEST_F(SwapSchedulerTest, ALoadingModelIsWaitedForWhenThatIsSooner) {
  Gpus(2);
  Model("a", MiB(90));  // 15 ms to load, a run of 10 ms is assumed
  Submit(1, "a");
  EXPECT_EQ(Next().gpu, 0u);
  Submit(2, "a");
  const Dispatch second = Next();  // the other GPU would be done loading before the first is done here
  EXPECT_EQ(second.gpu, 1u);
  EXPECT_EQ(second.source, SwapSource::kHost);
  Submit(3, "a");
  EXPECT_EQ(Next().source, SwapSource::kResident);
  Submit(4, "a");
  EXPECT_EQ(Next().source, SwapSource::kResident);
  Submit(5, "a");
  EXPECT_TRUE(scheduler.Decide(now).dispatches.empty());  // both pipelines are full
  scheduler.Check();
}

TEST_F(SwapSchedulerTest, WaitsForABusyHolderRatherThanLoading) {
  Gpus(2);
  Model("a", MiB(98));
  Model("b", MiB(1));
  scheduler.Apply(SwapInDone{.gpu = 0, .model = ModelNamed("none")}, now);  // unknown: ignored
  for (std::uint64_t i = 1; i <= 5; ++i) {                                  // runs take 1 ms, as seen
    Submit(i, "b");
    Done(Next());
  }
  Submit(10, "a");
  const Dispatch first = Next();
  Done(first);
  // Two runs of `a` fill the pipeline; a third request is served sooner there than after another load of 16
  // ms.
  for (int i = 0; i < 10; ++i) {
    Submit(static_cast<std::uint64_t>(20 + i), "a");
    Done(Next());
  }
  Submit(40, "a");
  Submit(41, "a");
  EXPECT_EQ(scheduler.Decide(now).dispatches.size(), 2u);
  Submit(42, "a");
  EXPECT_TRUE(scheduler.Decide(now).dispatches.empty());
  EXPECT_EQ(scheduler.waiting(), 1u);
}

TEST_F(SwapSchedulerTest, PriorityThenDeadlineThenArrival) {
  Gpus(1);
  Model("a", MiB(10));
  Model("b", MiB(10));
  Submit(1, "a");
  Submit(2, "a");
  const auto running = scheduler.Decide(now).dispatches;
  ASSERT_EQ(running.size(), 2u);
  Submit(3, "a");
  Submit(4, "b", 1);
  Done(running[0]);
  // The prefetched model comes while `a` runs, and takes no place from it.
  const auto next = scheduler.Decide(now).dispatches;
  ASSERT_EQ(next.size(), 2u);
  EXPECT_EQ(next[0].request.sequence, 4u);
  EXPECT_EQ(next[1].request.sequence, 3u);
}

TEST_F(SwapSchedulerTest, RequestsThatAreRefused) {
  struct Case {
    const char* what;
    FinishKind kind;
    proto::BounceReason bounce;
    const char* says;
  };
  Gpus(1);
  Model("a", MiB(10));
  Model("huge", MiB(100));
  const auto expect = [&](const Submitted& submitted, const Case& c) {
    EXPECT_FALSE(submitted.accepted) << c.what;
    EXPECT_EQ(submitted.finished.kind, c.kind) << c.what;
    EXPECT_EQ(submitted.finished.bounce, c.bounce) << c.what;
    EXPECT_THAT(std::string(submitted.finished.status.message()), HasSubstr(c.says));
  };
  expect(Submit(1, "x"), {"unknown", FinishKind::kBounced, proto::BOUNCE_NOT_ADOPTED, "f-x"});
  expect(Submit(1, "huge"), {"too large", FinishKind::kFailed, proto::BOUNCE_UNSPECIFIED, "needs 101 MiB"});
  ASSERT_TRUE(Submit(1, "a").accepted);
  expect(Submit(1, "a"), {"twice", FinishKind::kFailed, proto::BOUNCE_UNSPECIFIED, "number them anew"});
  expiry = now;
  expect(Submit(2, "a"), {"late", FinishKind::kExpired, proto::BOUNCE_UNSPECIFIED, "timeout"});
  expiry = Time::max();
  scheduler.SetDraining(true);
  expect(Submit(3, "a"), {"draining", FinishKind::kBounced, proto::BOUNCE_DRAINING, "draining"});
  scheduler.SetDraining(false);
  const Consequences effects = scheduler.Apply(GpuUnfit{0, "fell off the bus"}, now);
  ASSERT_EQ(effects.finished.size(), 1u);
  EXPECT_EQ(effects.finished[0].bounce, proto::BOUNCE_NO_GPU);
  expect(Submit(4, "a"), {"no gpu", FinishKind::kBounced, proto::BOUNCE_NO_GPU, "fit"});
}

TEST_F(SwapSchedulerTest, ARequestThatKillsThreeWorkersIsGivenUpAndItsNeighbourIsServed) {
  Gpus(1);
  Model("poison", MiB(10));
  Model("good", MiB(10));
  Submit(1, "poison");
  Submit(2, "good");
  ASSERT_EQ(scheduler.Decide(now).dispatches.size(), 2u);
  std::vector<std::uint64_t> served;
  std::vector<Finished> failed;
  for (int life = 0; life < 10 && failed.empty(); ++life) {
    for (const Finished& finished : scheduler.Apply(WorkerLost{0, "killed by signal 11"}, now).finished)
      failed.push_back(finished);
    Ready(0);
    for (int step = 0; step < 2; ++step) {
      const auto dispatches = scheduler.Decide(now).dispatches;
      if (dispatches.empty()) break;
      ASSERT_EQ(dispatches.size(), 1u);  // each request runs alone
      if (dispatches[0].model == "poison") break;
      served.push_back(Done(dispatches[0]).finished[0].id.sequence);
    }
  }
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_EQ(failed[0].id.sequence, 1u);
  EXPECT_EQ(failed[0].attempts, 3u);
  EXPECT_EQ(failed[0].status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(failed[0].status.message()),
              testing::AllOf(HasSubstr("f-poison"), HasSubstr("signal 11")));
  if (served.empty()) served.push_back(Done(Next()).finished[0].id.sequence);
  EXPECT_THAT(served, ElementsAre(2));
  scheduler.Check();
}

TEST_F(SwapSchedulerTest, AfterADeathTheOtherGpuTakesOver) {
  Gpus(2);
  Model("a", MiB(10));
  Submit(1, "a");
  const Dispatch first = Next();
  EXPECT_TRUE(scheduler.Apply(WorkerLost{first.gpu, "killed"}, now).finished.empty());
  const Dispatch second = Next();
  EXPECT_NE(second.gpu, first.gpu);
  EXPECT_EQ(second.attempt, 2u);
  // The late outcomes of the dead worker change nothing.
  EXPECT_TRUE(scheduler.Apply(RunDone{.gpu = first.gpu, .request = first.request}, now).finished.empty());
  EXPECT_EQ(Done(second).finished[0].attempts, 2u);
  EXPECT_EQ(scheduler.counts().retried, 1u);
}

TEST_F(SwapSchedulerTest, NoFitIsPlannedAgainWithMoreRoom) {
  Gpus(1);
  Model("a", MiB(30));
  Model("b", MiB(30));
  Model("c", MiB(30));
  Submit(1, "a");
  Done(Next());
  now = At(1);
  Submit(2, "b");
  Done(Next());
  now = At(2);
  Submit(3, "c");  // by the plan model c fits
  const Dispatch first = Next();
  EXPECT_TRUE(first.victims.empty());
  EXPECT_TRUE(NoFit(first, MiB(39), MiB(20)).finished.empty());  // the device's free memory is fragmented
  const Dispatch second = Next();
  EXPECT_THAT(second.victims, ElementsAre("a"));
  EXPECT_EQ(second.attempt, 1u);  // no worker was lost
  EXPECT_EQ(Done(second).finished[0].kind, FinishKind::kServed);
  EXPECT_EQ(scheduler.counts().no_fits, 1u);
  scheduler.Check();
}

// The worker that runs the model reports that it does not have it: a second order would be answered the same.
TEST_F(SwapSchedulerTest, AModelThatIsMissingIsNotAskedForThereAgain) {
  Gpus(1);
  Model("a", MiB(40));
  Submit(1, "a");
  const Dispatch first = Next();
  scheduler.Apply(SwapInDone{.gpu = 0, .model = ModelNamed("a")}, now);
  Submit(2, "a");
  EXPECT_EQ(Next().source, SwapSource::kResident);
  scheduler.Apply(RunDone{.gpu = 0, .request = {1, 2}, .end = RunEnd::kNotResident}, now);
  scheduler.Check();
  EXPECT_TRUE(scheduler.Decide(now).dispatches.empty()) << "there is no other GPU, and the first run goes on";
  scheduler.Apply(RunDone{.gpu = 0, .request = first.request}, now);
  scheduler.Check();
  const Dispatch again = Next();
  EXPECT_EQ(again.request.sequence, 2u);
  EXPECT_EQ(again.source, SwapSource::kHost);
}

TEST_F(SwapSchedulerTest, WhatDoesNotFitIntoAnEmptyGpuFailsWithTheSizes) {
  Gpus(1);
  Model("a", MiB(90));
  Submit(1, "a");
  const Dispatch dispatch = Next();
  Submit(2, "a");
  ASSERT_EQ(scheduler.Decide(now).dispatches.size(), 1u);  // the request stands behind the load
  Consequences effects = NoFit(dispatch, MiB(50), MiB(50));
  EXPECT_TRUE(effects.finished.empty());  // the other GPU is still there
  effects = scheduler.Apply(RunDone{.gpu = 0, .request = {1, 2}, .end = RunEnd::kNotResident}, now);
  EXPECT_TRUE(effects.finished.empty());
  std::vector<Finished> finished;
  for (int i = 0; i < 10 && finished.size() < 2; ++i) {
    for (const Dispatch& again : scheduler.Decide(now).dispatches) {
      for (const Finished& f : NoFit(again, MiB(50), MiB(50)).finished) finished.push_back(f);
    }
  }
  ASSERT_EQ(finished.size(), 2u);
  for (const Finished& f : finished) EXPECT_EQ(f.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(Submit(3, "a").accepted);
  Ready(0);  // a new worker may have more room
  EXPECT_TRUE(Submit(4, "a").accepted);
  scheduler.Check();
}

TEST_F(SwapSchedulerTest, TimeoutsAndCancellations) {
  Gpus(1);
  Model("a", MiB(10));
  expiry = At(10);
  Submit(1, "a");
  Submit(2, "a");
  Submit(3, "a");
  Submit(4, "a");
  const auto running = scheduler.Decide(now).dispatches;
  ASSERT_EQ(running.size(), 2u);
  EXPECT_EQ(running[0].expiry, At(10));
  const Cancelled waiting = scheduler.Cancel({1, 3});
  EXPECT_EQ(waiting.verdict, CancelVerdict::kCancelled);
  EXPECT_EQ(scheduler.Cancel({1, 3}).verdict, CancelVerdict::kUnknown);
  EXPECT_EQ(scheduler.Cancel({1, 1}).verdict, CancelVerdict::kInFlight);
  EXPECT_EQ(scheduler.NextDue(), At(10));
  now = At(10);
  const Consequences effects = scheduler.Expire(now);
  ASSERT_EQ(effects.finished.size(), 1u);
  EXPECT_EQ(effects.finished[0].id.sequence, 4u);
  EXPECT_EQ(effects.finished[0].kind, FinishKind::kExpired);
  EXPECT_EQ(effects.cancel.size(), 2u);
  EXPECT_TRUE(scheduler.Expire(now).cancel.empty());  // the request is named only once
  EXPECT_EQ(Done(running[0], absl::CancelledError("")).finished[0].kind, FinishKind::kCancelled);
  EXPECT_EQ(Done(running[1], absl::CancelledError("")).finished[0].kind, FinishKind::kExpired);
  EXPECT_EQ(scheduler.NextDue(), Time::max());
  scheduler.Check();
}

TEST_F(SwapSchedulerTest, AForgottenModelAndAForgottenRouter) {
  Gpus(1);
  Model("a", MiB(10));
  Model("b", MiB(10));
  Submit(1, "a");
  Done(Next());
  Submit(2, "b");
  Submit(3, "b");
  ASSERT_EQ(scheduler.Decide(now).dispatches.size(), 2u);
  Submit(4, "a");
  const Consequences effects = scheduler.ForgetModel(ModelNamed("a"));
  ASSERT_EQ(effects.finished.size(), 1u);
  EXPECT_EQ(effects.finished[0].bounce, proto::BOUNCE_NOT_ADOPTED);
  ASSERT_EQ(effects.evictions.size(), 1u);
  EXPECT_EQ(effects.evictions[0].model, "a");
  scheduler.Apply(EvictDone{0, ModelNamed("a"), absl::OkStatus()}, now);
  Submit(5, "b");
  const Consequences gone = scheduler.ForgetRouter(1);
  EXPECT_EQ(gone.finished.size(), 1u);
  EXPECT_EQ(gone.cancel.size(), 2u);
  scheduler.Check();
}

TEST_F(SwapSchedulerTest, AModelForgottenInUseGoesWhenItsUseEnds) {
  Gpus(1);
  Model("a", MiB(10));
  Submit(1, "a");
  const Dispatch running = Next();
  EXPECT_TRUE(scheduler.ForgetModel(ModelNamed("a")).evictions.empty());
  const Consequences ended = Done(running);
  ASSERT_EQ(ended.evictions.size(), 1u);
  EXPECT_EQ(ended.evictions[0].model, "a");
  scheduler.Apply(EvictDone{0, ModelNamed("a"), absl::OkStatus()}, now);
  EXPECT_EQ(scheduler.gpus().at(0).Free(), MiB(100));
  scheduler.Check();
}

TEST_F(SwapSchedulerTest, AModelForgottenBeforeItsRunIsOrderedGoes) {
  Gpus(1);
  Model("a", MiB(10));
  Submit(1, "a");
  Done(Next());
  Submit(2, "a");
  const Dispatch held_back = Next();
  EXPECT_TRUE(scheduler.ForgetModel(ModelNamed("a")).evictions.empty()) << "a run is to use it";
  const Consequences ended = scheduler.Apply(RunDone{.gpu = 0,
                                                     .request = held_back.request,
                                                     .end = RunEnd::kNotOrdered,
                                                     .status = absl::NotFoundError("removed")},
                                             now);
  EXPECT_EQ(ended.finished.size(), 1u);
  ASSERT_EQ(ended.evictions.size(), 1u) << "it is still on the GPU, and takes memory there";
  EXPECT_EQ(ended.evictions[0].model, "a");
  scheduler.Check();
}

TEST_F(SwapSchedulerTest, AModelForgottenOnItsWayGoesWhenItArrives) {
  Gpus(1);
  Model("a", MiB(10));
  Submit(1, "a");
  const Dispatch dispatch = Next();
  scheduler.ForgetModel(ModelNamed("a"));
  ASSERT_EQ(scheduler.Cancel(dispatch.request).verdict, CancelVerdict::kInFlight);
  const Consequences cancelled = scheduler.Apply(
      RunDone{.gpu = 0, .request = dispatch.request, .status = absl::CancelledError("cancelled")}, now);
  EXPECT_TRUE(cancelled.evictions.empty()) << "the model is still on its way";
  const Consequences arrived = scheduler.Apply(SwapInDone{.gpu = 0, .model = ModelNamed("a")}, now);
  ASSERT_EQ(arrived.evictions.size(), 1u);
  EXPECT_EQ(arrived.evictions[0].model, "a");
  scheduler.Check();
}

TEST_F(SwapSchedulerTest, ARequestThatIsTooLargeEndsAloneAndItsFunctionGoesOn) {
  Gpus(1);
  Model("a", MiB(60));
  Submit(1, "a");
  Done(Next());
  Submit(2, "a");
  const Consequences refused = NoFit(Next(), MiB(40), MiB(40));
  ASSERT_EQ(refused.finished.size(), 1u);
  EXPECT_EQ(refused.finished[0].status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.finished[0].status.message()), HasSubstr("smaller batch"));
  EXPECT_TRUE(Submit(3, "a").accepted);
  Done(Next());
  EXPECT_EQ(scheduler.counts().served, 2u);
  scheduler.Check();
}

class SmallPatience : public SwapSchedulerTest {
 protected:
  SmallPatience() : SwapSchedulerTest({.max_passed = 3}) {}
};

TEST_F(SmallPatience, ALargeModelIsNotPassedForEver) {
  Gpus(1);
  Model("small", MiB(50));
  Model("large", MiB(95));
  Submit(1, "small");
  Submit(2, "small");
  auto running = scheduler.Decide(now).dispatches;
  ASSERT_EQ(running.size(), 2u);
  Submit(3, "large");
  std::uint64_t next = 10;
  bool ran = false;
  for (int i = 0; i < 20 && !ran; ++i) {
    Submit(next++, "small");
    const Dispatch done = running.front();
    running.erase(running.begin());
    Done(done);
    for (const Dispatch& dispatch : scheduler.Decide(now).dispatches) {
      ran = ran || dispatch.model == "large";
      running.push_back(dispatch);
    }
    scheduler.Check();
    if (running.empty()) break;
  }
  EXPECT_TRUE(ran);
}

}  // namespace
}  // namespace troupe::node::swap_scheduler_test
