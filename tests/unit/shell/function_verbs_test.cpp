// The verbs of function and workflow, except those that run them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/temporary_directory.hpp"
#include "tests/unit/shell/fake_admin_client.hpp"

namespace troupe::shell {
namespace {

using testing::HasSubstr;
using Request = proto::AdminRequest;

struct RegistryVerbTest : testing::Test {
  RegistryVerbTest() {
    std::ofstream(folder + "/digits.onnx") << "an ONNX file";
    std::ofstream(folder + "/empty.onnx");
    std::ofstream(folder + "/flow.yaml") << "name: flow\n";
    std::ofstream(folder + "/binary.yaml") << "\xFF\xFE";
  }

  const test::TemporaryDirectory place;
  const std::string folder = place.path();
  Harness troupe;
};

TEST_F(RegistryVerbTest, DeployUploadsThenAsks) {
  proto::AdminReply reply;
  *reply.add_functions() = MakeFunction("digits", "3");
  reply.set_message("no node has adopted it yet");
  troupe.cluster.Answer(Request::kDeploy, reply);
  EXPECT_EQ(
      troupe.Run("function deploy digits " + folder +
                 "/digits.onnx --deadline 50ms --percentile 99 --tenant t --version 3 --isolation tenant"
                 " --precision fp16 --sm-partition 12 --run-limit 5s --quota-request 30% --quota-limit 80"
                 " --gpu-mem 2GiB --max-instances 8 --max-batch 4"),
      ExitCode::kOk);
  EXPECT_EQ(troupe.cluster.uploaded, "an ONNX file");
  const auto& deploy = troupe.cluster.asked.at(0).deploy();
  EXPECT_EQ(deploy.name(), "digits");
  EXPECT_EQ(deploy.version(), "3");
  EXPECT_EQ(deploy.tenant(), "t");
  EXPECT_EQ(deploy.isolation(), proto::ISOLATION_TENANT);
  EXPECT_EQ(deploy.precision(), proto::PRECISION_FP16);
  EXPECT_EQ(deploy.sharing().sm_partition(), 12u);
  EXPECT_EQ(deploy.sharing().quota_request(), 30u);
  EXPECT_EQ(deploy.sharing().quota_limit(), 80u);
  EXPECT_EQ(deploy.sharing().gpu_mem(), GiB(2).count());
  EXPECT_EQ(deploy.sharing().max_instances(), 8u);
  EXPECT_EQ(deploy.sharing().max_batch(), 4u);
  EXPECT_EQ(deploy.run_limit_ns(), 5'000'000'000);
  EXPECT_EQ(deploy.slo().deadline_ns(), 50000000);
  EXPECT_EQ(deploy.slo().percentile(), 99);
  EXPECT_EQ(deploy.onnx_digest(), "digest-of-the-file");
  EXPECT_EQ(troupe.cluster.timeouts[0], std::chrono::minutes(5));
  EXPECT_THAT(troupe.out(), HasSubstr("digits version 3: 1 MiB of weights, takes image FP32 [-1,2]"));
  EXPECT_THAT(troupe.out(), HasSubstr("no node has adopted it yet"));
}

TEST_F(RegistryVerbTest, StateIsPairsOfAnInputAndAnOutput) {
  EXPECT_EQ(troupe.Run("function deploy chat " + folder + "/digits.onnx --state keys_in=keys --state v=w"),
            ExitCode::kOk);
  const auto& state = troupe.cluster.asked.at(0).deploy().state();
  ASSERT_EQ(state.size(), 2);
  EXPECT_EQ(state[0].input(), "keys_in");
  EXPECT_EQ(state[0].output(), "keys");
  EXPECT_EQ(state[1].input(), "v");
  EXPECT_EQ(troupe.Run("function deploy chat " + folder + "/digits.onnx --state keys"), ExitCode::kUsage);
  EXPECT_EQ(troupe.cluster.asked.size(), 1u);
}

TEST_F(RegistryVerbTest, WithoutADeadlineTheClustersObjectiveApplies) {
  EXPECT_EQ(troupe.Run("function deploy digits " + folder + "/digits.onnx"), ExitCode::kOk);
  EXPECT_FALSE(troupe.cluster.asked.at(0).deploy().has_slo());
  EXPECT_EQ(troupe.cluster.asked.at(0).deploy().isolation(), proto::ISOLATION_DEFAULT);
}

TEST_F(RegistryVerbTest, NothingIsSentOfWhatIsWrong) {
  for (const std::string line :
       {"function deploy digits /none.onnx",
        "function deploy digits FOLDER",
        "function deploy digits FOLDER/empty.onnx",
        "function deploy digits FOLDER/digits.onnx --percentile 101 --deadline 1s",
        "function deploy digits FOLDER/digits.onnx --percentile 0 --deadline 1s",
        "function deploy digits FOLDER/digits.onnx --percentile 90",
        "function deploy digits FOLDER/digits.onnx --isolation private",
        "function deploy digits FOLDER/digits.onnx --precision fp8",
        "function deploy digits FOLDER/digits.onnx --run-limit 2h",
        "function deploy digits FOLDER/digits.onnx --run-limit 5us",
        "function deploy digits FOLDER/digits.onnx --sm-partition 0",
        "function deploy digits FOLDER/digits.onnx --sm-partition 101",
        "function deploy digits FOLDER/digits.onnx --sm-partition 12.5",
        "function deploy digits FOLDER/digits.onnx --quota-limit 101",
        "function deploy digits FOLDER/digits.onnx --quota-limit 50 --quota-request 60",
        "function deploy digits FOLDER/digits.onnx --sm-partition 50 --max-instances 3",
        "function deploy digits FOLDER/digits.onnx --gpu-mem 2Gi",
        "function deploy digits FOLDER/digits.onnx --max-batch 129",
        "function update digits",
        "function update digits --version 2",
        "function update digits --quota-limit half",
        "workflow submit /none.yaml",
        "workflow submit FOLDER/binary.yaml"}) {
    auto text = line;
    if (const auto at = text.find("FOLDER"); at != std::string::npos) text.replace(at, 6, folder);
    EXPECT_EQ(troupe.Run(text), ExitCode::kUsage) << line;
  }
  EXPECT_TRUE(troupe.cluster.asked.empty());
  EXPECT_EQ(troupe.cluster.uploaded, "");
}

TEST_F(RegistryVerbTest, AShareIsNoPercentile) {
  const auto deploy = "function deploy digits " + folder + "/digits.onnx --deadline 1s --percentile ";
  EXPECT_EQ(troupe.Run(deploy + "0.98"), ExitCode::kUsage);
  EXPECT_THAT(troupe.err(), HasSubstr("--percentile is 0.98, in percent; did you mean 98?"));
  EXPECT_EQ(troupe.Run(deploy + "1"), ExitCode::kUsage);
  EXPECT_EQ(troupe.Run(deploy + "1.5"), ExitCode::kOk);
}

TEST_F(RegistryVerbTest, AShellThatStopsWaitingForADeploymentDoesNotStopIt) {
  troupe.cluster.Answer(Request::kDeploy, absl::DeadlineExceededError("no answer within 3 s"));
  EXPECT_EQ(troupe.Run("function deploy digits " + folder + "/digits.onnx --timeout 3s"),
            ExitCode::kTimedOut);
  EXPECT_THAT(troupe.err(),
              HasSubstr("no answer within 3 s; the cluster may still finish what it was asked\n"));
}

TEST_F(RegistryVerbTest, AFailedUploadEndsTheDeployment) {
  troupe.cluster.upload_status = absl::ResourceExhaustedError("the disk is full");
  EXPECT_EQ(troupe.Run("function deploy digits " + folder + "/digits.onnx"), ExitCode::kRefused);
  EXPECT_THAT(troupe.err(), HasSubstr("the disk is full"));
  EXPECT_TRUE(troupe.cluster.asked.empty());
}

TEST_F(RegistryVerbTest, ListShowRemoveLoadUnload) {
  EXPECT_EQ(troupe.Run("function list"), ExitCode::kOk);
  EXPECT_THAT(troupe.out(), HasSubstr("no functions"));
  proto::AdminReply reply;
  *reply.add_functions() = MakeFunction("digits", "1");
  *reply.add_functions() = MakeFunction("digits", "2");
  reply.mutable_functions(1)->mutable_record()->set_loaded(false);
  troupe.cluster.answers.clear();
  troupe.cluster.Answer(Request::kListFunctions, reply);
  troupe.cluster.Answer(Request::kShowFunction, reply);
  EXPECT_EQ(troupe.Run("function list"), ExitCode::kOk);
  EXPECT_THAT(troupe.out(), HasSubstr("digits          1  served    50 ms at 98 %"));
  EXPECT_THAT(troupe.out(), HasSubstr("unloaded"));
  reply.mutable_functions(0)->mutable_record()->set_role(proto::VERSION_CANARY);
  reply.mutable_functions(0)->mutable_record()->set_share_percent(10);
  troupe.cluster.answers.clear();
  troupe.cluster.Answer(Request::kListFunctions, reply);
  troupe.cluster.Answer(Request::kShowFunction, reply);
  EXPECT_EQ(troupe.Run("function list"), ExitCode::kOk);
  EXPECT_THAT(troupe.out(), HasSubstr("served, 10 %")) << "its part of the requests that name no version";
  EXPECT_EQ(troupe.Run("function show digits --version 2"), ExitCode::kOk);
  EXPECT_EQ(troupe.cluster.asked.back().show_function().key().version(), "2");
  EXPECT_THAT(troupe.out(), HasSubstr("image  FP32 [-1,2]"));
  EXPECT_EQ(troupe.cluster.asked.back().request_case(), Request::kShowFunction)
      << "the GPUs are not asked for";
  reply.mutable_functions(0)->mutable_record()->set_precision(proto::PRECISION_BF16);
  reply.mutable_functions(0)->mutable_record()->mutable_sharing()->set_sm_partition(12);
  troupe.cluster.answers.clear();
  troupe.cluster.Answer(Request::kShowFunction, reply);
  EXPECT_EQ(troupe.Run("function show digits"), ExitCode::kOk);
  EXPECT_THAT(troupe.out(), HasSubstr("precision  bf16\nweights")) << "the answer lists no GPUs";
  troupe.cluster.Answer(Request::kListGpus, MakeGpuReply());
  EXPECT_EQ(troupe.Run("function show digits"), ExitCode::kOk);
  EXPECT_THAT(troupe.out(), HasSubstr("precision  bf16\nSM share   16 of 132 SMs on node-a/0\nweights"));
  auto& packed = *reply.mutable_functions(0)->mutable_record()->add_packed();
  packed.set_target("cpu-a/1+bf16");
  packed.set_weights_bytes(MiB(3).count());
  troupe.cluster.Answer(Request::kListFunctions, reply);
  EXPECT_EQ(troupe.Run("function list"), ExitCode::kOk);
  EXPECT_THAT(troupe.out(), HasSubstr(" 3 MiB  ")) << "as nodes hold them";
  reply.mutable_functions(0)->mutable_record()->clear_sm_partition();
  reply.mutable_functions(0)->mutable_record()->set_run_limit_ns(5'000'000'000);
  troupe.cluster.answers.clear();
  troupe.cluster.Answer(Request::kShowFunction, reply);
  EXPECT_EQ(troupe.Run("function show digits"), ExitCode::kOk);
  EXPECT_THAT(troupe.out(), HasSubstr("run limit  5"));
  EXPECT_EQ(troupe.Run("function remove digits --version 1"), ExitCode::kOk);
  EXPECT_EQ(troupe.cluster.asked.back().remove().key().version(), "1");
  EXPECT_EQ(troupe.Run("function load digits"), ExitCode::kOk);
  EXPECT_TRUE(troupe.cluster.asked.back().load().load());
  EXPECT_EQ(troupe.Run("function unload digits"), ExitCode::kOk);
  EXPECT_FALSE(troupe.cluster.asked.back().load().load());
}

TEST_F(RegistryVerbTest, AStateIsMovedWithThoseOfItsModel) {
  proto::AdminReply reply;
  reply.add_functions()->mutable_record()->mutable_key()->set_name("sum");
  troupe.cluster.Answer(Request::kMoveFunction, reply);
  EXPECT_EQ(troupe.Run("function move sum node-b"), ExitCode::kOk);
  EXPECT_EQ(troupe.cluster.asked.back().move_function().key().name(), "sum");
  EXPECT_EQ(troupe.cluster.asked.back().move_function().node(), "node-b");
  EXPECT_THAT(troupe.out(), HasSubstr("sum: its state and sequences are on node node-b now\n"));
  reply.add_functions()->mutable_record()->mutable_key()->set_name("total");
  troupe.cluster.answers.clear();
  troupe.cluster.Answer(Request::kMoveFunction, reply);
  EXPECT_EQ(troupe.Run("function move sum node-b"), ExitCode::kOk);
  EXPECT_THAT(troupe.out(),
              HasSubstr("sum, total: one model, so their state and sequences are on node node-b"));
}

TEST_F(RegistryVerbTest, WhoRemovesAFunctionHearsWhichWorkflowsCallIt) {
  proto::AdminReply removed;
  *removed.add_functions() = MakeFunction("digits", "1");
  troupe.cluster.Answer(Request::kRemove, removed);
  EXPECT_EQ(troupe.Run("function remove digits"), ExitCode::kOk);
  EXPECT_EQ(troupe.out(), "digits version 1 is removed; no version is left\n");
  proto::AdminReply workflows;
  for (const char* name : {"flow", "other", "flow"}) {
    auto& spec = *workflows.add_workflows()->mutable_spec();
    spec.set_name(name);
    spec.add_steps()->set_function(spec.name() == "flow" ? "digits" : "letters");
  }
  troupe.cluster.Answer(Request::kListWorkflows, workflows);
  EXPECT_EQ(troupe.Run("function remove digits"), ExitCode::kOk);
  EXPECT_EQ(
      troupe.out(),
      "digits version 1 is removed; no version is left; workflow 'flow' calls it, and fails until it is "
      "deployed again\n");
}

proto::AppliedSetting Applied(const char* name, std::uint64_t value, const char* reason = nullptr) {
  proto::AppliedSetting setting;
  setting.set_name(name);
  setting.set_value(value);
  setting.set_source(reason == nullptr ? proto::AppliedSetting::DECLARED : proto::AppliedSetting::DEFAULT);
  if (reason != nullptr) setting.set_reason(reason);
  return setting;
}

TEST_F(RegistryVerbTest, ShowSaysWhereEachSettingComesFrom) {
  proto::AdminReply reply;
  auto& function = *reply.add_functions();
  function = MakeFunction("digits", "1");
  *function.add_sharing() = Applied("sm_partition", 12);
  *function.add_sharing() = Applied("quota_request", 0, "no time is promised to it");
  *function.add_sharing() = Applied("gpu_mem", GiB(2).count());
  *function.add_sharing() = Applied("max_instances", 8, "100 % / 12 %");
  troupe.cluster.Answer(Request::kShowFunction, reply);
  EXPECT_EQ(troupe.Run("function show digits"), ExitCode::kOk);
  EXPECT_THAT(troupe.out(),
              HasSubstr("sharing    sm_partition   12 %       declared\n"
                        "           quota_request  -          default: no time is promised to it\n"
                        "           gpu_mem        2 GiB      declared\n"
                        "           max_instances  8          default: 100 % / 12 %\n"
                        "weights"));
  EXPECT_EQ(troupe.Run("function show digits --json"), ExitCode::kOk);
  EXPECT_THAT(troupe.out(), HasSubstr("\"source\": \"DECLARED\""));
}

TEST_F(RegistryVerbTest, UpdateSendsWhatItNamesAndSaysWhatApplies) {
  proto::AdminReply reply;
  auto& function = *reply.add_functions();
  function = MakeFunction("digits", "3");
  *function.add_sharing() = Applied("sm_partition", 100, "all SMs");
  *function.add_sharing() = Applied("quota_request", 30);
  *function.add_sharing() = Applied("quota_limit", 80);
  troupe.cluster.Answer(Request::kUpdateFunction, reply);
  EXPECT_EQ(troupe.Run("function update digits --version 3 --quota-limit 80% --sm-partition all"),
            ExitCode::kOk);
  const auto& update = troupe.cluster.asked.back().update_function();
  EXPECT_EQ(update.key().name(), "digits");
  EXPECT_EQ(update.key().version(), "3");
  EXPECT_EQ(update.sharing().quota_limit(), 80u);
  EXPECT_EQ(update.sharing().sm_partition(), 0u);
  EXPECT_THAT(update.settings(), testing::ElementsAre("sm_partition", "quota_limit"));
  EXPECT_EQ(troupe.out(), "digits version 3: sm_partition 100 % (all SMs), quota_limit 80 %\n");
  EXPECT_EQ(troupe.Run("function update digits --gpu-mem all"), ExitCode::kUsage);
  EXPECT_THAT(troupe.err(), HasSubstr("--gpu-mem is 'all'; it is a size like 2GiB, or 'none'"));
  EXPECT_EQ(troupe.Run("function update digits"), ExitCode::kUsage);
  EXPECT_THAT(troupe.err(), HasSubstr("give at least one of --sm-partition, --quota-request, --quota-limit"));
}

TEST_F(RegistryVerbTest, SettingsAreLeftToTheProfiles) {
  proto::AdminReply reply;
  auto& function = *reply.add_functions();
  function = MakeFunction("digits", "3");
  auto share = Applied("sm_partition", 40, "the smallest within 3 % of the best throughput on 'virtual'");
  share.set_source(proto::AppliedSetting::PROFILED);
  *function.add_sharing() = share;
  troupe.cluster.Answer(Request::kUpdateFunction, reply);
  EXPECT_EQ(troupe.Run("function update digits --sm-partition auto --max-batch auto"), ExitCode::kOk)
      << troupe.err();
  const auto& update = troupe.cluster.asked.back().update_function();
  EXPECT_THAT(update.sharing().automatic(), testing::ElementsAre("sm_partition", "max_batch"));
  EXPECT_THAT(update.settings(), testing::ElementsAre("sm_partition", "max_batch"));
  EXPECT_THAT(troupe.out(), HasSubstr("sm_partition 40 % (the smallest within 3 %"));
  troupe.cluster.Answer(Request::kShowFunction, reply);
  EXPECT_EQ(troupe.Run("function show digits"), ExitCode::kOk);
  EXPECT_THAT(troupe.out(),
              HasSubstr("sharing    sm_partition   40 %       profiled: the smallest within 3 %"));
  EXPECT_EQ(troupe.Run("function update digits --max-batch default"), ExitCode::kOk);
  EXPECT_THAT(troupe.cluster.asked.back().update_function().sharing().automatic(), testing::IsEmpty());
  EXPECT_EQ(troupe.Run("function update digits --quota-limit auto"), ExitCode::kUsage);
  EXPECT_THAT(troupe.err(),
              HasSubstr("--quota-limit is 'auto'; it is a whole number of percent from 1 to 100, or 'none'"));
}

TEST_F(RegistryVerbTest, WhatIsChangedWithoutAVersionIsTheNewestAndSaidSo) {
  proto::AdminReply two;
  for (const char* version : {"9", "10"}) *two.add_functions() = MakeFunction("dd", version);
  troupe.cluster.Answer(Request::kShowFunction, two);
  proto::AdminReply removed;
  for (const char* version : {"10", "9"}) *removed.add_functions() = MakeFunction("dd", version);
  troupe.cluster.Answer(Request::kRemove, removed);
  const auto asked = troupe.cluster.asked.size();
  EXPECT_EQ(troupe.Run("function remove dd"), ExitCode::kOk);
  EXPECT_EQ(troupe.cluster.asked.size(), asked + 1)
      << "there is one request, so no other change comes in between";
  EXPECT_EQ(troupe.cluster.asked.back().remove().key().version(), "") << "the manager decides which version";
  EXPECT_EQ(troupe.out(), "dd version 10 is removed; version 9 answers now\n");
  removed.mutable_functions()->SwapElements(0, 1);
  troupe.cluster.answers.clear();
  troupe.cluster.Answer(Request::kShowFunction, two);
  troupe.cluster.Answer(Request::kRemove, removed);
  EXPECT_EQ(troupe.Run("function remove dd --version 9"), ExitCode::kOk);
  EXPECT_EQ(troupe.out(), "dd version 9 is removed; version 10 answers, as before\n");
  EXPECT_EQ(troupe.Run("function unload dd"), ExitCode::kOk);
  EXPECT_EQ(troupe.cluster.asked.back().load().key().version(), "10");
  EXPECT_EQ(troupe.out(),
            "dd version 10 is no longer served, the registry keeps it; version 9 answers now\n");
  two.mutable_functions(1)->mutable_record()->set_loaded(false);
  troupe.cluster.answers.clear();
  troupe.cluster.Answer(Request::kShowFunction, two);
  EXPECT_EQ(troupe.Run("function load dd"), ExitCode::kOk);
  EXPECT_EQ(troupe.out(), "dd version 10 is served; version 10 answers now\n");
  EXPECT_EQ(troupe.Run("function unload dd --version 9"), ExitCode::kOk);
  EXPECT_EQ(troupe.out(), "dd version 9 is no longer served, the registry keeps it; no version is served\n");
  troupe.cluster.answers.clear();
  troupe.cluster.Answer(Request::kShowFunction, absl::NotFoundError("there is no function 'dd'"));
  EXPECT_EQ(troupe.Run("function unload dd"), ExitCode::kNotFound);
  troupe.cluster.Answer(Request::kLoad, absl::FailedPreconditionError("'dd' is a workflow"));
  EXPECT_EQ(troupe.Run("function load dd"), ExitCode::kRefused);
  EXPECT_THAT(troupe.err(), HasSubstr("'dd' is a workflow"));
}

TEST_F(RegistryVerbTest, NoRunsAreTheAnswerOnlyOfAWorkflowThatIsThere) {
  EXPECT_EQ(troupe.Run("workflow runs flow"), ExitCode::kOk);
  EXPECT_EQ(troupe.out(), "no runs\n");
  EXPECT_EQ(troupe.cluster.asked.back().show_workflow().name(), "flow");
  troupe.cluster.answers.clear();
  troupe.cluster.Answer(Request::kShowWorkflow, absl::NotFoundError("there is no workflow 'nope'"));
  EXPECT_EQ(troupe.Run("workflow runs nope"), ExitCode::kNotFound);
  EXPECT_EQ(troupe.Run("workflow runs"), ExitCode::kOk) << "there are no runs at all";
}

TEST_F(RegistryVerbTest, AWorkflowIsRemovedByItsVersion) {
  proto::AdminReply reply;
  for (const char* version : {"1", "2"}) {
    auto& spec = *reply.add_workflows()->mutable_spec();
    spec.set_name("flow");
    spec.set_version(version);
  }
  reply.mutable_workflows()->SwapElements(0, 1);
  troupe.cluster.Answer(Request::kRemoveWorkflow, reply);
  EXPECT_EQ(troupe.Run("workflow remove flow"), ExitCode::kOk);
  EXPECT_EQ(troupe.cluster.asked.size(), 1u) << "there is one request, so no other change comes in between";
  EXPECT_EQ(troupe.cluster.asked.back().remove_workflow().version(), "")
      << "the manager decides which version";
  EXPECT_EQ(troupe.out(), "flow version 2 is removed; version 1 answers now\n");
  reply.mutable_workflows()->DeleteSubrange(0, 1);
  troupe.cluster.answers.clear();
  troupe.cluster.Answer(Request::kRemoveWorkflow, reply);
  EXPECT_EQ(troupe.Run("workflow remove flow"), ExitCode::kOk);
  EXPECT_EQ(troupe.out(), "flow version 1 is removed; no version is left\n");
}

TEST_F(RegistryVerbTest, WorkflowsAndTheirRuns) {
  proto::AdminReply reply;
  auto& spec = *reply.add_workflows()->mutable_spec();
  spec.set_name("flow");
  spec.set_version("1");
  spec.add_inputs()->mutable_spec()->set_name("picture");
  auto& step = *spec.add_steps();
  step.set_name("cnn");
  step.set_function("digits");
  step.add_inputs()->set_tensor("image");
  auto& run = *reply.add_runs();
  run.mutable_start()->set_run("run-1");
  run.mutable_start()->set_workflow("flow");
  run.set_state(proto::RUN_FAILED);
  run.set_message("step cnn failed\x1b[2J");
  for (const auto kind : {Request::kSubmitWorkflow, Request::kListWorkflows, Request::kShowWorkflow,
                          Request::kListRuns, Request::kShowRun})
    troupe.cluster.Answer(kind, reply);
  EXPECT_EQ(troupe.Run("workflow submit " + folder + "/flow.yaml"), ExitCode::kOk);
  EXPECT_EQ(troupe.cluster.asked.back().submit_workflow().yaml(), "name: flow\n");
  EXPECT_THAT(
      troupe.out(),
      HasSubstr("flow version 1: 1 step; run it with: troupe workflow run flow --input picture=FILE.npy\n"));
  EXPECT_EQ(troupe.Run("workflow list"), ExitCode::kOk);
  EXPECT_THAT(troupe.out(), HasSubstr("digits"));
  EXPECT_EQ(troupe.Run("workflow show flow"), ExitCode::kOk);
  EXPECT_THAT(troupe.out(), HasSubstr("cnn   digits   newest  image = "));
  EXPECT_EQ(troupe.Run("workflow runs flow"), ExitCode::kOk);
  EXPECT_EQ(troupe.cluster.asked.back().list_runs().workflow(), "flow");
  EXPECT_THAT(troupe.out(), HasSubstr("step cnn failed?[2J"));
  EXPECT_EQ(troupe.Run("workflow status run-1"), ExitCode::kOk);
  EXPECT_EQ(troupe.cluster.asked.back().show_run().run(), "run-1");
  EXPECT_THAT(troupe.out(), HasSubstr("failed"));
  EXPECT_EQ(troupe.Run("workflow cancel run-1"), ExitCode::kOk);
  EXPECT_EQ(troupe.cluster.asked.back().cancel_run().run(), "run-1");
  EXPECT_EQ(troupe.Run("workflow remove flow"), ExitCode::kOk);
  EXPECT_EQ(troupe.cluster.asked.back().remove_workflow().name(), "flow");
}

TEST_F(RegistryVerbTest, AWorkflowAndARunShowConditionsAndHowStepsEnded) {
  proto::AdminReply reply;
  auto& spec = *reply.add_workflows()->mutable_spec();
  spec.set_name("flow");
  auto& step = *spec.add_steps();
  step.set_name("cnn");
  step.set_workflow("inner");
  step.mutable_when()->set_value("go");
  step.mutable_when()->add_fallbacks("gate.any");
  step.mutable_on_error()->set_step("small");
  auto& run = *reply.add_runs();
  run.mutable_start()->set_run("run-1");
  run.mutable_start()->set_parent("outer-1");
  run.mutable_start()->set_parent_step("nested");
  auto& skipped = *run.add_steps();
  skipped.set_step("small");
  skipped.set_end(proto::STEP_SKIPPED);
  skipped.set_message("its 'when', go, is 0");
  auto& failed = *run.add_steps();
  failed.set_step("cnn");
  failed.set_end(proto::STEP_FAILED);
  failed.set_message("no such model\x1b[2J");
  run.mutable_start()->set_unix_ns(5'000'000'000);
  auto& timed = *run.add_steps();
  timed.set_step("wide");
  timed.set_unix_ns(5'250'000'000);
  timed.add_outputs()->mutable_spec()->set_name("y");
  for (const auto kind : {Request::kShowWorkflow, Request::kShowRun}) troupe.cluster.Answer(kind, reply);
  EXPECT_EQ(troupe.Run("workflow show flow"), ExitCode::kOk);
  EXPECT_THAT(troupe.out(), HasSubstr("workflow inner"));
  EXPECT_THAT(troupe.out(), HasSubstr("go, else gate.any"));
  EXPECT_THAT(troupe.out(), HasSubstr("step small"));
  EXPECT_EQ(troupe.Run("workflow status run-1"), ExitCode::kOk);
  EXPECT_THAT(troupe.out(), HasSubstr("inside    step nested of run outer-1\n"));
  EXPECT_THAT(troupe.out(), HasSubstr("step      small: skipped: its 'when', go, is 0\n"));
  EXPECT_THAT(troupe.out(), HasSubstr("step      cnn: failed, and on_error counts: no such model?[2J\n"));
  EXPECT_THAT(troupe.out(), HasSubstr(", after 250 ms\n"));
}

}  // namespace
}  // namespace troupe::shell
