#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "cluster/step_durability.hpp"
#include "cluster/workflow_parser.hpp"
#include "cluster/workflow_schedule.hpp"
#include "cluster/workflows/condition.hpp"

namespace troupe::cluster::workflow_progress_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Kind = StepDecision::Kind;
using Lines = std::vector<std::string>;

// What is true of values; others are errors.
using Values = std::map<std::string, bool>;

// Decisions as "run a", "skip b: why", "fail c: why".
Lines Decide(WorkflowProgress& progress, const Values& values = {}) {
  Lines lines;
  const auto truth = [&](const std::string& value) -> absl::StatusOr<bool> {
    const auto it = values.find(value);
    if (it != values.end()) return it->second;
    return absl::InvalidArgumentError("'" + value + "' is wrong");
  };
  for (const auto& decision : progress.Decide(truth)) {
    const std::string why(decision.status.message());
    const char* verb = decision.kind == Kind::kRun    ? "run "
                       : decision.kind == Kind::kSkip ? "skip "
                                                      : "fail ";
    lines.push_back(verb + decision.step + (why.empty() ? "" : ": " + why));
  }
  return lines;
}

proto::WorkflowSpec Spec(const std::string& steps, const std::string& outputs = "{o: a.y}") {
  const auto spec = ParseWorkflow(
      "name: w\ninputs: {i: {type: FP32, shape: [-1]}, go: {type: BOOL, shape: [1]}}\nsteps:\n" + steps +
      "outputs: " + outputs + "\n");
  EXPECT_TRUE(spec.ok()) << spec.status();
  return spec.ok() ? *spec : proto::WorkflowSpec();
}
StepOutcome Committed(std::set<std::string> outputs = {"y"}) {
  return {.outputs = std::move(outputs)};
}
StepOutcome Skipped() {
  return {.end = proto::STEP_SKIPPED, .message = "for a reason"};
}
StepOutcome Failed(absl::StatusCode code = absl::StatusCode::kInternal) {
  return {.end = proto::STEP_FAILED, .message = "it broke", .code = static_cast<int>(code)};
}

constexpr char kJoin[] =
    "  - {name: left, function: f, inputs: {x: i}}\n"
    "  - {name: right, function: f, inputs: {x: i}}\n"
    "  - {name: a, function: f, inputs: {x: left.y, z: right.y}}\n";

TEST(WorkflowProgress, StepsRunWhenTheirInputsAreCommitted) {
  WorkflowProgress progress(Spec(kJoin));
  EXPECT_EQ(Decide(progress), (Lines{"run left", "run right"}));
  EXPECT_EQ(Decide(progress), Lines());
  progress.End("left", Committed());
  EXPECT_EQ(Decide(progress), Lines());
  progress.End("right", Committed());
  progress.End("right", Committed());
  EXPECT_EQ(progress.running(), 0u);
  EXPECT_EQ(Decide(progress), Lines{"run a"});
  EXPECT_EQ(progress.state(), proto::RUN_RUNNING);
  progress.End("a", Committed());
  EXPECT_EQ(progress.state(), proto::RUN_SUCCEEDED);
  EXPECT_TRUE(Decide(progress).empty());
}

TEST(WorkflowProgress, AfterARestartOnlyWhatHasNotEndedRuns) {
  WorkflowProgress progress(Spec(kJoin));
  progress.End("right", Committed());
  EXPECT_EQ(Decide(progress), Lines{"run left"});
  progress.End("left", Committed());
  EXPECT_EQ(Decide(progress), Lines{"run a"});
}

TEST(WorkflowProgress, AFailedOrCancelledRunDecidesNothing) {
  WorkflowProgress failed(Spec(kJoin));
  (void)Decide(failed);
  failed.Fail("left", absl::NotFoundError("gone"));
  failed.Fail("right", absl::InternalError("later"));
  EXPECT_EQ(failed.state(), proto::RUN_FAILED);
  EXPECT_EQ(failed.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(failed.status().message()), HasSubstr("step 'left'"));
  failed.Cancel();
  EXPECT_EQ(failed.state(), proto::RUN_FAILED);
  WorkflowProgress cancelled(Spec(kJoin));
  cancelled.Cancel();
  EXPECT_EQ(cancelled.state(), proto::RUN_CANCELLED);
  EXPECT_TRUE(Decide(cancelled).empty());
}

constexpr char kGated[] =
    "  - {name: gate, function: f, inputs: {x: i}}\n"
    "  - {name: slow, function: f, inputs: {x: i}}\n"
    "  - {name: a, function: f, inputs: {x: slow.y}, when: gate.any}\n"
    "  - {name: b, function: f, inputs: {x: a.y}}\n"
    "  - {name: c, function: f, inputs: {x: [b.y, slow.y]}}\n";

TEST(WorkflowProgress, AStepRunsIfItsConditionIsNotZero) {
  WorkflowProgress progress(Spec(kGated));
  EXPECT_EQ(Decide(progress), (Lines{"run gate", "run slow"}));
  progress.End("gate", Committed({"any"}));
  EXPECT_EQ(Decide(progress, {{"gate.any", true}}), Lines()) << "its input is not there";
  progress.End("slow", Committed());
  EXPECT_EQ(Decide(progress, {{"gate.any", true}}), Lines{"run a"});
  progress.End("a", Committed());
  EXPECT_EQ(Decide(progress), Lines{"run b"});
  progress.End("b", Committed());
  EXPECT_EQ(Decide(progress), Lines{"run c"});
  EXPECT_EQ(progress.Bound("c").inputs(0).value(), "b.y");
}

TEST(WorkflowProgress, WhatReadsASkippedStepIsSkippedUnlessAnotherValueIsThere) {
  WorkflowProgress progress(Spec(kGated));
  (void)Decide(progress);
  progress.End("gate", Committed({"any"}));
  EXPECT_EQ(Decide(progress, {{"gate.any", false}}), Lines{"skip a: its 'when', gate.any, is 0"})
      << "its input need not be there";
  EXPECT_EQ(progress.running(), 2u) << "that it is skipped is not durable yet";
  progress.End("a", Skipped());
  EXPECT_EQ(Decide(progress), Lines{"skip b: its input 'x' is absent: step 'a' was skipped"});
  progress.End("b", Skipped());
  EXPECT_EQ(Decide(progress), Lines()) << "the other value is not there yet";
  progress.End("slow", Committed());
  EXPECT_EQ(Decide(progress), Lines{"run c"});
  EXPECT_EQ(progress.Bound("c").inputs(0).value(), "slow.y");
  EXPECT_EQ(progress.Bound("c").inputs(0).fallbacks_size(), 0);
  progress.End("c", Committed());
  EXPECT_EQ(progress.state(), proto::RUN_SUCCEEDED);
}

TEST(WorkflowProgress, AConditionThatIsWrongFailsTheRun) {
  WorkflowProgress progress(Spec("  - {name: a, function: f, inputs: {x: i}, when: go}\n"));
  EXPECT_EQ(Decide(progress), Lines{"fail a: 'go' is wrong"});
}

TEST(WorkflowProgress, AConditionOfASkippedStepSkips) {
  WorkflowProgress progress(
      Spec("  - {name: a, function: f, inputs: {x: i}, when: go}\n"
           "  - {name: b, function: f, inputs: {x: i}, when: a.any}\n"
           "  - {name: c, function: f, inputs: {x: i}, when: [a.any, go]}\n"));
  EXPECT_EQ(Decide(progress, {{"go", false}}), Lines{"skip a: its 'when', go, is 0"});
  progress.End("a", Skipped());
  EXPECT_EQ(
      Decide(progress, {{"go", false}}),
      (Lines{"skip b: its 'when' reads 'a.any', and step 'a' was skipped", "skip c: its 'when', go, is 0"}));
}

TEST(WorkflowProgress, AnOutputThatAStepDidNotGiveIsAbsent) {
  WorkflowProgress progress(
      Spec("  - {name: a, workflow: inner, inputs: {x: i}}\n"
           "  - {name: b, function: f, inputs: {x: a.z}}\n"
           "  - {name: c, function: f, inputs: {x: [a.z, a.y]}}\n"));
  (void)Decide(progress);
  progress.End("a", Committed({"y"}));
  EXPECT_EQ(Decide(progress), (Lines{"skip b: its input 'x' is absent: step 'a' gave no 'z'", "run c"}));
}

constexpr char kStandIn[] =
    "  - {name: a, function: f, inputs: {x: i}, on_error: {step: small}}\n"
    "  - {name: small, function: f, inputs: {x: i}}\n"
    "  - {name: after, function: f, inputs: {x: a.y}}\n";

TEST(WorkflowProgress, WhatStandsInRunsOnlyWhenTheStepFailed) {
  WorkflowProgress good(Spec(kStandIn));
  EXPECT_EQ(Decide(good), Lines{"run a"});
  good.End("a", Committed());
  EXPECT_EQ(Decide(good), (Lines{"skip small: step 'a', for which it stands in, did not fail", "run after"}));
  EXPECT_EQ(good.Bound("after").inputs(0).value(), "a.y");

  WorkflowProgress bad(Spec(kStandIn));
  (void)Decide(bad);
  bad.End("a", Failed());
  EXPECT_EQ(Decide(bad), Lines{"run small"}) << "what reads the step waits for what stands in for it";
  EXPECT_EQ(bad.state(), proto::RUN_RUNNING);
  bad.End("small", Committed());
  EXPECT_EQ(Decide(bad), Lines{"run after"});
  EXPECT_EQ(bad.Bound("after").inputs(0).value(), "small.y");
  bad.End("after", Committed());
  EXPECT_EQ(bad.state(), proto::RUN_SUCCEEDED);
}

TEST(WorkflowProgress, WhatStandsInForASkippedStepIsSkipped) {
  WorkflowProgress progress(
      Spec("  - {name: a, function: f, inputs: {x: i}, when: go, on_error: {step: small}}\n"
           "  - {name: small, function: f, inputs: {x: i}}\n"));
  EXPECT_EQ(Decide(progress, {{"go", false}}), Lines{"skip a: its 'when', go, is 0"});
  progress.End("a", Skipped());
  EXPECT_EQ(Decide(progress), Lines{"skip small: step 'a', for which it stands in, was skipped"});
  progress.End("small", Skipped());
  EXPECT_EQ(progress.state(), proto::RUN_SUCCEEDED);
}

TEST(WorkflowProgress, ValuesStandInOnceTheyAreThere) {
  const auto spec = Spec(
      "  - {name: a, function: f, inputs: {x: i}, on_error: {values: {y: [gone.y, other.y]}}}\n"
      "  - {name: gone, function: f, inputs: {x: i}, when: go}\n"
      "  - {name: other, function: f, inputs: {x: i}}\n"
      "  - {name: after, function: f, inputs: {x: a.y}}\n");
  WorkflowProgress progress(spec);
  (void)Decide(progress, {{"go", false}});
  progress.End("a", Failed());
  progress.End("gone", Skipped());
  EXPECT_EQ(Decide(progress), Lines()) << "the value comes from a step that runs";
  progress.End("other", Committed());
  EXPECT_EQ(Decide(progress), Lines{"run after"});
  EXPECT_EQ(progress.Bound("after").inputs(0).value(), "other.y");
  progress.End("after", Committed());
  EXPECT_EQ(progress.state(), proto::RUN_SUCCEEDED);
  // In whatever order the ends are found in the run log.
  WorkflowProgress again(spec);
  again.End("other", Committed());
  again.End("gone", Skipped());
  again.End("a", Failed());
  EXPECT_EQ(Decide(again), Lines{"run after"});
}

TEST(WorkflowProgress, AChainOfStandInsEndsWithTheOneThatRan) {
  WorkflowProgress progress(
      Spec("  - {name: a, function: f, inputs: {x: i}, on_error: {step: b}}\n"
           "  - {name: b, function: f, inputs: {x: i}, on_error: {step: c}}\n"
           "  - {name: c, function: f, inputs: {x: i}}\n"
           "  - {name: after, function: f, inputs: {x: a.y}}\n"));
  EXPECT_EQ(Decide(progress), Lines{"run a"});
  progress.End("a", Failed());
  EXPECT_EQ(Decide(progress), Lines{"run b"});
  progress.End("b", Failed());
  EXPECT_EQ(Decide(progress), Lines{"run c"});
  progress.End("c", Committed());
  EXPECT_EQ(Decide(progress), Lines{"run after"});
  EXPECT_EQ(progress.Bound("after").inputs(0).value(), "c.y");
}

TEST(WorkflowProgress, AStepForWhichNothingStandsInFailsTheRunWithItsOwnError) {
  WorkflowProgress progress(
      Spec("  - {name: a, function: f, inputs: {x: i}, on_error: {step: small}}\n"
           "  - {name: small, function: f, inputs: {x: i}, when: go}\n"));
  (void)Decide(progress);
  progress.End("a", Failed(absl::StatusCode::kUnavailable));
  EXPECT_EQ(progress.state(), proto::RUN_RUNNING);
  EXPECT_EQ(Decide(progress, {{"go", false}}), Lines{"skip small: its 'when', go, is 0"});
  progress.End("small", Skipped());
  EXPECT_EQ(progress.state(), proto::RUN_FAILED);
  EXPECT_EQ(progress.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(
      std::string(progress.status().message()),
      "step 'a': it broke; nothing stands in for it: step 'small', which stands in for it, was skipped");
}

TEST(WorkflowProgress, AStepThatRunsAgainIsNotJudgedAgain) {
  WorkflowProgress progress(Spec(kGated));
  progress.End("gate", Committed({"any"}));
  progress.End("slow", Committed());
  progress.RunAgain("a");
  EXPECT_EQ(Decide(progress, {{"gate.any", false}}), Lines{"run a"}) << "it ran before";
}

TEST(StepsToRecompute, AreThoseWhoseResultsAreStillRead) {
  const auto spec = Spec(
      "  - {name: one, function: f, inputs: {x: i}}\n"
      "  - {name: two, function: f, inputs: {x: one.y}}\n"
      "  - {name: three, function: f, inputs: {x: two.y}}\n"
      "  - {name: four, function: f, inputs: {x: three.y}}\n",
      "{z: four.y, early: one.y}");
  using Names = std::set<std::string>;
  StepEnds ends(spec);
  for (const char* step : {"one", "two", "three"}) ends.Set(step, Committed());
  EXPECT_EQ(StepsToRecompute(spec, ends, {}), Names());
  EXPECT_EQ(StepsToRecompute(spec, ends, {"two"}), Names()) << "step three has read the output, and is done";
  EXPECT_EQ(StepsToRecompute(spec, ends, {"three"}), Names({"three"}));
  EXPECT_EQ(StepsToRecompute(spec, ends, {"two", "three"}), Names({"two", "three"}));
  EXPECT_EQ(StepsToRecompute(spec, ends, {"one"}), Names({"one"})) << "the workflow returns the output";
  ends.Set("four", Committed());
  EXPECT_EQ(StepsToRecompute(spec, ends, {"four"}), Names({"four"}));
}

TEST(StepsToRecompute, FollowConditionsAndWhatStandsIn) {
  const auto spec = Spec(
      "  - {name: gate, function: f, inputs: {x: i}}\n"
      "  - {name: a, function: f, inputs: {x: i}, on_error: {step: b}}\n"
      "  - {name: b, function: f, inputs: {x: i}}\n"
      "  - {name: c, function: f, inputs: {x: [a.y, i]}, when: gate.y}\n",
      "{o: c.y}");
  using Names = std::set<std::string>;
  StepEnds ends(spec);
  ends.Set("gate", Committed());
  ends.Set("a", Failed());
  ends.Set("b", Committed());
  EXPECT_EQ(StepsToRecompute(spec, ends, {"gate", "b"}), Names({"gate", "b"})) << "step c has not run";
  ends.Set("c", Committed());
  EXPECT_EQ(StepsToRecompute(spec, ends, {"gate", "b"}), Names());
  EXPECT_EQ(StepsToRecompute(spec, ends, {"gate", "b", "c"}), Names({"b", "c"}))
      << "that step c runs was decided, and is not decided again";
}

TEST(Condition, IsOneElementThatIsNotZero) {
  const auto spec = [](proto::DataType type, std::vector<std::int64_t> shape) {
    proto::TensorSpec out;
    out.set_type(type);
    for (const auto size : shape) out.add_shape(size);
    return out;
  };
  using std::string_literals::operator""s;
  EXPECT_TRUE(*IsNotZero("v", spec(proto::BOOL, {1}), "\x01"s));
  EXPECT_FALSE(*IsNotZero("v", spec(proto::BOOL, {}), "\x00"s));
  EXPECT_TRUE(*IsNotZero("v", spec(proto::INT64, {1, 1}), "\0\0\0\0\0\0\0\x80"s)) << "the lowest number";
  EXPECT_FALSE(*IsNotZero("v", spec(proto::UINT32, {1}), "\0\0\0\0"s));
  const auto error = [](const absl::StatusOr<bool>& answer) {
    EXPECT_EQ(answer.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(answer.status().message());
  };
  EXPECT_EQ(error(IsNotZero("s.n", spec(proto::FP32, {1}), "\0\0\0\0"s)),
            "'when' reads 's.n', which is FP32 [1]; a condition is BOOL or an integer type");
  EXPECT_EQ(error(IsNotZero("s.n", spec(proto::INT8, {2}), "ab")),
            "'when' reads 's.n', which is INT8 [2]; a condition has exactly one element");
  EXPECT_EQ(error(IsNotZero("s.n", spec(proto::INT8, {0}), "")),
            "'when' reads 's.n', which is INT8 [0]; a condition has exactly one element");
  EXPECT_EQ(error(IsNotZero("s.n", spec(proto::INT16, {1}), "a")),
            "'when' reads 's.n', which is INT16 [1]; it has 1 bytes, and 2 are expected");
}

TEST(WorkflowProgress, StepsWhoseResultsAreLostRunAgainBeforeWhatReadsThem) {
  WorkflowProgress progress(Spec(kJoin));
  (void)Decide(progress);
  progress.End("left", Committed());
  progress.End("right", Committed());
  EXPECT_THAT(Decide(progress), ElementsAre("run a"));
  progress.Reopen({"left", "a"});
  EXPECT_THAT(Decide(progress), ElementsAre("run left"));
  progress.Reopen({"right"});
  EXPECT_THAT(Decide(progress), ElementsAre("run right"));
  progress.End("left", Committed());
  EXPECT_THAT(Decide(progress), ElementsAre());
  EXPECT_EQ(progress.Committed(), std::set<std::string>{"left"});
  progress.End("right", Committed());
  EXPECT_THAT(Decide(progress), ElementsAre("run a"));
  // What is under way goes on with what it has read, though that is computed again beside it.
  progress.Reopen({"left"});
  EXPECT_THAT(Decide(progress), ElementsAre("run left"));
  progress.End("left", Committed());
  EXPECT_THAT(Decide(progress), ElementsAre());
  progress.End("a", Committed());
  EXPECT_EQ(progress.state(), proto::RUN_SUCCEEDED);
}

TEST(WorkflowProgress, WhatReadAStepWithoutAnEndHasNoGround) {
  const auto spec = Spec(
      "  - {name: a, function: f, inputs: {x: i}}\n"
      "  - {name: b, function: f, inputs: {x: a.y}}\n"
      "  - {name: c, function: f, inputs: {x: b.y}}\n"
      "  - {name: d, function: f, inputs: {x: i}, when: a.y}\n"
      "  - {name: e, function: f, inputs: {x: i}}\n");
  const auto groundless = [&](const std::map<std::string, proto::StepEnd>& known) {
    StepEnds ends(spec);
    for (const auto& [step, end] : known) {
      StepOutcome outcome = Committed();
      outcome.end = end;
      ends.Set(step, outcome);
    }
    return StepsWithoutGround(spec, ends);
  };
  const auto committed = proto::STEP_COMMITTED;
  EXPECT_THAT(groundless({{"a", committed}, {"b", committed}, {"c", committed}, {"d", proto::STEP_SKIPPED}}),
              testing::IsEmpty());
  EXPECT_THAT(groundless({{"b", committed}, {"c", committed}, {"d", proto::STEP_SKIPPED}, {"e", committed}}),
              ElementsAre("b", "c", "d"));
  EXPECT_THAT(groundless({{"a", committed}, {"c", committed}}), ElementsAre("c"));
}

TEST(StepDurability, AShortStepIsNotWaitedForUnlessItsOutputsAreToBeWritten) {
  using std::chrono::milliseconds;
  EXPECT_TRUE(MayGoOnUnwritten(proto::DURABLE_BY_COST, milliseconds(19)));
  EXPECT_TRUE(MayGoOnUnwritten(proto::DURABLE_LINEAGE, milliseconds(1)));
  EXPECT_FALSE(MayGoOnUnwritten(proto::DURABLE_BY_COST, milliseconds(20)));
  EXPECT_FALSE(MayGoOnUnwritten(proto::DURABLE_BYTES, milliseconds(1)));
}

TEST(StepDurability, WhatIsComputedFasterThanItIsWrittenIsNotWritten) {
  using std::chrono::milliseconds;
  const auto writes = [](Duration took, std::uint64_t bytes) {
    return WritesKept(proto::DURABLE_BY_COST, took, bytes);
  };
  EXPECT_FALSE(writes(milliseconds(5), 0));
  EXPECT_TRUE(writes(milliseconds(6), 0));
  EXPECT_FALSE(writes(milliseconds(100), 10'000'000)) << "0.1 s at 100 MB/s, and the sync";
  EXPECT_TRUE(writes(milliseconds(106), 10'000'000));
  EXPECT_FALSE(writes(Duration::max(), ~std::uint64_t{0}));
}

TEST(StepDurability, AStepMaySayItself) {
  EXPECT_TRUE(WritesKept(proto::DURABLE_BYTES, Duration(), 1 << 30));
  EXPECT_FALSE(WritesKept(proto::DURABLE_LINEAGE, std::chrono::hours(1), 1));
}

TEST(OutputsToKeep, AreThoseThatCallsOfFunctionsAloneRead) {
  const auto spec = Spec(
      "  - {name: one, function: f, inputs: {x: i}}\n"
      "  - {name: two, function: f, inputs: {x: one.y}}\n"
      "  - {name: three, function: f, inputs: {x: one.y, z: two.y}, for_each: {input: x, dimension: 0}}\n"
      "  - {name: four, function: f, inputs: {x: three.y}, when: one.go, on_error: {step: five}}\n"
      "  - {name: five, function: f, inputs: {x: three.y}}\n"
      "  - {name: six, workflow: other, inputs: {x: one.z}}\n"
      "  - {name: seven, function: f, inputs: {x: six.y, z: five.z}}\n",
      "{o: four.y, early: two.y}");
  EXPECT_THAT(OutputsToKeep(spec, "one"), ElementsAre("y")) << "a condition and a workflow read the others";
  EXPECT_THAT(OutputsToKeep(spec, "two"), ElementsAre()) << "the workflow gives it";
  EXPECT_THAT(OutputsToKeep(spec, "three"), ElementsAre("y")) << "in parts, as its calls give it";
  EXPECT_THAT(OutputsToKeep(spec, "five"), ElementsAre()) << "it stands in for another one";
  EXPECT_THAT(OutputsToKeep(spec, "six"), ElementsAre()) << "it is a run of its own";
  EXPECT_EQ(StepsThatStandIn(spec), std::set<std::string>{"five"});
}

TEST(OutputsToKeep, ThatDoNotFollowEachOtherArePutTogetherAtTheGateway) {
  const auto spec = Spec(
      "  - {name: one, function: f, inputs: {x: i}, for_each: {input: x, dimension: 1}}\n"
      "  - {name: two, function: f, inputs: {x: one.y}}\n",
      "{o: two.y}");
  EXPECT_THAT(OutputsToKeep(spec, "one"), ElementsAre());
}

}  // namespace
}  // namespace troupe::cluster::workflow_progress_test
