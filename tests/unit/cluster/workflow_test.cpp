#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/workflow_parser.hpp"
#include "cluster/step_durability.hpp"
#include "cluster/workflow_schedule.hpp"
#include "cluster/workflow_validator.hpp"

namespace troupe::cluster::workflow_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr char kEnsemble[] = R"(name: ensemble
inputs:
  image: {type: FP32, shape: [-1, 1, 8, 8]}
steps:
  - name: left
    function: net
    inputs: {x: image}
  - name: right
    function: net
    version: "1"
    inputs: {x: image}
    timeout: 5s
  - name: average
    function: mean
    inputs:
      a: left.y
      b: right.y
outputs:
  probabilities: average.z
)";

proto::TensorSpec Spec(const std::string& name, proto::DataType type, std::vector<std::int64_t> shape) {
  proto::TensorSpec spec;
  spec.set_name(name);
  spec.set_type(type);
  for (const std::int64_t size : shape) spec.add_shape(size);
  return spec;
}

FunctionTable Functions() {
  FunctionTable table;
  const auto add = [&](const std::string& name, std::vector<proto::TensorSpec> inputs,
                       std::vector<proto::TensorSpec> outputs) {
    proto::FunctionRecord record;
    record.mutable_key()->set_name(name);
    record.mutable_key()->set_version("1");
    record.set_loaded(true);
    for (auto& spec : inputs) *record.add_inputs() = spec;
    for (auto& spec : outputs) *record.add_outputs() = spec;
    table.Put(record);
  };
  add("net", {Spec("x", proto::FP32, {-1, 1, 8, 8})}, {Spec("y", proto::FP32, {-1, 10})});
  add("mean", {Spec("a", proto::FP32, {-1, 10}), Spec("b", proto::FP32, {-1, 10})},
      {Spec("z", proto::FP32, {-1, 10})});
  add("one", {Spec("x", proto::FP32, {1, 1, 8, 8})}, {Spec("y", proto::FP32, {1, 10})});
  add("text", {Spec("s", proto::BYTES, {-1})}, {Spec("t", proto::BYTES, {-1})});
  add("pass", {Spec("x", proto::FP32, {-1})}, {Spec("y", proto::FP32, {-1})});
  return table;
}

std::string ParseError(const std::string& text) {
  const auto spec = ParseWorkflow(text);
  return spec.ok() ? "accepted" : std::string(spec.status().message());
}
std::string CheckError(const std::string& text) {
  const auto spec = ParseWorkflow(text);
  if (!spec.ok()) return "does not parse: " + std::string(spec.status().message());
  const auto record = ValidateWorkflow(*spec, Functions());
  return record.ok() ? "accepted" : std::string(record.status().message());
}

TEST(WorkflowParser, ReadsTheWholeForm) {
  const auto spec = ParseWorkflow(kEnsemble);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->name(), "ensemble");
  ASSERT_EQ(spec->inputs_size(), 1);
  EXPECT_THAT(spec->inputs(0).spec().shape(), ElementsAre(-1, 1, 8, 8));
  EXPECT_EQ(spec->inputs(0).line(), 3u);
  ASSERT_EQ(spec->steps_size(), 3);
  EXPECT_EQ(spec->steps(1).version(), "1");
  EXPECT_EQ(spec->steps(1).timeout_ns(), 5'000'000'000);
  EXPECT_EQ(spec->steps(2).line(), 13u);
  EXPECT_EQ(spec->steps(2).inputs(1).value(), "right.y");
  EXPECT_EQ(spec->steps(2).inputs(1).line(), 17u);
  EXPECT_EQ(spec->outputs(0).tensor(), "probabilities");
  const auto record = ValidateWorkflow(*spec, Functions());
  ASSERT_TRUE(record.ok()) << record.status();
  EXPECT_EQ(record->outputs(0).name(), "probabilities");
  EXPECT_THAT(record->outputs(0).shape(), ElementsAre(-1, 10));
}

TEST(WorkflowParser, EveryErrorHasItsLine) {
  struct Case {
    const char* text;
    std::vector<std::string> says;
  };
  const Case cases[] = {
      {"", {"nothing"}},
      {"[1, 2]", {"line 1: a workflow is a list"}},
      {"name: x\n  bad: [", {"the workflow has 1 error", "not valid YAML"}},
      {"name: x\nstepz: []\noutputs: {}\n", {"line 2: a workflow has no 'stepz'", "lacks 'steps'"}},
      {"name: a b\nsteps: []\noutputs: {}\n", {"line 1: 'a b' is not a valid name"}},
      {"name: x\nname: y\nsteps: []\noutputs: {}\n", {"line 2: 'name' stands twice"}},
      {"name: x\nversion: 0\nsteps: {}\noutputs: []\n",
       {"line 2: '0' is not a valid version", "line 3: 'steps' is a mapping", "line 4: 'outputs' is a list"}},
      {"name: x\ninputs:\n  a: {type: FLOAT, shape: [1]}\n  b: {type: FP32, shape: 3}\n  c: {type: FP32, "
       "shape: [-2]}\n"
       "  d.e: {type: FP32, shape: []}\n  g: {shape: [x]}\nsteps: []\noutputs: {}\n",
       {"line 3: 'FLOAT'", "line 4: the shape", "line 5: a size in a shape is '-2'", "line 6: 'd.e'",
        "line 7: input 'g' lacks 'type'", "line 7: a size in a shape is 'x'"}},
      {"name: x\nsteps:\n  - name: s\n    function: f\n    inputs: {a: b}\n    retries: 3\n  - 7\n  - name: "
       "s\n    function: f\n"
       "    inputs: {}\n    timeout: soon\n    fan_out: {input: a, dimension: -1}\noutputs: {y: {a: b}}\n",
       {"line 6: step 's' has no 'retries'", "line 7: a step is a single value",
        "line 8: two steps are called 's'", "line 11: 'soon' is not a valid timeout",
        "line 12: the dimension to fan out is '-1'", "line 13: the value of 'y' is a mapping"}},
      {"name: x\nsteps:\n  - name: s\n    function: f\n    inputs: {a: b}\n    fan_out: {input: a, "
       "dimension: 99}\noutputs: {y: s.t}\n",
       {"line 6: dimension 99"}},
  };
  for (const Case& c : cases) {
    const std::string error = ParseError(c.text);
    for (const std::string& says : c.says) EXPECT_THAT(error, HasSubstr(says)) << c.text;
  }
}

TEST(WorkflowParser, LimitsOfSizeAndDepth) {
  EXPECT_THAT(ParseError(std::string(2 << 20, ' ')), HasSubstr("2 MiB"));
  EXPECT_THAT(ParseError(std::string(100000, '[')), Not(HasSubstr("accepted")));
  std::string many = "name: x\nsteps:\n";
  for (int i = 0; i < 1002; ++i)
    many += "  - {name: s" + std::to_string(i) + ", function: f, inputs: {a: b}}\n";
  EXPECT_THAT(ParseError(many + "outputs: {y: s1.y}\n"), HasSubstr("more than 1000 steps"));
}

std::string With(const std::string& steps, const std::string& outputs = "outputs: {o: s.y}") {
  return "name: w\ninputs:\n  image: {type: FP32, shape: [-1, 1, 8, 8]}\nsteps:\n" + steps + outputs + "\n";
}

TEST(WorkflowValidator, EveryErrorIsReportedWithItsLine) {
  struct Case {
    std::string text;
    std::vector<std::string> says;
  };
  const Case cases[] = {
      {With("  - {name: s, function: nett, inputs: {x: image}}\n"),
       {"has 1 error", "line 5: step 's': there is no function 'nett'"}},
      {With("  - {name: s, function: net, version: \"9\", inputs: {x: image}}\n"),
       {"function 'net' version 9"}},
      {With("  - {name: s, function: net, inputs: {q: image}}\n"),
       {"has no input 'q'; its inputs are: x", "line 5: step 's' lacks input 'x' (FP32 [-1,1,8,8])"}},
      {With("  - {name: s, function: net, inputs: {x: picture}}\n"),
       {"line 5: 'picture' is not an input of the workflow", "line 3: input 'image' is used by no step"}},
      {With("  - {name: s, function: net, inputs: {x: image}}\n", "outputs: {o: s}"),
       {"line 6: 's' is not an input", "STEP.OUTPUT"}},
      {With("  - {name: s, function: net, inputs: {x: image}}\n", "outputs: {o: s.q, p: t.y}"),
       {"has no output 'q'; its outputs are: y", "there is no step 't'"}},
      {With("  - {name: s, function: text, inputs: {s: image}}\n", "outputs: {o: s.t}"),
       {"'image' is FP32, and input 's' is BYTES", "has shape [-1,1,8,8], and input 's' wants [-1]"}},
      {With("  - {name: s, function: net, inputs: {x: image}}\n  - {name: t, function: net, inputs: {x: "
            "s.y}}\n"),
       {"line 6: step 't': 's.y' has shape [-1,10]"}},
      {With("  - {name: s, function: net, inputs: {x: image}}\n", "outputs: {}"), {"there are no outputs"}},
      {"name: w\nsteps: []\noutputs: {}\n", {"there are no steps", "there are no outputs"}},
  };
  for (const Case& c : cases) {
    const std::string error = CheckError(c.text);
    for (const std::string& says : c.says) EXPECT_THAT(error, HasSubstr(says)) << c.text;
  }
}

TEST(WorkflowValidator, CyclesAreNamed) {
  const std::string error = CheckError(
      "name: w\ninputs: {i: {type: FP32, shape: [-1]}}\nsteps:\n"
      "  - {name: start, function: pass, inputs: {x: i}}\n"
      "  - {name: a, function: pass, inputs: {x: c.y}}\n"
      "  - {name: b, function: pass, inputs: {x: a.y}}\n"
      "  - {name: c, function: pass, inputs: {x: b.y}}\n"
      "  - {name: self, function: pass, inputs: {x: self.y}}\n"
      "outputs: {o: start.y}\n");
  EXPECT_THAT(error, HasSubstr("2 errors"));
  EXPECT_THAT(error, HasSubstr("line 5: the steps wait for each other: a -> b -> c -> a"));
  EXPECT_THAT(error, HasSubstr("line 8: the steps wait for each other: self -> self"));
}

TEST(WorkflowValidator, AChainOfAThousandStepsIsFine) {
  std::string text = "name: w\ninputs: {i: {type: FP32, shape: [-1]}}\nsteps:\n";
  for (int i = 999; i >= 0; --i) {
    const std::string from = i == 0 ? "i" : "s" + std::to_string(i - 1) + ".y";
    text += "  - {name: s" + std::to_string(i) + ", function: pass, inputs: {x: " + from + "}}\n";
  }
  EXPECT_EQ(CheckError(text + "outputs: {o: s999.y}\n"), "accepted");
}

TEST(WorkflowValidator, FanOut) {
  const auto with = [](const std::string& function, const std::string& fan_out,
                       const std::string& input = "x") {
    return CheckError(With("  - {name: s, function: " + function + ", inputs: {" + input +
                           ": image}, fan_out: " + fan_out + "}\n"));
  };
  EXPECT_EQ(with("one", "{input: x, dimension: 0}"), "accepted");
  EXPECT_EQ(with("net", "{input: x, dimension: 0}"), "accepted");
  EXPECT_THAT(with("net", "{input: q, dimension: 0}"), HasSubstr("'q', which is not a bound input"));
  EXPECT_THAT(with("net", "{input: x, dimension: 5}"), HasSubstr("has no dimension 5"));
  EXPECT_THAT(with("net", "{input: x, dimension: 3}"), HasSubstr("after the fan-out"));
  EXPECT_THAT(with("net", "{input: x, dimension: 3}"),
              HasSubstr("output 'y' (FP32 [-1,10]) cannot be put together"));
  // A fan-out may have any number of parts.
  const auto spec = ParseWorkflow(
      With("  - {name: s, function: one, inputs: {x: image}, fan_out: {input: x, dimension: 0}}\n"));
  ASSERT_TRUE(spec.ok());
  EXPECT_THAT(ValidateWorkflow(*spec, Functions())->outputs(0).shape(), ElementsAre(-1, 10));
}

TEST(WorkflowProgress, StepsBecomeReadyWhenTheirInputsAreCommitted) {
  WorkflowProgress progress(*ParseWorkflow(kEnsemble));
  EXPECT_THAT(progress.TakeReady(), ElementsAre("left", "right"));
  EXPECT_THAT(progress.TakeReady(), ElementsAre());
  progress.Commit("left");
  EXPECT_THAT(progress.TakeReady(), ElementsAre());
  progress.Retry("right");
  EXPECT_THAT(progress.TakeReady(), ElementsAre("right"));
  progress.Commit("right");
  progress.Commit("right");
  EXPECT_THAT(progress.TakeReady(), ElementsAre("average"));
  EXPECT_EQ(progress.state(), proto::RUN_RUNNING);
  progress.Commit("average");
  EXPECT_EQ(progress.state(), proto::RUN_SUCCEEDED);
  EXPECT_TRUE(progress.TakeReady().empty());
}

TEST(WorkflowProgress, AfterARestartOnlyWhatIsNotCommittedRuns) {
  WorkflowProgress progress(*ParseWorkflow(kEnsemble));
  progress.Commit("right");
  EXPECT_THAT(progress.TakeReady(), ElementsAre("left"));
  progress.Commit("left");
  EXPECT_THAT(progress.TakeReady(), ElementsAre("average"));
}

TEST(StepsToRecompute, AreThoseWhoseResultsAreStillRead) {
  const auto spec = ParseWorkflow(R"(name: chain
inputs:
  image: {type: FP32, shape: [-1, 4]}
steps:
  - {name: one, function: net, inputs: {x: image}}
  - {name: two, function: net, inputs: {x: one.y}}
  - {name: three, function: net, inputs: {x: two.y}}
  - {name: four, function: net, inputs: {x: three.y}}
outputs: {z: four.y, early: one.y}
)");
  ASSERT_TRUE(spec.ok()) << spec.status();
  using Names = std::set<std::string>;
  const Names three = {"one", "two", "three"};
  EXPECT_EQ(StepsToRecompute(*spec, three, {}), Names());
  EXPECT_EQ(StepsToRecompute(*spec, three, {"two"}), Names())
      << "step three has read the output, and is done";
  EXPECT_EQ(StepsToRecompute(*spec, three, {"three"}), Names({"three"}));
  EXPECT_EQ(StepsToRecompute(*spec, three, {"two", "three"}), Names({"two", "three"}));
  EXPECT_EQ(StepsToRecompute(*spec, three, {"one"}), Names({"one"})) << "the workflow returns the output";
  EXPECT_EQ(StepsToRecompute(*spec, {"one", "two", "three", "four"}, {"four"}), Names({"four"}));
}

TEST(WorkflowProgress, StepsWhoseResultsAreLostRunAgainBeforeWhatReadsThem) {
  WorkflowProgress progress(*ParseWorkflow(kEnsemble));
  (void)progress.TakeReady();
  progress.Commit("left");
  progress.Commit("right");
  EXPECT_THAT(progress.TakeReady(), ElementsAre("average"));
  progress.Reopen({"left", "average"});
  EXPECT_THAT(progress.TakeReady(), ElementsAre("left"));
  progress.Reopen({"right"});
  EXPECT_THAT(progress.TakeReady(), ElementsAre("right"));
  progress.Commit("left");
  EXPECT_THAT(progress.TakeReady(), ElementsAre());
  progress.Commit("right");
  EXPECT_THAT(progress.TakeReady(), ElementsAre("average"));
  // What is under way goes on with what it has read, though that is computed again beside it.
  progress.Reopen({"left"});
  EXPECT_THAT(progress.TakeReady(), ElementsAre("left"));
  progress.Commit("left");
  EXPECT_THAT(progress.TakeReady(), ElementsAre());
  progress.Commit("average");
  EXPECT_EQ(progress.state(), proto::RUN_SUCCEEDED);
}

TEST(StepDurability, WhatIsComputedFasterThanItIsWrittenIsNotWritten) {
  using std::chrono::milliseconds;
  EXPECT_FALSE(WritesKept(milliseconds(5), 0));
  EXPECT_TRUE(WritesKept(milliseconds(6), 0));
  EXPECT_FALSE(WritesKept(milliseconds(100), 10'000'000)) << "0.1 s at 100 MB/s, and the sync";
  EXPECT_TRUE(WritesKept(milliseconds(106), 10'000'000));
  EXPECT_FALSE(WritesKept(Duration::max(), ~std::uint64_t{0}));
}

TEST(OutputsToKeep, AreThoseThatStepsAloneRead) {
  const auto spec = ParseWorkflow(R"(name: keeps
inputs:
  image: {type: FP32, shape: [-1, 4]}
steps:
  - {name: one, function: net, inputs: {x: image}}
  - {name: two, function: net, inputs: {x: one.y}}
  - {name: three, function: net, inputs: {x: one.y, z: two.y}, fan_out: {input: x, dimension: 0}}
  - {name: four, function: net, inputs: {x: three.y}}
outputs: {z: four.y, early: two.y}
)");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_THAT(OutputsToKeep(*spec, "one"), ElementsAre("y"));
  EXPECT_THAT(OutputsToKeep(*spec, "two"), ElementsAre()) << "the workflow gives it";
  EXPECT_THAT(OutputsToKeep(*spec, "three"), ElementsAre()) << "its calls' outputs are put together";
  EXPECT_THAT(OutputsToKeep(*spec, "four"), ElementsAre());
}

TEST(WorkflowProgress, AFailedOrCancelledRunStartsNothing) {
  WorkflowProgress failed(*ParseWorkflow(kEnsemble));
  (void)failed.TakeReady();
  failed.Fail("left", absl::NotFoundError("gone"));
  failed.Fail("right", absl::InternalError("later"));
  EXPECT_EQ(failed.state(), proto::RUN_FAILED);
  EXPECT_EQ(failed.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(failed.status().message()), HasSubstr("step 'left'"));
  failed.Cancel();
  EXPECT_EQ(failed.state(), proto::RUN_FAILED);
  WorkflowProgress cancelled(*ParseWorkflow(kEnsemble));
  cancelled.Cancel();
  EXPECT_EQ(cancelled.state(), proto::RUN_CANCELLED);
  EXPECT_TRUE(cancelled.TakeReady().empty());
}

}  // namespace
}  // namespace troupe::cluster::workflow_test
