#include "cluster/autoscaling/autoscaler.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace troupe::cluster::autoscaler_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr const char* kKind = "v100";

// A model that is no faster on more than 24 % of the SMs: 40/s on 12 %, 80/s on 24 % and above.
std::vector<ScalePoint> Profile() {
  std::vector<ScalePoint> points;
  for (const std::uint32_t sms : {6, 12, 24, 50, 100})
    for (const std::uint32_t quota : {50, 100}) {
      const double part = std::min(sms / 24.0, 1.0);
      points.push_back({.extent = {static_cast<std::uint32_t>(quota), static_cast<std::uint32_t>(sms)},
                        .per_second = 80 * part * quota / 100,
                        .run = FromSeconds(1 / (80 * part))});
    }
  return points;
}

class Scaling : public testing::Test {
 protected:
  void SetUp() override { Use(4); }
  void Use(int gpus) {
    scaler = std::make_unique<Autoscaler>(AutoscalerSettings{});
    for (int i = 0; i < gpus; ++i)
      ASSERT_TRUE(scaler
                      ->AddGpu({.name = "gpu" + std::to_string(i),
                                .node = "node" + std::to_string(i),
                                .kind = kKind,
                                .memory = GiB(16)})
                      .ok());
  }
  static ScaledFunction Function(const char* policy = "troupe") {
    return {
        .name = "f",
        .limits = {.target_utilisation = 0.8, .hold = seconds(10), .idle = seconds(60), .drain = seconds(5)},
        .policy = policy,
        .forecast = "last",
        .points = {{kKind, Profile()}}};
  }
  void Add(const ScaledFunction& function) { ASSERT_TRUE(scaler->AddFunction(function).ok()); }
  std::vector<ScaleDecision> Tick(const FunctionLoad& load) {
    now += seconds(1);
    return scaler->Tick({{"f", load}}, now);
  }
  std::vector<ScaleDecision> Tick(double arrived) { return Tick({.arrived_per_second = arrived}); }
  // Ascending.
  std::vector<Extent> Extents() const {
    std::vector<Extent> extents;
    for (const InstanceId id : scaler->InstancesOf("f"))
      extents.push_back(scaler->table().Find(id)->place.extent);
    std::ranges::sort(extents);
    return extents;
  }
  static std::vector<ScaleAction> Actions(const std::vector<ScaleDecision>& decisions) {
    std::vector<ScaleAction> actions;
    for (const ScaleDecision& decision : decisions) actions.push_back(decision.action);
    return actions;
  }

  std::unique_ptr<Autoscaler> scaler;
  Time now{};
};

TEST_F(Scaling, TheGapIsFilledByTheMostEfficientPartsAndTheRestByTheSmallestThatIsEnough) {
  for (const char* policy : {"troupe", "fast-scaler"}) {
    Use(4);
    Add(Function(policy));
    // 200/s at 80 %: 250/s are wanted, three of 80/s and one that serves 10/s or more.
    const auto decisions = Tick(200);
    EXPECT_THAT(Actions(decisions), testing::AllOf(SizeIs(4), Each(ScaleAction::kAdd))) << policy;
    EXPECT_THAT(Extents(), ElementsAre(Extent{50, 6}, Extent{100, 24}, Extent{100, 24}, Extent{100, 24}))
        << policy;
    EXPECT_THAT(
        decisions[0].reason,
        testing::AllOf(HasSubstr("200.0 requests/s are expected"), HasSubstr("250.0/s are wanted at 80 %"),
                       HasSubstr("by its profile"), HasSubstr("100 % of the time on 24 % of the SMs")));
    EXPECT_EQ(scaler->table().InUse(), 1u);
  }
}

TEST_F(Scaling, InstancesThatRunGrowFirstAndThenOthersComeAtOnce) {
  Add(Function());
  Tick(8);  // 10/s are wanted: half of the time of 6 % of the SMs
  ASSERT_THAT(Extents(), ElementsAre(Extent{50, 6}));
  EXPECT_THAT(Actions(Tick(32)), ElementsAre(ScaleAction::kResize));
  EXPECT_THAT(Extents(), ElementsAre(Extent{100, 12}));
  EXPECT_THAT(Actions(Tick(96)), ElementsAre(ScaleAction::kResize, ScaleAction::kAdd));
  // Beyond 24 % of the SMs an instance is no faster, so another one comes.
  EXPECT_THAT(Extents(), ElementsAre(Extent{100, 12}, Extent{100, 24}));
}

TEST_F(Scaling, FastScalerChangesNoInstance) {
  Add(Function("fast-scaler"));
  Tick(8);
  EXPECT_THAT(Actions(Tick(32)), ElementsAre(ScaleAction::kAdd));
  EXPECT_THAT(Extents(), ElementsAre(Extent{50, 6}, Extent{100, 12}));
}

TEST_F(Scaling, DownAfterTheHoldWithADrainAndThenSmaller) {
  Add(Function());
  Tick(200);
  const auto before = Extents();
  for (int i = 0; i < 10; ++i) EXPECT_THAT(Tick(50), IsEmpty());
  EXPECT_EQ(Extents(), before);
  // 62.5/s are wanted of 250/s: the least efficient go as long as they serve no more than is too much.
  const auto decisions = Tick(50);
  ASSERT_THAT(decisions, Contains(Field(&ScaleDecision::action, ScaleAction::kDrain)).Times(3));
  EXPECT_EQ(scaler->table().size(), before.size());  // they still have their rectangles
  const InstanceId first = decisions[0].instance;
  EXPECT_THAT(Actions(scaler->Drained(first, now)), ElementsAre(ScaleAction::kRemove));
  EXPECT_THAT(scaler->Drained(first, now), IsEmpty());
  EXPECT_EQ(scaler->table().Find(first), nullptr);
  for (int i = 0; i < 5; ++i) Tick(50);
  EXPECT_THAT(Extents(), ElementsAre(Extent{100, 24}));  // the others' time to drain is over
  for (int i = 0; i < 11; ++i) Tick(15);
  EXPECT_THAT(Extents(), ElementsAre(Extent{100, 6}));
}

// As printed, the loop of Algorithm 1 would not end here, since the front instance serves more than what is too much.
TEST_F(Scaling, FastScalerStopsAtAnInstanceThatServesMoreThanWhatIsTooMuchAndAGapOfNothingAddsNothing) {
  Add(Function("fast-scaler"));
  Tick(64);
  ASSERT_THAT(Extents(), ElementsAre(Extent{100, 24}));
  EXPECT_THAT(Tick(64), IsEmpty());
  EXPECT_THAT(Tick(10), IsEmpty());
  Tick(130);
  // 80/s are wanted of 170/s: those of 10/s and 80/s go, and what is left then is exactly enough.
  EXPECT_THAT(Actions(Tick(64)), ElementsAre(ScaleAction::kDrain, ScaleAction::kDrain));
  EXPECT_THAT(Tick(64), IsEmpty());
}

TEST_F(Scaling, WithoutARequestForLongAFunctionIsBoundLateAndTheNextRequestGivesItAnInstance) {
  Add(Function());
  Tick(8);
  for (int i = 0; i < 58; ++i) Tick(0);
  EXPECT_EQ(Extents().size(), 1u);
  for (int i = 0; i < 2; ++i) Tick(0);
  EXPECT_THAT(scaler->HistoryOf("f"),
              Contains(testing::AllOf(Field(&ScaleDecision::action, ScaleAction::kBindLate),
                                      Field(&ScaleDecision::reason, HasSubstr("60 s")))));
  for (int i = 0; i < 6; ++i) Tick(0);
  EXPECT_EQ(scaler->table().size(), 0u);
  EXPECT_THAT(Actions(Tick(1)), ElementsAre(ScaleAction::kAdd));
}

TEST_F(Scaling, MinimumAndMaximumHold) {
  ScaledFunction function = Function();
  function.limits.min_instances = 2;
  function.limits.max_instances = 3;
  Add(function);
  Tick(0);
  EXPECT_EQ(Extents().size(), 2u);
  for (int i = 0; i < 100; ++i) Tick(0);
  EXPECT_EQ(Extents().size(), 2u);
  const auto decisions = Tick(10'000);
  EXPECT_EQ(Extents().size(), 3u);
  EXPECT_THAT(decisions.back().reason, HasSubstr("as many instances as it may have, 3"));
  EXPECT_THAT(Tick(10'000), IsEmpty());  // the same is not said again
}

TEST_F(Scaling, RequestsThatWaitAreCaughtUpWithinASecond) {
  Add(Function());
  Tick({.arrived_per_second = 8, .waiting = 56});
  EXPECT_THAT(Extents(), ElementsAre(Extent{100, 24}));
}

TEST_F(Scaling, PointsThatCannotMeetTheDeadlineAreNotChosen) {
  ScaledFunction function = Function();
  function.deadline = milliseconds(69);
  Add(function);
  Tick(1);
  // Half of the time means half of a window of a second without any; on 6 % of the SMs a run takes 50 ms.
  EXPECT_THAT(Extents(), ElementsAre(Extent{100, 12}));
}

TEST_F(Scaling, AProfileTenTimesTooFastIsCorrectedWithinAMinuteAndItIsSaid) {
  Add(Function());
  Tick(100);
  double served = 0;
  for (int i = 0; i < 60; ++i) {
    double capacity = 0;
    for (const Extent& extent : Extents())
      capacity += 8 * std::min(extent.sms / 24.0, 1.0) * extent.quota / 100;
    served = std::min(capacity, 100.0);
    Tick({.arrived_per_second = 100, .served_per_second = served, .busy = std::min(100 / capacity, 1.0)});
  }
  EXPECT_EQ(served, 100);
  EXPECT_THAT(scaler->HistoryOf("f").back().reason, HasSubstr("by its profile, of which"));
}

TEST_F(Scaling, WithoutAProfileWhatIsObservedCounts) {
  ScaledFunction function = Function();
  function.points.clear();
  function.kinds = {kKind};
  Add(function);
  double served = 0;
  for (int i = 0; i < 60; ++i) {
    double capacity = 0;
    for (const Extent& extent : Extents()) capacity += 400 * extent.area() / 10'000.0;
    served = std::min(capacity, 100.0);
    Tick({.arrived_per_second = 100,
          .served_per_second = served,
          .busy = capacity > 0 ? served / capacity : 0});
  }
  EXPECT_EQ(served, 100);
  EXPECT_THAT(scaler->HistoryOf("f").front().reason,
              HasSubstr("by what is observed, as there is no profile"));
  std::uint32_t area = 0;
  for (const Extent& extent : Extents()) area += extent.area();
  EXPECT_LE(area, 5'000u);  // 100/s at 80 % of 400/s a GPU are 31 %
}

// What is right in a profile was observed to be ten times what is assumed without one.
TEST(FunctionRates, AProfileTakesThePlaceOfWhatWasObservedAndBack) {
  ScaledFunction function{.name = "f", .kinds = {kKind}, .extents = {{100, 100}}};
  FunctionRates rates(function, seconds(1));
  for (int i = 0; i < 100; ++i) rates.Observe({.served_per_second = 500, .busy = 1}, 50);
  EXPECT_NEAR(rates.Of(kKind, {100, 100}), 500, 1);
  const auto assumed = function;
  function.points[kKind] = {{.extent = {100, 100}, .per_second = 400, .run = {}}};
  rates.Use(function);
  EXPECT_EQ(rates.Of(kKind, {100, 100}), 400);
  EXPECT_EQ(rates.Basis(), "by its profile");
  rates.Use(assumed);
  EXPECT_NEAR(rates.Of(kKind, {100, 100}), 400, 1);
}

TEST_F(Scaling, AClusterWithoutRoomIsSaidAndALostGpuIsReplaced) {
  Use(1);
  Add(Function());
  EXPECT_EQ(Tick(1000).back().action, ScaleAction::kNoRoom);
  EXPECT_THAT(scaler->HistoryOf("f").back().reason, HasSubstr("no GPU of the cluster has room"));
  const std::size_t count = Extents().size();
  EXPECT_LE(scaler->table().gpus().at("gpu0").FreeArea(), 400u);
  ASSERT_TRUE(scaler->AddGpu({.name = "gpu1", .node = "n", .kind = kKind, .memory = GiB(1)}).ok());
  EXPECT_THAT(Actions(scaler->RemoveGpu("gpu0", now)),
              testing::AllOf(SizeIs(count), Each(ScaleAction::kRemove)));
  EXPECT_THAT(Extents(), IsEmpty());
  Tick(100);
  EXPECT_EQ(scaler->table().gpus().at("gpu1").bookings().size(), Extents().size());
  EXPECT_FALSE(Extents().empty());
}

TEST_F(Scaling, HpaFollowsUtilisationEveryFifteenSecondsWithATolerance) {
  const struct {
    double busy;
    std::size_t instances;  // of four
  } rows[] = {{0.8, 4}, {0.87, 4}, {0.73, 4}, {0.89, 5}, {1.0, 5}, {0.4, 4}, {0.0, 4}};
  for (const auto& row : rows) {
    Use(4);
    Add(Function("hpa"));
    Tick({.busy = 0});                                 // one, at least
    for (int i = 0; i < 15; ++i) Tick({.busy = 1.0});  // ceil(1 x 1.25) = 2
    for (int i = 0; i < 15; ++i) Tick({.busy = 1.0});  // ceil(2 x 1.25) = 3
    for (int i = 0; i < 15; ++i) Tick({.busy = 1.0});  // ceil(3 x 1.25) = 4
    ASSERT_EQ(Extents().size(), 4u);
    for (int i = 0; i < 15; ++i) Tick({.busy = row.busy});
    EXPECT_EQ(Extents().size(), row.instances) << row.busy;
    if (row.busy > 0) continue;
    for (int i = 0; i < 310; ++i) Tick({.busy = 0});
    EXPECT_EQ(Extents().size(), 1u);  // five minutes later
  }
}

TEST_F(Scaling, WhatContradictsItselfIsRefused) {
  const auto changed = [](auto change) {
    ScaledFunction function = Function();
    change(function);
    return function;
  };
  const struct {
    ScaledFunction function;
    const char* says;
  } rows[] = {
      {changed([](auto& f) { f.limits.max_instances = 0; }), "the maximum has to be 1 or more"},
      {changed([](auto& f) { f.limits.min_instances = 65; }), "at least 65 and at most 64"},
      {changed([](auto& f) { f.limits.target_utilisation = 0; }), "above 0 and at most 1"},
      {changed([](auto& f) { f.limits.hold = -seconds(1); }), "none of them is below 0"},
      {changed([](auto& f) { f.policy = "magic"; }), "fast-scaler"},
      {changed([](auto& f) { f.forecast = "magic"; }), "holt"},
      {changed([](auto& f) { f.points[kKind][0].extent.sms = 101; }), "percentages are 1 to 100"},
      {changed([](auto& f) { f.points[kKind][0].per_second = 0; }), "the rate is above 0"},
      {changed([](auto& f) { f.name = ""; }), "needs a name"},
  };
  for (const auto& row : rows) EXPECT_THAT(scaler->AddFunction(row.function).message(), HasSubstr(row.says));
  Add(Function());
  EXPECT_EQ(scaler->AddFunction(Function()).code(), absl::StatusCode::kAlreadyExists);
}

TEST_F(Scaling, TheLatestTenDecisionsAreKeptAndARemovedFunctionHasNothing) {
  Add(Function("fast-scaler"));
  for (int i = 0; i < 12; ++i) Tick(i % 2 == 0 ? 500 : 20);
  EXPECT_THAT(scaler->HistoryOf("f"), SizeIs(FunctionScaler::kKeptDecisions));
  EXPECT_THAT(scaler->HistoryOf("g"), IsEmpty());
  EXPECT_TRUE(scaler->Tick({}, now + seconds(1)).size() <= 10);  // it told nothing, so nothing is added
  scaler->RemoveFunction("f");
  EXPECT_EQ(scaler->table().size(), 0u);
  EXPECT_THAT(scaler->Tick({{"f", {.arrived_per_second = 100}}}, now + seconds(2)), IsEmpty());
}

}  // namespace
}  // namespace troupe::cluster::autoscaler_test
