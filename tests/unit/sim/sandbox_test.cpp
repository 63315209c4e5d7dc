#include "sim/sandbox_gpu.hpp"

#include <gtest/gtest.h>

#include <map>

#include "absl/strings/str_cat.h"
#include "cluster/workflow_parser.hpp"
#include "sim/presets.hpp"
#include "sim/trace_workflows.hpp"

namespace troupe::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class SandboxGpu : public testing::Test {
 protected:
  std::unique_ptr<actors::FakeGpu> Gpu(const Sandbox& sandbox) {
    return MakeSandboxGpu(
        sandbox, {.link = {1e9}, .peer_link = {}, .on_bring = {}}, models_,
        [](const std::string&) { return Bytes(200); }, gpu_, use_,
        [this](Time at, std::function<void()> then) { due_.emplace(at, std::move(then)); });
  }
  void InTurns() { gpu_ = std::make_shared<SharedGpu>(true); }
  actors::FakeGpu::Loaded Loaded(const std::string& what) {
    return [this, what](Time) { ends_[what] = now_.time_since_epoch(); };
  }
  actors::FakeGpu::Ran Ran(const std::string& what) {
    return [this, what](Time, Time) { ends_[what] = now_.time_since_epoch(); };
  }
  void RunAll(Duration until = std::chrono::hours(1)) {
    while (!due_.empty() && due_.begin()->first <= Time(until)) {
      auto first = due_.extract(due_.begin());
      now_ = first.key();
      first.mapped()();
    }
  }

  std::shared_ptr<ModelCatalogue> models_ = std::make_shared<ModelCatalogue>(
      ModelCatalogue{{"m", {.run = milliseconds(100), .load = {}, .swapped = {}}}});
  std::shared_ptr<SharedGpu> gpu_ = std::make_shared<SharedGpu>(false);
  std::shared_ptr<GpuUse> use_ = std::make_shared<GpuUse>();
  std::multimap<Time, std::function<void()>> due_;
  Time now_{};
  std::map<std::string, Duration> ends_;
};

TEST_F(SandboxGpu, RuntimesShareTheComputeUnits) {
  const auto a = Gpu({});
  const auto b = Gpu({});
  a->Run("m", std::nullopt, Time{}, Ran("a"));
  b->Run("m", std::nullopt, Time{}, Ran("b"));
  b->Run("m", std::nullopt, Time{}, Ran("b too"));
  RunAll();
  for (const char* run : {"a", "b", "b too"}) EXPECT_EQ(ends_[run], milliseconds(300)) << run;
  EXPECT_EQ(use_->computing, milliseconds(300));
}

TEST_F(SandboxGpu, CopiesShareTheLinkOrTakeItInTurns) {
  const auto bring = [this] {
    const auto a = Gpu({});
    const auto b = Gpu({});
    a->Bring({"m", Bytes(1'000'000'000), {}}, Time{}, Loaded("large"));
    b->Bring({"m", Bytes(100'000'000), {}}, Time{}, Loaded("small"));
    b->Run("m", std::nullopt, Time{}, Ran("run"));
    RunAll();
  };
  bring();
  EXPECT_EQ(ends_["small"], milliseconds(200));
  EXPECT_EQ(ends_["run"], milliseconds(200))
      << "the run computes while its weights come, and waits for the last of them";
  EXPECT_EQ(ends_["large"], milliseconds(1100));
  InTurns();
  bring();
  EXPECT_EQ(ends_["large"], seconds(1));
  EXPECT_EQ(ends_["small"], milliseconds(1100));
}

TEST_F(SandboxGpu, AFunctionThatDiesInItsTurnHandsItOn) {
  InTurns();
  auto dies = Gpu({});
  const auto b = Gpu({});
  dies->Bring({"m", Bytes(500'000'000), {}}, Time{}, Loaded("never"));
  b->Bring({"m", Bytes(100'000'000), {}}, Time{}, Loaded("next"));
  RunAll(milliseconds(200));
  dies.reset();
  std::erase_if(due_, [](const auto& timer) {
    return timer.first == Time(milliseconds(500));
  });  // the timer of its own end
  RunAll();
  EXPECT_EQ(ends_["next"], milliseconds(600));
  EXPECT_FALSE(ends_.contains("never"));
}

TEST_F(SandboxGpu, PinningAndAFunctionsStartComeBeforeTheCopy) {
  const auto gpu = Gpu({.function_start = milliseconds(5), .pinning = milliseconds(1)});
  gpu->Bring({"m", Bytes(100'000'000), {}}, Time{}, Loaded("load"));
  RunAll();
  EXPECT_EQ(ends_["load"], milliseconds(5 + 100 + 100));
}

TEST_F(SandboxGpu, AStaticPoolTakesItsTimeToGrowAndKeepsItsSize) {
  const auto gpu = Gpu({.allocation = milliseconds(30)});
  gpu->Run("m", std::nullopt, now_, Ran("first"));
  RunAll();
  EXPECT_EQ(ends_["first"], milliseconds(130));
  EXPECT_EQ(gpu_->held, Bytes(200)) << "the pool keeps its memory though nothing runs";
  gpu->Run("m", std::nullopt, now_, Ran("second"));
  gpu->Run("m", std::nullopt, now_, Ran("third, beside it"));
  RunAll();
  EXPECT_EQ(ends_["second"], milliseconds(130 + 100 + 70))
      << "the second run is alone while the third one allocates";
  EXPECT_EQ(ends_["third, beside it"], milliseconds(130 + 30 + 170));
  EXPECT_EQ(gpu_->held, Bytes(400));
}

TEST_F(SandboxGpu, AnElasticPoolHoldsWhatIsInUse) {
  auto gpu = Gpu({.keeps_models = false});
  gpu->Bring({"m", Bytes(1'000'000), {}}, now_, Loaded("load"));
  gpu->Run("m", std::nullopt, now_, Ran("run"));
  EXPECT_EQ(gpu_->held, Bytes(1'000'200));
  RunAll();
  EXPECT_EQ(ends_["run"], milliseconds(100));
  EXPECT_EQ(gpu_->held, Bytes());
  gpu->Run("m", std::nullopt, now_, Ran("again"));
  gpu.reset();
  EXPECT_EQ(gpu_->held, Bytes()) << "a runtime that ends holds nothing";
}

TEST_F(SandboxGpu, AModelThatWentWithItsLastRequestComesAgain) {
  for (const bool keeps : {false, true}) {
    const auto gpu = Gpu({.function_start = milliseconds(5), .keeps_models = keeps});
    const Duration begin = now_.time_since_epoch();
    gpu->Bring({"m", Bytes(200'000'000), {}}, now_, Loaded("load"));
    gpu->Run("m", std::nullopt, now_, Ran("first"));
    RunAll();
    EXPECT_EQ(ends_["first"] - begin, milliseconds(5 + 200));
    gpu->Run("m", std::nullopt, now_, Ran("second"));
    gpu->Run("m", std::nullopt, now_, Ran("third, beside it"));
    RunAll();
    EXPECT_EQ(ends_["second"] - ends_["first"], milliseconds(keeps ? 200 : 5 + 200))
        << "one load serves both runs";
    EXPECT_EQ(ends_["third, beside it"], ends_["second"]);
    EXPECT_EQ(gpu_->held, Bytes(keeps ? 200'000'000 : 0));
    gpu->Evict("m");
    EXPECT_EQ(gpu_->held, Bytes());
  }
}

TEST_F(SandboxGpu, ARunBeginsWithTheFirstOfItsWeights) {
  const auto gpu = Gpu({.pinning = milliseconds(1)});
  gpu->Bring({"m", Bytes(50'000'000), {}}, now_, Loaded("load"));
  gpu->Run("m", std::nullopt, now_, Ran("run"));
  RunAll();
  EXPECT_EQ(ends_["load"], milliseconds(50 + 50));
  EXPECT_EQ(ends_["run"], milliseconds(50 + 100));
}

TEST(Sandboxes, HaveTheirPartOfTheMemoryAndTheirWayOfHandingOver) {
  const auto infless = FindSimPreset("infless");
  const auto streambox = FindSimPreset("streambox");
  ASSERT_TRUE(infless.ok() && streambox.ok());
  EXPECT_EQ(RuntimeMemory(*infless->sandbox, Bytes(16'000'000'000)), Bytes(500'000'000));
  EXPECT_EQ(RuntimeMemory(*infless->sandbox, Bytes(12'000'000'000)), Bytes());
  const Bytes bytes(100'000'000);
  const BytesPerSecond link{10e9};
  EXPECT_EQ(infless->sandbox->HandOverTime(bytes, link), milliseconds(40));
  EXPECT_LT(streambox->sandbox->HandOverTime(bytes, link), milliseconds(3));
  EXPECT_FALSE(FindSimPreset("torpor")->sandbox.has_value());
  const auto none = FindSimPreset("sandcastle").status();
  EXPECT_NE(none.message().find("torpor"), std::string::npos) << none;
  EXPECT_NE(none.message().find("stream-only"), std::string::npos) << none;
}

TEST(SimPresets, TorporOnOurMechanismsIsTorporButForThem) {
  const auto torpor = *FindSimPreset("torpor");
  const auto troupe = *FindSimPreset("troupe");
  EXPECT_EQ(torpor.mechanisms.links, gpu::LinkSharing::kShared);
  EXPECT_EQ(torpor.mechanisms.runs, Turns::kArrival);
  EXPECT_LT(torpor.mechanisms.swap_ahead, troupe.mechanisms.swap_ahead);
  struct Case {
    const char* name;
    bool links, order, prefetch;
  };
  for (const Case& c :
       {Case{"torpor+links", true, false, false}, Case{"torpor+order", false, true, false},
        Case{"torpor+prefetch", false, false, true}, Case{"torpor+links+order", true, true, false},
        Case{"torpor+all", true, true, true}, Case{"troupe-edf", true, true, true}}) {
    const auto preset = *FindSimPreset(c.name);
    EXPECT_EQ(preset.mechanisms.links, (c.links ? troupe : torpor).mechanisms.links) << c.name;
    EXPECT_EQ(preset.mechanisms.runs, (c.order ? troupe : torpor).mechanisms.runs) << c.name;
    EXPECT_EQ(preset.mechanisms.swap_ahead, (c.prefetch ? troupe : torpor).mechanisms.swap_ahead) << c.name;
    if (preset.name.starts_with("torpor")) {
      EXPECT_EQ(preset.policies.eviction, torpor.policies.eviction) << c.name;
    }
  }
}

TEST(TraceWorkflows, HaveAStepForEachFunctionThatComesAfterTheFirst) {
  std::vector<TraceFunction> functions(4);
  for (std::size_t i = 0; i < functions.size(); ++i) functions[i].name = absl::StrCat("f", i);
  functions[0].then = {1, 2};
  functions[0].passes = MiB(4);
  functions[1].then = {3};
  functions[1].passes = MiB(1);
  const TraceWorkflows found = WorkflowsOf(functions, {.timeout = seconds(10)});
  const auto& workflows = found.all;
  ASSERT_EQ(workflows.size(), 2u);
  EXPECT_EQ(found.BegunBy(0), &workflows[0]);
  EXPECT_EQ(found.BegunBy(1), &workflows[1]);
  EXPECT_EQ(found.BegunBy(2), nullptr);
  EXPECT_EQ(workflows[0].depth, 3u);
  const auto parsed = cluster::ParseWorkflow(workflows[0].yaml);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->name(), "f0-workflow");
  EXPECT_EQ(Duration(parsed->steps(3).timeout_ns()), seconds(10));
  EXPECT_EQ(parsed->steps(3).durable(), proto::DURABLE_LINEAGE);
  std::vector<std::string> called;
  for (const auto& step : parsed->steps())
    called.push_back(absl::StrCat(step.function(), "(", step.inputs(0).value(), ")"));
  EXPECT_EQ(called, (std::vector<std::string>{"f0(x)", "f1(s1.out_x)", "f3(s2.out_x)", "f2(s1.out_x)"}));
  EXPECT_EQ(parsed->outputs_size(), 2) << "of the steps that no other step comes after";
  EXPECT_EQ(found.bytes_read, (std::vector<Bytes>{Bytes(), MiB(4), MiB(4), MiB(1)}));
}

TEST(Sandboxes, WhatIsNotInTheirRuntimeComesThroughTheHost) {
  const Bytes bytes(100'000'000);
  const BytesPerSecond link{10e9};
  proto::RunOrder run;
  const auto of = [&](const char* preset) {
    return FindSimPreset(preset)->sandbox->ReadingTime(run, bytes, link);
  };
  run.add_inputs()->mutable_data()->mutable_kept()->set_number(1);
  const Duration kept = of("streambox");
  EXPECT_EQ(kept, FindSimPreset("streambox")->sandbox->HandOverTime(bytes, link));
  run.add_inputs()->mutable_data()->mutable_arena()->set_length(1);
  EXPECT_EQ(of("streambox"), kept + milliseconds(40));
  EXPECT_EQ(of("infless"), milliseconds(2 * 40));
  EXPECT_LT(of("astraea"), of("infless")) << "a runtime opens the memory of another one by its handle";
}

}  // namespace
}  // namespace troupe::sim
