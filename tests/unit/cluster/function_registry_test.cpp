#include "cluster/function_registry.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/digest.hpp"
#include "cluster/cluster_view.hpp"
#include "cluster/function_state.hpp"
#include "cluster/workflow_registry.hpp"
#include "proto/function_signature.hpp"

namespace troupe::cluster::function_registry_test {
namespace {

using testing::HasSubstr;

proto::DeployFunction Deploy(const std::string& name, const std::string& version = "") {
  proto::DeployFunction wish;
  wish.mutable_record()->mutable_key()->set_name(name);
  wish.mutable_record()->mutable_key()->set_version(version);
  wish.mutable_record()->set_onnx_digest(Sha256Hex("onnx"));
  wish.mutable_record()->set_model_digest(Sha256Hex("model of " + name));
  return wish;
}
proto::FunctionKey Key(const std::string& name, const std::string& version = "") {
  proto::FunctionKey key;
  key.set_name(name);
  key.set_version(version);
  return key;
}

class FunctionRegistryTest : public testing::Test {
 protected:
  void Add(const std::string& name, const std::string& version = "") {
    const auto command = registry.ValidateDeploy(Deploy(name, version));
    ASSERT_TRUE(command.ok()) << command.status();
    registry.Apply(*command, ++revision);
  }
  void Remove(const std::string& name, const std::string& version = "") {
    proto::RemoveFunction wish;
    *wish.mutable_key() = Key(name, version);
    const auto command = registry.ValidateRemove(wish);
    ASSERT_TRUE(command.ok()) << command.status();
    registry.Apply(*command, ++revision);
  }
  void SetLoaded(const std::string& name, bool loaded) {
    proto::SetFunctionLoaded wish;
    *wish.mutable_key() = Key(name);
    wish.set_loaded(loaded);
    const auto command = registry.ValidateLoaded(wish);
    ASSERT_TRUE(command.ok()) << command.status();
    registry.Apply(*command, ++revision);
  }
  FunctionRegistry registry{{.max_functions = 5, .max_changes = 4}};
  Revision revision = 0;
};

TEST(FunctionRecords, WhatAFunctionThatIsScaledRequestsIsTheMeanOfItsParts) {
  proto::FunctionRecord record;
  record.mutable_sharing()->add_automatic("quota_request");
  proto::SetFunctionPlaces places;
  for (const std::uint32_t quota : {100, 31}) places.add_places()->set_quota(quota);
  SetIn(record, places);
  EXPECT_EQ(record.sharing().quota_request(), 66u);
  proto::SetFunctionSharing sharing;
  *sharing.mutable_sharing() = record.sharing();
  sharing.mutable_sharing()->set_quota_request(0);
  sharing.mutable_sharing()->set_sm_partition(50);
  SetIn(record, sharing);
  EXPECT_EQ(record.sharing().quota_request(), 66u) << "it owns what it did";
  SetIn(record, proto::SetFunctionPlaces());
  EXPECT_EQ(record.sharing().quota_request(), 0u);
}

TEST_F(FunctionRegistryTest, AProblemIsToldInSnapshotsAndEndsWithANewVersion) {
  Add("f");
  registry.NoteProblem(Key("f", "1"), "its weights are gone");
  registry.BeginAt(revision);
  EXPECT_EQ(registry.ChangesSince(0).functions(0).problem(), "its weights are gone");
  Add("f");
  EXPECT_EQ(registry.table().Find(Key("f"))->problem(), "");
  EXPECT_EQ(registry.table().Find(Key("f", "1"))->problem(), "its weights are gone");
}

TEST_F(FunctionRegistryTest, PrecisionAndPartitionAreOnesThatThereAre) {
  proto::DeployFunction wish = Deploy("f");
  for (const std::uint32_t percent : {0u, 1u, 100u}) {
    wish.mutable_record()->mutable_sharing()->set_sm_partition(percent);
    wish.mutable_record()->set_precision(proto::PRECISION_FP16);
    const auto command = registry.ValidateDeploy(wish);
    ASSERT_TRUE(command.ok()) << command.status();
    EXPECT_EQ(command->record().sharing().sm_partition(), percent);
    EXPECT_EQ(command->record().precision(), proto::PRECISION_FP16);
  }
  wish.mutable_record()->mutable_sharing()->set_sm_partition(101);
  EXPECT_THAT(registry.ValidateDeploy(wish).status().message(),
              HasSubstr("sm_partition is 101 %; give 1 to 100 percent"));
  wish.mutable_record()->mutable_sharing()->set_sm_partition(50);
  wish.mutable_record()->set_precision(static_cast<proto::Precision>(9));
  EXPECT_THAT(registry.ValidateDeploy(wish).status().message(), HasSubstr("fp32, tf32, bf16, fp16"));
}

TEST_F(FunctionRegistryTest, StateIsAnInputAndAnOutputOfOneTypeAndConcreteShape) {
  const auto spec = [](const char* name, std::vector<std::int64_t> shape,
                       proto::DataType type = proto::FP32) {
    proto::TensorSpec out;
    out.set_name(name);
    out.set_type(type);
    *out.mutable_shape() = {shape.begin(), shape.end()};
    return out;
  };
  proto::DeployFunction wish = Deploy("chat");
  auto& record = *wish.mutable_record();
  *record.add_inputs() = spec("x", {-1, 4});
  *record.add_inputs() = spec("past", {2, 8});
  *record.add_outputs() = spec("present", {2, 8});
  *record.add_outputs() = spec("other", {2, 9});
  *record.add_outputs() = spec("whole", {2, 8}, proto::INT64);
  *record.add_outputs() = spec("open", {-1, 4});
  const auto refused = [&](const std::vector<std::pair<const char*, const char*>>& pairs) {
    record.clear_state();
    for (const auto& [input, output] : pairs) {
      auto& tensor = *record.add_state();
      tensor.set_input(input);
      tensor.set_output(output);
    }
    return std::string(registry.ValidateDeploy(wish).status().message());
  };
  EXPECT_EQ(refused({{"past", "present"}}), "");
  EXPECT_EQ(StateBytes(record), Bytes(64));
  EXPECT_EQ(StateSpecs(record).at(0).name(), "past");
  EXPECT_THAT(refused({{"pest", "present"}}),
              HasSubstr("input 'pest', and the model has none such; it has: x, past"));
  EXPECT_THAT(refused({{"past", "presents"}}), HasSubstr("it has: present, other, whole, open"));
  EXPECT_THAT(refused({{"past", "other"}}),
              HasSubstr("found input 'past' (FP32 [2, 8]) and output 'other' (FP32 [2, 9])"));
  EXPECT_THAT(refused({{"past", "whole"}}), HasSubstr("output 'whole' (INT64 [2, 8])"));
  EXPECT_THAT(refused({{"x", "open"}}), HasSubstr("the same concrete shape"));
  EXPECT_THAT(refused({{"past", "present"}, {"past", "present"}}), HasSubstr("for the second time"));
}

TEST_F(FunctionRegistryTest, CallersSeeNothingOfTheState) {
  proto::FunctionRecord record;
  for (const char* name : {"x", "past"}) record.add_inputs()->set_name(name);
  for (const char* name : {"y", "present"}) record.add_outputs()->set_name(name);
  EXPECT_EQ(proto::CallerInputs(record).size(), 2);
  record.add_state()->set_input("past");
  record.mutable_state(0)->set_output("present");
  ASSERT_EQ(proto::CallerInputs(record).size(), 1);
  EXPECT_EQ(proto::CallerInputs(record).at(0).name(), "x");
  ASSERT_EQ(proto::CallerOutputs(record).size(), 1);
  EXPECT_EQ(proto::CallerOutputs(record).at(0).name(), "y");
}

TEST_F(FunctionRegistryTest, VersionsCountUpAndTheNewestAnswers) {
  Add("digits");
  Add("digits");
  Add("digits", "7");
  EXPECT_EQ(registry.table().Find(Key("digits"))->key().version(), "7");
  EXPECT_EQ(registry.table().Find(Key("digits", "1"))->key().version(), "1");
  EXPECT_EQ(registry.table().Find(Key("digits", "3")), nullptr);
  Add("digits");
  EXPECT_EQ(registry.table().Find(Key("digits"))->key().version(), "8");
  EXPECT_EQ(registry.table().Find(Key("digits"))->slo().percentile(), kDefaultPercentile);
  EXPECT_EQ(registry.ValidateDeploy(Deploy("digits", "7")).status().code(), absl::StatusCode::kAlreadyExists);
  Remove("digits");
  EXPECT_EQ(registry.table().Find(Key("digits"))->key().version(), "7");
}

TEST_F(FunctionRegistryTest, UnloadedVersionsAreKeptAndNotServed) {
  Add("digits");
  Add("digits");
  SetLoaded("digits", false);  // version 2
  EXPECT_EQ((*registry.table().FindServed(Key("digits")))->key().version(), "1");
  EXPECT_EQ(registry.table().FindServed(Key("digits", "2")).status().code(), absl::StatusCode::kUnavailable);
  SetLoaded("digits", true);
  EXPECT_EQ((*registry.table().FindServed(Key("digits")))->key().version(), "2");
  EXPECT_EQ(registry.table().FindServed(Key("nets")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(registry.table().FindServed(Key("digits", "9")).status().message()),
              HasSubstr("1, 2"));
}

TEST_F(FunctionRegistryTest, BadWishesSayWhatIsWrong) {
  struct Case {
    proto::DeployFunction wish;
    std::string says;
  };
  std::vector<Case> cases;
  for (const char* name : {"", "-x", "a b", "a/b", "\xff", ".x"})
    cases.push_back({Deploy(name), "is not a valid name"});
  cases.push_back({Deploy(std::string(129, 'a')), "is not a valid name"});
  for (const char* version : {"0", "01", "-1", "x", "1.0", "9999999999999999999"}) {
    cases.push_back({Deploy("f", version), "is not a valid version"});
  }
  cases.push_back({Deploy("f"), "deadline"});
  cases.back().wish.mutable_record()->mutable_slo()->set_deadline_ns(-1);
  for (const double percentile : {-1.0, 100.1, std::numeric_limits<double>::quiet_NaN()}) {
    cases.push_back({Deploy("f"), "percentile"});
    cases.back().wish.mutable_record()->mutable_slo()->set_percentile(percentile);
  }
  cases.push_back({Deploy("f"), "upload"});
  cases.back().wish.mutable_record()->set_model_digest("../../etc/passwd");
  cases.push_back({Deploy("f"), "tenant"});
  cases.back().wish.mutable_record()->set_tenant("a tenant");
  cases.push_back({Deploy("f"), "dimension of -2"});
  auto* input = cases.back().wish.mutable_record()->add_inputs();
  input->set_name("x");
  input->set_type(proto::FP32);
  input->add_shape(-2);
  for (const Case& c : cases) {
    const auto status = registry.ValidateDeploy(c.wish).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.wish.ShortDebugString();
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.says));
  }
}

// A number beyond what a version may be would be stored, and could never be applied.
TEST_F(FunctionRegistryTest, AfterTheLastVersionThereIsNoNextOne) {
  const std::string last(18, '9');
  auto wish = Deploy("f");
  wish.mutable_record()->mutable_key()->set_version(last);
  registry.Apply(*registry.ValidateDeploy(wish), 1);
  const auto refused = registry.ValidateDeploy(Deploy("f")).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("no version after " + last));
  EXPECT_EQ(ChooseVersion("", 41).value(), "42");
  EXPECT_EQ(ChooseVersion("7", 41).value(), "7");
}

TEST_F(FunctionRegistryTest, ALimitOfFunctions) {
  for (int i = 0; i < 5; ++i) Add("f" + std::to_string(i));
  EXPECT_EQ(registry.ValidateDeploy(Deploy("one-more")).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(FunctionRegistryTest, DeltasLeadAViewToTheSameTable) {
  ClusterView view;
  EXPECT_TRUE(view.Apply(registry.ChangesSince(0)).applied);
  Add("a");
  Add("b");
  ViewChange change = view.Apply(registry.ChangesSince(view.revision()));
  EXPECT_TRUE(change.applied);
  EXPECT_EQ(change.deployed.size(), 2u);
  Remove("a");
  Add("c");
  SetLoaded("b", false);
  const proto::ClusterUpdate delta = registry.ChangesSince(view.revision());
  EXPECT_FALSE(delta.snapshot());
  change = view.Apply(delta);
  EXPECT_EQ(change.removed.size(), 2u);  // a was removed, b unloaded
  EXPECT_EQ(view.functions().size(), 2u);
  EXPECT_EQ(view.functions().Find(Key("a")), nullptr);
  EXPECT_FALSE(view.functions().Find(Key("b"))->loaded());
  EXPECT_TRUE(view.Apply(delta).applied);  // a second application changes nothing
  EXPECT_EQ(view.functions().size(), 2u);
}

TEST_F(FunctionRegistryTest, AMemberFarBehindGetsASnapshotAndAGapIsNoticed) {
  Add("a");
  ClusterView view;
  EXPECT_TRUE(view.Apply(registry.ChangesSince(0)).applied);
  const Revision known = view.revision();
  for (int i = 0; i < 6; ++i) SetLoaded("a", i % 2 == 0);
  Remove("a");
  Add("b");
  const proto::ClusterUpdate update = registry.ChangesSince(known);
  EXPECT_TRUE(update.snapshot());
  const ViewChange change = view.Apply(update);
  ASSERT_EQ(change.removed.size(), 1u);
  EXPECT_EQ(change.removed[0].name(), "a");
  proto::ClusterUpdate later;
  later.set_since(view.revision() + 3);
  later.set_revision(view.revision() + 4);
  EXPECT_FALSE(view.Apply(later).applied);
}

// Between two updates: what waits for the function at a router waits for another deployment.
TEST_F(FunctionRegistryTest, WhatWasRemovedAndDeployedAgainIsGoneAndNew) {
  Add("a");
  ClusterView view;
  EXPECT_TRUE(view.Apply(registry.ChangesSince(0)).applied);
  const auto again = [&](bool snapshot, std::int64_t deployed) {
    proto::ClusterUpdate update;
    update.set_snapshot(snapshot);
    update.set_since(view.revision());
    update.set_revision(view.revision() + 1);
    *update.add_functions() = *registry.table().Find(Key("a"));
    update.mutable_functions(0)->set_deployed_unix_ns(deployed);
    return view.Apply(update);
  };
  for (const bool snapshot : {false, true}) {
    EXPECT_TRUE(again(snapshot, view.functions().Find(Key("a"))->deployed_unix_ns()).removed.empty());
    const auto change = again(snapshot, snapshot ? 8 : 7);
    EXPECT_EQ(change.removed.size(), 1u);
    EXPECT_EQ(change.deployed.size(), 1u);
  }
}

TEST_F(FunctionRegistryTest, ModelsAreCountedByTheirUsers) {
  const std::string shared = Sha256Hex("shared");
  for (const char* name : {"a", "b"}) {
    proto::DeployFunction wish = Deploy(name);
    wish.mutable_record()->set_model_digest(shared);
    registry.Apply(*registry.ValidateDeploy(wish), ++revision);
  }
  EXPECT_EQ(registry.table().UsesOf(shared), 2u);
  Remove("a");
  EXPECT_EQ(registry.table().UsesOf(shared), 1u);
  EXPECT_EQ(registry.table().UserOf(shared)->key().name(), "b");
  Remove("b");
  EXPECT_EQ(registry.table().UsesOf(shared), 0u);
  EXPECT_EQ(registry.table().UserOf(shared), nullptr);
}

TEST_F(FunctionRegistryTest, WorkflowsShareTheNamesOfFunctions) {
  Add("digits");
  WorkflowRegistry workflows(2);
  proto::WorkflowRecord wish;
  wish.mutable_spec()->set_name("digits");
  EXPECT_EQ(workflows.ValidateSubmit(wish, registry.table()).status().code(),
            absl::StatusCode::kAlreadyExists);
  wish.mutable_spec()->set_name("ensemble");
  wish.mutable_spec()->add_steps()->set_function("digits");
  for (int i = 0; i < 2; ++i) {
    const auto record = workflows.ValidateSubmit(wish, registry.table());
    ASSERT_TRUE(record.ok());
    workflows.Apply(*record, ++revision);
  }
  EXPECT_EQ(workflows.Find("ensemble", "")->spec().version(), "2");
  EXPECT_EQ(workflows.ValidateSubmit(wish, registry.table()).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(workflows.UsersOf("digits"), testing::ElementsAre("ensemble"));
  EXPECT_TRUE(workflows.ApplyRemoval("ensemble", ""));
  EXPECT_EQ(workflows.Find("ensemble", "")->spec().version(), "1");
  EXPECT_FALSE(workflows.ApplyRemoval("ensemble", "2"));
  wish.mutable_spec()->set_version("1");
  EXPECT_EQ(workflows.ValidateSubmit(wish, registry.table()).status().code(),
            absl::StatusCode::kAlreadyExists);
  wish.mutable_spec()->set_version("first");
  EXPECT_EQ(workflows.ValidateSubmit(wish, registry.table()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace troupe::cluster::function_registry_test
