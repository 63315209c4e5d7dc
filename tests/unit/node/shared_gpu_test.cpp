// Requests of functions that have a part of a GPU: how many of them a GPU is given, and which wait for which.
#include <chrono>
#include <random>

#include "tests/unit/node/scheduler_fixture.hpp"

namespace troupe::node::shared_gpu_test {
namespace {

using std::chrono::milliseconds;

class SharedGpu : public SchedulerTest {
 protected:
  SharedGpu() : SchedulerTest({.concurrency = 1, .swap_ahead = 2}) {  // two places
    Gpus(1);
    Model("m", 10);
    Submit(1, "m");
    Serve(Next());
  }
  void SubmitMany(std::uint64_t first, int count, const std::string& function) {
    for (int i = 0; i < count; ++i) Submit(first + static_cast<std::uint64_t>(i), "m", function);
  }
  // How many of the function's requests are dispatched now.
  std::size_t Dispatched() { return Decide().size(); }
  Consequences Ended(const Dispatch& dispatch, Duration pause) {
    return scheduler.Apply(
        RunDone{.gpu = dispatch.gpu, .request = dispatch.request, .took = milliseconds(1), .pause = pause},
        now);
  }
};

TEST_F(SharedGpu, RunsAreCountedByTheirPartOfTheSms) {
  SubmitMany(10, 30, "whole");
  EXPECT_EQ(Dispatched(), 2u);
}

TEST_F(SharedGpu, RunsOnASmallPartFindPlacesByWhatTheyTake) {
  sm_percent = 12;
  SubmitMany(10, 30, "small");
  EXPECT_EQ(Dispatched(), 17u)
      << "sixteen take 192 percent of the SMs, and the next finds less than two taken";
  scheduler.Check();
}

// It is not known how many of them there is memory for.
TEST_F(SharedGpu, RunsOnASmallPartTakeWholePlacesUntilTheirModelIsPrepared) {
  scheduler.DescribeModel(ModelNamed("m"), MiB(10), std::nullopt);
  sm_percent = 12;
  SubmitMany(10, 30, "small");
  const auto first = Decide();
  ASSERT_EQ(first.size(), 2u);
  Model("m", 10);
  EXPECT_EQ(Dispatched(), 0u) << "what was dispatched before keeps the place that it took";
  for (const Dispatch& dispatch : first) Ended(dispatch, {});
  EXPECT_EQ(Dispatched(), 17u);
  scheduler.Check();
}

TEST_F(SharedGpu, AFunctionWithFewInstancesLeavesPlacesToOthersOfItsModel) {
  sm_percent = 12;
  most_on_gpu = 3;
  SubmitMany(10, 20, "few");
  EXPECT_EQ(Dispatched(), 3u);
  most_on_gpu = 0;
  SubmitMany(40, 5, "other");
  const auto others = Decide();
  ASSERT_EQ(others.size(), 5u);
  for (const Dispatch& dispatch : others) EXPECT_GE(dispatch.request.sequence, 40u);
  scheduler.Check();
}

// Each run takes a MiB beside the ten of the weights.
TEST_F(SharedGpu, AGpuIsGivenTheRunsForWhichTheFunctionHasMemoryAndOneMore) {
  sm_percent = 12;
  gpu_mem = MiB(13);
  SubmitMany(10, 20, "bounded");
  const auto first = Decide();
  ASSERT_EQ(first.size(), 4u);
  Ended(first[0], {});
  EXPECT_EQ(Dispatched(), 1u);
  gpu_mem = {};
  SubmitMany(40, 5, "other");
  EXPECT_EQ(Dispatched(), 5u) << "the first function's runs wait, and keep no places of others";
  scheduler.Check();
}

// The worker refuses such a run by name: it says what would help.
TEST_F(SharedGpu, RunsOfAFunctionWithoutMemoryForOneAreDispatchedAllTheSame) {
  sm_percent = 12;
  gpu_mem = MiB(5);
  SubmitMany(10, 20, "none");
  EXPECT_EQ(Dispatched(), 2u);
  scheduler.Check();
}

TEST_F(SharedGpu, AFunctionWhoseWindowIsUsedUpWaitsUntilTheNextOneAndOthersPass) {
  most_on_gpu = 2;
  SubmitMany(10, 4, "quota");
  const auto first = Decide();
  ASSERT_EQ(first.size(), 2u);
  for (const Dispatch& dispatch : first) Ended(dispatch, milliseconds(300));
  EXPECT_EQ(Dispatched(), 0u);
  EXPECT_EQ(scheduler.NextDue(), now + milliseconds(300));
  most_on_gpu = 0;
  Submit(40, "m", "other");
  const auto other = Decide();
  ASSERT_EQ(other.size(), 1u);
  EXPECT_EQ(other[0].request.sequence, 40u);
  Ended(other[0], {});
  now += milliseconds(299);
  EXPECT_EQ(Dispatched(), 0u);
  now += milliseconds(1);
  EXPECT_EQ(Dispatched(), 2u);
  scheduler.Check();
}

// A function without a quota cannot fill the places of those that have one, nor the other way round.
TEST_F(SharedGpu, AFunctionWithAQuotaHasPlacesOfItsOwn) {
  SubmitMany(10, 20, "noisy");
  EXPECT_EQ(Dispatched(), 2u);
  most_on_gpu = 2;
  own_places = true;
  SubmitMany(40, 5, "quota");
  const auto first = Decide();
  ASSERT_EQ(first.size(), 2u);
  for (const Dispatch& dispatch : first) EXPECT_GE(dispatch.request.sequence, 40u);
  EXPECT_EQ(Dispatched(), 0u);
  Ended(first[0], {});
  const auto next = Decide();
  ASSERT_EQ(next.size(), 1u);
  EXPECT_GE(next[0].request.sequence, 40u) << "the others' places are taken still";
  scheduler.Check();
}

// Each function's clients send a request for each answer. A worker prefers runs of the function with a quota, and that has
// one run there while another one computes.
TEST_F(SharedGpu, AFunctionWithAQuotaIsNotHeldUpByOthersOfItsModel) {
  std::uint64_t next = 100;
  std::vector<Dispatch> at_worker;
  std::set<std::uint64_t> quotas;
  const auto ask = [&](bool quota) {
    own_places = quota;
    most_on_gpu = quota ? 2 : 0;
    sm_percent = quota ? 24 : 100;
    if (quota) quotas.insert(next);
    Submit(next++, "m", quota ? "quota" : "noisy");
  };
  for (int i = 0; i < 16; ++i) ask(false);
  for (int i = 0; i < 4; ++i) ask(true);
  int served = 0;
  for (int run = 0; run < 60; ++run) {
    for (const Dispatch& dispatch : Decide()) at_worker.push_back(dispatch);
    ASSERT_FALSE(at_worker.empty());
    auto first = std::ranges::find_if(
        at_worker, [&](const Dispatch& one) { return quotas.contains(one.request.sequence); });
    if (first == at_worker.end()) first = at_worker.begin();
    const Dispatch ended = *first;
    at_worker.erase(first);
    now += milliseconds(1);
    Ended(ended, {});
    const bool quota = quotas.contains(ended.request.sequence);
    served += quota ? 1 : 0;
    ask(quota);
  }
  EXPECT_GE(served, 58) << "there is always a run of it";
}

// It is not known how many of its runs there is memory for.
TEST_F(SharedGpu, AFunctionWithAQuotaHasNoPlacesOfItsOwnBeforeItsModelIsPrepared) {
  SubmitMany(10, 20, "noisy");
  EXPECT_EQ(Dispatched(), 2u);
  scheduler.DescribeModel(ModelNamed("m"), MiB(10), std::nullopt);
  most_on_gpu = 2;
  own_places = true;
  SubmitMany(40, 5, "quota");
  EXPECT_EQ(Dispatched(), 0u);
  Model("m", 10);
  EXPECT_EQ(Dispatched(), 2u);
  scheduler.Check();
}

TEST_F(SharedGpu, WhatWaitsForItsFunctionHoldsNoGpuFromOthers) {
  most_on_gpu = 1;
  SubmitMany(10, 2, "few");
  const auto held = Decide();
  ASSERT_EQ(held.size(), 1u);
  most_on_gpu = 0;
  // Far more requests than may pass one that waits for a place.
  for (std::uint64_t i = 0; i < 60; ++i) {
    Submit(100 + i, "m", "other");
    const auto other = Decide();
    ASSERT_EQ(other.size(), 1u) << i;
    Ended(other[0], {});
  }
  Ended(held[0], {});
  EXPECT_EQ(Dispatched(), 1u);
}

TEST_F(SharedGpu, AWorkerThatIsLostTakesNoPlacesWithIt) {
  sm_percent = 30;
  most_on_gpu = 3;
  SubmitMany(10, 8, "f");
  EXPECT_EQ(Dispatched(), 3u);
  scheduler.Apply(WorkerLost{0, "killed"}, now);
  scheduler.Check();
  Ready(0);
  EXPECT_EQ(Dispatched(), 1u) << "a request that lost its worker runs alone";
  scheduler.Check();
}

// Its function has used up its time on the GPU that has the model, and not on the other one.
class Paused : public SchedulerTest {
 protected:
  explicit Paused(const char* topology = "none")
      : SchedulerTest({.concurrency = 1}, *FindSchedulerPolicies(PolicyNames()), topology) {
    Gpus(2, false);
    Model("m", 10);
  }
  // A run there is the last for so long.
  void Pause(Duration pause) {
    Submit(1, "m");
    const Dispatch first = Next();
    gpu_ = first.gpu;
    scheduler.Apply(SwapInDone{.gpu = gpu_, .model = first.model, .status = {}, .took = milliseconds(100)},
                    now);
    scheduler.Apply(RunDone{.gpu = gpu_, .request = first.request, .took = milliseconds(1), .pause = pause},
                    now);
  }
  GpuIndex gpu_ = 0;
};

TEST_F(Paused, ALongPauseCostsMoreThanToBringTheModelToAnotherGpu) {
  Pause(milliseconds(500));
  Submit(2, "m");
  EXPECT_NE(Next().gpu, gpu_);
}

// Nothing ends there, so no event comes: what the other GPU costs changes with time alone.
TEST_F(Paused, ARequestThatWaitsForAShortPauseIsLookedAtAgainSoon) {
  Pause(milliseconds(50));
  Submit(2, "m");
  EXPECT_EQ(Decide().size(), 0u);
  EXPECT_LE(scheduler.NextDue(), now + milliseconds(10));
  now += milliseconds(50);
  EXPECT_EQ(Next().gpu, gpu_);
}

// Where copies between GPUs are possible, the price of one changes, too.
struct Linked : Paused {
  Linked() : Paused("link:0-1=25GB") {}
};

TEST_F(Linked, ARequestThatWaitsForARunIsLookedAtAgainWhenThatShouldHaveEnded) {
  Pause({});
  Submit(2, "m");
  const Dispatch run = Next();
  EXPECT_EQ(run.gpu, gpu_);
  Submit(3, "m");
  Submit(4, "m");
  EXPECT_EQ(Decide().size(), 1u) << "a place behind the run";
  EXPECT_EQ(scheduler.NextDue(), now + milliseconds(10));
  now += milliseconds(10);
  EXPECT_EQ(Decide().size(), 0u);
  EXPECT_EQ(scheduler.NextDue(), now + milliseconds(10)) << "the run takes longer than expected";
}

// Whatever comes, ends, pauses and dies: places come back, and each request is served in the end.
TEST_F(SharedGpu, EveryRequestIsServedInTheEnd) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<Dispatch> running;
    std::uint64_t submitted = 1000 * seed;
    std::size_t served = 0;
    const std::uint64_t until = submitted + 60;
    while (submitted < until || !running.empty() || scheduler.waiting() > 0) {
      if (submitted < until && random() % 2 == 0) {
        const auto function = random() % 4;
        sm_percent = static_cast<std::uint32_t>(1 + 25 * function);
        most_on_gpu = static_cast<std::uint32_t>(function);
        own_places = function == 2;
        Submit(submitted++, "m", "f" + std::to_string(function));
      }
      for (Dispatch& dispatch : Decide()) running.push_back(std::move(dispatch));
      scheduler.Check();
      if (!running.empty() && random() % 3 != 0) {
        const std::size_t at = random() % running.size();
        Ended(running[at], random() % 4 == 0 ? milliseconds(random() % 50 + 1) : Duration(0));
        running.erase(running.begin() + static_cast<std::ptrdiff_t>(at));
        ++served;
      }
      now += milliseconds(random() % 20);
    }
    EXPECT_EQ(served, 60u) << "seed " << seed;
  }
}

}  // namespace
}  // namespace troupe::node::shared_gpu_test
