// Numbers of names: that they are used again, mean one name as long as some part holds them, and end with their
// last holder.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "node/scheduling/swap_scheduler.hpp"
#include "tests/unit/node/node_fixture.hpp"
#include "tests/unit/node/numbered.hpp"

namespace troupe::node::names_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

struct Thing {
  std::string text{};
};

TEST(Numbers, ANumberMeansItsTextUntilItsLastHolderIsGone) {
  Numbers<Thing> numbers;
  auto a = numbers.Of("a");
  const auto b = numbers.Of("b");
  EXPECT_NE(a, b);
  EXPECT_NE(a.value(), b.value());
  EXPECT_EQ(numbers.Of("a"), a);
  EXPECT_EQ(numbers.Find("b"), b);
  EXPECT_EQ(b->text, "b");
  EXPECT_FALSE(numbers.Find("c"));
  EXPECT_EQ(numbers.size(), 2u);
  const std::uint32_t first = a.value();
  auto other = a;
  a = {};
  EXPECT_EQ(numbers.Find("a"), other) << "it is held once more";
  EXPECT_NE(numbers.Of("c").value(), first);
  other = b;
  EXPECT_FALSE(numbers.Find("a"));
  EXPECT_EQ(numbers.Of("d").value(), first) << "tables by number do not grow";
}

TEST(Numbers, NoneHasNoTextAndIsEqualToNone) {
  const Number<Thing> none;
  EXPECT_FALSE(none);
  EXPECT_EQ(none.text(), "");
  EXPECT_EQ(none, Number<Thing>());
  Numbers<Thing> numbers;
  EXPECT_NE(none, numbers.Of(""));
}

// Texts come and go in the hands of many holders, which copy, move and drop what they have.
TEST(NumbersProperty, ANumberIsOneTextsAtATimeAndNoneIsLost) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    Numbers<Thing> numbers;
    std::vector<std::pair<std::string, Number<Thing>>> holders(20);
    std::size_t most = 0;
    for (int step = 0; step < 2000; ++step) {
      auto& [text, number] = holders[random.Below(holders.size())];
      auto& [other_text, other] = holders[random.Below(holders.size())];
      switch (random.Below(4)) {
        case 0:
          text = std::to_string(random.Below(40));
          number = {};
          number = numbers.Of(text);
          break;
        case 1:
          text = other_text;
          number = other;
          break;
        case 2:
          std::swap(text, other_text);
          std::swap(number, other);
          break;
        default:
          text.clear();
          number = {};
      }
      std::map<std::string, std::uint32_t> values;
      std::map<std::uint32_t, std::string> texts;
      for (const auto& [held, its] : holders) {
        ASSERT_EQ(its.text(), held);
        if (!its) continue;
        ASSERT_EQ(values.try_emplace(held, its.value()).first->second, its.value());
        ASSERT_EQ(texts.try_emplace(its.value(), held).first->second, held);
        ASSERT_EQ(numbers.Find(held), its);
      }
      ASSERT_EQ(numbers.size(), values.size()) << "nothing is known but what is held";
      most = std::max(most, values.size());
      ASSERT_EQ(numbers.end(), most) << "free numbers are given first";
    }
    holders.clear();
    EXPECT_EQ(numbers.size(), 0u);
  }
}

TEST(Names, ACopyKnowsItsModelAndItsKeyAndKeepsTheModelsNumber) {
  Names names;
  auto shared = names.Model("d");
  auto own = names.Model("d@function/f");
  EXPECT_NE(shared, own);
  EXPECT_EQ(shared->digest, own->digest);
  EXPECT_EQ(own->digest, names.FindDigest("d"));
  EXPECT_EQ(shared->key, "");
  EXPECT_EQ(own->key, "function/f");
  EXPECT_EQ(names.size(), 3u) << "two copies of one model";
  shared = {};
  EXPECT_TRUE(names.FindDigest("d"));
  own = {};
  EXPECT_EQ(names.size(), 0u);
}

class SchedulerNames : public testing::Test {
 protected:
  SchedulerNames() : scheduler({}, *FindSchedulerPolicies({})) {
    scheduler.AddGpu(0, MiB(100));
    Ready({});
  }
  void Ready(std::vector<ResidentReport> resident) {
    scheduler.Apply(
        WorkerReady{.gpu = 0, .memory = MiB(100), .free = MiB(100), .resident = std::move(resident)}, now);
  }
  void Submit(std::uint64_t sequence, const std::string& model) {
    EXPECT_TRUE(
        scheduler
            .Submit(
                {.id = {1, sequence}, .function = names.Function("f" + model), .model = names.Model(model)},
                now)
            .accepted);
  }

  Names names;
  SwapScheduler scheduler;
  Time now{std::chrono::seconds(1)};
};

TEST_F(SchedulerNames, ModelsThatComeAndGoLeaveNothing) {
  for (int i = 0; i < 1000; ++i) {
    const std::string model = "model" + std::to_string(i);
    scheduler.DescribeModel(names.Model(model), MiB(10), MiB(1));
    scheduler.DeclareState(names.State("s" + model), names.Model(model), MiB(1));
    EXPECT_EQ(scheduler.rows(), 1u);
    scheduler.ForgetState(names.State("s" + model));
    scheduler.ForgetModel(names.Model(model));
    EXPECT_EQ(scheduler.rows(), 0u);
    EXPECT_EQ(names.size(), 0u);
    scheduler.Check();
  }
}

TEST_F(SchedulerNames, AModelInUseKeepsItsNumberUntilItsLastUseHasEnded) {
  scheduler.DescribeModel(names.Model("a"), MiB(10), MiB(1));
  Submit(1, "a");
  ASSERT_EQ(scheduler.Decide(now).dispatches.size(), 1u);
  EXPECT_THAT(scheduler.ForgetModel(names.Model("a")).evictions, IsEmpty());
  EXPECT_FALSE(scheduler.Knows(names.Model("a")));
  scheduler.Apply(SwapInDone{.gpu = 0, .model = names.Model("a")}, now);
  scheduler.Check();
  // Another model does not take its row meanwhile.
  scheduler.DescribeModel(names.Model("b"), MiB(10), MiB(1));
  EXPECT_EQ(scheduler.rows(), 2u);
  {
    const Consequences effects = scheduler.Apply(RunDone{.gpu = 0, .request = {1, 1}}, now);
    ASSERT_EQ(effects.evictions.size(), 1u);
    EXPECT_EQ(effects.evictions[0].model, "a");
  }
  EXPECT_THAT(scheduler.EvictingOn(0), ElementsAre("a"));
  scheduler.Apply(EvictDone{0, names.Model("a"), {}}, now);
  EXPECT_EQ(scheduler.rows(), 1u);
  EXPECT_FALSE(names.FindModel("a"));
  scheduler.Check();
}

TEST_F(SchedulerNames, WhatAWorkerReportsHasANumberAsLongAsItIsThere) {
  Ready({{names.Model("stranger"), MiB(10)}, {names.Model("other"), MiB(10)}});
  EXPECT_EQ(scheduler.rows(), 2u);
  EXPECT_THAT(scheduler.ResidentModels(), ElementsAre("other", "stranger"));
  EXPECT_EQ(scheduler.HolderCount(names.Model("stranger")), 1u);
  scheduler.Check();
  scheduler.Apply(WorkerLost{0, "killed"}, now);
  EXPECT_EQ(scheduler.rows(), 0u);
  EXPECT_EQ(names.size(), 0u);
  EXPECT_EQ(scheduler.FindResident(0, names.Model("stranger")), nullptr);
  scheduler.Apply(EvictDone{0, names.Model("absent"), {}}, now);
  scheduler.Apply(SwapInDone{.gpu = 0, .model = names.Model("absent")}, now);
  EXPECT_EQ(scheduler.rows(), 0u);
  scheduler.Check();
}

// One GPU, whose worker is up, and a router.
class NodeNames : public NodeTest {
 protected:
  NodeNames() : NodeTest(Settings(1)) {
    EXPECT_THAT(Up(0), IsEmpty());
    Hello(7);
  }
  void AdoptAndPrepare(const std::string& name) {
    EXPECT_THAT(Adopt(name), ElementsAre("order 0 prepare packed-" + name));
    EXPECT_THAT(Answered(0, "prepare"), ElementsAre("adopted 1000 OK"));
  }
  void Serve(Ask ask, const std::string& name) {
    EXPECT_THAT(Submit(ask, name),
                ElementsAre("order 0 swap-in packed-" + name, "order 0 run packed-" + name));
    EXPECT_THAT(Answered(0, "swap-in"), IsEmpty());
    EXPECT_THAT(Answered(0, "run"), ElementsAre("answer " + std::to_string(ask) + " OK"));
    On(ReportAsked{.ask = 1, .wish = {}});  // a heartbeat says what was asked for
  }
};

TEST_F(NodeNames, ANodeThatHasForgottenEverythingHasNoNumbers) {
  EXPECT_EQ(Numbered(), 0u);
  for (int i = 0; i < 50; ++i) {
    const auto name = "f" + std::to_string(i);
    AdoptAndPrepare(name);
    EXPECT_GT(Numbered(), 0u);
    EXPECT_THAT(On(ModelDisowned{"model-" + name}), ElementsAre("drop model-" + name));
    EXPECT_EQ(Numbered(), 0u);
  }
}

TEST_F(NodeNames, AModelThatIsOnAGpuKeepsItsNumberUntilItIsEvicted) {
  for (int i = 0; i < 50; ++i) {
    now += std::chrono::hours(1);
    const auto name = "f" + std::to_string(i);
    AdoptAndPrepare(name);
    Serve(static_cast<Ask>(i + 1), name);
    EXPECT_THAT(On(ModelDisowned{"model-" + name}),
                ElementsAre("order 0 evict packed-" + name, "drop model-" + name));
    EXPECT_EQ(Numbered(), 2u) << "its copy's and its digest's";
    EXPECT_THAT(Answered(0, "evict"), IsEmpty());
    EXPECT_EQ(Numbered(), 1u) << "which model was asked for lately is remembered";
  }
}

}  // namespace
}  // namespace troupe::node::names_test
