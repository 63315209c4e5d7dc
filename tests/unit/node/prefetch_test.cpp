// Prefetch: which model comes to which GPU, which model it replaces, and when none comes.
#include <algorithm>
#include <utility>

#include "node/scheduling/model_demand.hpp"
#include "tests/unit/node/scheduler_fixture.hpp"

namespace troupe::node::prefetch_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(RecentRate, CountsTheLastMinuteOrSinceTheFirst) {
  RecentRate rate;
  EXPECT_EQ(rate.At(Time(seconds(5))), 0);
  rate.Add(1, Time(seconds(5)));
  EXPECT_LT(rate.At(Time(seconds(5))), 0.1);  // one request alone says little
  for (int i = 1; i <= 300; ++i) rate.Add(1, Time(seconds(5) + milliseconds(500 * i)));
  EXPECT_NEAR(rate.At(Time(seconds(155))), 2, 0.1);
  EXPECT_LT(rate.At(Time(seconds(455))), 0.05);
  RecentRate fresh;
  for (int i = 0; i <= 40; ++i) fresh.Add(1, Time(milliseconds(500 * i)));
  EXPECT_NEAR(fresh.At(Time(seconds(20))), 2, 0.2);
}

TEST(WaitingWith, EachCopySavesLessThanTheOneBefore) {
  const ModelDemand demand{.rate = 0.5, .run = seconds(1), .bring = seconds(3)};
  EXPECT_DOUBLE_EQ(WaitingWith(demand, 0, 0.6), 1.5);
  double saved = 1e9;
  for (std::uint32_t copies = 0; copies < 5; ++copies) {
    const double gain = WaitingWith(demand, copies, 0.6) - WaitingWith(demand, copies + 1, 0.6);
    EXPECT_GT(gain, 0);
    EXPECT_LT(gain, saved);
    saved = gain;
  }
  EXPECT_EQ(WaitingWith(demand, 1, 1), 1.5);  // never longer than it takes to bring the model
  // Both GPUs are busy for 0.36 of the time, and then one of them for 1.25 s more.
  EXPECT_NEAR(WaitingWith(demand, 2, 0.6), 0.5 * 0.36 * 1.25, 1e-9);
}

// A load has its GPU for itself. One model gets request after request: one copy serves it badly.
class Ahead : public SchedulerTest {
 protected:
  explicit Ahead(SchedulerLimits limits = {.swap_ahead = 1}, const char* copies = "ahead",
                 const char* topology = "none")
      : SchedulerTest(limits, PoliciesWith(&PolicyNames::prefetch, copies), topology) {}
  // Requests come one after the other, each of 900 ms, a second apart.
  void AskOften(const std::string& model, int times) {
    for (int i = 0; i < times; ++i) {
      now += milliseconds(100);
      Submit(next_++, model);
      const auto dispatches = Decide();
      ASSERT_EQ(dispatches.size(), 1u);
      Loaded(dispatches[0]);
      now += milliseconds(900);
      const auto& to = dispatches[0];
      scheduler.Apply(RunDone{.gpu = to.gpu, .request = to.request, .took = milliseconds(900)}, now);
      Take();
    }
  }
  void Take() {
    for (auto& copy : std::exchange(prefetches, {})) copies.push_back(std::move(copy));
    scheduler.Check();
  }
  void Came(const Dispatch& copy, const absl::Status& status = absl::OkStatus()) {
    scheduler.Apply(
        SwapInDone{.gpu = copy.gpu, .model = copy.model, .status = status, .took = milliseconds(5)}, now);
    scheduler.Check();
  }

  std::vector<Dispatch> copies;
  std::uint64_t next_ = 1;
};

TEST_F(Ahead, AModelThatIsAskedForMuchComesToAnotherGpu) {
  Gpus(4);
  Model("hot", 20);
  AskOften("hot", 8);
  ASSERT_FALSE(copies.empty());
  const Dispatch& copy = copies.front();
  EXPECT_TRUE(copy.ahead && copy.victims.empty());
  EXPECT_EQ(copy.source, SwapSource::kHost);
  EXPECT_EQ(copy.deadline, Time::max());  // the prefetch yields on the link
  EXPECT_EQ(scheduler.counts().ahead, copies.size());
  EXPECT_EQ(scheduler.counts().swaps, 1u);  // a prefetch is counted apart
  Came(copy);
  EXPECT_EQ(scheduler.FindResident(copy.gpu, ModelNamed("hot"))->state, ResidentState::kResident);
}

TEST_F(Ahead, WhatIsAdoptedAndHasRunBeforeComesBeforeItIsAskedFor) {
  Gpus(4);
  scheduler.RestoreCosts({{.model = "known", .run = milliseconds(900)}}, {});
  Model("known", 20);
  Model("unknown", 20);  // its first swap has to be measured
  EXPECT_TRUE(Decide().empty());
  Take();
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ(copies[0].model, "known");
  Came(copies[0]);
  copies.clear();
  EXPECT_TRUE(Decide().empty());
  Take();
  EXPECT_TRUE(copies.empty());  // only one prefetch is made
}

TEST_F(Ahead, NoModelIsEvictedForOneWithoutRequests) {
  Gpus(2);
  for (const char* model : {"a", "b", "c"}) {
    scheduler.RestoreCosts({{.model = model, .run = milliseconds(900)}}, {});
    Model(model, 80);
  }
  for (std::size_t came = 0; came < 4; ++came) {
    EXPECT_TRUE(Decide().empty());
    Take();
    if (came < copies.size()) Came(copies[came]);
  }
  ASSERT_EQ(copies.size(), 2u);
  for (const Dispatch& copy : copies) EXPECT_TRUE(copy.victims.empty());
}

TEST_F(Ahead, APrefetchThatFailsIsGone) {
  Gpus(4);
  Model("hot", 20);
  AskOften("hot", 8);
  ASSERT_FALSE(copies.empty());
  Came(copies.front(), absl::UnavailableError("no"));
  EXPECT_EQ(scheduler.FindResident(copies.front().gpu, ModelNamed("hot")), nullptr);
  // The prefetch is not tried again and again either.
  copies.clear();
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(Decide().empty());
    Take();
  }
  EXPECT_TRUE(copies.empty());
}

TEST_F(Ahead, ThePlaceOfTheLastIdleGpuIsForRequests) {
  Gpus(2);
  Model("hot", 20);
  AskOften("hot", 1);
  const auto wait = [&] {  // the other GPU computes
    Submit(next_++, "hot");
    const auto dispatches = Decide();
    Take();
    return dispatches.size();
  };
  copies.clear();
  for (int i = 0; i < 4; ++i) wait();
  EXPECT_TRUE(copies.empty());
}

TEST_F(Ahead, ARequestThatFindsItOnItsWayWaitsForItAndIsServed) {
  Gpus(4);
  Model("hot", 20);
  AskOften("hot", 8);
  ASSERT_FALSE(copies.empty());
  const Dispatch copy = copies.front();
  // All GPUs are kept busy with the model, until the GPU of the copy is next.
  std::vector<Dispatch> sent;
  for (int i = 0; i < 4; ++i) {
    Submit(next_++, "hot");
    for (auto& dispatch : Decide()) sent.push_back(dispatch);
    Take();
  }
  const auto behind = std::ranges::find(sent, copy.gpu, &Dispatch::gpu);
  ASSERT_NE(behind, sent.end());
  EXPECT_EQ(behind->source, SwapSource::kResident);
  Came(copy, absl::UnavailableError("the copy failed"));
  const auto effects = Ran(*behind, RunEnd::kNotResident);
  EXPECT_TRUE(effects.finished.empty());  // the request is planned anew
  scheduler.Check();
}

TEST_F(Ahead, ModelsDoNotTakeEachOthersPlaceInTurns) {
  Gpus(4);
  for (const char* model : {"a", "b", "c"}) Model(model, 90);  // one model fills a GPU
  for (int i = 0; i < 30; ++i) {
    const std::uint64_t before = scheduler.counts().ahead;
    for (const char* model : {"a", "b", "a", "c", "a", "b", "a", "a"}) {
      AskOften(model, 1);
      for (const Dispatch& copy : std::exchange(copies, {})) {
        for (const auto& victim : copy.victims) scheduler.Apply(EvictDone{copy.gpu, victim, {}}, now);
        Came(copy);
      }
    }
    const std::uint64_t now_made = scheduler.counts().ahead - before;
    EXPECT_LE(now_made, i < 10 ? 8u : 0u) << "round " << i;
  }
}

class Asked : public Ahead {
 protected:
  Asked() : Ahead({.swap_ahead = 1}, "asked") {}
};
TEST_F(Asked, NothingComesAheadOfRequests) {
  Gpus(4);
  Model("hot", 20);
  AskOften("hot", 8);
  EXPECT_TRUE(copies.empty());
}

// A load goes on beneath runs; two GPUs are behind one switch, and the second one's worker is not there yet.
// A model that runs for 2 ms, 60 times a second, takes 5 ms to load.
class BeneathRuns : public Ahead {
 protected:
  BeneathRuns() : Ahead({.swap_ahead = 2}, "ahead", "v100x4") {
    Gpus(1, false);
    Model("hot", 60);
    Model("cold", 20);
    for (int i = 0; i < 1000; ++i) {
      now += milliseconds(14);
      Submit(next_++, "hot");
      const Dispatch to = Next();
      Loaded(to);
      now += milliseconds(2);
      scheduler.Apply(RunDone{.gpu = to.gpu, .request = to.request, .took = milliseconds(2)}, now);
    }
  }
  void TheSecondComes() {
    scheduler.AddGpu(1, MiB(100));
    Ready(1, false);
    Submit(next_++, "hot");
    static_cast<void>(Decide());
    Take();
  }
};
TEST_F(BeneathRuns, ACopyGoesOverAnIdleLink) {
  TheSecondComes();
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ(copies[0].gpu, 1u);
}
TEST_F(BeneathRuns, NoCopyGoesOverALinkThatARequestsLoadIsOn) {
  Submit(next_++, "cold");
  EXPECT_EQ(Next().gpu, 0u);
  now += milliseconds(50);  // the load takes longer than was thought
  TheSecondComes();
  EXPECT_TRUE(copies.empty());
}

}  // namespace
}  // namespace troupe::node::prefetch_test
