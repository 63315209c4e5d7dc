// Models that are deployed in stages: all of a version is there, or nothing of it.
#include "tests/unit/cluster/cluster_fixture.hpp"

namespace troupe::cluster {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using testing::UnorderedElementsAre;

proto::TensorSpec Tensor(const std::string& name, std::int64_t columns = 4) {
  proto::TensorSpec spec;
  spec.set_name(name);
  spec.set_type(proto::FP32);
  spec.add_shape(-1);
  spec.add_shape(columns);
  return spec;
}

// Stage `number` of 3 of a model that takes "image.1" and gives "label" and "box": "a" goes from the first stage to both others,
// "b" from the second to the third, and the third reads the input, too.
proto::FunctionRecord StageOf(std::uint32_t number, const std::string& model = "big") {
  auto record = FunctionOf(model + std::to_string(number), MiB(number == 3 ? 500 : 250));
  auto& stage = *record.mutable_stage();
  stage.set_number(number);
  stage.set_count(3);
  stage.add_model_outputs("label");
  stage.add_model_outputs("box");
  record.clear_inputs();
  record.clear_outputs();
  if (number != 2) *record.add_inputs() = Tensor("image.1");
  if (number != 1) *record.add_inputs() = Tensor("a");
  if (number == 3) *record.add_inputs() = Tensor("b");
  if (number == 1) *record.add_outputs() = Tensor("a");
  if (number == 2) *record.add_outputs() = Tensor("b");
  if (number == 2) *record.add_outputs() = Tensor("box");
  if (number == 3) *record.add_outputs() = Tensor("label");
  return record;
}

class Staged : public ClusterTest {
 protected:
  Staged() {
    Begin();
    Stored();
    JoinNode("n1");
    Stored();
  }
  static AdminAsked Deployment(Ask ask, const std::string& version = {}) {
    AdminAsked asked{.ask = ask};
    auto& deploy = *asked.request.mutable_deploy();
    deploy.set_name("big");
    deploy.set_version(version);
    deploy.set_onnx_digest("onnx");
    deploy.mutable_slo()->set_deadline_ns(8000);
    return asked;
  }
  // The effects of the last import.
  Lines ImportAll(Ask ask, const std::string& version = {}) {
    On(Deployment(ask, version));
    On(ModelImported{ask, StageOf(1)});
    On(ModelImported{ask, StageOf(2)});
    return On(ModelImported{ask, StageOf(3)});
  }
  void DeployAll(Ask ask) {
    ImportAll(ask);
    Stored();
    for (int stage = 0; stage < 3; ++stage) AllAdopted();
  }
  template <class Change>
  Lines Ask(std::uint64_t ask, const Change& change) {
    AdminAsked asked{.ask = ask};
    change(asked.request);
    return On(std::move(asked));
  }
  Lines Remove(std::uint64_t ask, const std::string& name) {
    return Ask(ask, [&](auto& request) { request.mutable_remove()->mutable_key()->set_name(name); });
  }
  std::string Workflow() {
    Ask(90, [](auto& request) { request.mutable_show_workflow()->set_name("big"); });
    if (reply_.workflows().empty()) return "none";
    std::string text;
    const auto& spec = reply_.workflows(0).spec();
    for (const auto& input : spec.inputs()) text += input.spec().name() + " -> ";
    for (const auto& step : spec.steps()) {
      text += step.function() + "/" + step.version() + "(";
      for (const auto& input : step.inputs()) text += " " + input.tensor() + "=" + input.value();
      text += " ) ";
    }
    for (const auto& output : spec.outputs()) text += " " + output.tensor() + "=" + output.value();
    return text;
  }
};

// The GPUs of the cluster are not the same at each of its imports.
TEST_F(Staged, AllStagesAreOfOneDivision) {
  On(Deployment(2));
  EXPECT_EQ(bounds_.above, GiB(1));
  const auto first = bounds_;
  On(MemberLost{"n1"});
  On(ModelImported{2, StageOf(1)});
  EXPECT_EQ(bounds_, first);
  On(ModelImported{2, StageOf(2)});
  EXPECT_EQ(bounds_, first);
}

TEST_F(Staged, IsImportedStageByStageAndStoredAsOne) {
  EXPECT_THAT(On(Deployment(2)), ElementsAre("import onnx in fp32"));
  EXPECT_THAT(On(ModelImported{2, StageOf(1)}), ElementsAre("import onnx in fp32, stage 2"));
  EXPECT_THAT(On(ModelImported{2, StageOf(2)}), ElementsAre("import onnx in fp32, stage 3"));
  EXPECT_THAT(On(ModelImported{2, StageOf(3)}),
              ElementsAre("store big.1/1 revision big.2/1 revision big.3/1 revision big/1 revision"));
  EXPECT_THAT(Stored(), UnorderedElementsAre("tell members", "adopt big.1 at n1", "adopt big.2 at n1",
                                             "adopt big.3 at n1", "manager: function-deployed"));
  EXPECT_EQ(Workflow(),
            "image.1 -> big.1/1( image.1=.image.1 ) big.2/1( a=stage-1.a ) "
            "big.3/1( image.1=.image.1 a=stage-1.a b=stage-2.b )  label=stage-3.label box=stage-2.box");
}

TEST_F(Staged, IsAnsweredWhenEachStageHasANode) {
  ImportAll(2);
  Stored();
  const auto asked = adoptions();
  ASSERT_THAT(asked, SizeIs(3));
  EXPECT_THAT(Answered(asked[2]), ElementsAre("n1: model-adopted"));
  EXPECT_THAT(Answered(asked[0]), ElementsAre("n1: model-adopted"));
  EXPECT_THAT(Answered(asked[1]), ElementsAre("n1: model-adopted", "answer 2 OK"));
  EXPECT_THAT(reply_.functions(), SizeIs(3));
  EXPECT_THAT(reply_.workflows(), SizeIs(1));
}

TEST_F(Staged, EachStageHasItsPartOfTheDeadline) {
  ImportAll(2);
  EXPECT_EQ(written_["big.1"].slo().deadline_ns(), 2000);
  EXPECT_EQ(written_["big.3"].slo().deadline_ns(), 4000);
  EXPECT_EQ(written_["big.3"].stage().deadline_ns(), 8000);
  EXPECT_EQ(written_["big.2"].stage().workflow(), "big");
}

TEST_F(Staged, NothingIsStoredOfAModelOfWhichAStageCannotBeImported) {
  On(Deployment(2));
  On(ModelImported{2, StageOf(1)});
  EXPECT_THAT(On(ModelImported{2, absl::ResourceExhaustedError("too many wait")}),
              ElementsAre("answer 2 RESOURCE_EXHAUSTED"));
  EXPECT_THAT(On(ModelImported{2, StageOf(2)}), IsEmpty()) << "no deployment waits for it";
  EXPECT_EQ(Workflow(), "none");
}

TEST_F(Staged, AModelThatKeepsStateIsRefused) {
  auto asked = Deployment(2);
  asked.request.mutable_deploy()->add_state();
  On(std::move(asked));
  EXPECT_THAT(On(ModelImported{2, StageOf(1)}), ElementsAre("answer 2 INVALID_ARGUMENT"));
  EXPECT_THAT(reply_.message(), HasSubstr("3 stages"));
}

TEST_F(Staged, AStageThatNoNodeCanServeTakesAllBack) {
  ImportAll(2);
  Stored();
  const auto asked = adoptions();
  Answered(asked[0]);
  EXPECT_THAT(Answered(asked[1], absl::InvalidArgumentError("an operator is not known")),
              ElementsAre("n1: adoption-failed",
                          "store -big/1 revision -big.1/1 revision -big.2/1 revision "
                          "-big.3/1 revision"));
  EXPECT_THAT(Stored(), testing::Contains("answer 2 INVALID_ARGUMENT"));
  EXPECT_EQ(Workflow(), "none");
  EXPECT_THAT(Answered(asked[2]), Not(testing::Contains(HasSubstr("answer")))) << "it was answered";
}

TEST_F(Staged, AStageThatANodeCouldServeLaterStays) {
  ImportAll(2);
  Stored();
  const auto asked = adoptions();
  Answered(asked[0]);
  Answered(asked[1], absl::ResourceExhaustedError("the region is full"));
  EXPECT_THAT(Answered(asked[2]), ElementsAre("n1: model-adopted", "answer 2 OK"));
  EXPECT_THAT(reply_.message(), HasSubstr("the region is full"));
}

TEST_F(Staged, IsRemovedByItsNameWithAllStages) {
  DeployAll(2);
  EXPECT_THAT(Remove(3, "big.2"), ElementsAre("answer 3 FAILED_PRECONDITION"));
  EXPECT_THAT(reply_.message(), HasSubstr("'big.2' is stage 2 of 'big'"));
  EXPECT_THAT(Remove(4, "big"),
              ElementsAre("store -big/1 revision -big.1/1 revision -big.2/1 revision -big.3/1 revision"));
  Stored();
  EXPECT_EQ(Workflow(), "none");
  Ask(5, [](auto& request) { request.mutable_cluster_status(); });
  EXPECT_EQ(reply_.status().functions(), 0);
}

TEST_F(Staged, IsUnloadedUpdatedAndShownByItsName) {
  DeployAll(2);
  EXPECT_THAT(Ask(3, [](auto& request) { request.mutable_load()->mutable_key()->set_name("big"); }),
              ElementsAre("store big.1/1 revision big.2/1 revision big.3/1 revision"));
  Stored();
  const auto update = [](auto& request) {
    auto& wish = *request.mutable_update_function();
    wish.mutable_key()->set_name("big");
    wish.mutable_sharing()->set_quota_limit(50);
    wish.add_settings("quota_limit");
  };
  EXPECT_THAT(Ask(4, update), ElementsAre("store big.1/1 revision big.2/1 revision big.3/1 revision"));
  Stored();
  Ask(5, [](auto& request) { request.mutable_show_function()->mutable_key()->set_name("big"); });
  ASSERT_THAT(reply_.functions(), SizeIs(3));
  EXPECT_FALSE(reply_.functions(2).record().loaded());
  EXPECT_EQ(reply_.functions(2).record().sharing().quota_limit(), 50);
}

TEST_F(Staged, WhatIsAskedOfOneFunctionNamesTheStages) {
  DeployAll(2);
  const auto refused = [&](const std::function<void(proto::AdminRequest&)>& ask) {
    EXPECT_THAT(Ask(3, ask), ElementsAre("answer 3 FAILED_PRECONDITION"));
    EXPECT_THAT(reply_.message(), HasSubstr("name one of them (big.1, big.2, big.3)"));
  };
  refused([](auto& request) { request.mutable_profile_function()->mutable_key()->set_name("big"); });
  refused([](auto& request) { request.mutable_import_profile()->mutable_key()->set_name("big"); });
  refused([](auto& request) { request.mutable_remove_profile()->mutable_key()->set_name("big"); });
  refused([](auto& request) { request.mutable_show_profile()->mutable_key()->set_name("big"); });
  refused([](auto& request) { request.mutable_show_scaling()->mutable_key()->set_name("big"); });
  refused([](auto& request) { request.mutable_move_function()->mutable_key()->set_name("big"); });
  EXPECT_THAT(
      Ask(4, [](auto& request) { request.mutable_profile_function()->mutable_key()->set_name("none"); }),
      ElementsAre("answer 4 NOT_FOUND"));
}

TEST_F(Staged, VersionsFollowEachOther) {
  DeployAll(2);
  EXPECT_THAT(ImportAll(3),
              ElementsAre("store big.1/2 revision big.2/2 revision big.3/2 revision big/2 revision"));
  Stored();
  AllAdopted();
  EXPECT_THAT(ImportAll(4, "2"), ElementsAre("answer 4 ALREADY_EXISTS"));
  EXPECT_THAT(Remove(5, "big"),
              ElementsAre("store -big/2 revision -big.1/2 revision -big.2/2 revision -big.3/2 revision"))
      << "the newest";
}

// The name of a model in stages, of a function and of a workflow are one space.
TEST_F(Staged, NamesThatAreTakenAreRefused) {
  DeployAll(2);
  for (const char* name : {"big", "big.1"}) {
    SCOPED_TRACE(name);
    EXPECT_THAT(Deploy(name, 3), testing::Contains(HasSubstr("answer 3")));
    EXPECT_NE(reply_.code(), 0);
  }
  Deploy("small", 4);
  Stored();
  AllAdopted();
  auto asked = Deployment(5);
  asked.request.mutable_deploy()->set_name("small");
  On(std::move(asked));
  On(ModelImported{5, StageOf(1)});
  On(ModelImported{5, StageOf(2)});
  EXPECT_THAT(On(ModelImported{5, StageOf(3)}), ElementsAre("answer 5 ALREADY_EXISTS"));
}

TEST_F(Staged, AWorkflowFileCallsItAsAFunctionAndIsNoVersionOfIt) {
  DeployAll(2);
  const auto submit = [&](std::uint64_t ask, const std::string& name, const std::string& function,
                          const std::string& output) {
    return Ask(ask, [&](auto& request) {
      request.mutable_submit_workflow()->set_yaml(
          "name: " + name +
          "\ninputs: {image: {type: FP32, shape: [-1, 4]}}\n"
          "steps:\n  - {name: all, function: " +
          function + ", inputs: {image.1: image}}\noutputs: {y: all." + output + "}\n");
    });
  };
  EXPECT_THAT(submit(3, "big", "big.1", "a"), ElementsAre("answer 3 ALREADY_EXISTS"));
  EXPECT_THAT(submit(4, "flow", "big", "label"), ElementsAre("store flow/1 revision")) << reply_.message();
  Stored();
  ASSERT_THAT(reply_.workflows(), SizeIs(1));
  EXPECT_EQ(reply_.workflows(0).spec().steps(0).workflow(), "big");
  EXPECT_EQ(reply_.workflows(0).spec().steps(0).function(), "");
}

TEST_F(Staged, AStageThatFitsNoGpuIsRefused) {
  On(Deployment(2));
  On(ModelImported{2, StageOf(1)});
  On(ModelImported{2, StageOf(2)});
  auto large = StageOf(3);
  large.set_weights_bytes(GiB(2).count());
  EXPECT_THAT(On(ModelImported{2, std::move(large)}), ElementsAre("answer 2 FAILED_PRECONDITION"));
  EXPECT_THAT(reply_.message(), HasSubstr("2 GiB"));
}

}  // namespace
}  // namespace troupe::cluster
