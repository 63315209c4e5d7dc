#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "shell/graphs/layers.hpp"
#include "shell/graphs/workflow_graph.hpp"
#include "tests/temporary_directory.hpp"
#include "tests/unit/shell/fake_admin_client.hpp"

namespace troupe::shell {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using Arrows = std::vector<std::pair<std::size_t, std::size_t>>;
using Columns = std::vector<std::vector<std::size_t>>;

TEST(Layers, ANodeStandsBehindAllThatLeadToIt) {
  EXPECT_EQ(LayOut(0, {}).columns, Columns());
  EXPECT_EQ(LayOut(3, {}).columns, (Columns{{0, 1, 2}}));
  EXPECT_EQ(LayOut(4, {{0, 1}, {1, 2}, {0, 2}, {2, 3}}).columns, (Columns{{0}, {1}, {2}, {3}}));
  EXPECT_EQ(LayOut(4, {{3, 0}, {3, 1}, {0, 2}, {1, 2}}).columns, (Columns{{3}, {0, 1}, {2}}));
}

TEST(Layers, ArrowsThatWouldCrossAreUncrossed) {
  EXPECT_EQ(LayOut(4, {{0, 3}, {1, 2}}).columns, (Columns{{0, 1}, {3, 2}}));
}

TEST(Layers, ACircleDoesNotHangIt) {
  EXPECT_EQ(LayOut(2, {{0, 1}, {1, 0}}).columns.size(), 1u);
  EXPECT_EQ(LayOut(1, {{0, 0}}).columns, (Columns{{0}}));
}

proto::WorkflowSpec Traffic() {
  proto::WorkflowSpec spec;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(R"(
    name: "traffic" version: "3"
    steps { name: "detect" function: "detector" inputs { tensor: "image" value: "image" } }
    steps { name: "cars" function: "resnet" inputs { tensor: "x" value: "detect.crops" }
            for_each { input: "x" } when { value: "detect.any" } on_error { step: "small" } retries: 2 }
    steps { name: "small" workflow: "cheap" inputs { tensor: "x" value: "detect.crops" } }
    steps { name: "last" function: "join" inputs { tensor: "a" value: "cars.y" fallbacks: "image" } }
    outputs { tensor: "y" value: "last.y" fallbacks: "image" })",
                                                            &spec));
  return spec;
}

TEST(WorkflowGraph, TextShowsStepsInColumnsWithWhatTheyRead) {
  const auto text = GraphText(GraphOf(Traffic(), nullptr), Style());
  EXPECT_EQ(text,
            "traffic version 3\n"
            "   STEP    CALLS           READS                        NOTE\n"
            "1  detect  detector        <- image                     \n"
            "2  cars    resnet          <- detect, when detect       for each x, when detect.any, 2 retries\n"
            "3  small   workflow cheap  <- detect, on error of cars  \n"
            "   last    join            <- cars, else image          \n"
            "output  y: last.y, else image\n");
}

proto::RunRecord TrafficRun() {
  proto::RunRecord run;
  run.mutable_start()->set_run("key-1");
  run.mutable_start()->set_workflow("traffic");
  run.mutable_start()->set_version("3");
  run.set_state(proto::RUN_RUNNING);
  run.add_steps()->set_step("detect");
  return run;
}

std::vector<StepState> StatesOf(const proto::RunRecord& run) {
  std::vector<StepState> states;
  for (const auto& step : GraphOf(Traffic(), &run).steps) states.push_back(step.state);
  return states;
}

TEST(WorkflowGraph, StepsHaveTheStatesOfTheRun) {
  auto run = TrafficRun();
  using enum StepState;
  EXPECT_THAT(StatesOf(run), ElementsAre(kCommitted, kRuns, kWaits, kWaits));
  auto& failed = *run.add_steps();
  failed.set_step("cars");
  failed.set_end(proto::STEP_FAILED);
  EXPECT_THAT(StatesOf(run), ElementsAre(kCommitted, kFailed, kRuns, kRuns));
  auto& skipped = *run.add_steps();
  skipped.set_step("small");
  skipped.set_end(proto::STEP_SKIPPED);
  run.set_state(proto::RUN_FAILED);
  EXPECT_THAT(StatesOf(run), ElementsAre(kCommitted, kFailed, kSkipped, kWaits));
}

TEST(WorkflowGraph, SvgIsXmlWithABoxForEachStepAndAnArrowForEachRead) {
  auto spec = Traffic();
  spec.mutable_steps(0)->set_function("<a&b>\"");
  const auto run = TrafficRun();
  const auto svg = GraphSvg(GraphOf(spec, &run));
  const auto count = [&svg](const std::string& what) {
    std::size_t found = 0;
    for (auto at = svg.find(what); at != std::string::npos; at = svg.find(what, at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(count("<rect x="), 4u);
  EXPECT_EQ(count("<path d=\"M") - 1, 5u) << "detect->cars twice, detect->small, cars->small, cars->last";
  EXPECT_THAT(svg, HasSubstr("&lt;a&amp;b&gt;&quot;"));
  EXPECT_THAT(svg, Not(HasSubstr("<a&b>")));
  EXPECT_THAT(svg, HasSubstr("committed"));
  EXPECT_THAT(svg, HasSubstr("traffic version 3, run key-1"));
  EXPECT_THAT(svg, testing::EndsWith("</svg>\n"));
}

TEST(WorkflowGraphVerb, DrawsTheVersionThatTheRunHas) {
  const test::TemporaryDirectory place;
  Harness troupe;
  proto::AdminReply workflow, run;
  *workflow.add_workflows()->mutable_spec() = Traffic();
  *run.add_runs() = TrafficRun();
  troupe.cluster.Answer(proto::AdminRequest::kShowWorkflow, workflow);
  troupe.cluster.Answer(proto::AdminRequest::kShowRun, run);
  const auto file = place.path() + "/graph.svg";
  EXPECT_EQ(troupe.Run("workflow graph traffic --run key-1 --svg " + file), ExitCode::kOk) << troupe.err();
  EXPECT_THAT(troupe.out(), HasSubstr("committed"));
  EXPECT_EQ(troupe.cluster.asked.back().show_workflow().version(), "3");
  std::stringstream written;
  written << std::ifstream(file).rdbuf();
  EXPECT_THAT(written.str(), testing::StartsWith("<svg "));
  EXPECT_EQ(troupe.Run("workflow graph other --run key-1"), ExitCode::kUsage);
  EXPECT_THAT(troupe.err(), HasSubstr("run key-1 is one of workflow traffic, not of other"));
  EXPECT_EQ(troupe.Run("workflow graph traffic --run key-1 --version 2"), ExitCode::kUsage);
  EXPECT_THAT(troupe.err(), HasSubstr("was begun with version 3, not 2"));
}

}  // namespace
}  // namespace troupe::shell
