// GPUs of several kinds in one node: their numbers, the choice between them, what is learned of each, and what
// outlives the node.
#include "node/gpu_kinds.hpp"

#include "node/models/profiles.hpp"
#include "tests/unit/node/node_fixture.hpp"
#include "tests/unit/node/scheduler_fixture.hpp"

namespace troupe::node::gpu_kinds_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<GpuSetup> Of(const std::vector<std::string>& kinds) {
  std::vector<GpuSetup> gpus;
  for (const auto& kind : kinds) gpus.push_back({"virtual", GiB(1), kind});
  return gpus;
}

TEST(GpuKinds, HaveNumbersInTheOrderOfTheGpus) {
  GpuKinds kinds(Of({"b", "a", "b"}), KindRule::kAware);
  EXPECT_EQ(kinds.OfDevice(0), 0u);
  EXPECT_EQ(kinds.OfDevice(1), 1u);
  EXPECT_EQ(kinds.OfDevice(2), 0u);
  EXPECT_EQ(kinds.NameOf(1), "a");
  EXPECT_EQ(kinds.Find("c"), std::nullopt);
  EXPECT_EQ(kinds.Remember("c"), 2u);
  EXPECT_EQ(kinds.Find("c"), 2u);
  EXPECT_EQ(kinds.Remember(""), 0u) << "what names no kind is of the first one";
}

TEST(GpuKinds, OfAFileAreFewAndHaveNames) {
  GpuKinds kinds(Of({"a"}), KindRule::kAware);
  EXPECT_EQ(kinds.Remember("a\nb"), std::nullopt);
  EXPECT_EQ(kinds.Remember(std::string(101, 'a')), std::nullopt);
  std::size_t known = 0;
  for (int i = 0; i < 100; ++i) known += kinds.Remember("kind " + std::to_string(i)) ? 1 : 0;
  EXPECT_EQ(known, GpuKinds::kMost - 1);
  EXPECT_EQ(kinds.size(), GpuKinds::kMost);
  EXPECT_EQ(kinds.Remember("one more"), std::nullopt);
}

TEST(GpuKinds, AreOneWhereTheRuleIsBlind) {
  GpuKinds kinds(Of({"a", "b"}), KindRule::kBlind);
  EXPECT_EQ(kinds.OfDevice(1), 0u);
  EXPECT_EQ(kinds.size(), 1u);
  EXPECT_EQ(kinds.Find("a"), std::nullopt) << "what is known of one kind says nothing of all";
  EXPECT_EQ(kinds.Remember("b"), std::nullopt);
  GpuKinds alike(Of({"a", "a"}), KindRule::kBlind);
  EXPECT_EQ(alike.Find("a"), 0u);
}

// --- the choice of a GPU ---

GpuOption Holder(GpuIndex gpu, int backlog_ms, int slower_ms, bool usable = true) {
  return {.gpu = gpu,
          .has_model = true,
          .has_slot = usable,
          .fits = usable,
          .backlog = milliseconds(backlog_ms),
          .slower = milliseconds(slower_ms)};
}
GpuOption Loader(GpuIndex gpu, int load_ms, int slower_ms) {
  return {.gpu = gpu,
          .has_slot = true,
          .fits = true,
          .slower = milliseconds(slower_ms),
          .load = milliseconds(load_ms)};
}
GpuChoice Choose(const char* policy, std::vector<GpuOption> options, Duration spare = Duration::max(),
                 double fast_wanted = 0) {
  return FindGpuPolicy(policy)->choose(
      {.options = options, .load = milliseconds(10), .spare = spare, .fast_wanted = fast_wanted});
}

TEST(KindChoice, ARunGoesWhereItEndsFirst) {
  for (const char* policy : {"least-cost", "resident-first"}) {
    EXPECT_EQ(Choose(policy, {Holder(0, 0, 20), Holder(1, 15, 0)}).gpu, 1u) << policy;
    EXPECT_EQ(Choose(policy, {Holder(0, 0, 20), Holder(1, 25, 0)}).gpu, 0u) << policy;
    EXPECT_EQ(Choose(policy, {Loader(0, 10, 20), Loader(1, 10, 0)}).gpu, 1u) << policy;
  }
  // A copy on a fast GPU, when it is there sooner than a run on a slow one ends.
  EXPECT_EQ(Choose("least-cost", {Holder(0, 0, 20), Loader(1, 15, 0)}).gpu, 1u);
  EXPECT_EQ(Choose("least-cost", {Holder(0, 0, 20), Loader(1, 25, 0)}).gpu, 0u);
}

TEST(KindChoice, ASlowGpuIsNotTakenWhenTheRequestIsInTimeOnABusyFastOne) {
  const std::vector<GpuOption> options = {Holder(0, 10, 20), Holder(1, 18, 0, false)};
  const GpuChoice waits = Choose("least-cost", options, milliseconds(19));
  EXPECT_EQ(waits.verdict, GpuVerdict::kWait);
  EXPECT_EQ(waits.gpu, 1u);
  // In time on both, or on none: the GPU that is free.
  EXPECT_EQ(Choose("least-cost", options, milliseconds(31)).gpu, 0u);
  EXPECT_EQ(Choose("least-cost", options, milliseconds(17)).verdict, GpuVerdict::kWait)
      << "even alone its run would be late on the slow one";
  EXPECT_EQ(Choose("least-cost", options, milliseconds(-1)).gpu, 0u) << "it is late anyhow";
}

TEST(KindChoice, AGpuThatIsTooSlowForTheDeadlineIsLeftOutWhileThereIsAnother) {
  for (const char* policy : {"least-cost", "resident-first"}) {
    EXPECT_EQ(Choose(policy, {Holder(0, 0, 20), Loader(1, 500, 0)}, milliseconds(10)).gpu, 1u) << policy;
    EXPECT_EQ(Choose(policy, {Holder(0, 0, 20)}, milliseconds(10)).gpu, 0u)
        << policy << ": it is the only one";
  }
}

TEST(KindChoice, WithTimeToSpareARunLeavesTheFastGpusToThoseThatNeedThem) {
  const std::vector<GpuOption> options = {Holder(0, 0, 0), Holder(1, 0, 10), Holder(2, 0, 20)};
  const auto choice = [&](int spare_ms, double wanted) {
    return Choose("least-cost", options, milliseconds(spare_ms), wanted).gpu;
  };
  EXPECT_EQ(choice(100, 0), 0u) << "none needs them";
  EXPECT_EQ(choice(100, 0.1), 2u);
  EXPECT_EQ(choice(20, 0.1), 1u) << "on the slowest it would be in time by a hair";
  EXPECT_EQ(choice(5, 0.1), 0u);
  EXPECT_EQ(choice(-1, 0.1), 2u) << "it is late on each";
  // A copy, when it is there in time.
  EXPECT_EQ(Choose("least-cost", {Holder(0, 0, 0), Loader(1, 30, 20)}, milliseconds(100), 0.1).gpu, 1u);
  EXPECT_EQ(Choose("least-cost", {Holder(0, 0, 0), Loader(1, 90, 20)}, milliseconds(100), 0.1).gpu, 0u);
}

// --- the scheduler ---

class TwoKinds : public SchedulerTest {
 protected:
  TwoKinds() {
    for (GpuIndex gpu = 0; gpu < 2; ++gpu) {
      scheduler.AddRuntime(gpu, MiB(100), gpu, gpu);
      Ready(gpu);
      scheduler.FoundResident(gpu, {ModelNamed("m"), MiB(10)}, now);
    }
    Model("m", 10);
    scheduler.RestoreCosts({{.model = "m", .run = milliseconds(10), .kind = 0},
                            {.model = "m", .run = milliseconds(20), .kind = kSlow}},
                           {});
  }
  // As long as it takes on each.
  void Run(const Dispatch& dispatch) {
    const Duration took = milliseconds(dispatch.gpu == kSlow ? 20 : 10);
    scheduler.Apply(RunDone{.gpu = dispatch.gpu, .request = dispatch.request, .took = took, .computed = took},
                    now);
  }

  static constexpr GpuIndex kSlow = 1;  // and its kind
  std::uint64_t next = 1;
};

TEST_F(TwoKinds, ARunGoesWhereItEndsFirst) {
  for (int i = 0; i < 2; ++i) {
    Submit(next++, "m");
    EXPECT_EQ(Next().gpu, 0u) << "sooner there, or as soon";
  }
  deadline = now + milliseconds(35);
  Submit(next++, "m");
  const Dispatch third = Next();
  EXPECT_EQ(third.gpu, kSlow) << "behind two runs of 10 ms it would end later than in 20 ms";
  EXPECT_EQ(third.deadline, now + milliseconds(15)) << "when a run of 20 ms has to begin";
}

TEST_F(TwoKinds, ARequestThatIsTooTightForTheSlowKindGoesToTheFastOneOnly) {
  deadline = now + milliseconds(15);
  for (int i = 0; i < 2; ++i) {
    Submit(next++, "m");
    const Dispatch dispatch = Next();
    EXPECT_EQ(dispatch.gpu, 0u) << "behind others, though the slow one is idle";
    EXPECT_EQ(dispatch.deadline, now + milliseconds(5));
  }
}

TEST_F(TwoKinds, WhatARunTakesIsLearnedOfItsKind) {
  for (int i = 0; i < 3; ++i) Submit(next++, "m");
  const auto dispatches = Decide();
  ASSERT_EQ(dispatches.size(), 3u);
  for (const Dispatch& dispatch : dispatches) Run(dispatch);
  EXPECT_EQ(scheduler.costs().RunTime("m", 0), milliseconds(10));
  EXPECT_EQ(scheduler.costs().RunTime("m", kSlow), milliseconds(20));
  EXPECT_EQ(scheduler.RunsOf(ModelNamed("m"), 0).times.runs(), 2u);
  EXPECT_EQ(scheduler.RunsOf(ModelNamed("m"), kSlow).times.runs(), 1u);
  EXPECT_LT(scheduler.RunsOf(ModelNamed("m"), 0).times.Percentile(99), milliseconds(19))
      << "of its run limit";
}

TEST_F(TwoKinds, LoadTimesAreLearnedByKind) {
  Model("n", 60);
  Submit(next++, "n");
  const Dispatch dispatch = Next();
  scheduler.Apply(
      SwapInDone{
          .gpu = dispatch.gpu, .model = dispatch.model, .device_bytes = MiB(60), .took = milliseconds(60)},
      now);
  EXPECT_NEAR(ToMillis(scheduler.costs().LoadTime(MiB(60), dispatch.gpu)), 60, 0.01);
  EXPECT_EQ(scheduler.costs().nanos_per_byte().Find(1 - dispatch.gpu) == nullptr ||
                *scheduler.costs().nanos_per_byte().Find(1 - dispatch.gpu) == 0,
            true);
}

TEST_F(TwoKinds, WhatWasLearnedIsKeptByTheNamesOfTheKinds) {
  GpuKinds kinds(Of({"fast", "slow"}), KindRule::kAware);
  const auto saved = ExportProfiles(scheduler, kinds);
  ASSERT_EQ(saved.format_version(), 2u);
  ASSERT_EQ(saved.models_size(), 2);
  EXPECT_EQ(saved.models(0).gpu_kind(), "fast");
  EXPECT_EQ(saved.models(1).gpu_kind(), "slow");
  // The GPUs stand in another order, and the slow one was replaced.
  GpuKinds others(Of({"new", "fast"}), KindRule::kAware);
  SwapScheduler other({}, *FindSchedulerPolicies(PolicyNames()));
  ASSERT_TRUE(ImportProfiles(saved, others, other).ok());
  EXPECT_EQ(other.costs().RunTime("m", 1), milliseconds(10));
  EXPECT_EQ(other.costs().RunTime("m", 0), milliseconds(10)) << "a known kind stands for the new one";
  const auto again = ExportProfiles(other, others);
  ASSERT_EQ(again.models_size(), 2) << "the kind that is gone is remembered";
  EXPECT_EQ(again.models(1).gpu_kind(), "slow");
  EXPECT_EQ(Duration(again.models(1).run_ns()), milliseconds(20));
}

class LalbOfTwoKinds : public SchedulerTest {
 protected:
  LalbOfTwoKinds() : SchedulerTest({}, *FindSchedulerPolicies(*FindPreset("lalb"))) {}
};

TEST_F(LalbOfTwoKinds, TheRunsCountWhereALoadIsComparedWithABusyGpu) {
  for (GpuIndex gpu = 0; gpu < 2; ++gpu) {
    scheduler.AddRuntime(gpu, MiB(100), gpu, gpu);
    Ready(gpu);
  }
  scheduler.FoundResident(1, {ModelNamed("m"), MiB(60)}, now);
  Model("m", 60);  // 10 ms over a link of 6 GB/s
  scheduler.RestoreCosts({{.model = "m", .run = milliseconds(10), .kind = 0},
                          {.model = "m", .run = milliseconds(20), .kind = 1}},
                         {});
  Submit(1, "m");
  EXPECT_EQ(Next().gpu, 1u) << "it is idle and has the model";
  now += milliseconds(15);
  Submit(2, "m");
  EXPECT_EQ(Next().gpu, 0u)
      << "a load and a run of 10 ms end before the 5 ms that are left and a run of 20 ms";
  Submit(3, "m");
  now += milliseconds(1);
  EXPECT_TRUE(Decide().empty()) << "no GPU is idle";
}

proto::NodeProfiles OldProfiles() {
  proto::NodeProfiles old;
  old.set_format_version(1);
  old.set_nanos_per_byte(2);
  auto& model = *old.add_models();
  model.set_model("m");
  model.set_run_ns(Duration(milliseconds(12)).count());
  return old;
}

TEST(KindProfiles, TheFormatWithoutKindsIsOfTheFirstKind) {
  GpuKinds kinds(Of({"fast", "slow"}), KindRule::kAware);
  SwapScheduler scheduler({}, *FindSchedulerPolicies(PolicyNames()));
  ASSERT_TRUE(ImportProfiles(OldProfiles(), kinds, scheduler).ok());
  EXPECT_EQ(scheduler.costs().RunTime("m", 0), milliseconds(12));
  EXPECT_EQ(scheduler.costs().RunTime("m", 1), milliseconds(12)) << "it stands for the other";
  EXPECT_EQ(scheduler.costs().LoadTime(Bytes(1'000'000)), milliseconds(2));
  const auto saved = ExportProfiles(scheduler, kinds);
  ASSERT_EQ(saved.models_size(), 1);
  EXPECT_EQ(saved.models(0).gpu_kind(), "fast");
  ASSERT_EQ(saved.links_size(), 1);
  EXPECT_EQ(saved.links(0).gpu_kind(), "fast");
}

TEST(KindProfiles, AKindThatIsNotANameIsLeftOut) {
  auto bad = OldProfiles();
  bad.set_format_version(2);
  bad.mutable_models(0)->set_gpu_kind("\x01");
  auto& link = *bad.add_links();
  link.set_gpu_kind(std::string(1000, 'x'));
  link.set_nanos_per_byte(5);
  for (int i = 0; i < 1000; ++i) bad.add_models()->set_gpu_kind("kind " + std::to_string(i));
  GpuKinds kinds(Of({"fast", "slow"}), KindRule::kAware);
  SwapScheduler scheduler({}, *FindSchedulerPolicies(PolicyNames()));
  ASSERT_TRUE(ImportProfiles(bad, kinds, scheduler).ok());
  EXPECT_TRUE(scheduler.costs().Known().empty());
  EXPECT_EQ(kinds.size(), GpuKinds::kMost);
  bad.set_format_version(3);
  EXPECT_THAT(std::string(ImportProfiles(bad, kinds, scheduler).message()), HasSubstr("format 3"));
}

// --- a whole node ---

class MixedNode : public NodeTest {
 protected:
  static NodeSettings Mixed() {
    NodeSettings settings = Settings(2);
    settings.gpus[0].kind = "fast";
    settings.gpus[1].kind = "slow";
    settings.keeps_profiles = true;
    settings.profiles.set_format_version(2);
    for (const auto& [kind, ms] : {std::pair("fast", 10), {"slow", 20}}) {
      auto& model = *settings.profiles.add_models();
      model.set_model("model-f");
      model.set_gpu_kind(kind);
      model.set_run_ns(Duration(milliseconds(ms)).count());
    }
    return settings;
  }
  MixedNode() : NodeTest(Mixed()) {
    for (GpuIndex gpu = 0; gpu < 2; ++gpu) Up(gpu);
    Hello(7);
    Adopt("f");
    for (GpuIndex gpu = 0; gpu < 2; ++gpu) Answered(gpu, "prepare");
  }
  Lines Submit(node::Ask ask, Duration deadline) {
    RequestArrived arrived;
    arrived.ask = ask;
    arrived.message.mutable_id()->set_router(7);
    arrived.message.mutable_id()->set_sequence(ask);
    *arrived.message.mutable_function() = Function("f").key();
    arrived.message.set_model_digest("model-f");
    arrived.message.set_deadline_in_ns(deadline.count());
    return On(std::move(arrived));
  }
  void Profile(const std::string& kind, int ms, std::uint64_t since) {
    proto::ClusterUpdate update;
    update.set_since(since);
    update.set_revision(since + 1);
    *update.add_functions() = Function("f");
    auto& profile = *update.add_profiles();
    profile.set_model_digest("model-f");
    profile.set_gpu_kind(kind);
    auto& row = *profile.add_rows();
    row.set_sm_partition(100);
    row.set_quota_limit(100);
    row.set_batch(1);
    row.set_run_ns(Duration(milliseconds(ms)).count());
    On(ClusterChanged{update});
  }
  // For how long a run that was just ordered may wait, as its worker is told.
  Duration Slack(GpuIndex gpu) { return Duration(OrderOf(gpu, "run").run().deadline_in_ns()); }
};

TEST_F(MixedNode, KnowsTheKindsAgainAfterItsRestart) {
  EXPECT_THAT(Submit(1, milliseconds(15)), ElementsAre("order 0 swap-in packed-f", "order 0 run packed-f"))
      << "on the slow kind it would be late";
  EXPECT_EQ(Slack(0), milliseconds(15 - 10));
}

TEST_F(MixedNode, EachGpuHasTheProfileOfItsKind) {
  Profile("slow", 30, 0);
  Profile("fast", 50, 1);
  Profile("third", 1, 2);
  EXPECT_THAT(Submit(1, seconds(1)), ElementsAre("order 1 swap-in packed-f", "order 1 run packed-f"))
      << "where its run takes least by the profiles";
  EXPECT_EQ(Slack(1), milliseconds(1000 - 30));
}

// A node of two kinds that measures what it adopts.
class MeasuringNode : public NodeTest {
 protected:
  static NodeSettings Measuring() {
    NodeSettings settings = Settings(3);
    for (const std::size_t gpu : {0, 1}) settings.gpus[gpu].kind = "fast";
    settings.gpus[2].kind = "slow";
    settings.measure = MeasureRule::kAdoption;
    return settings;
  }
  MeasuringNode() : NodeTest(Measuring()) {}
  void Prepared(const std::vector<GpuIndex>& gpus) {
    for (const GpuIndex gpu : gpus) Answered(gpu, "prepare");
  }
  [[nodiscard]] bool Tries(GpuIndex gpu) { return OrderOf(gpu, "run").has_run(); }
  // A trial on this GPU, which swaps the model in, or finds it there.
  Lines Tried(GpuIndex gpu, bool swaps) {
    proto::WorkerOutcome outcome;
    outcome.set_begin_ns(1'000'000);
    outcome.set_end_ns(3'000'000);
    if (swaps) {
      Answered(gpu, "swap-in", outcome);
      outcome.mutable_run()->set_last_group_ns(4'000'000);  // it began before all of its weights were there
    }
    outcome.set_begin_ns(3'000'000);
    outcome.set_end_ns(9'000'000);
    outcome.mutable_run()->set_compute_ns(5'000'000);
    now += milliseconds(10);
    return Answered(gpu, "run", outcome);
  }
};

TEST_F(MeasuringNode, EachKindIsMeasuredOnOneOfItsGpus) {
  for (GpuIndex gpu = 0; gpu < 3; ++gpu) Up(gpu);
  Adopt("f");
  Prepared({0, 1, 2});
  EXPECT_TRUE(Tries(0) && !Tries(1) && !Tries(2)) << "one at a time";
  EXPECT_THAT(Tried(0, true), ElementsAre("order 0 run packed-f")) << "a resident run behind the swapped one";
  EXPECT_THAT(Tried(0, false), ElementsAre("order 2 swap-in packed-f", "order 2 run packed-f"));
  EXPECT_THAT(Tried(2, true), ElementsAre("order 2 run packed-f"));
  EXPECT_THAT(Tried(2, false), ElementsAre()) << "both kinds are known";
}

TEST_F(MeasuringNode, AKindWithoutAWorkerIsLeftOut) {
  for (const GpuIndex gpu : {0, 1}) Up(gpu);
  Adopt("f");
  Prepared({0, 1});
  EXPECT_TRUE(Tries(0));
  EXPECT_THAT(Tried(0, true), ElementsAre("order 0 run packed-f"));
  EXPECT_THAT(Tried(0, false), ElementsAre());
}

TEST_F(MeasuringNode, AModelThatFailsOnZerosIsTriedOnNoOtherKind) {
  for (GpuIndex gpu = 0; gpu < 3; ++gpu) Up(gpu);
  Adopt("f");
  Prepared({0, 1, 2});
  Answered(0, "swap-in");
  EXPECT_THAT(Answered(0, "run", Failed(absl::StatusCode::kInvalidArgument)), ElementsAre());
}

}  // namespace
}  // namespace troupe::node::gpu_kinds_test
