#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/workflow_registry.hpp"
#include "cluster/workflow_validator.hpp"
#include "cluster/workflows/inner_run.hpp"

namespace troupe::cluster::workflow_nesting_test {
namespace {

using testing::HasSubstr;

FunctionTable Functions() {
  FunctionTable table;
  proto::FunctionRecord record;
  record.mutable_key()->set_name("f");
  record.mutable_key()->set_version("1");
  record.set_loaded(true);
  for (auto* tensor : {record.add_inputs(), record.add_outputs()}) {
    tensor->set_type(proto::FP32);
    tensor->add_shape(-1);
  }
  record.mutable_inputs(0)->set_name("x");
  record.mutable_outputs(0)->set_name("y");
  table.Put(record);
  return table;
}

// The text of a workflow whose one step calls a workflow, or (empty) the function.
std::string Text(const std::string& name, const std::string& calls, const std::string& version = "") {
  const std::string step = calls.empty() ? "function: f" : "workflow: " + calls;
  return "name: " + name + "\n" + (version.empty() ? "" : "version: " + version + "\n") +
         "inputs: {x: {type: FP32, shape: [-1]}}\nsteps:\n  - {name: s, " + step +
         ", inputs: {x: x}}\noutputs: {y: s.y}\n";
}

class Workflows : public ::testing::Test {
 protected:
  absl::Status Submit(const std::string& text) {
    const auto checked = CheckWorkflow(text, functions_, registry_.Finder());
    if (!checked.ok()) return checked.status();
    const auto record = registry_.ValidateSubmit(*checked, functions_);
    if (record.ok()) registry_.Apply(*record, Revision(++revision_));
    return record.status();
  }
  std::string Refusal(const std::string& text) { return std::string(Submit(text).message()); }

  const FunctionTable functions_ = Functions();
  WorkflowRegistry registry_;
  std::uint64_t revision_ = 0;
};

TEST_F(Workflows, AStepThatCallsAWorkflowIsCheckedAgainstIt) {
  ASSERT_TRUE(Submit(Text("inner", "")).ok());
  ASSERT_TRUE(Submit(Text("outer", "inner")).ok());
  const auto* outer = registry_.Find("outer", "");
  ASSERT_NE(outer, nullptr);
  EXPECT_EQ(outer->outputs(0).type(), proto::FP32);
  EXPECT_EQ(outer->spec().steps(0).outputs(0).name(), "y");
  EXPECT_THAT(Refusal(Text("w", "gone")), HasSubstr("line 4: step 's': there is no workflow 'gone'"));
  EXPECT_THAT(Refusal(Text("w", "inner, version: 7")), HasSubstr("there is no workflow 'inner' version 7"));
  EXPECT_THAT(Refusal("name: w\ninputs: {x: {type: INT8, shape: [-1]}}\nsteps:\n"
                      "  - {name: s, workflow: inner, inputs: {q: x}}\noutputs: {y: s.z}\n"),
              testing::AllOf(HasSubstr("workflow 'inner' has no input 'q'; its inputs are: x"),
                             HasSubstr("lacks input 'x' (FP32 [-1]) of workflow 'inner'"),
                             HasSubstr("workflow 'inner' has no output 'z'; its outputs are: y")));
  EXPECT_EQ(registry_.UsersOf("inner"), std::vector<std::string>{"outer"});
}

TEST_F(Workflows, AWorkflowThatCallsItselfIsRefused) {
  EXPECT_THAT(Refusal(Text("self", "self")),
              HasSubstr("line 4: step 's': the workflows call each other: self -> self"));
  ASSERT_TRUE(Submit(Text("self", "")).ok());
  EXPECT_THAT(Refusal(Text("self", "self")), HasSubstr("self -> self"));
  EXPECT_TRUE(Submit(Text("self", "self, version: 1")).ok()) << "its first version calls no workflow";
}

TEST_F(Workflows, ACircleThatALaterVersionWouldMakeIsRefusedWithItsPath) {
  ASSERT_TRUE(Submit(Text("c", "")).ok());
  ASSERT_TRUE(Submit(Text("b", "c")).ok());
  ASSERT_TRUE(Submit(Text("a", "b")).ok());
  EXPECT_THAT(Refusal(Text("c", "a")), HasSubstr("the workflows call each other: c -> a -> b -> c"));
  EXPECT_EQ(registry_.Find("c", "")->spec().version(), "1");
  EXPECT_TRUE(Submit(Text("c", "")).ok());
}

TEST_F(Workflows, ACircleOfFixedVersionsIsNone) {
  ASSERT_TRUE(Submit(Text("b", "")).ok());
  ASSERT_TRUE(Submit(Text("a", "b, version: 1")).ok());
  EXPECT_TRUE(Submit(Text("b", "a")).ok()) << "a calls the first version of b for ever";
}

TEST_F(Workflows, ACircleThatARemovalWouldMakeIsRefused) {
  ASSERT_TRUE(Submit(Text("a", "")).ok());
  ASSERT_TRUE(Submit(Text("b", "a")).ok());
  ASSERT_TRUE(Submit(Text("b", "")).ok());
  ASSERT_TRUE(Submit(Text("a", "b")).ok()) << "the newest b calls no workflow";
  const auto refused = registry_.ValidateRemoval("b", "");
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(
      std::string(refused.message()),
      "without version 2 of 'b', the workflows call each other: a -> b -> a; remove or change one of them first");
  EXPECT_TRUE(registry_.ValidateRemoval("b", "1").ok());
  EXPECT_TRUE(registry_.ValidateRemoval("a", "2").ok());
  EXPECT_EQ(registry_.ValidateRemoval("b", "3").code(), absl::StatusCode::kNotFound);
}

TEST_F(Workflows, EightRunsInsideEachOtherAreTheMost) {
  ASSERT_TRUE(Submit(Text("w1", "")).ok());
  for (int i = 2; i <= 8; ++i)
    ASSERT_TRUE(Submit(Text("w" + std::to_string(i), "w" + std::to_string(i - 1))).ok()) << i;
  EXPECT_THAT(Refusal(Text("w9", "w8")), HasSubstr("are supported 8 deep, and this is deeper: w9 -> w8"));
  // Or by a later version of the innermost.
  ASSERT_TRUE(Submit(Text("w0", "")).ok());
  EXPECT_THAT(Refusal(Text("w1", "w0")),
              testing::AllOf(HasSubstr("with this version,"), HasSubstr("8 deep")));
}

TEST_F(Workflows, ManyWorkflowsThatCallTheSameAreCheckedOnceEach) {
  ASSERT_TRUE(Submit(Text("l0", "")).ok());
  // Each calls the one below ten times: followed one by one, the paths would be 10 million.
  for (int level = 1; level < 8; ++level) {
    std::string text =
        "name: l" + std::to_string(level) + "\ninputs: {x: {type: FP32, shape: [-1]}}\nsteps:\n";
    for (int i = 0; i < 10; ++i)
      text += "  - {name: s" + std::to_string(i) + ", workflow: l" + std::to_string(level - 1) +
              ", inputs: {x: x}}\n";
    ASSERT_TRUE(Submit(text + "outputs: {y: s0.y}\n").ok()) << level;
  }
}

TEST(InnerRunKey, IsTheSameForTheSameCallAndNoOther) {
  const auto key = InnerRunKey("run", "step", 0, 0);
  EXPECT_EQ(key, InnerRunKey("run", "step", 0, 0));
  EXPECT_EQ(key.size(), 39u);
  EXPECT_EQ(key[0], '.') << "no client can choose it";
  std::set<std::string> keys = {key, InnerRunKey("run2", "step", 0, 0), InnerRunKey("run", "step2", 0, 0),
                                InnerRunKey("run", "step", 1, 0), InnerRunKey("run", "step", 0, 1)};
  EXPECT_EQ(keys.size(), 5u);
}

}  // namespace
}  // namespace troupe::cluster::workflow_nesting_test
