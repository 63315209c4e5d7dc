#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.hpp"
#include "cluster/workflow_parser.hpp"
#include "cluster/workflows/deadlines.hpp"

namespace troupe::cluster::step_deadlines_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

proto::WorkflowSpec Spec(const std::string& steps) {
  const auto spec = ParseWorkflow("name: w\ninputs: {i: {type: FP32, shape: [-1]}}\nsteps:\n" + steps +
                                  "outputs: {o: i}\n");
  EXPECT_TRUE(spec.ok()) << spec.status();
  return spec.ok() ? *spec : proto::WorkflowSpec();
}
const proto::WorkflowStep& Step(const proto::WorkflowSpec& spec, const std::string& name) {
  for (const auto& step : spec.steps())
    if (step.name() == name) return step;
  ADD_FAILURE() << "no step " << name;
  return spec.steps(0);
}
// How long the step may take, of a run that has `left`.
Duration Share(const proto::WorkflowSpec& spec, const std::string& name, Duration left) {
  const Time now(seconds(100));
  return StepDeadlines(spec).Of(Step(spec, name), now, now + left) - now;
}

TEST(StepDeadlines, ASingleStepHasAllOfIt) {
  EXPECT_EQ(Share(Spec("  - {name: a, function: f, inputs: {x: i}}\n"), "a", seconds(60)), seconds(60));
  const auto limited = Spec("  - {name: a, function: f, inputs: {x: i}, timeout: 5s}\n");
  EXPECT_EQ(Share(limited, "a", seconds(60)), seconds(5));
  EXPECT_EQ(Share(limited, "a", seconds(3)), seconds(3));
}

constexpr char kChain[] =
    "  - {name: c, function: f, inputs: {x: b.y}}\n"
    "  - {name: a, function: f, inputs: {x: i}}\n"
    "  - {name: b, function: f, inputs: {x: a.y}}\n";

TEST(StepDeadlines, AChainSharesTheTimeEvenlyAndPassesOnWhatItLeaves) {
  const auto spec = Spec(kChain);
  EXPECT_EQ(Share(spec, "a", seconds(60)), seconds(20));
  EXPECT_EQ(Share(spec, "b", seconds(58)), seconds(29)) << "the first step took 2 s";
  EXPECT_EQ(Share(spec, "c", seconds(50)), seconds(50));
}

TEST(StepDeadlines, TheLongestChainBehindAStepCounts) {
  const auto spec = Spec(std::string(kChain) +
                         "  - {name: side, function: f, inputs: {x: a.y}}\n"
                         "  - {name: d, function: f, inputs: {x: c.y, z: side.y}}\n");
  EXPECT_EQ(Share(spec, "a", seconds(40)), seconds(10));
  EXPECT_EQ(Share(spec, "side", seconds(40)), seconds(20));
}

TEST(StepDeadlines, ATimeoutIsAWeight) {
  const auto spec = Spec(
      "  - {name: a, function: f, inputs: {x: i}}\n"
      "  - {name: b, function: f, inputs: {x: a.y}, timeout: 30s}\n"
      "  - {name: c, function: f, inputs: {x: b.y}, timeout: 10s}\n");
  // An even part is 20 s of 60 s; 20 s, 30 s and 10 s are all of it.
  EXPECT_EQ(Share(spec, "a", seconds(60)), seconds(20));
  EXPECT_EQ(Share(spec, "b", seconds(60)), seconds(30)) << "never more than its timeout";
  EXPECT_EQ(Share(spec, "b", seconds(20)), seconds(15)) << "too little for both: as they weigh";
  EXPECT_EQ(Share(spec, "c", seconds(5)), seconds(5));
}

TEST(StepDeadlines, ConditionsAndWhatStandsInAreBehindAStep) {
  const auto spec = Spec(
      "  - {name: gate, function: f, inputs: {x: i}}\n"
      "  - {name: a, function: f, inputs: {x: i}, when: gate.y, on_error: {step: small}}\n"
      "  - {name: small, function: f, inputs: {x: i}}\n"
      "  - {name: after, function: f, inputs: {x: [i, a.y]}}\n");
  EXPECT_EQ(Share(spec, "gate", seconds(40)), seconds(10)) << "gate, a, small, after";
  EXPECT_EQ(Share(spec, "a", seconds(30)), seconds(10));
  EXPECT_EQ(Share(spec, "small", seconds(30)), seconds(15));
  EXPECT_EQ(Share(spec, "after", seconds(30)), seconds(30));
}

TEST(StepDeadlines, ARunWithoutTimeLeftHasNone) {
  const auto spec = Spec(kChain);
  const Time now(seconds(100));
  EXPECT_EQ(StepDeadlines(spec).Of(Step(spec, "a"), now, now), now);
  EXPECT_EQ(StepDeadlines(spec).Of(Step(spec, "a"), now, now - seconds(1)), now - seconds(1));
}

// Of any graph: each step has some time, and if all steps of a chain take what they are given, the chain ends in time.
TEST(StepDeadlines, WhateverTheGraphEachChainEndsInTime) {
  Random random(7);
  for (int round = 0; round < 200; ++round) {
    std::string text;
    const auto steps = 1 + random.Below(12);
    for (std::uint64_t i = 0; i < steps; ++i) {
      std::string inputs = "x: i";
      for (std::uint64_t from = 0; from < i; ++from)
        if (random.Below(3) == 0)
          inputs += ", x" + std::to_string(from) + ": s" + std::to_string(from) + ".y";
      const std::string timeout =
          random.Below(3) == 0 ? ", timeout: " + std::to_string(1 + random.Below(90)) + "s" : "";
      text +=
          "  - {name: s" + std::to_string(i) + ", function: f, inputs: {" + inputs + "}" + timeout + "}\n";
    }
    const auto spec = Spec(text);
    const StepDeadlines deadlines(spec);
    const Time expiry(seconds(60));
    std::map<std::string, Time> ends;  // each step begins when all that it reads have ended
    for (const auto& step : spec.steps()) {
      Time begin{};
      for (const auto& binding : step.inputs())
        if (const auto from = binding.value().find('.'); from != std::string::npos)
          begin = std::max(begin, ends.at(binding.value().substr(0, from)));
      const Time end = deadlines.Of(step, begin, expiry);
      EXPECT_LE(end, expiry) << text;
      EXPECT_GT(end, begin) << text;
      ends[step.name()] = end;
    }
  }
}

}  // namespace
}  // namespace troupe::cluster::step_deadlines_test
