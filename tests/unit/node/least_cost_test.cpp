// The default policies: what a copy costs the requests behind it, which models are cheapest to evict, and
// places beside loads.
#include "scheduling/cost_model.hpp"
#include "tests/unit/node/scheduler_fixture.hpp"

namespace troupe::node::least_cost_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

GpuOption Holder(GpuIndex gpu, int backlog_ms, bool usable = true) {
  return {
      .gpu = gpu, .has_model = true, .has_slot = usable, .fits = usable, .backlog = milliseconds(backlog_ms)};
}
GpuOption Loader(GpuIndex gpu, int backlog_ms, int load_ms) {
  return {.gpu = gpu,
          .has_slot = true,
          .fits = true,
          .backlog = milliseconds(backlog_ms),
          .load = milliseconds(load_ms)};
}
GpuChoice Choose(std::vector<GpuOption> options, double pressure = 0) {
  return FindGpuPolicy("least-cost")
      ->choose({.options = options, .load = milliseconds(10), .link_pressure = pressure});
}

TEST(LeastCost, ACopyIsMadeWhileTheLinksAreIdle) {
  const std::vector<GpuOption> options = {Holder(0, 15), Loader(1, 0, 10)};
  EXPECT_EQ(Choose(options).gpu, 1u);
  // With links in use half of the time, each second on them costs another one.
  EXPECT_EQ(Choose(options, 0.5).gpu, 0u);
  EXPECT_EQ(Choose({Holder(0, 25), Loader(1, 0, 10)}, 0.5).gpu, 1u);
  EXPECT_EQ(Choose({Holder(0, 200), Loader(1, 0, 10)}, 3).gpu, 0u);
  EXPECT_EQ(Choose({Holder(0, 220), Loader(1, 0, 10)}, 3).gpu, 1u);  // the cost has a limit
}

TEST(LeastCost, WhatIsEvictedComesAgainOverTheSameLink) {
  GpuOption evicting = Loader(1, 0, 10);
  evicting.evicts = true;
  EXPECT_EQ(Choose({Holder(0, 25), evicting}, 0.5).gpu, 0u);
  EXPECT_EQ(Choose({evicting, Loader(2, 0, 10)}, 0.5).gpu, 2u);
}

TEST(LeastCost, AnotherGpuIsASourceThatCostsTheHostNothing) {
  GpuOption beside = Loader(1, 0, 10);
  beside.peer = 0;
  beside.peer_load = milliseconds(2);
  const GpuChoice choice = Choose({Holder(0, 5), beside}, 0.9);
  EXPECT_EQ(choice.gpu, 1u);
  EXPECT_EQ(choice.peer, 0u);
  beside.before = milliseconds(15);  // loads of one GPU come one after the other, from any source
  EXPECT_EQ(Choose({Holder(0, 12), beside}).peer, kNoGpu);
  beside.before = {};
  beside.peer_load = milliseconds(20);
  EXPECT_EQ(Choose({Holder(0, 12), beside}).peer, kNoGpu);  // over a slow link the copy is not worth it
}

TEST(LeastCost, ALoadWaitsForThoseBeforeItAndSharesTheLinkWithThoseBesideIt) {
  GpuOption crowded = Loader(0, 0, 10);
  crowded.beside = milliseconds(6);
  EXPECT_EQ(Choose({crowded, Loader(1, 14, 10)}).gpu, 0u);
  EXPECT_EQ(Choose({crowded, Loader(1, 12, 10)}).gpu, 1u);
  crowded.beside = seconds(1);  // the copy has at least half of the link
  EXPECT_EQ(Choose({crowded, Loader(1, 16, 10)}).gpu, 0u);
  EXPECT_EQ(Choose({crowded, Loader(1, 14, 10)}).gpu, 1u);
  GpuOption behind = Loader(0, 0, 10);
  behind.before = milliseconds(100);
  EXPECT_EQ(Choose({behind, Loader(1, 111, 10)}).gpu, 0u);
  EXPECT_EQ(Choose({behind, Loader(1, 109, 10)}).gpu, 1u);
}

TEST(LeastCost, WaitsFirmlyForAHolderThatAnIdleGpuCouldNotBeat) {
  GpuChoice choice = Choose({Holder(0, 8, false)});
  EXPECT_EQ(choice.verdict, GpuVerdict::kWait);
  EXPECT_TRUE(choice.firm);
  choice = Choose({Holder(0, 30, false)});
  EXPECT_EQ(choice.verdict, GpuVerdict::kWait);
  EXPECT_FALSE(choice.firm);
  EXPECT_EQ(Choose({}).verdict, GpuVerdict::kBlocked);
}

TEST(LeastValue, WhatIsAskedForRarelyCostsLeast) {
  const EvictionPolicy policy = *FindEvictionPolicy("least-value");
  const EvictionCandidate often{.bytes = MiB(100), .replicas = 1, .rate = 2, .load = milliseconds(10)};
  EvictionCandidate other = often;
  other.rate = 1;
  EXPECT_LT(policy(other), policy(often));
  other = often;
  other.replicas = 2;
  EXPECT_LT(policy(other), policy(often));
  other = often;
  other.delay = milliseconds(100);  // a run that waits for the model is delayed
  EXPECT_LT(policy(often), policy(other));
  other = often;
  other.bytes = MiB(200);  // the same delay for twice the memory
  EXPECT_LT(policy(other), policy(often));
  other.wanted = true;
  EXPECT_LT(policy(often), policy(other));
  // How long ago a model was used has no further influence.
  other = often;
  other.last_use = Time(seconds(5));
  EXPECT_EQ(policy(often), policy(other));
}

TEST(LeastValue, ADelayThatEatsWhatItsRequestsHaveToSpareIsWorse) {
  const EvictionPolicy policy = *FindEvictionPolicy("least-value");
  const EvictionCandidate patient{.bytes = MiB(100), .rate = 1, .delay = milliseconds(100)};
  EvictionCandidate tight = patient;
  tight.slack = milliseconds(150);
  EXPECT_LT(policy(patient), policy(tight));
  EvictionCandidate tighter = patient;
  tighter.slack = milliseconds(120);
  EXPECT_LT(policy(tight), policy(tighter));
  // The delay of a light model matters little: the model with nine times as much memory for the same total
  // delay goes first.
  EvictionCandidate light = tight;
  light.delay = milliseconds(10);
  EXPECT_LT(policy(light), policy(tight));
  // Requests of this model are too late in any case: keeping it helps none of them.
  EvictionCandidate hopeless = patient;
  hopeless.slack = milliseconds(-1);
  EXPECT_EQ(policy(hopeless), policy(patient));
  // Beyond the limit all costs are alike.
  EvictionCandidate never = patient, almost_never = patient;
  never.slack = milliseconds(10);
  almost_never.slack = milliseconds(101);
  EXPECT_EQ(policy(never), policy(almost_never));
}

TEST(BusyShare, CountsAtOnceAndFades) {
  BusyShare share;
  EXPECT_EQ(share.At({}), 0);
  share.Add(seconds(1), {}, 2);
  EXPECT_NEAR(share.At({}), 0.1, 1e-9);
  EXPECT_LT(share.At(Time(seconds(5))), 0.04);
  for (int i = 1; i <= 200; ++i) share.Add(milliseconds(50), Time(milliseconds(100 * i)), 1);
  EXPECT_NEAR(share.At(Time(seconds(20))), 0.5, 0.05);
}

class LeastCostTest : public SchedulerTest {
 protected:
  std::uint64_t next = 100;
};

TEST_F(LeastCostTest, WhatWaitsForItsModelTakesNoPlaceFromWhatCouldCompute) {
  Gpus(1);
  for (const char* name : {"here", "coming", "also"}) Model(name, 10);
  Submit(1, "here");
  Serve(Next());
  Submit(2, "coming");
  Submit(3, "also");
  EXPECT_EQ(scheduler.Decide(now).dispatches.size(), 2u);
  // Each of the two GPUs has two places.
  for (std::uint64_t i = 4; i < 8; ++i) Submit(i, "here");
  const auto hits = scheduler.Decide(now).dispatches;
  ASSERT_EQ(hits.size(), 2u);
  for (const Dispatch& hit : hits) EXPECT_EQ(hit.source, SwapSource::kResident);
  scheduler.Check();
  EXPECT_EQ(scheduler.waiting(), 2u);
}

TEST_F(LeastCostTest, AHitIsFoundOnAnyGpuThatHasAPlaceForIt) {
  for (const char* name : {"m", "here", "coming", "also"}) Model(name, 10);
  for (GpuIndex gpu = 0; gpu < 2; ++gpu) {
    scheduler.AddGpu(gpu, MiB(100));
    scheduler.Apply(WorkerReady{.gpu = gpu,
                                .memory = MiB(100),
                                .free = MiB(80),
                                .resident = {{ModelNamed("m"), MiB(10)},
                                             {ModelNamed(gpu == 0 ? "here" : "there"), MiB(10)}}},
                    now);
    if (gpu == 1) break;
    Submit(1, "here");
    Submit(2, "here");
    EXPECT_EQ(scheduler.Decide(now).dispatches.size(), 2u) << "the first GPU is full";
  }
  Submit(3, "coming");
  Submit(4, "also");
  EXPECT_EQ(scheduler.Decide(now).dispatches.size(), 2u) << "the second GPU loads";
  Submit(5, "m");
  const Dispatch hit = Next();
  EXPECT_EQ(hit.gpu, 1u);
  EXPECT_EQ(hit.source, SwapSource::kResident);
}

// Both models have equally many requests, and for its memory the heavy one is the cheaper one to evict; but
// its requests could not wait for it.
TEST_F(LeastCostTest, WhatCannotBeSwappedInTimeStays) {
  scheduler.RestoreCosts({{.model = "heavy", .run = milliseconds(40), .swapped = milliseconds(140)},
                          {.model = "light", .run = milliseconds(40), .swapped = milliseconds(60)}},
                         {});
  Gpus(1);
  Model("heavy", 80);
  Model("light", 15);
  Model("new", 15);
  const auto serve_both = [&](Duration patience) {
    for (int round = 0; round < 20; ++round) {
      for (const char* name : {"heavy", "light"}) {
        now += seconds(1);
        deadline = now + patience;
        Submit(next++, name);
        Serve(Next());
      }
    }
    deadline = Time::max();
    Submit(next++, "new");
    const Dispatch dispatch = Next();
    Serve(dispatch);
    return dispatch.victims;
  };
  EXPECT_THAT(serve_both(seconds(10)), testing::ElementsAre("heavy"));
  EXPECT_THAT(serve_both(milliseconds(120)), testing::ElementsAre("light"));
}

TEST_F(LeastCostTest, OfManyGpusAnIdleOneAndAHolderAreFound) {
  Gpus(40);
  for (int i = 0; i < 40; ++i) Model("m" + std::to_string(i), 90);
  std::vector<Dispatch> busy;
  for (std::uint64_t i = 0; i < 40; ++i) {
    Submit(i, "m" + std::to_string(i));
    busy.push_back(Next());
    EXPECT_TRUE(busy.back().victims.empty()) << "there was an empty GPU";
  }
  for (const Dispatch& dispatch : busy) Serve(dispatch);
  for (std::uint64_t i = 0; i < 40; ++i) {
    Submit(100 + i, "m" + std::to_string(i));
    EXPECT_EQ(Next().source, SwapSource::kResident);
  }
}

}  // namespace
}  // namespace troupe::node::least_cost_test
