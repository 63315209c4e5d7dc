// How experiments go on at the manager: through lost nodes, its own restart, a full disk, and cancellation; and which
// profiles it takes. Each test is a table of events and what the cluster does about them.
#include "tests/unit/cluster/cluster_fixture.hpp"

#include <cmath>
#include <limits>

namespace troupe::cluster {
namespace {

using std::chrono::seconds;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class ProfilingTest : public ClusterTest {
 protected:
  // Function "f" has a copy on node "n1".
  ProfilingTest() {
    Begin();
    Stored();
    JoinNode("n1");
    Stored();
    Deploy("f", 2);
    Stored();
    EXPECT_THAT(Adopted(), Contains("answer 2 OK"));
    Pulse();
  }
  // Two shares, and the whole time.
  Lines Profile(Ask ask, proto::ProfilingMethod method = proto::PROFILING_GRID) {
    AdminAsked asked{.ask = ask};
    auto& wish = *asked.request.mutable_profile_function();
    wish.mutable_key()->set_name("f");
    wish.set_method(method);
    wish.mutable_grid()->add_sm_partitions(50);
    wish.mutable_grid()->add_sm_partitions(100);
    wish.mutable_grid()->add_quota_limits(100);
    return On(std::move(asked));
  }
  Lines Measured(std::uint32_t share, double throughput, std::uint64_t experiment = 1) {
    TrialAnswered answered{.experiment = experiment, .ended = proto::TrialEnded()};
    auto& row = *answered.ended->mutable_row();
    row.set_sm_partition(share);
    row.set_quota_limit(100);
    row.set_batch(1);
    row.set_throughput(throughput);
    row.set_run_ns(1000);
    row.set_took_ns(Duration(seconds(2)).count());
    return On(std::move(answered));
  }
  Lines Refused(absl::StatusCode code, const std::string& why) {
    TrialAnswered answered{.experiment = 1, .ended = proto::TrialEnded()};
    answered.ended->set_code(static_cast<int>(code));
    answered.ended->set_message(why);
    return On(std::move(answered));
  }
  Lines Lost() { return On(TrialAnswered{1, absl::UnavailableError("the connection is gone")}); }
  Lines HearsGpu(const std::string& state) {
    HeartbeatHeard heard{.ask = 1};
    heard.heartbeat.set_name("n1");
    heard.heartbeat.set_epoch(1);
    heard.heartbeat.set_sequence(++heartbeat_);
    auto& gpu = *heard.heartbeat.add_gpus();
    gpu.set_memory_bytes(GiB(1).count());
    gpu.set_state(state);
    gpu.set_kind("virtual");
    return On(std::move(heard));
  }
  Lines Cancel(Ask ask) {
    AdminAsked asked{.ask = ask};
    asked.request.mutable_cancel_profiling()->mutable_key()->set_name("f");
    return On(std::move(asked));
  }
  proto::AdminReply Show(const std::string& function = "f") {
    AdminAsked asked{.ask = 99};
    asked.request.mutable_show_profile()->mutable_key()->set_name(function);
    On(std::move(asked));
    return reply_;
  }
  static proto::FunctionProfile ProfileOf(const std::string& function) {
    proto::FunctionProfile profile;
    profile.set_model_digest(FunctionOf(function).model_digest());
    profile.set_gpu_kind("virtual");
    auto& row = *profile.add_rows();
    row.set_sm_partition(100);
    row.set_quota_limit(100);
    row.set_batch(1);
    row.set_throughput(10);
    row.set_run_ns(1000);
    return profile;
  }
  Lines Import(const proto::FunctionProfile& profile, const std::string& function = "f") {
    AdminAsked asked{.ask = 70};
    asked.request.mutable_import_profile()->mutable_key()->set_name(function);
    *asked.request.mutable_import_profile()->mutable_profile() = profile;
    return On(std::move(asked));
  }

 private:
  std::uint64_t heartbeat_ = 0;
};

TEST_F(ProfilingTest, ARowIsDurableBeforeTheNextTrial) {
  EXPECT_THAT(Profile(10), ElementsAre("store profiling/1"));
  EXPECT_THAT(Stored(), ElementsAre("n1: profile-started", "answer 10 OK", "trial of 50/100/1 at n1"));
  EXPECT_EQ(reply_.experiments(0).trials_left(), 2u);
  EXPECT_THAT(Measured(50, 20), ElementsAre("store profiling/1"));
  EXPECT_THAT(Stored(), ElementsAre("trial of 100/100/1 at n1"));
  EXPECT_EQ(Show().experiments(0).left_ns(), Duration(seconds(2)).count()) << "by the mean so far";
  Measured(100, 40);
  const auto digest = FunctionOf("f").model_digest();
  EXPECT_THAT(Stored(),
              ElementsAre(absl::StrCat("store profiling/1 profile/", digest, "/0/virtual revision")));
  EXPECT_THAT(Stored(), ElementsAre("tell members", "n1: profile-ended"));
  const auto shown = Show();
  EXPECT_EQ(shown.experiments(0).state(), proto::EXPERIMENT_DONE);
  EXPECT_EQ(shown.profiles(0).rows_size(), 2);
  EXPECT_EQ(shown.profiles(0).rows(1).throughput(), 40);
}

TEST_F(ProfilingTest, OneExperimentOnAGpu) {
  Profile(10);
  EXPECT_THAT(Profile(11), ElementsAre("answer 11 FAILED_PRECONDITION"));
  Stored();
  EXPECT_THAT(Profile(12), ElementsAre("answer 12 FAILED_PRECONDITION"));
  EXPECT_THAT(reply_.message(), HasSubstr("no GPU is there for the experiment"));
}

// A GPU is on its way from the moment that its node joins: an order for it is not refused.
TEST_F(ProfilingTest, AnExperimentWaitsForAWorkerThatIsBeingStarted) {
  HearsGpu("starting");
  EXPECT_THAT(Profile(10), ElementsAre("store profiling/1"));
  EXPECT_THAT(Stored(), ElementsAre("n1: profile-started", "answer 10 OK"));
  EXPECT_THAT(Pulse(), Not(Contains("trial of 50/100/1 at n1")));
  HearsGpu("ready");
  EXPECT_THAT(Pulse(), Contains("trial of 50/100/1 at n1"));
}

TEST_F(ProfilingTest, AnUnfitGpuIsNotMeasured) {
  HearsGpu("unfit");
  EXPECT_THAT(Profile(10), ElementsAre("answer 10 FAILED_PRECONDITION"));
  EXPECT_THAT(reply_.message(), HasSubstr("none that is fit"));
}

TEST_F(ProfilingTest, WhatCannotBeMeasuredIsRefusedByName) {
  const auto why = [&](auto change) {
    AdminAsked asked{.ask = 10};
    auto& wish = *asked.request.mutable_profile_function();
    wish.mutable_key()->set_name("f");
    change(wish);
    On(std::move(asked));
    return reply_.message();
  };
  EXPECT_THAT(why([](auto& wish) { wish.mutable_key()->set_name("g"); }), HasSubstr("'g'"));
  EXPECT_THAT(why([](auto& wish) { wish.set_node("n2"); }), HasSubstr("these do: n1"));
  EXPECT_THAT(why([](auto& wish) { wish.set_gpu(3); }), HasSubstr("no GPU is there"));
  EXPECT_THAT(why([](auto& wish) { wish.mutable_grid()->add_batches(64); }), HasSubstr("between 1 and 32"));
  EXPECT_THAT(why([](auto& wish) { wish.set_trial_limit_ns(5); }), HasSubstr("between 1s and 1h"));
}

// --- what goes wrong ---

TEST_F(ProfilingTest, ALostNodeCostsTheRowOfItsTrialAndIsWaitedFor) {
  Profile(10);
  Stored();
  EXPECT_THAT(Lost(), ElementsAre("store profiling/1"));
  On(MemberLost{"n1"});
  EXPECT_THAT(Stored(), IsEmpty());
  EXPECT_THAT(Show().experiments(0).rows(0).reason(), HasSubstr("node 'n1' did not answer: the connection"));
  Pulse(seconds(30));
  JoinNode("n1", 3);
  EXPECT_THAT(Stored(), Contains("joined 3 epoch 2"));
  EXPECT_THAT(Pulse(), Contains("trial of 100/100/1 at n1"));
  Measured(100, 40);
  Stored();
  Stored();
  const auto shown = Show();
  EXPECT_EQ(shown.experiments(0).state(), proto::EXPERIMENT_DONE);
  EXPECT_EQ(shown.profiles(0).rows(0).state(), proto::PROFILE_ROW_FAILED);
}

TEST_F(ProfilingTest, ANodeThatStaysAwayEndsTheExperiment) {
  Profile(10);
  Stored();
  Lost();
  On(MemberLost{"n1"});
  Stored();
  Pulse(seconds(30));
  EXPECT_THAT(Pulse(seconds(31)), Contains(HasSubstr("store profiling/1")));
  EXPECT_THAT(Stored(), Contains("n1: profile-ended"));
  EXPECT_EQ(Show().experiments(0).state(), proto::EXPERIMENT_FAILED);
  EXPECT_THAT(Show().experiments(0).message(), HasSubstr("GPU n1/0 was not ready for"));
}

TEST_F(ProfilingTest, ANodeThatCannotDoItEndsTheExperimentWithItsReason) {
  Profile(10);
  Stored();
  Refused(absl::StatusCode::kFailedPrecondition, "function 'f' keeps state");
  Stored();
  EXPECT_THAT(Show().experiments(0).message(), "function 'f' keeps state");
  EXPECT_THAT(Show().profiles(), IsEmpty());
}

TEST_F(ProfilingTest, ANodeWhoseOldTrialIsEndingIsAskedAgain) {
  Profile(10);
  Stored();
  EXPECT_THAT(Refused(absl::StatusCode::kUnavailable, "ask again"), IsEmpty());
  EXPECT_THAT(Pulse(), IsEmpty());
  EXPECT_THAT(Pulse(seconds(1)), Contains("trial of 50/100/1 at n1"));
}

TEST_F(ProfilingTest, ARowThatCouldNotBeStoredIsMeasuredAgain) {
  Profile(10);
  Stored();
  Measured(50, 20);
  EXPECT_THAT(Stored(absl::ResourceExhaustedError("the disk is full")), IsEmpty());
  EXPECT_THAT(Show().experiments(0).rows(), IsEmpty());
  EXPECT_THAT(Pulse(seconds(1)), Contains("trial of 50/100/1 at n1"));
}

TEST_F(ProfilingTest, AnEndThatCouldNotBeStoredIsStoredLater) {
  Profile(10);
  Stored();
  Measured(50, 20);
  Stored();
  Measured(100, 40);
  Stored();
  Stored(absl::ResourceExhaustedError("the disk is full"));
  EXPECT_EQ(Show().experiments(0).state(), proto::EXPERIMENT_RUNNING);
  EXPECT_THAT(Pulse(seconds(1)), Contains(HasSubstr("store profiling/1 profile/")));
  Stored();
  EXPECT_EQ(Show().experiments(0).state(), proto::EXPERIMENT_DONE);
}

TEST_F(ProfilingTest, AnExperimentThatCouldNotBeStoredHasNotBegun) {
  Profile(10);
  EXPECT_THAT(Stored(absl::ResourceExhaustedError("the disk is full")),
              ElementsAre("answer 10 RESOURCE_EXHAUSTED"));
  EXPECT_THAT(Pulse(seconds(1)), testing::Not(Contains(HasSubstr("trial"))));
  EXPECT_THAT(Profile(11), ElementsAre("store profiling/1")) << "the GPU is free again";
}

TEST_F(ProfilingTest, ARestartedManagerGoesOnBehindTheLastStoredRow) {
  CatalogueRecords records;
  records.cluster = "c";
  records.functions.push_back(FunctionOf("f"));
  records.functions[0].mutable_key()->set_version("1");
  auto& experiment = records.experiments.emplace_back();
  experiment.set_number(4);
  experiment.mutable_key()->set_name("f");
  experiment.mutable_key()->set_version("1");
  experiment.set_model_digest(FunctionOf("f").model_digest());
  experiment.set_node("n1");
  experiment.set_gpu_kind("virtual");
  for (const std::uint32_t share : {50, 100}) experiment.mutable_grid()->add_sm_partitions(share);
  experiment.mutable_grid()->add_quota_limits(100);
  experiment.mutable_grid()->add_batches(1);
  auto& row = *experiment.add_rows();
  row.set_sm_partition(50);
  row.set_quota_limit(100);
  row.set_batch(1);
  row.set_throughput(20);
  row.set_run_ns(1000);
  Begin(std::move(records));
  Stored();
  EXPECT_THAT(Pulse(), IsEmpty()) << "its node has not joined yet";
  JoinNode("n1", 3);
  Stored();
  EXPECT_THAT(Pulse(), Contains("trial of 100/100/1 at n1"));
  Measured(100, 40, 4);
  Stored();
  Stored();
  EXPECT_EQ(Show().profiles(0).rows_size(), 2);
}

TEST_F(ProfilingTest, ACancelledExperimentKeepsWhatItHas) {
  Profile(10);
  Stored();
  Measured(50, 20);
  Stored();
  EXPECT_THAT(Cancel(20), ElementsAre("stop trial at n1", HasSubstr("store profiling/1 profile/")));
  EXPECT_THAT(Stored(), ElementsAre("tell members", "n1: profile-ended", "answer 20 OK"));
  EXPECT_THAT(Measured(100, 40), IsEmpty()) << "the trial that was stopped";
  const auto shown = Show();
  EXPECT_EQ(shown.experiments(0).state(), proto::EXPERIMENT_CANCELLED);
  EXPECT_EQ(shown.profiles(0).rows_size(), 1);
  EXPECT_THAT(Cancel(21), ElementsAre("answer 21 NOT_FOUND"));
  EXPECT_THAT(Profile(22), ElementsAre("store profiling/2"));
}

TEST_F(ProfilingTest, AFailedTrialLeavesAnOlderFigureInItsPlace) {
  Import(ProfileOf("f"));
  Stored();
  Profile(10);
  Stored();
  Measured(50, 20);
  Stored();
  Lost();
  Stored();
  Stored();
  const auto shown = Show();
  ASSERT_EQ(shown.profiles(0).rows_size(), 2);
  EXPECT_EQ(shown.profiles(0).rows(1).throughput(), 10);
  EXPECT_FALSE(shown.profiles(0).imported());
}

// --- imports ---

TEST_F(ProfilingTest, AnImportedProfileIsDurableAndToldToMembers) {
  EXPECT_THAT(
      Import(ProfileOf("f")),
      ElementsAre(absl::StrCat("store profile/", FunctionOf("f").model_digest(), "/0/virtual revision")));
  EXPECT_THAT(Stored(), ElementsAre("tell members", "manager: profile-imported", "answer 70 OK"));
  EXPECT_TRUE(Show().profiles(0).imported());
}

TEST_F(ProfilingTest, AProfileThatCannotBeTrueIsRefusedByName) {
  const auto why = [&](auto change) {
    auto profile = ProfileOf("f");
    change(profile, *profile.mutable_rows(0));
    EXPECT_THAT(Import(profile), ElementsAre(HasSubstr("answer 70 ")));
    return reply_.message();
  };
  EXPECT_THAT(why([](auto& profile, auto&) { profile.set_model_digest("other"); }),
              HasSubstr("is of the model other"));
  EXPECT_THAT(why([](auto& profile, auto&) { profile.set_precision(proto::PRECISION_FP16); }),
              HasSubstr("precision"));
  EXPECT_THAT(why([](auto& profile, auto&) { profile.clear_gpu_kind(); }), HasSubstr("no kind of GPU"));
  EXPECT_THAT(why([](auto& profile, auto&) { profile.clear_rows(); }), HasSubstr("0 rows"));
  EXPECT_THAT(why([](auto& profile, auto& row) { *profile.add_rows() = row; }), HasSubstr("twice"));
  EXPECT_THAT(why([](auto&, auto& row) { row.set_throughput(std::nan("")); }), HasSubstr("not a number"));
  EXPECT_THAT(why([](auto&, auto& row) { row.set_throughput(-1); }), HasSubstr("not a number from 0"));
  EXPECT_THAT(why([](auto&, auto& row) { row.set_throughput(std::numeric_limits<double>::infinity()); }),
              HasSubstr("not a number from 0"));
  EXPECT_THAT(why([](auto&, auto& row) { row.set_run_ns(-5); }), HasSubstr("between 0 and a day"));
  EXPECT_THAT(why([](auto&, auto& row) { row.set_p50_ns(9); }), HasSubstr("do not grow"));
  EXPECT_THAT(why([](auto&, auto& row) { row.set_run_bytes(UINT64_MAX); }),
              HasSubstr("more memory of a run"));
  EXPECT_THAT(why([](auto&, auto& row) { row.set_sm_partition(101); }), HasSubstr("between 1 and 100"));
  EXPECT_THAT(why([](auto&, auto& row) { row.set_batch(64); }), HasSubstr("between 1 and 32"));
  EXPECT_THAT(why([](auto&, auto& row) { row.set_reason(std::string(501, 'x')); }), HasSubstr("500 bytes"));
  EXPECT_THAT(Show().profiles(), IsEmpty());
}

TEST_F(ProfilingTest, AProfileOfAnotherVersionsModelIsNamedAndNotUsed) {
  Import(ProfileOf("f"));
  Stored();
  AdminAsked asked{.ask = 30};
  asked.request.mutable_deploy()->set_name("f");
  asked.request.mutable_deploy()->set_onnx_digest("onnx");
  On(std::move(asked));
  auto other = FunctionOf("other");
  other.clear_key();
  On(ModelImported{30, other});
  Stored();
  const auto shown = Show();
  EXPECT_THAT(shown.profiles(), IsEmpty());
  EXPECT_THAT(shown.message(),
              HasSubstr("version 1 has a profile, of another model: it is not used for version 2"));
}

}  // namespace
}  // namespace troupe::cluster
