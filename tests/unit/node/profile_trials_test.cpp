// What a node does for a trial of an experiment, as a table of events and effects; and how profiles count in its
// estimates.
#include "node/requests/run_limit.hpp"
#include "tests/unit/node/node_fixture.hpp"

namespace troupe::node {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class ProfileTrialsTest : public NodeTest {
 protected:
  explicit ProfileTrialsTest(NodeSettings settings = Settings(2)) : NodeTest(std::move(settings)) {
    Up(0);
    Up(1);
    Hello(7);
  }
  void AdoptReady(const proto::FunctionRecord& function) {
    Adopt(function);
    Answered(0, "prepare");
    Answered(1, "prepare");
  }
  static proto::RunTrial TrialOf(const std::string& function, std::uint32_t gpu = 1) {
    proto::RunTrial trial;
    trial.set_experiment(5);
    *trial.mutable_key() = Function(function).key();
    trial.set_model_digest(Function(function).model_digest());
    trial.set_gpu(gpu);
    trial.set_gpu_kind("virtual");
    trial.set_sm_partition(12);
    trial.set_quota_limit(40);
    trial.set_batch(1);
    trial.set_limit_ns(Duration(seconds(20)).count());
    return trial;
  }
  Lines Ask(const proto::RunTrial& trial, node::Ask ask = 50) { return On(TrialAsked{ask, trial}); }
  static proto::WorkerOutcome Ran(Duration compute) {
    proto::WorkerOutcome outcome;
    outcome.mutable_run()->set_compute_ns(compute.count());
    outcome.mutable_run()->set_device_bytes(MiB(3).count());
    return outcome;
  }
  // The runs of a trial, each as long as this, until it has ended; what the last one led to.
  Lines Loop(Duration run, std::size_t most = 1000, GpuIndex gpu = 1) {
    Lines lines;
    for (std::size_t i = 0; i < most; ++i) {
      now += run;
      lines = Answered(gpu, "run", Ran(run / 2));
      if (lines != Lines{absl::StrCat("order ", gpu, " run packed-f")}) break;
    }
    return lines;
  }
};

TEST_F(ProfileTrialsTest, OneInstanceRunsOnTheShareUntilItsThroughputIsSteady) {
  AdoptReady(Function("f"));
  EXPECT_THAT(Ask(TrialOf("f")), ElementsAre("order 1 swap-in packed-f", "order 1 run packed-f"));
  const auto& run = OrderOf(1, "run").run();
  EXPECT_EQ(run.sharing().sm_partition(), 12u);
  EXPECT_EQ(run.sharing().quota_limit(), 40u);
  EXPECT_EQ(run.function(), "profile/f") << "the function's own share stays as it is";
  EXPECT_EQ(run.run_limit_ns(), Duration(seconds(20)).count());
  Answered(1, "swap-in");
  EXPECT_THAT(Loop(milliseconds(10)), ElementsAre("trial 50 measured"));
  const auto& row = ended_.row();
  EXPECT_EQ(row.sm_partition(), 12u);
  EXPECT_NEAR(row.throughput(), 100, 1e-6);
  EXPECT_EQ(row.run_ns(), Duration(milliseconds(5)).count());
  EXPECT_EQ(row.p99_ns(), Duration(milliseconds(10)).count());
  EXPECT_EQ(row.runs(), 75u);
  EXPECT_EQ(row.run_bytes(), MiB(3).count());
  EXPECT_FALSE(row.beside_load());
}

TEST_F(ProfileTrialsTest, TheRunThatTookMostOfTheMemoryCounts) {
  AdoptReady(Function("f"));
  Ask(TrialOf("f"));
  Answered(1, "swap-in");
  for (const std::uint64_t bytes : {MiB(7).count(), std::uint64_t{UINT64_MAX}}) {
    auto outcome = Ran(milliseconds(5));
    outcome.mutable_run()->set_device_bytes(bytes);
    now += milliseconds(10);
    Answered(1, "run", std::move(outcome));
  }
  EXPECT_THAT(Loop(milliseconds(10)), ElementsAre("trial 50 measured"));
  EXPECT_EQ(ended_.row().run_bytes(), MiB(7).count()) << "no GPU has what the second worker's answer says";
}

TEST_F(ProfileTrialsTest, ATrialTeachesTheSchedulerNothing) {
  AdoptReady(Function("f"));
  Ask(TrialOf("f"));
  Answered(1, "swap-in");
  EXPECT_THAT(Loop(milliseconds(10)), ElementsAre("trial 50 measured"));
  // A request of the function goes by the default of a model that never ran: cut only at the longest limit.
  Submit(1, "f");
  EXPECT_EQ(OrderOf(1, "run").run().run_limit_ns(), Duration(RunLimitRules().most).count());
}

TEST_F(ProfileTrialsTest, RequestsGoOnBesideItAndItsRowSaysSo) {
  AdoptReady(Function("f"));
  Adopt("g", 1001);
  Answered(0, "prepare");
  Answered(1, "prepare");
  // One run of another function stays on each GPU.
  Submit(1, "g");
  Submit(2, "g");
  EXPECT_THAT(Ask(TrialOf("f")), ElementsAre("order 1 swap-in packed-f", "order 1 run packed-f"));
  Answered(1, "swap-in");
  EXPECT_THAT(Loop(milliseconds(10)), ElementsAre("trial 50 measured"));
  EXPECT_TRUE(ended_.row().beside_load());
}

TEST_F(ProfileTrialsTest, ARunOnAPartOfTheSmsIsOtherLoadToo) {
  AdoptReady(Function("f"));
  auto other = Function("g");
  other.mutable_sharing()->set_sm_partition(24);
  Adopt(other, 1001);
  Answered(0, "prepare");
  Answered(1, "prepare");
  EXPECT_THAT(Submit(1, "g"), ElementsAre("order 0 swap-in packed-g", "order 0 run packed-g"));
  Answered(0, "swap-in");
  Ask(TrialOf("f", 0));
  Answered(0, "swap-in");
  EXPECT_THAT(Loop(milliseconds(10), 1000, 0), ElementsAre("trial 50 measured"));
  EXPECT_TRUE(ended_.row().beside_load());
}

TEST_F(ProfileTrialsTest, ABatchIsTheLeadingDimensionAndCountsItsRequests) {
  auto function = Function("f");
  auto& input = *function.add_inputs();
  input.set_name("x");
  input.set_type(proto::FP32);
  input.add_shape(-1);
  input.add_shape(8);
  AdoptReady(function);
  auto trial = TrialOf("f");
  trial.set_batch(16);
  Ask(trial);
  EXPECT_THAT(OrderOf(1, "run").run().inputs(0).spec().shape(), ElementsAre(16, 8));
  Answered(1, "swap-in");
  EXPECT_THAT(Loop(milliseconds(10)), ElementsAre("trial 50 measured"));
  EXPECT_NEAR(ended_.row().throughput(), 1600, 1e-6);
}

TEST_F(ProfileTrialsTest, LargeInputsAreMadeOnceAndFreedAtTheEnd) {
  auto function = Function("f");
  auto& input = *function.add_inputs();
  input.set_name("x");
  input.set_type(proto::FP32);
  input.add_shape(1 << 20);
  AdoptReady(function);
  EXPECT_THAT(Ask(TrialOf("f")), ElementsAre("zeros"));
  Tensors placed;
  *placed.Add()->mutable_spec() = input;
  placed.Mutable(0)->mutable_data()->mutable_arena()->set_slice(3);
  // The node's own requests come in order; this one is the first.
  Lines begun;
  for (std::uint64_t sequence = 1; sequence < 100 && begun.empty(); ++sequence)
    begun = On(InputsArrived{{0, sequence}, placed});
  EXPECT_THAT(begun, ElementsAre("order 1 swap-in packed-f", "order 1 run packed-f"));
  Answered(1, "swap-in");
  EXPECT_THAT(Loop(milliseconds(10)), ElementsAre("free zeros", "trial 50 measured"));
}

// --- how a trial fails ---

TEST_F(ProfileTrialsTest, AWorkerThatDiesEndsTheTrialWithARow) {
  AdoptReady(Function("f"));
  Ask(TrialOf("f"));
  Answered(1, "swap-in");
  Answered(1, "run", Ran(milliseconds(5)));
  const auto lines = Report(1, proto::ExecutorReport::DOWN);
  EXPECT_THAT(lines, ElementsAre(HasSubstr("trial 50 failed: ")));
  EXPECT_EQ(ended_.row().state(), proto::PROFILE_ROW_FAILED);
  EXPECT_THAT(ended_.row().reason(), HasSubstr("the test says so"));
}

TEST_F(ProfileTrialsTest, ATrialWhoseThroughputIsNotSteadyEndsAtItsLimit) {
  AdoptReady(Function("f"));
  Ask(TrialOf("f"));
  Answered(1, "swap-in");
  Duration run = milliseconds(10);
  while (now < Time(seconds(20))) {
    now += run;
    run += run / 20;
    Answered(1, "run", Ran(run));
  }
  On(TimerFired{Timer::kExpire});
  Answered(1, "run", Failed(absl::StatusCode::kCancelled));
  EXPECT_EQ(ended_.row().state(), proto::PROFILE_ROW_FAILED);
  EXPECT_THAT(ended_.row().reason(), HasSubstr("not steady within 20 s: its last windows had"));
}

TEST_F(ProfileTrialsTest, ACancelledExperimentsTrialEnds) {
  AdoptReady(Function("f"));
  Ask(TrialOf("f"));
  EXPECT_THAT(On(TrialStopped{6}), IsEmpty()) << "of another experiment";
  EXPECT_THAT(On(TrialStopped{5}), ElementsAre("order 1 cancel"));
  Answered(1, "swap-in");
  EXPECT_THAT(Answered(1, "run", Failed(absl::StatusCode::kCancelled)),
              ElementsAre("trial 50 failed: its experiment was cancelled"));
}

TEST_F(ProfileTrialsTest, AManagerThatAsksAnewGetsItsTrialWhenTheOldOneHasEnded) {
  AdoptReady(Function("f"));
  Ask(TrialOf("f"));
  EXPECT_THAT(Ask(TrialOf("f"), 51),
              ElementsAre("trial 51 refused: the GPU's last trial is ending; ask again", "order 1 cancel"));
  Answered(1, "swap-in");
  EXPECT_THAT(Answered(1, "run", Failed(absl::StatusCode::kCancelled)),
              ElementsAre(HasSubstr("trial 50 failed")));
  EXPECT_THAT(Ask(TrialOf("f"), 52), ElementsAre("order 1 run packed-f"));
}

TEST_F(ProfileTrialsTest, ATrialOfACancelledExperimentMakesRoomForTheNextExperiments) {
  AdoptReady(Function("f"));
  Ask(TrialOf("f"));
  auto next = TrialOf("f");
  next.set_experiment(6);
  EXPECT_THAT(Ask(next, 51), Contains(HasSubstr("trial 51 refused: the GPU's last trial is ending")));
  Answered(1, "swap-in");
  EXPECT_THAT(Answered(1, "run", Failed(absl::StatusCode::kCancelled)),
              ElementsAre("trial 50 failed: the manager has asked for another trial on its GPU"));
  EXPECT_THAT(Ask(next, 52), ElementsAre("order 1 run packed-f"));
}

// --- what a node cannot try ---

TEST_F(ProfileTrialsTest, WhatItCannotTryIsRefusedByName) {
  auto stateful = Function("s");
  stateful.add_state()->set_input("x");
  AdoptReady(Function("f"));
  Adopt(stateful, 1001);
  auto trial = TrialOf("f", 2);
  EXPECT_THAT(Ask(trial), ElementsAre(HasSubstr("has no GPU 2")));
  trial = TrialOf("f");
  trial.set_gpu_kind("NVIDIA H100 PCIe");
  EXPECT_THAT(Ask(trial),
              ElementsAre(HasSubstr("is of the kind 'virtual', and the experiment is about 'NVIDIA")));
  EXPECT_THAT(Ask(TrialOf("other")), ElementsAre(HasSubstr("does not have the model of function 'other'")));
  EXPECT_THAT(Ask(TrialOf("s")), ElementsAre(HasSubstr("keeps state on the device")));
}

TEST_F(ProfileTrialsTest, AFixedDimensionHasNoBatch) {
  auto function = Function("f");
  auto& input = *function.add_inputs();
  input.set_name("x");
  input.set_type(proto::FP32);
  input.add_shape(1);
  AdoptReady(function);
  auto trial = TrialOf("f");
  trial.set_batch(2);
  EXPECT_THAT(Ask(trial),
              ElementsAre(HasSubstr("batch of 2: the first dimension of its input 'x' is fixed")));
}

// --- profiles in the node's estimates ---

class ProfiledNode : public ProfileTrialsTest {
 protected:
  void Learn(const std::string& kind, const std::string& digest, std::uint64_t since) {
    proto::ClusterUpdate update;
    update.set_since(since);
    update.set_revision(since + 1);
    auto function = Function("f");
    function.mutable_sharing()->set_sm_partition(50);
    *update.add_functions() = function;
    auto& profile = *update.add_profiles();
    profile.set_model_digest(digest);
    profile.set_gpu_kind(kind);
    for (const auto& [share, ms] : {std::pair(50u, 40), {100u, 20}}) {
      auto& row = *profile.add_rows();
      row.set_sm_partition(share);
      row.set_quota_limit(100);
      row.set_batch(1);
      row.set_run_ns(Duration(milliseconds(ms)).count());
      row.set_throughput(1e3 / ms);
    }
    On(ClusterChanged{update});
  }
  // When a run that has to be answered in a second has to begin, as the worker is told.
  Duration Slack() {
    RequestArrived arrived;
    arrived.ask = ++asks_;
    arrived.message.mutable_id()->set_router(7);
    arrived.message.mutable_id()->set_sequence(arrived.ask);
    *arrived.message.mutable_function() = Function("f").key();
    arrived.message.set_model_digest(Function("f").model_digest());
    arrived.message.set_deadline_in_ns(Duration(seconds(1)).count());
    const auto lines = On(std::move(arrived));
    const GpuIndex gpu = !lines.empty() && lines.back() == "order 0 run packed-f" ? 0 : 1;
    const auto slack = Duration(OrderOf(gpu, "run").run().deadline_in_ns());
    Answered(gpu, "swap-in");
    Answered(gpu, "run", Ran(milliseconds(30)));
    return slack;
  }

 private:
  node::Ask asks_ = 0;
};

TEST_F(ProfiledNode, AProfileOfItsKindSaysHowLongARunOfItsShareTakes) {
  AdoptReady(Function("f"));
  Learn("virtual", "model-f", 0);
  EXPECT_EQ(Slack(), milliseconds(1000 - 40)) << "on half of the SMs";
  EXPECT_EQ(Slack(), milliseconds(1000 - 40)) << "whatever was learned since";
}

TEST_F(ProfiledNode, AProfileOfAnotherKindOrModelIsNotUsed) {
  AdoptReady(Function("f"));
  Learn("NVIDIA H100 PCIe", "model-f", 0);
  EXPECT_EQ(Slack(), milliseconds(1000 - 10)) << "what is taken of a model that never ran";
  Learn("virtual", "model-g", 1);
  EXPECT_GT(Slack(), milliseconds(1000 - 40));
}

}  // namespace
}  // namespace troupe::node
