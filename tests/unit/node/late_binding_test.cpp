// The scheduler under Torpor's policies: copies between GPUs and their failures, the order of functions,
// homes, how far it swaps ahead, and what it learns about models.
#include <limits>
#include <map>

#include "node/models/profiles.hpp"
#include "tests/unit/node/scheduler_fixture.hpp"

namespace troupe::node::late_binding_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;

SchedulerPolicies Policies(const char* preset) {
  return *FindSchedulerPolicies(*FindPreset(preset));
}

class LateBinding : public SchedulerTest {
 protected:
  explicit LateBinding(SchedulerPolicies policies = Policies("torpor"), SchedulerLimits limits = {},
                       const char* topology = "v100x4")
      : SchedulerTest(limits, policies, topology) {}

  // Loads `model` on a GPU and leaves a run of it there.
  Dispatch Occupy(std::uint64_t sequence, const std::string& model) {
    Submit(sequence, model);
    const Dispatch dispatch = Next();
    Loaded(dispatch);
    return dispatch;
  }
};

TEST_F(LateBinding, ABusyHoldersModelIsCopiedOverTheFastestLink) {
  Gpus(4);
  Model("a", 40);
  const Dispatch first = Occupy(1, "a");
  EXPECT_EQ(first.gpu, 0u);
  Submit(2, "a");
  const Dispatch copy = Next();
  EXPECT_EQ(copy.source, SwapSource::kPeer);
  EXPECT_EQ(copy.gpu, 3u);  // its link has 50 GB/s; those of GPUs 1 and 2 have 25
  EXPECT_EQ(copy.peer, 0u);
  EXPECT_EQ(scheduler.FindResident(0, ModelNamed("a"))->readers, 1u);
  Serve(copy);
  EXPECT_EQ(scheduler.FindResident(0, ModelNamed("a"))->readers, 0u);
  EXPECT_EQ(scheduler.counts().peer_swaps, 1u);
  EXPECT_EQ(*scheduler.costs().nanos_per_byte().Find(0),
            0);  // a copy between GPUs says nothing about the host's link
}

TEST_F(LateBinding, OnlyWholeModelsAndOnlyWorkersThatCanAreSources) {
  Gpus(4, false);
  Model("a", 40);
  Occupy(1, "a");
  Submit(2, "a");
  EXPECT_EQ(Next().source, SwapSource::kHost);
  Ready(2);  // this worker can copy from a peer
  Submit(3, "a");
  const Dispatch copy = Next();
  EXPECT_EQ(copy.gpu, 2u);
  EXPECT_EQ(copy.peer, 0u);  // over 25 GB/s: GPUs 1 and 3, which still load it, are not sources
}

TEST_F(LateBinding, ASourceIsLockedWhileItIsRead) {
  Gpus(2);
  Model("a", 60);
  Model("b", 60);
  const Dispatch first = Occupy(1, "a");
  Submit(2, "a");
  const Dispatch copy = Next();
  ASSERT_EQ(copy.source, SwapSource::kPeer);
  Ran(first);
  Submit(3, "b");
  EXPECT_TRUE(scheduler.Decide(now)
                  .dispatches.empty());  // it would have to evict a model that is being read or written
  EXPECT_TRUE(scheduler.ForgetModel(ModelNamed("a")).evictions.empty());
  Model("a", 60);
  Loaded(copy);
  const Dispatch next = Next();
  EXPECT_EQ(next.gpu, 0u);
  EXPECT_THAT(next.victims, ElementsAre("a"));
}

TEST_F(LateBinding, ASourceThatDiesInMidCopyMakesThePlanFallBackToTheHost) {
  Gpus(4);
  Model("a", 40);
  scheduler.RestoreCosts({{"a", seconds(10), {}}}, {});  // with so long a run no request waits for a busy GPU
  const Dispatch first = Occupy(1, "a");
  Submit(2, "a");
  const Dispatch copy = Next();
  ASSERT_EQ(copy.peer, first.gpu);
  EXPECT_TRUE(scheduler.Apply(WorkerLost{first.gpu, "killed"}, now).finished.empty());
  scheduler.Check();
  // The surviving copy goes on: the other request runs again, on another GPU, from the host.
  const Dispatch again = Next();
  EXPECT_EQ(again.request.sequence, 1u);
  Serve(again);
  Occupy(3, "a");
  Loaded(copy, absl::UnavailableError("the worker of GPU 0 is gone"));
  EXPECT_TRUE(Ran(copy, RunEnd::kNotResident).finished.empty());
  const Dispatch fallen = Next();
  EXPECT_EQ(fallen.request.sequence, 2u);
  EXPECT_EQ(fallen.source, SwapSource::kHost);  // though another GPU with a link has it, too
  EXPECT_EQ(fallen.attempt, 1u);                // none of the request's own workers was lost
  Ready(first.gpu);
  Serve(fallen);
}

TEST_F(LateBinding, WeightsThatAStateComesWithAreTheHosts) {
  Gpus(4);
  Model("a", 40);
  scheduler.DeclareState(StateNamed("s"), ModelNamed("a"), MiB(1));
  Occupy(1, "a");
  Submit(2, "a", "f", "s");
  const Dispatch dispatch = Next();
  EXPECT_NE(dispatch.gpu, 0u);
  EXPECT_EQ(dispatch.source, SwapSource::kHost);
  EXPECT_TRUE(dispatch.bring_state);
}

// The weights are there, and take their room.
TEST_F(LateBinding, ARunThatLacksItsStateSaysNothingOfTheModel) {
  Gpus(1);
  Model("a", 40);
  scheduler.DeclareState(StateNamed("s"), ModelNamed("a"), MiB(1));
  Submit(1, "a", "f", "s");
  const Dispatch first = Next();
  Loaded(first);
  EXPECT_TRUE(Ran(first, RunEnd::kNoState, absl::AbortedError("the state is not here")).finished.empty());
  EXPECT_NE(scheduler.FindResident(0, ModelNamed("a")), nullptr);
  const Dispatch again = Next();
  EXPECT_EQ(again.source, SwapSource::kResident);
  EXPECT_TRUE(again.bring_state);
}

// Its function was removed, and another deployment of it may have a state by now.
TEST_F(LateBinding, ARunWhoseStateWentIsNotRunAgainWithoutIt) {
  Gpus(1);
  Model("a", 40);
  scheduler.DeclareState(StateNamed("s"), ModelNamed("a"), MiB(1));
  Submit(1, "a", "f", "s");
  Loaded(Next());
  EXPECT_TRUE(scheduler.ForgetState(StateNamed("s")).finished.empty()) << "it is on a GPU";
  const auto lost = scheduler.Apply(WorkerLost{.gpu = 0, .why = "killed"}, now);
  ASSERT_EQ(lost.finished.size(), 1u);
  EXPECT_EQ(lost.finished[0].kind, FinishKind::kBounced);
  EXPECT_EQ(lost.finished[0].bounce, proto::BOUNCE_NOT_ADOPTED);
}

TEST_F(LateBinding, AStateWhoseGpuIsBusyKeepsNoOtherFromItsGpu) {
  Gpus(2);
  Model("a", 20);
  const auto begin = [this](std::uint64_t sequence, const char* function, const char* state) {
    scheduler.DeclareState(StateNamed(state), ModelNamed("a"), MiB(1));
    Submit(sequence, "a", function, state);
    const Dispatch dispatch = Next();
    Loaded(dispatch);
    return dispatch;
  };
  const Dispatch s = begin(1, "f", "s");
  const Dispatch t = begin(2, "g", "t");
  ASSERT_NE(s.gpu, t.gpu);
  for (const auto& run : {s, t})
    scheduler.Apply(RunDone{.gpu = run.gpu,
                            .request = run.request,
                            .end = RunEnd::kRan,
                            .took = milliseconds(1),
                            .brought_state = true},
                    now);
  // Requests without a state fill both GPUs; those on t's GPU end.
  std::vector<Dispatch> runs;
  std::uint64_t sequence = 10;
  for (auto more = Decide(); sequence == 10 || !more.empty(); more = Decide()) {
    runs.insert(runs.end(), more.begin(), more.end());
    Submit(sequence++, "a");
  }
  for (const auto& run : runs)
    if (run.gpu == t.gpu) Ran(run);
  Serve(Next());
  Submit(sequence++, "a", "f", "s");
  EXPECT_TRUE(Decide().empty());
  Submit(sequence++, "a", "g", "t");
  EXPECT_EQ(Next().gpu, t.gpu);
}

TEST_F(LateBinding, AStateDoesNotFollowWeightsThatMayNotCome) {
  Gpus(2);
  Model("a", 40);
  scheduler.DeclareState(StateNamed("s"), ModelNamed("a"), MiB(1));
  const Dispatch first = Occupy(1, "a");
  Submit(2, "a");
  const Dispatch copy = Next();
  ASSERT_EQ(copy.source, SwapSource::kPeer);
  Ran(first);
  scheduler.Apply(WorkerLost{.gpu = 0, .why = "killed"}, now);
  Submit(3, "a", "f", "s");
  EXPECT_TRUE(scheduler.Decide(now).dispatches.empty()) << "the model is on its way from a GPU that is gone";
  Loaded(copy, absl::UnavailableError("the other GPU is gone"));
  Ran(copy, RunEnd::kNotResident, absl::NotFoundError("no such model"));
  const auto again = scheduler.Decide(now).dispatches;
  scheduler.Check();
  ASSERT_EQ(again.size(), 2u) << "both may load from the host at once";
  EXPECT_EQ(again[0].source, SwapSource::kHost);
  EXPECT_TRUE(again[0].bring_state || again[1].bring_state);
}

TEST_F(LateBinding, AReaderThatDiesLetsItsSourceGo) {
  Gpus(4);
  Model("a", 40);
  Occupy(1, "a");
  Submit(2, "a");
  const Dispatch copy = Next();
  ASSERT_EQ(copy.source, SwapSource::kPeer);
  scheduler.Apply(WorkerLost{copy.gpu, "killed in mid-swap"}, now);
  EXPECT_EQ(scheduler.FindResident(0, ModelNamed("a"))->readers, 0u);
  scheduler.Check();
  EXPECT_EQ(Next().attempt, 2u);
}

TEST_F(LateBinding, ACopyThatFindsNoRoomIsPlannedAgain) {
  Gpus(4);
  Model("a", 40);
  Occupy(1, "a");
  Submit(2, "a");
  const Dispatch copy = Next();
  Loaded(copy, absl::ResourceExhaustedError("fragments"));
  EXPECT_TRUE(Ran(copy, RunEnd::kNoFit).finished.empty());
  const Dispatch second = Next();
  EXPECT_EQ(second.request.sequence, 2u);
  EXPECT_EQ(second.source, SwapSource::kPeer);
  Serve(second);
}

TEST_F(LateBinding, AModelThatIsEvictedWhileARequestForItWaitsIsLoadedAgain) {
  Gpus(1);
  Model("a", 60);
  Model("b", 60);
  Serve(Occupy(1, "a"));
  const Dispatch b = Occupy(2, "b");
  EXPECT_THAT(b.victims, ElementsAre("a"));
  Submit(3, "a");
  EXPECT_TRUE(scheduler.Decide(now).dispatches.empty());
  Ran(b);
  const Dispatch again = Next();
  EXPECT_EQ(again.source, SwapSource::kHost);
  EXPECT_THAT(again.victims, ElementsAre("b"));
  Serve(again);
}

TEST_F(LateBinding, HostLoadsAvoidABusySwitchAndHeavyNeighboursMost) {
  Gpus(4);
  for (const char* model : {"light", "heavy", "x", "y"}) Model(model, 20);
  scheduler.RestoreCosts({{"light", milliseconds(100), milliseconds(101)}, {"heavy", milliseconds(1), {}}},
                         {});
  EXPECT_TRUE(scheduler.Heavy(ModelNamed("heavy")));
  EXPECT_FALSE(scheduler.Heavy(ModelNamed("light")));
  EXPECT_FALSE(scheduler.Heavy(ModelNamed("none")));
  Submit(1, "heavy");
  EXPECT_EQ(Next().gpu, 0u);
  Submit(2, "light");
  EXPECT_EQ(Next().gpu, 2u);  // this GPU is not behind the switch of GPU 0
  Submit(3, "x");
  EXPECT_EQ(Next().gpu, 3u);  // the neighbour loads a light model
  Submit(4, "y");
  EXPECT_EQ(Next().gpu, 1u);  // any GPU will do
}

TEST_F(LateBinding, TheOnlyCopyOfAHeavyModelOutlivesLightOnes) {
  Gpus(1);
  for (const char* model : {"light", "heavy", "new"}) Model(model, 40);
  scheduler.RestoreCosts(
      {{"light", milliseconds(50), milliseconds(51)}, {"heavy", milliseconds(1), milliseconds(9)}}, {});
  Submit(1, "heavy");
  const Dispatch heavy = Next();
  Serve(heavy);
  now += seconds(1);
  Submit(2, "light");
  Serve(Next());
  now += seconds(1);
  Submit(3, "new");
  EXPECT_THAT(Next().victims, ElementsAre("light"));  // although the heavy one has been unused for longer
  EXPECT_EQ(scheduler.counts().evicted_light, 1u);
}

TEST_F(LateBinding, AReplicaGoesBeforeTheOnlyCopyOfALightModelOnAnyGpu) {
  Gpus(2);
  for (const char* model : {"twice", "light", "filler", "new"}) Model(model, 40);
  std::uint64_t next = 1;
  const auto serve_twice = [&] {  // once on each of the two GPUs, at the same time
    const Dispatch one = Occupy(next++, "twice");
    const Dispatch other = Occupy(next++, "twice");
    EXPECT_NE(one.gpu, other.gpu);
    Ran(one);
    Ran(other);
  };
  serve_twice();
  std::vector<GpuIndex> gpus;
  for (const char* model : {"light", "filler"}) {
    now += seconds(1);
    Submit(next++, model);
    const Dispatch dispatch = Next();
    EXPECT_THAT(dispatch.victims, ElementsAre()) << "one of the GPUs has room";
    gpus.push_back(dispatch.gpu);
    Serve(dispatch);
  }
  EXPECT_NE(gpus[0], gpus[1]);
  now += seconds(1);
  serve_twice();
  Submit(next, "new");
  EXPECT_THAT(Next().victims, ElementsAre("twice"));  // although it was used last
  EXPECT_EQ(scheduler.counts().evicted_replicas, 1u);
}

TEST_F(LateBinding, FunctionsThatCannotMeetTheirSloWait) {
  Gpus(1);
  Model("a", 10);
  Model("b", 10);
  std::uint64_t next = 1;
  const auto serve = [&](const std::string& model, bool in_time) {
    deadline = in_time ? now + seconds(9) : now - milliseconds(1);
    Submit(next++, model);
    Serve(Next());
  };
  for (int i = 0; i < 50; ++i) serve("a", i > 1);
  for (int i = 0; i < 50; ++i) serve("b", true);
  now = Time(seconds(2));  // functions change places
  const Dispatch one = Occupy(next++, "b");
  const Dispatch two = Occupy(next++, "b");
  Submit(next++, "b");
  Submit(next++, "a");
  Ran(one);
  EXPECT_EQ(Next().model,
            "a");  // a misses its SLO by little, so it goes before a function that meets its own
  Ran(two);
}

class Released : public LateBinding {
 protected:
  Released()
      : LateBinding(*FindSchedulerPolicies(
            {.ordering = "slo-aware-released", .swap = {}, .prefetch = "asked", .binding = {}})) {}
};
TEST_F(Released, OneRequestOfAFunctionAtATime) {
  Gpus(2);
  Model("a", 10);
  Model("b", 10);
  Submit(1, "a");
  Submit(2, "a");
  Submit(3, "b");
  const auto first = scheduler.Decide(now).dispatches;
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(first[0].model, "a");
  EXPECT_EQ(first[1].model, "b");
  Serve(first[0]);
  EXPECT_EQ(Next().request.sequence, 2u);
}

class EarlyBinding : public LateBinding {
 protected:
  EarlyBinding()
      : LateBinding(
            *FindSchedulerPolicies({.gpu = "bound", .swap = {}, .prefetch = "asked", .binding = {}})) {}
};
TEST_F(EarlyBinding, EachModelHasOneGpuUntilThatOneIsUnfit) {
  Gpus(2);
  Model("a", 40);
  Model("b", 30);
  Model("c", 5);
  Submit(1, "a");
  const Dispatch a = Next();
  Submit(2, "b");
  const Dispatch b = Next();
  Submit(3, "c");
  const Dispatch c = Next();
  EXPECT_NE(a.gpu, b.gpu);
  EXPECT_EQ(c.gpu, b.gpu);  // fewer bytes are bound to this GPU
  Serve(a);
  Serve(b);
  Serve(c);
  // The worker of the request's GPU is down: the request waits, though the other GPU is idle.
  scheduler.Apply(WorkerLost{a.gpu, "killed"}, now);
  Submit(4, "a");
  EXPECT_TRUE(scheduler.Decide(now).dispatches.empty());
  scheduler.Apply(GpuUnfit{a.gpu, "fell off the bus"}, now);
  EXPECT_EQ(Next().gpu, b.gpu);
}

class Deep : public LateBinding {
 protected:
  Deep() : LateBinding(Policies("troupe"), {.concurrency = 2, .swap_ahead = 3}) {}
};
TEST_F(Deep, TwoRunAndTwoMoreAreOnTheirWay) {
  Gpus(1);
  for (std::uint64_t i = 0; i < 6; ++i) {
    Model("m" + std::to_string(i), 5);
    Submit(i, "m" + std::to_string(i));
  }
  EXPECT_EQ(scheduler.Decide(now).dispatches.size(), 4u);
  EXPECT_EQ(scheduler.gpus().at(0).host_loads.size(), 4u);
  scheduler.Check();
}

class TwoSpeeds : public LateBinding {
 protected:
  TwoSpeeds() : LateBinding(Policies("torpor"), {}, "link:0-2=50GB,link:1-2=25GB") {}
};
TEST_F(TwoSpeeds, OfTwoSourcesTheFasterOne) {
  Gpus(2);
  Model("a", 40);
  scheduler.RestoreCosts({{"a", seconds(10), {}}}, {});  // with so long a run no request waits for a busy GPU
  Occupy(1, "a");
  EXPECT_EQ(Occupy(2, "a").source, SwapSource::kHost);  // there is no link between the two GPUs
  scheduler.AddGpu(2, MiB(100));
  Ready(2);
  Submit(3, "a");
  const Dispatch copy = Next();
  EXPECT_EQ(copy.gpu, 2u);
  EXPECT_EQ(copy.peer, 0u);
}

class Impatient : public LateBinding {
 protected:
  Impatient() : LateBinding(Policies("troupe"), {.max_passed = 0}) {}
};
TEST_F(Impatient, AGpuIsNotKeptForAModelThatCanNeverFitThere) {
  scheduler.AddGpu(0, MiB(50));
  scheduler.AddGpu(1, MiB(100));
  for (GpuIndex gpu : {0u, 1u}) {
    const Bytes memory = MiB(gpu == 0 ? 50 : 100);
    scheduler.Apply(WorkerReady{.gpu = gpu, .memory = memory, .free = memory}, now);
  }
  for (const auto& [model, mib] :
       std::map<std::string, std::uint64_t>{{"x", 60}, {"y", 30}, {"z", 10}, {"a", 45}})
    Model(model, mib);
  scheduler.RestoreCosts({{"x", seconds(10), {}}}, {});
  Submit(1, "x");
  EXPECT_EQ(Next().gpu, 1u);
  Submit(2, "y");
  const Dispatch y = Next();
  EXPECT_EQ(y.gpu, 0u);
  Submit(3, "x");
  EXPECT_EQ(Next().gpu, 1u);  // GPU 1 is full now
  Submit(4, "a");             // model a has no room beside y
  Submit(5, "z");
  const Dispatch z = Next();  // z passes the request for a, for which GPU 0 is kept
  EXPECT_EQ(z.gpu, 0u);
  Model("a", 80);  // the model is larger than was thought
  Serve(y);
  Serve(z);
  Submit(6, "y");
  EXPECT_EQ(Next().gpu, 0u);
}

TEST_F(LateBinding, SwapsAndRunsAreLearnedApart) {
  Gpus(1);
  Model("a", 40);
  Submit(1, "a");
  const Dispatch swap = Next();
  Loaded(swap);
  scheduler.Apply(RunDone{.gpu = 0,
                          .request = swap.request,
                          .took = milliseconds(7),
                          .waited_for_weights = true,
                          .since_swap = milliseconds(8)},
                  now);
  EXPECT_TRUE(scheduler.Heavy(
      ModelNamed("a")));  // its run time is not known yet, and the load is most of the swapped run
  EXPECT_EQ(scheduler.costs().Known().at(0).run, Duration::zero());
  EXPECT_EQ(scheduler.costs().Known().at(0).swapped, milliseconds(8));
  // A hit shows how long a run takes, and that the swap slows it only a little.
  Submit(2, "a");
  scheduler.Apply(RunDone{.gpu = 0, .request = Next().request, .took = milliseconds(7)}, now);
  EXPECT_FALSE(scheduler.Heavy(ModelNamed("a")));
  // A model that was removed and comes back keeps what was learned about it.
  scheduler.ForgetModel(ModelNamed("a"));
  EXPECT_EQ(scheduler.costs().RunTime("a"), milliseconds(7));
}

TEST_F(LateBinding, ProfilesAreKeptAndReadAgain) {
  Gpus(1);
  Model("a", 40);
  Submit(1, "a");
  const Dispatch swap = Next();
  scheduler.Apply(SwapInDone{.gpu = 0,
                             .model = ModelNamed("a"),
                             .status = absl::OkStatus(),
                             .device_bytes = MiB(40),
                             .took = milliseconds(40)},
                  now);
  scheduler.Apply(
      RunDone{.gpu = 0, .request = swap.request, .took = milliseconds(2), .since_swap = milliseconds(42)},
      now);
  GpuKinds kinds({}, KindRule::kAware);
  std::string disk;
  ASSERT_TRUE(ExportProfiles(scheduler, kinds).SerializeToString(&disk));
  proto::NodeProfiles read;
  ASSERT_TRUE(read.ParseFromString(disk));
  ASSERT_EQ(read.models_size(), 1);
  EXPECT_TRUE(read.models(0).heavy());
  EXPECT_EQ(Bytes(read.models(0).weights_bytes()), MiB(40));
  SwapScheduler other({}, Policies("torpor"));
  ASSERT_TRUE(ImportProfiles(read, kinds, other).ok());
  EXPECT_EQ(other.costs().RunTime("a"), milliseconds(2));
  other.DescribeModel(ModelNamed("a"), MiB(40), MiB(1));
  EXPECT_TRUE(other.Heavy(ModelNamed("a")));
  EXPECT_EQ(other.costs().LoadTime(MiB(40)), milliseconds(40));
  // Nothing is learned from a file that makes no sense.
  proto::NodeProfiles bad = read;
  bad.set_format_version(7);
  EXPECT_THAT(std::string(ImportProfiles(bad, kinds, other).message()), HasSubstr("format 7"));
  bad = read;
  bad.set_nanos_per_byte(std::numeric_limits<double>::quiet_NaN());
  bad.mutable_links(0)->set_nanos_per_byte(std::numeric_limits<double>::quiet_NaN());
  bad.mutable_models(0)->set_run_ns(-5);
  bad.mutable_models(0)->set_swapped_ns(0);
  EXPECT_TRUE(ImportProfiles(bad, kinds, other).ok());
  EXPECT_EQ(other.costs().RunTime("a"), milliseconds(2));
  EXPECT_EQ(other.costs().LoadTime(MiB(40)), milliseconds(40));
}

class OrphanedModels : public SchedulerTest {
 protected:
  // A worker from before the restart, with a model of 60 MiB of which this node has not been told.
  OrphanedModels() {
    scheduler.AddGpu(0, MiB(100));
    scheduler.Apply(WorkerReady{.gpu = 0, .memory = MiB(100), .free = MiB(40), .strange = MiB(60)}, now);
    Model("a", 50);
  }
};

TEST_F(OrphanedModels, TheirRoomIsTakenUntilTheyHaveGone) {
  Submit(1, "a");
  EXPECT_TRUE(scheduler.Decide(now).dispatches.empty()) << "there is nothing that it could evict";
  scheduler.OrphanGone(0, MiB(60));
  Serve(Next());
}

TEST_F(OrphanedModels, AnOrphanThatIsAdoptedIsAResidentAsOthers) {
  scheduler.FoundResident(0, {ModelNamed("b"), MiB(60)}, now);
  Model("b", 60);
  Submit(1, "a");
  const Dispatch dispatch = Next();
  EXPECT_THAT(dispatch.victims, testing::ElementsAre("b"));
  Serve(dispatch);
}

// A model that finds no room beside orphaned models is not too large for the GPU.
TEST_F(OrphanedModels, BesideThemAModelIsNotTooLargeForTheGpu) {
  Model("c", 30);
  Submit(1, "c");
  const Dispatch dispatch = Next();
  Loaded(dispatch, absl::ResourceExhaustedError("no fit"));
  free = MiB(20);
  EXPECT_TRUE(Ran(dispatch, RunEnd::kNoFit).finished.empty());
  EXPECT_TRUE(scheduler.Decide(now).dispatches.empty());
  scheduler.OrphanGone(0, MiB(60));
  Serve(Next());
}

}  // namespace
}  // namespace troupe::node::late_binding_test
