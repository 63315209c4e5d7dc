// Functions that own parts of GPUs: where their models stay, and where their requests run.
#include <gmock/gmock.h>

#include <chrono>
#include <map>
#include <random>
#include <set>

#include "tests/unit/node/scheduler_fixture.hpp"

namespace troupe::node::owned_gpus_test {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Three GPUs of 100 MiB.
class Owned : public SchedulerTest {
 protected:
  Owned() : SchedulerTest({.concurrency = 1, .swap_ahead = 2}) { Gpus(3); }
  void Own(const std::string& function, const std::string& model, std::uint32_t device,
           std::uint64_t instances = 1) {
    scheduler.SetOwned(FunctionNamed(function),
                       {{ModelNamed(model), device, static_cast<std::uint32_t>(instances)}});
  }
  // The prefetches of the next decision have come.
  std::vector<GpuIndex> Brought() {
    prefetches.clear();
    EXPECT_THAT(Decide(), IsEmpty());
    std::vector<GpuIndex> gpus;
    for (const Dispatch& prefetch : prefetches) {
      gpus.push_back(prefetch.gpu);
      Loaded(prefetch);
    }
    scheduler.Check();
    return gpus;
  }
};

TEST_F(Owned, TheModelComesBeforeItsRequestsAndTheyRunThere) {
  Model("m", 10);
  Own("f", "m", 2);
  EXPECT_THAT(Brought(), ElementsAre(2U));
  EXPECT_THAT(Brought(), IsEmpty());
  for (std::uint64_t i = 1; i <= 10; ++i) Submit(i, "m", "f");
  const auto dispatches = Decide();
  ASSERT_EQ(dispatches.size(), 2U) << "one computes, and one more is there";
  for (const auto& dispatch : dispatches) EXPECT_EQ(dispatch.gpu, 2U);
  EXPECT_THAT(Decide(), IsEmpty()) << "the other GPUs are idle, and not its own";
  Ran(dispatches[0]);
  EXPECT_EQ(Next().gpu, 2U);
}

TEST_F(Owned, EachGpuHasAsManyRunsAsTheFunctionHasInstancesThereAndOneMore) {
  Model("m", 10);
  sm_percent = 12;
  most_on_gpu = 2;
  own_places = true;
  scheduler.SetOwned(FunctionNamed("f"), {{ModelNamed("m"), 0, 3}, {ModelNamed("m"), 1, 1}});
  EXPECT_EQ(Brought().size(), 2U);
  for (std::uint64_t i = 1; i <= 20; ++i) Submit(i, "m", "f");
  std::map<GpuIndex, int> on;
  for (const auto& dispatch : Decide()) ++on[dispatch.gpu];
  EXPECT_EQ(on, (std::map<GpuIndex, int>{{0, 4}, {1, 2}}));
}

TEST_F(Owned, ModelsComeInTheOrderOfTheirGpus) {
  for (const char* model : {"a", "b", "c"}) Model(model, 10);
  Own("f-c", "c", 0);
  Own("f-b", "b", 2);
  Own("f-a", "a", 2);
  Decide();
  std::vector<std::pair<GpuIndex, ModelNumber>> came;
  for (const Dispatch& prefetch : prefetches) came.emplace_back(prefetch.gpu, prefetch.model);
  EXPECT_THAT(came,
              ElementsAre(std::pair(GpuIndex{0}, ModelNamed("c")), std::pair(GpuIndex{2}, ModelNamed("a")),
                          std::pair(GpuIndex{2}, ModelNamed("b"))));
}

TEST_F(Owned, OtherFunctionsOfTheModelAreBoundLate) {
  Model("m", 10);
  Own("f", "m", 2);
  Brought();
  for (std::uint64_t i = 1; i <= 9; ++i) Submit(i, "m", "other");
  std::set<GpuIndex> on;
  for (const auto& dispatch : Decide()) on.insert(dispatch.gpu);
  EXPECT_GT(on.size(), 1U);
}

TEST_F(Owned, WhatIsToStayGoesLastAndComesBackWithItsNextRequest) {
  Model("m", 60);
  Model("small", 30);
  Model("large", 90);
  Own("f", "m", 0);
  ASSERT_THAT(Brought(), ElementsAre(0U));
  // Two other GPUs are full of models that are asked for more often, and one more has to go somewhere.
  for (std::uint64_t i = 1; i <= 30; ++i) {
    now += milliseconds(10);
    Submit(i, i % 3 == 0 ? "small" : "large", "late");
    for (const auto& dispatch : Decide()) {
      EXPECT_THAT(dispatch.victims, ::testing::Not(::testing::Contains(ModelNamed("m"))));
      Serve(dispatch);
    }
  }
  EXPECT_NE(scheduler.FindResident(0, ModelNamed("m")), nullptr);
}

TEST_F(Owned, AFunctionThatOwnsNothingAnyMoreRunsAnywhere) {
  Model("m", 10);
  Own("f", "m", 2);
  Brought();
  for (std::uint64_t i = 1; i <= 10; ++i) Submit(i, "m", "f");
  ASSERT_EQ(Decide().size(), 2U);
  scheduler.SetOwned(FunctionNamed("f"), {});
  std::set<GpuIndex> on;
  for (const auto& dispatch : Decide()) on.insert(dispatch.gpu);
  EXPECT_FALSE(on.empty());
  EXPECT_FALSE(on.contains(2U)) << "it is busy";
  scheduler.Check();
}

TEST_F(Owned, ANewWorkerGetsTheModelAgain) {
  Model("m", 10);
  Own("f", "m", 1);
  ASSERT_THAT(Brought(), ElementsAre(1U));
  scheduler.Apply(WorkerLost{1, "it died"}, now);
  Ready(1);
  EXPECT_THAT(Brought(), ElementsAre(1U));
}

TEST_F(Owned, WhileItsGpuHasNoWorkerAFunctionRunsElsewhere) {
  Model("m", 10);
  Own("f", "m", 1);
  Brought();
  for (std::uint64_t i = 1; i <= 4; ++i) Submit(i, "m", "f");
  ASSERT_EQ(Decide().size(), 2U);
  scheduler.Apply(WorkerLost{1, "it died"}, now);
  std::set<GpuIndex> on;
  for (const auto& dispatch : Decide()) on.insert(dispatch.gpu);
  EXPECT_FALSE(on.empty());
  EXPECT_FALSE(on.contains(1U));
  Ready(1);
  prefetches.clear();
  for (const auto& dispatch : Decide()) EXPECT_EQ(dispatch.gpu, 1U);
  scheduler.Check();
}

TEST_F(Owned, AModelThatDoesNotComeIsNotTriedAgainByItself) {
  Model("m", 10);
  Own("f", "m", 1);
  Decide();
  ASSERT_EQ(prefetches.size(), 1U);
  Loaded(prefetches[0], absl::InternalError("the disk"));
  prefetches.clear();
  Decide();
  EXPECT_THAT(prefetches, IsEmpty());
  Submit(1, "m", "f");
  EXPECT_EQ(Next().gpu, 1U);
}

// Functions come to own parts and lose them while requests come, run and end: all are served in the end.
TEST_F(Owned, EveryRequestIsServedInTheEnd) {
  for (const char* model : {"a", "b", "c"}) Model(model, 45);
  std::uint64_t submitted = 0, served = 0;
  std::vector<Dispatch> running;
  const auto carry_out = [&] {
    prefetches.clear();
    for (Dispatch& dispatch : Decide()) running.push_back(std::move(dispatch));
    for (const Dispatch& prefetch : prefetches) Loaded(prefetch);
  };
  const auto end_last = [&] {
    const Dispatch done = std::move(running.back());
    running.pop_back();
    Serve(done);
    ++served;
  };
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    std::mt19937_64 random(seed);
    for (int step = 0; step < 200; ++step) {
      now += milliseconds(1);
      const std::string model(1, static_cast<char>('a' + random() % 3));
      const auto draw = random() % 8;
      if (draw == 0) Own("f-" + model, model, static_cast<std::uint32_t>(random() % 3), 1 + random() % 2);
      if (draw == 1) scheduler.SetOwned(FunctionNamed("f-" + model), {});
      if (draw == 2 || draw == 3) Submit(++submitted, model);
      if (draw > 3 && !running.empty()) {
        std::swap(running[random() % running.size()], running.back());
        end_last();
      }
      carry_out();
      scheduler.Check();
    }
    for (int more = 0; more < 2000 && served < submitted; ++more) {
      while (!running.empty()) end_last();
      carry_out();
    }
    ASSERT_EQ(served, submitted) << "seed " << seed;
  }
}

}  // namespace
}  // namespace troupe::node::owned_gpus_test
