// `troupe profile`: what it asks, what it shows, and files that go out and come back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "shell/profiles/heat_map.hpp"
#include "shell/profiles/profile_file.hpp"
#include "tests/temporary_directory.hpp"
#include "tests/unit/shell/fake_admin_client.hpp"

namespace troupe::shell {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using Request = proto::AdminRequest;

proto::FunctionProfile ProfileOf(const std::string& kind) {
  proto::FunctionProfile profile;
  profile.set_model_digest("0123456789abcdef");
  profile.set_gpu_kind(kind);
  for (const std::uint32_t quota : {40, 100}) {
    for (const auto& [share, throughput] : {std::pair(12u, 50.0), {24u, 99.0}, {100u, 100.0}}) {
      auto& row = *profile.add_rows();
      row.set_sm_partition(share);
      row.set_quota_limit(quota);
      row.set_batch(1);
      row.set_throughput(throughput * quota / 100);
      row.set_run_ns(10'000'000);
      row.set_p50_ns(11'000'000);
      row.set_p90_ns(12'000'000);
      row.set_p99_ns(13'000'000);
      row.set_runs(75);
      row.set_run_bytes(3 << 20);
    }
  }
  profile.mutable_rows(1)->set_state(proto::PROFILE_ROW_INTERPOLATED);
  auto& failed = *profile.mutable_rows(2);
  failed.set_state(proto::PROFILE_ROW_FAILED);
  failed.set_reason("its worker said \"no\", and <died>");
  failed.clear_throughput();
  return profile;
}

proto::AdminReply Shown(proto::ExperimentState state, const std::string& kind = "virtual") {
  proto::AdminReply reply;
  auto& record = *reply.add_functions()->mutable_record();
  record.mutable_key()->set_name("digits");
  record.mutable_key()->set_version("2");
  record.set_model_digest("0123456789abcdef");
  *reply.add_profiles() = ProfileOf(kind);
  auto& experiment = *reply.add_experiments();
  experiment.set_number(3);
  *experiment.mutable_key() = record.key();
  experiment.set_node("n1");
  experiment.set_method(proto::PROFILING_BISECT);
  experiment.set_state(state);
  experiment.set_trials_left(state == proto::EXPERIMENT_RUNNING ? 10 : 0);
  experiment.set_left_ns(120'000'000'000);
  experiment.add_rows();
  return reply;
}

proto::AdminReply Gpus() {
  proto::AdminReply reply;
  auto& gpu = *reply.add_gpus();
  gpu.set_node("n1");
  gpu.mutable_gpu()->set_kind("virtual");
  return reply;
}

TEST(ProfileVerbs, AFunctionBehindProfileIsMeasured) {
  Harness troupe;
  troupe.cluster.Answer(Request::kProfileFunction, Shown(proto::EXPERIMENT_RUNNING));
  troupe.cluster.Answer(Request::kShowProfile, Shown(proto::EXPERIMENT_RUNNING));
  troupe.cluster.Answer(Request::kShowProfile, Shown(proto::EXPERIMENT_DONE));
  troupe.cluster.Answer(Request::kListGpus, Gpus());
  troupe.console.wakes = {Console::Wake::kTimeout, Console::Wake::kTimeout};
  EXPECT_EQ(
      troupe.Run(
          "profile digits --grid --on n1/2 --batch 1..32 --shares 12,24 --quotas 100 --trial-limit 30s"),
      ExitCode::kOk)
      << troupe.err();
  const auto& wish = troupe.cluster.asked.at(0).profile_function();
  EXPECT_EQ(wish.key().name(), "digits");
  EXPECT_EQ(wish.method(), proto::PROFILING_GRID);
  EXPECT_EQ(wish.node(), "n1");
  EXPECT_EQ(wish.gpu(), 2u);
  EXPECT_THAT(wish.grid().batches(), ElementsAre(1, 2, 4, 8, 16, 32));
  EXPECT_THAT(wish.grid().sm_partitions(), ElementsAre(12, 24));
  EXPECT_THAT(wish.grid().quota_limits(), ElementsAre(100));
  EXPECT_EQ(wish.trial_limit_ns(), 30'000'000'000);
  EXPECT_THAT(troupe.out(), HasSubstr("bisect on n1/0: done, 1 trial"));
  EXPECT_THAT(troupe.out(), HasSubstr("virtual, fp32, changed -; used on n1/0"));
  EXPECT_THAT(troupe.out(), HasSubstr("batch 1: no gain above 24 % of the SMs"));
  EXPECT_THAT(troupe.out(), HasSubstr("failed: its worker said"));
}

TEST(ProfileVerbs, BisectingIsTheDefaultAndDetachDoesNotWait) {
  Harness troupe;
  troupe.cluster.Answer(Request::kProfileFunction, Shown(proto::EXPERIMENT_RUNNING));
  EXPECT_EQ(troupe.Run("profile run digits --detach"), ExitCode::kOk) << troupe.err();
  EXPECT_EQ(troupe.cluster.asked.size(), 1u);
  EXPECT_EQ(troupe.cluster.asked[0].profile_function().method(), proto::PROFILING_BISECT);
  EXPECT_THAT(troupe.out(), HasSubstr("bisect on n1/0: running, 1 trial, at most 10 to go, some 120 s left"));
  EXPECT_THAT(troupe.out(), HasSubstr("'troupe profile cancel digits' ends it"));
}

TEST(ProfileVerbs, AnExperimentThatFailedIsAnError) {
  Harness troupe;
  auto failed = Shown(proto::EXPERIMENT_FAILED);
  failed.mutable_experiments(0)->set_message("GPU n1/0 was not ready for 1m");
  troupe.cluster.Answer(Request::kProfileFunction, Shown(proto::EXPERIMENT_RUNNING));
  troupe.cluster.Answer(Request::kShowProfile, failed);
  troupe.console.wakes = {Console::Wake::kTimeout};
  EXPECT_EQ(troupe.Run("profile digits"), ExitCode::kRefused);
  EXPECT_THAT(troupe.out(), HasSubstr("failed, 1 trial: GPU n1/0 was not ready"));
}

TEST(ProfileVerbs, WrongWordsAreNotSent) {
  Harness troupe;
  for (const std::string words :
       {"digits --grid --bisect", "digits --batch 0", "digits --batch 33", "digits --batch 8..4",
        "digits --batch x", "digits --shares 0", "digits --shares 101", "digits --quotas 10,,20",
        "digits --on n1", "show", "import digits"})
    EXPECT_EQ(troupe.Run("profile " + words), ExitCode::kUsage) << words;
  EXPECT_TRUE(troupe.cluster.asked.empty());
}

TEST(ProfileVerbs, AProfileThatNoGpuUsesSaysSo) {
  Harness troupe;
  troupe.cluster.Answer(Request::kShowProfile, Shown(proto::EXPERIMENT_DONE, "NVIDIA H100 PCIe"));
  troupe.cluster.Answer(Request::kListGpus, Gpus());
  EXPECT_EQ(troupe.Run("profile show digits"), ExitCode::kOk) << troupe.err();
  EXPECT_THAT(troupe.out(), HasSubstr("not used: no GPU of the cluster is of this kind"));
  auto other = Shown(proto::EXPERIMENT_DONE);
  other.mutable_functions(0)->mutable_record()->set_precision(proto::PRECISION_FP16);
  troupe.cluster.answers.clear();
  troupe.cluster.Answer(Request::kShowProfile, other);
  EXPECT_EQ(troupe.Run("profile show digits"), ExitCode::kOk) << troupe.err();
  EXPECT_THAT(troupe.out(), HasSubstr("not used: the function computes in fp16"));
}

TEST(ProfileVerbs, AProfileIsRemoved) {
  Harness troupe;
  proto::AdminReply removed;
  removed.add_profiles()->set_gpu_kind("virtual");
  troupe.cluster.Answer(Request::kRemoveProfile, removed);
  EXPECT_EQ(troupe.Run("profile remove digits --version 2 --kind virtual"), ExitCode::kOk) << troupe.err();
  const auto& wish = troupe.cluster.asked.back().remove_profile();
  EXPECT_EQ(wish.key().name(), "digits");
  EXPECT_EQ(wish.key().version(), "2");
  EXPECT_EQ(wish.gpu_kind(), "virtual");
  EXPECT_EQ(troupe.out(), "the profile on virtual is removed\n");
}

TEST(ProfileVerbs, WhatCsvExportsIsImportedAgain) {
  const test::TemporaryDirectory directory;
  Harness troupe;
  troupe.cluster.Answer(Request::kShowProfile, Shown(proto::EXPERIMENT_DONE));
  ASSERT_EQ(troupe.Run("profile show digits --csv"), ExitCode::kOk) << troupe.err();
  std::ofstream(directory / "p.csv") << troupe.out();
  ASSERT_EQ(troupe.Run("profile import digits " + (directory / "p.csv")), ExitCode::kOk) << troupe.err();
  auto expected = ProfileOf("virtual");
  EXPECT_EQ(troupe.cluster.asked.back().import_profile().profile().SerializeAsString(),
            expected.SerializeAsString());
}

TEST(ProfileVerbs, AFileOfAVersionThatMeasuredNoMemoryIsImported) {
  const test::TemporaryDirectory directory;
  Harness troupe;
  auto head = ProfileCsv(proto::FunctionProfile());
  head.erase(head.find(",run_bytes"));
  std::ofstream(directory / "p.csv") << head << "\nd,k,fp32,12,100,1,measured,5,9,1,2,3,4,0,\n";
  ASSERT_EQ(troupe.Run("profile import digits " + (directory / "p.csv")), ExitCode::kOk) << troupe.err();
  const auto& profile = troupe.cluster.asked.back().import_profile().profile();
  ASSERT_EQ(profile.rows_size(), 1);
  EXPECT_EQ(profile.rows(0).p99_ns(), 3);
  EXPECT_EQ(profile.rows(0).run_bytes(), 0u);
  std::ofstream(directory / "p.csv") << head << "\nd,k,fp32,12,100,1,measured,5,9,1,2,3,4,0,,7\n";
  EXPECT_EQ(troupe.Run("profile import digits " + (directory / "p.csv")), ExitCode::kUsage);
  EXPECT_THAT(troupe.err(), HasSubstr("it has 16 fields, and its header 15"));
}

TEST(ProfileVerbs, WhatJsonExportsIsImportedAgain) {
  const test::TemporaryDirectory directory;
  Harness troupe;
  troupe.cluster.Answer(Request::kShowProfile, Shown(proto::EXPERIMENT_DONE));
  ASSERT_EQ(troupe.Run("--json profile show digits --kind virtual"), ExitCode::kOk) << troupe.err();
  std::ofstream(directory / "p.json") << troupe.out();
  ASSERT_EQ(troupe.Run("profile import digits " + (directory / "p.json")), ExitCode::kOk) << troupe.err();
  EXPECT_EQ(troupe.cluster.asked.back().import_profile().profile().SerializeAsString(),
            ProfileOf("virtual").SerializeAsString());
}

TEST(ProfileVerbs, AFileThatIsNotAProfileIsNotSent) {
  const test::TemporaryDirectory directory;
  Harness troupe;
  const auto head = ProfileCsv(proto::FunctionProfile());
  const auto why = [&](const std::string& text) {
    std::ofstream(directory / "p.csv") << text;
    EXPECT_EQ(troupe.Run("profile import digits " + (directory / "p.csv")), ExitCode::kUsage) << text;
    return troupe.err();
  };
  const std::string line = "d,k,fp32,12,100,1,measured,5,9,1,2,3,4,0,,0";
  EXPECT_THAT(why(""), HasSubstr("empty"));
  EXPECT_THAT(why("a,b\n"), HasSubstr("line 1: it is not the header"));
  EXPECT_THAT(why(head), HasSubstr("has no row"));
  EXPECT_THAT(why(head + "d,k\n"), HasSubstr("line 2: it has 2 fields"));
  EXPECT_THAT(why(head + "d,k,fp32,12,100,1,measured,5,9,1,2,3,4,0,\"x\n"),
              HasSubstr("a quote is not closed"));
  EXPECT_THAT(why(head + "d,k,fp32,12,100,1,measured,5,9,1,2,3,4,0,,much\n"),
              HasSubstr("run_bytes is 'much'"));
  EXPECT_THAT(why(head + "d,k,fp9,12,100,1,measured,5,9,1,2,3,4,0,,0\n"), HasSubstr("precision is 'fp9'"));
  EXPECT_THAT(why(head + "d,k,fp32,-12,100,1,measured,5,9,1,2,3,4,0,,0\n"),
              HasSubstr("sm_partition is '-12'"));
  EXPECT_THAT(why(head + "d,k,fp32,12,100,1,guessed,5,9,1,2,3,4,0,,0\n"), HasSubstr("state is 'guessed'"));
  EXPECT_THAT(why(head + "d,k,fp32,12,100,1,measured,fast,9,1,2,3,4,0,,0\n"),
              HasSubstr("throughput is 'fast'"));
  EXPECT_THAT(why(head + line + "\ne" + line.substr(1) + "\n"), HasSubstr("line 3: it is of another model"));
  EXPECT_THAT(why("{\"rows\": 5}"), HasSubstr("not the JSON of a profile"));
  EXPECT_THAT(why("{\"functions\": []}"), HasSubstr("it has 0 profiles"));
  EXPECT_THAT(why(std::string(5 << 20, 'x')), HasSubstr("p.csv"));
  EXPECT_TRUE(troupe.cluster.asked.empty());
}

// A picture that a browser shows: text is escaped, each axis has its unit, and each cell its figure.
TEST(ProfileVerbs, TheHeatMapHasAxesALegendAndEachFigure) {
  const test::TemporaryDirectory directory;
  Harness troupe;
  troupe.cluster.Answer(Request::kShowProfile, Shown(proto::EXPERIMENT_DONE, "GPU <& Co>"));
  ASSERT_EQ(troupe.Run("profile show digits --svg " + (directory / "p.svg")), ExitCode::kOk) << troupe.err();
  std::stringstream read;
  read << std::ifstream(directory / "p.svg").rdbuf();
  const auto svg = read.str();
  for (const char* part : {"share of the SMs (percent of the GPU)", "quota (percent of the time)",
                           "requests/s", "batch 1: no gain above 24 % of the SMs", ">100<", ">20.0<",
                           ">~39.6<", ">failed<", "GPU &lt;&amp; Co&gt;", "and &lt;died&gt;"})
    EXPECT_THAT(svg, HasSubstr(part));
  EXPECT_THAT(svg, Not(HasSubstr("<died>")));
}

}  // namespace
}  // namespace troupe::shell
