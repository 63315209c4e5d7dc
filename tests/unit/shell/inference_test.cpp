#include "shell/inference.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "shell/inputs/files.hpp"
#include "shell/inputs/npy.hpp"
#include "tests/temporary_directory.hpp"
#include "tests/unit/shell/fake_admin_client.hpp"

namespace troupe::shell {
namespace {

using testing::HasSubstr;
using Request = proto::AdminRequest;

struct InferenceTest : testing::Test {
  InferenceTest() {
    std::ofstream(folder + "/x.json") << "[[1, 2]]";
    std::ofstream(folder + "/wide.json") << "[[1, 2, 3]]";
    proto::AdminReply reply;
    *reply.add_functions() = MakeFunction("digits", "9");
    *reply.add_functions() = MakeFunction("digits", "10");
    reply.mutable_functions(0)->mutable_record()->mutable_inputs(0)->set_name("old");
    troupe.cluster.Answer(Request::kShowFunction, reply);
    auto& answer = *troupe.cluster.infer_reply;
    answer.mutable_function()->set_name("digits");
    answer.mutable_function()->set_version("10");
    answer.set_node("node-a");
    answer.set_attempts(2);
    auto& output = *answer.add_outputs();
    output.mutable_spec()->set_name("scores");
    output.mutable_spec()->set_type(proto::UINT8);
    output.mutable_spec()->add_shape(3);
    output.mutable_data()->set_inlined("\x01\x02\x03");
  }
  ExitCode Run(const std::string& rest) { return troupe.Run("infer digits " + rest); }

  const test::TemporaryDirectory place;
  const std::string folder = place.path();
  Harness troupe;
};

TEST_F(InferenceTest, SendsCheckedInputsAndShowsOutputs) {
  EXPECT_EQ(Run("--input image=" + folder + "/x.json --priority 3 --timeout 5s"), ExitCode::kOk)
      << troupe.err();
  const auto& request = troupe.cluster.inferred.at(0);
  EXPECT_EQ(request.function().name(), "digits");
  EXPECT_EQ(request.function().version(), "") << "the cluster chooses the newest";
  EXPECT_EQ(request.priority(), 3U);
  EXPECT_EQ(request.timeout_ns(), 5000000000);
  EXPECT_EQ(request.inputs(0).spec().name(), "image");
  EXPECT_EQ(request.inputs(0).data().inlined().size(), 8U);
  EXPECT_THAT(troupe.out(), HasSubstr("digits version 10 on node-a/0"));
  EXPECT_THAT(troupe.out(), HasSubstr("2 attempts"));
  EXPECT_THAT(troupe.out(), HasSubstr("scores  UINT8 [3]\n  1  2  3\n"));
}

TEST_F(InferenceTest, AnOnlyInputNeedsNoName) {
  EXPECT_EQ(Run("--input " + folder + "/x.json"), ExitCode::kOk) << troupe.err();
  EXPECT_EQ(troupe.cluster.inferred.at(0).inputs(0).spec().name(), "image");
}

TEST_F(InferenceTest, AnUnloadedVersionIsNotTheOneThatAnswers) {
  auto& shown = *troupe.cluster.answers[Request::kShowFunction].front();
  shown.mutable_functions(1)->mutable_record()->set_loaded(false);
  EXPECT_EQ(Run("--input old=" + folder + "/x.json"), ExitCode::kOk) << troupe.err();
}

TEST_F(InferenceTest, AnUnloadedFunctionIsARefusalNotAnAbsence) {
  auto& shown = *troupe.cluster.answers[Request::kShowFunction].front();
  for (auto& function : *shown.mutable_functions()) function.mutable_record()->set_loaded(false);
  EXPECT_EQ(Run("--input image=" + folder + "/x.json"), ExitCode::kRefused);
  EXPECT_THAT(troupe.err(),
              HasSubstr("digits version 10 is unloaded; serve it again with: troupe function load "
                        "digits --version 10"));
  EXPECT_TRUE(troupe.cluster.inferred.empty());
}

TEST_F(InferenceTest, ARunThatFailsIsNoWrongArgument) {
  troupe.cluster.infer_reply->set_code(static_cast<int>(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(Run("--input image=" + folder + "/x.json"), ExitCode::kRefused);
}

TEST_F(InferenceTest, JsonIsComplete) {
  EXPECT_EQ(Run("--json --input image=" + folder + "/x.json"), ExitCode::kOk);
  EXPECT_THAT(troupe.out(),
              HasSubstr("\"name\": \"scores\", \"datatype\": \"UINT8\", \"shape\": [3], \"data\": [1,2,3]"));
}

TEST_F(InferenceTest, OutputsAreSaved) {
  EXPECT_EQ(Run("--input " + folder + "/x.json --output " + folder + "/y.npy"), ExitCode::kOk)
      << troupe.err();
  const auto saved = ParseNpy(*ReadFile(folder + "/y.npy", KiB(1)));
  ASSERT_TRUE(saved.ok()) << saved.status();
  EXPECT_EQ(saved->data().inlined(), "\x01\x02\x03");
}

TEST_F(InferenceTest, OutputsThatCannotBeSavedAreRefusedBeforeAnythingRuns) {
  const std::string input = "--input " + folder + "/x.json ";
  std::filesystem::create_directory(folder + "/taken.npy");
  for (const auto& [output, message] : std::vector<std::pair<std::string, std::string>>{
           {"other=" + folder + "/y.npy", "there is no output 'other'; digits gives scores FP32 [-1,3]"},
           {"y.txt", "is saved as .npy"},
           {folder + "/taken.npy", "is a directory"},
           {folder + "/none/y.npy", "y.npy' cannot be written: No such file or directory"},
           {folder + "/y.npy --output scores=" + folder + "/y.npy", "two outputs would go to"}}) {
    EXPECT_EQ(Run(input + "--output " + output), ExitCode::kUsage) << output;
    EXPECT_THAT(troupe.err(), HasSubstr(message));
    EXPECT_EQ(troupe.out(), "");
  }
  EXPECT_TRUE(troupe.cluster.inferred.empty());
  EXPECT_FALSE(std::filesystem::exists(folder + "/y.npy.part"));
}

TEST_F(InferenceTest, AnOutputThatIsLostAfterTheRunIsNoWrongCommand) {
  troupe.cluster.infer_reply->mutable_outputs(0)->mutable_spec()->set_type(proto::BYTES);
  EXPECT_EQ(Run("--input " + folder + "/x.json --output " + folder + "/y.npy"), ExitCode::kRefused);
  EXPECT_EQ(troupe.cluster.inferred.size(), 1U);
}

TEST_F(InferenceTest, WrongInputsSayWhatIsExpected) {
  EXPECT_EQ(Run(""), ExitCode::kUsage);
  EXPECT_THAT(troupe.err(),
              HasSubstr("input 'image' FP32 [-1,2] is missing; give it with --input image=FILE.npy"));
  EXPECT_EQ(Run("--input y=" + folder + "/x.json"), ExitCode::kUsage);
  EXPECT_THAT(troupe.err(), HasSubstr("there is no input 'y'; digits takes image FP32 [-1,2]"));
  EXPECT_EQ(Run("--input image=" + folder + "/wide.json"), ExitCode::kUsage);
  EXPECT_THAT(troupe.err(), HasSubstr("expected FP32 [-1,2], found FP32 [1,3]"));
  EXPECT_EQ(Run("--input image=A.npy --input image=B.npy"), ExitCode::kUsage);
  EXPECT_EQ(Run("--input image=" + folder + "/x.json --priority 1.5"), ExitCode::kUsage);
  EXPECT_TRUE(troupe.cluster.inferred.empty());
}

TEST_F(InferenceTest, AWorkflowIsFoundWhereNoFunctionIs) {
  troupe.cluster.answers.clear();
  troupe.cluster.Answer(Request::kShowFunction, absl::NotFoundError("there is no function"));
  proto::AdminReply reply;
  auto& input = *reply.add_workflows()->mutable_spec()->add_inputs()->mutable_spec();
  input.set_name("photo");
  input.set_type(proto::FP32);
  input.add_shape(1);
  input.add_shape(2);
  troupe.cluster.Answer(Request::kShowWorkflow, reply);
  EXPECT_EQ(Run("--input photo=" + folder + "/x.json"), ExitCode::kOk) << troupe.err();
  EXPECT_EQ(troupe.Run("workflow run digits --input photo=" + folder + "/x.json"), ExitCode::kOk)
      << troupe.err();
  EXPECT_EQ(troupe.cluster.inferred.size(), 2U);
  EXPECT_THAT(troupe.out(), HasSubstr("(queued 0 ns"));
  troupe.cluster.infer_reply->clear_node();
  EXPECT_EQ(Run("--input photo=" + folder + "/x.json"), ExitCode::kOk) << troupe.err();
  EXPECT_THAT(troupe.out(), testing::Not(HasSubstr("("))) << "without a node there are no times of one";
  troupe.cluster.answers.clear();
  troupe.cluster.Answer(Request::kShowFunction, absl::NotFoundError("there is no function"));
  troupe.cluster.Answer(Request::kShowWorkflow, absl::NotFoundError("there is no workflow"));
  EXPECT_EQ(Run(""), ExitCode::kNotFound);
  EXPECT_THAT(troupe.err(), HasSubstr("no function or workflow 'digits'"));
}

TEST_F(InferenceTest, AFailureInTheReplyIsTheClusters) {
  troupe.cluster.infer_reply->set_code(static_cast<int>(absl::StatusCode::kDeadlineExceeded));
  troupe.cluster.infer_reply->set_message("not served in time");
  EXPECT_EQ(Run("--input " + folder + "/x.json"), ExitCode::kTimedOut);
  EXPECT_THAT(troupe.err(), HasSubstr("not served in time"));
}

}  // namespace
}  // namespace troupe::shell
