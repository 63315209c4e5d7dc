#include "cluster/rectangles/rectangle_table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace troupe::cluster::rectangle_table_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

PackingPolicy Named(const char* name) {
  return FindPackingPolicy(name).value();
}

class Rectangles : public testing::Test {
 protected:
  void Use(const char* policy, int gpus, ReplanLimits limits = {}) {
    table = std::make_unique<RectangleTable>(Named(policy), limits);
    for (int i = 0; i < gpus; ++i) Add("gpu" + std::to_string(i), "node" + std::to_string(i / 2));
  }
  void Add(const std::string& name, const std::string& node, const std::string& kind = "a100",
           Bytes memory = GiB(16)) {
    ASSERT_TRUE(table->AddGpu({.name = name, .node = node, .kind = kind, .memory = memory}).ok());
  }
  static InstanceRequest Request(InstanceId id, std::uint32_t quota, std::uint32_t sms, Bytes memory = MiB(1),
                                 Bytes weights = Bytes()) {
    return {.id = id,
            .function = "f",
            .by_kind = {{"a100", {.extent = {quota, sms}, .memory = memory, .weights = weights}}}};
  }
  // The GPU; "": it found no room.
  std::string Place(InstanceRequest request) {
    const auto placed = table->Place(std::move(request));
    return placed.ok() ? placed->gpu : "";
  }
  const GpuRectangles& Gpu(const char* name) { return table->gpus().at(name); }

  std::unique_ptr<RectangleTable> table;
};

TEST(FreeRectangles, WhatIsLeftAreTheTwoLargestRectanglesBesideAnInstance) {
  FreeRectangles free;
  free.Take({0, 0, {40, 30}});
  EXPECT_THAT(free.maximal(), ElementsAre(Rectangle{0, 30, {100, 70}}, Rectangle{40, 0, {60, 100}}));
  EXPECT_EQ(free.LargestArea(), 7000u);
}

TEST(FreeRectangles, AnInstanceCutsEveryFreeRectangleThatItOverlaps) {
  FreeRectangles free;
  free.Take({40, 40, {20, 20}});
  EXPECT_THAT(free.maximal(), UnorderedElementsAre(Rectangle{0, 0, {40, 100}}, Rectangle{60, 0, {40, 100}},
                                                   Rectangle{0, 0, {100, 40}}, Rectangle{0, 60, {100, 40}}));
  free.Take({0, 0, {100, 40}});
  EXPECT_THAT(free.maximal(), UnorderedElementsAre(Rectangle{0, 40, {40, 60}}, Rectangle{60, 40, {40, 60}},
                                                   Rectangle{0, 60, {100, 40}}));
  for (const Rectangle& rest : {Rectangle{0, 60, {100, 40}}, {0, 40, {40, 20}}, {60, 40, {40, 20}}})
    free.Take(rest);
  EXPECT_THAT(free.maximal(), IsEmpty());
  EXPECT_FALSE(free.BestFor({1, 1}));
}

TEST(FreeRectangles, TheBestFitLeavesTheLeastArea) {
  FreeRectangles free;
  free.Take({0, 0, {40, 30}});
  const struct {
    Extent extent;
    Rectangle place;
    std::uint32_t waste;
  } rows[] = {
      {{60, 100}, {40, 0, {60, 100}}, 0},
      {{50, 20}, {40, 0, {50, 20}}, 5000},
      {{61, 20}, {0, 30, {61, 20}}, 5780},
      {{100, 70}, {0, 30, {100, 70}}, 0},
  };
  for (const auto& row : rows) {
    const auto fit = free.BestFor(row.extent);
    ASSERT_TRUE(fit) << row.extent.quota;
    EXPECT_EQ(fit->place, row.place) << row.extent.quota;
    EXPECT_EQ(fit->waste, row.waste) << row.extent.quota;
  }
  EXPECT_FALSE(free.BestFor({61, 71}));
}

TEST(FreeRectangles, AReleasedPlaceIsKeptForTheNextOfItsSizeAndNothingIsLostOfTheFreeArea) {
  FreeRectangles free;
  const Rectangle first{0, 0, {40, 30}};
  const Rectangle second{40, 0, {40, 30}};
  const Rectangle third{0, 30, {40, 30}};
  for (const Rectangle& taken : {first, second, third}) free.Take(taken);
  free.Release(second, std::vector{first, third});
  EXPECT_THAT(free.kept(), ElementsAre(second));
  EXPECT_THAT(free.maximal(), UnorderedElementsAre(Rectangle{40, 0, {60, 100}}, Rectangle{0, 60, {100, 40}}));
  EXPECT_EQ(free.BestFor({40, 30})->place, second);
  EXPECT_EQ(free.BestFor({40, 30})->waste, 0u);
  free.Take({40, 0, {10, 10}});
  EXPECT_THAT(free.kept(), IsEmpty());
}

TEST(FreeRectangles, MoreThanSixteenKeptPlacesAreForgotten) {
  FreeRectangles free;
  std::vector<Rectangle> placed;
  for (std::uint32_t i = 0; i < 20; ++i) placed.push_back({i * 5, 0, {5, 10}});
  for (const Rectangle& taken : placed) free.Take(taken);
  for (std::size_t i = 1; i <= FreeRectangles::kMostKept; ++i) {
    const Rectangle released = placed.back();
    placed.pop_back();
    free.Release(released, placed);
    EXPECT_EQ(free.kept().size(), i);
  }
  const Rectangle released = placed.back();
  placed.pop_back();
  free.Release(released, placed);
  EXPECT_THAT(free.kept(), IsEmpty());
}

TEST_F(Rectangles, AGpuInUseComesBeforeAnEmptyOneAndTheTightestOfThose) {
  Use("best-area-fit", 3);
  EXPECT_EQ(Place(Request(1, 60, 60)), "gpu0");
  EXPECT_EQ(Place(Request(2, 70, 100)), "gpu1");
  EXPECT_EQ(Place(Request(3, 30, 100)), "gpu1");  // exactly what is left there
  EXPECT_EQ(Place(Request(4, 100, 40)), "gpu0");
  EXPECT_EQ(Place(Request(5, 41, 60)), "gpu2");
  EXPECT_EQ(table->InUse(), 3u);
}

TEST_F(Rectangles, MemoryIsAThirdDimensionAndWeightsCountOnceForAllInstancesOfAFunction) {
  Use("best-area-fit", 2);
  EXPECT_EQ(Place(Request(1, 10, 10, GiB(2), GiB(10))), "gpu0");
  EXPECT_EQ(Gpu("gpu0").UsedMemory(), GiB(12));
  EXPECT_EQ(Place(Request(2, 10, 10, GiB(4), GiB(10))), "gpu0");  // beside the same weights
  EXPECT_EQ(Gpu("gpu0").UsedMemory(), GiB(16));
  EXPECT_EQ(Place(Request(3, 10, 10, Bytes(1), GiB(10))), "gpu1");
  InstanceRequest other = Request(4, 10, 10, GiB(4), GiB(10));
  other.function = "g";
  EXPECT_EQ(Place(other), "");
  EXPECT_EQ(Place(Request(5, 10, 10, Bytes(~0ULL), Bytes(~0ULL))), "");  // no sum overflows
  ASSERT_TRUE(table->Release(1).ok());
  EXPECT_EQ(Gpu("gpu0").UsedMemory(), GiB(14));
}

TEST_F(Rectangles, AnInstanceHasTheSizeOfTheKindWhereItLiesAndOnlyKindsThatCanRunIt) {
  Use("best-area-fit", 0);
  Add("fast", "node0", "h100", GiB(80));
  Add("slow", "node1", "t4");
  Add("other", "node2", "cpu");
  InstanceRequest request{
      .id = 1, .function = "f", .by_kind = {{"h100", {.extent = {20, 10}}}, {"t4", {.extent = {100, 80}}}}};
  EXPECT_EQ(Place(request), "slow");  // leaves 20 % of it, and the other 98 %
  EXPECT_EQ(Gpu("slow").FreeArea(), 2000u);
  request.id = 2;
  EXPECT_EQ(Place(request), "fast");
  EXPECT_EQ(Gpu("fast").FreeArea(), 9800u);
  request.id = 3;
  request.by_kind = {{"v100", {.extent = {1, 1}}}};
  const auto status = table->Place(request).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("of 3 GPUs 0 are of such a kind"), HasSubstr("kind 'v100'")));
}

TEST_F(Rectangles, InstancesThatAreSpreadLieOnNodesOfTheirOwn) {
  for (const char* policy : {"best-area-fit", "replan"}) {
    Use(policy, 4);
    InstanceRequest request = Request(1, 10, 10);
    request.spread = Spread::kByNode;
    EXPECT_EQ(Place(request), "gpu0");
    request.id = 2;
    EXPECT_EQ(Place(request), "gpu2");
    request.id = 3;
    EXPECT_EQ(Place(request), "");
    InstanceRequest other = Request(4, 10, 10);
    other.function = "g";
    EXPECT_NE(Place(other), "");
  }
}

TEST_F(Rectangles, WhatIsAskedWronglyIsRefusedAndChangesNothing) {
  Use("replan", 1);
  EXPECT_EQ(Place(Request(1, 50, 50)), "gpu0");
  const struct {
    InstanceRequest request;
    absl::StatusCode code;
    const char* says;
  } rows[] = {
      {Request(1, 10, 10), absl::StatusCode::kAlreadyExists, "on gpu0"},
      {Request(2, 0, 10), absl::StatusCode::kInvalidArgument, "0 % of the time"},
      {Request(2, 10, 101), absl::StatusCode::kInvalidArgument, "each is 1 to 100"},
      {{.id = 2, .function = "f"}, absl::StatusCode::kInvalidArgument, "names no kind of GPU"},
      {Request(2, 60, 60), absl::StatusCode::kResourceExhausted, "60 % of the time and 60 % of the SMs"},
  };
  for (const auto& row : rows) {
    const auto status = table->Place(row.request).status();
    EXPECT_EQ(status.code(), row.code) << row.says;
    EXPECT_THAT(status.message(), HasSubstr(row.says));
  }
  EXPECT_EQ(table->Release(2).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(table->Resize(2, {}).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(table->AddGpu({.name = "gpu0", .node = "n", .kind = "", .memory = GiB(1)}).code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(table->AddGpu({.name = "gpu9", .node = "n"}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(table->size(), 1u);
  EXPECT_EQ(Gpu("gpu0").FreeArea(), 7500u);
  EXPECT_THAT(FindPackingPolicy("tetris").status().message(), HasSubstr("replan"));
}

TEST_F(Rectangles, AGpuThatIsGoneTakesItsInstancesWithIt) {
  Use("replan", 2);
  for (InstanceId id = 1; id <= 3; ++id) Place(Request(id, 100, 40));
  EXPECT_THAT(table->RemoveGpu("gpu0"), ElementsAre(1, 2));
  EXPECT_THAT(table->RemoveGpu("gpu0"), IsEmpty());
  EXPECT_EQ(table->Find(1), nullptr);
  EXPECT_EQ(table->GpuOf(3), "gpu1");
  EXPECT_EQ(Place(Request(1, 100, 40)), "gpu1");
}

TEST_F(Rectangles, AnotherSizeIsFoundAtThePlaceThenOnTheGpuThenElsewhereOrTheOldOneStays) {
  Use("best-area-fit", 2);
  const auto resize = [&](std::uint32_t quota, std::uint32_t sms) {
    return table->Resize(1, {{"a100", {.extent = {quota, sms}}}});
  };
  Place(Request(1, 40, 40));
  Place(Request(2, 60, 40));
  EXPECT_EQ(resize(40, 90)->place, (Rectangle{0, 0, {40, 90}}));
  EXPECT_EQ(resize(80, 60)->place, (Rectangle{0, 40, {80, 60}}));
  EXPECT_EQ(table->Resize(1, {{"a100", {.extent = {80, 70}}}}, ResizeTo::kSameGpu).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(table->Find(1)->place, (Rectangle{0, 40, {80, 60}}));
  EXPECT_EQ(resize(80, 70)->gpu, "gpu1");
  Place(Request(3, 20, 100));
  ASSERT_EQ(table->GpuOf(3), "gpu1");
  EXPECT_EQ(resize(90, 70).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(table->GpuOf(1), "gpu1");
  EXPECT_EQ(table->Find(1)->place.extent, (Extent{80, 70}));
  EXPECT_EQ(resize(0, 70).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(Rectangles, UnderTimeSharingEachInstanceHasAllSms) {
  Use("time-sharing", 2);
  EXPECT_EQ(Place(Request(1, 60, 10)), "gpu0");
  EXPECT_EQ(Place(Request(2, 60, 10)), "gpu1");
  EXPECT_EQ(table->Find(1)->place.extent, (Extent{60, 100}));
  EXPECT_EQ(table->Resize(1, {{"a100", {.extent = {70, 10}}}})->place.extent, (Extent{70, 100}));
}

TEST_F(Rectangles, AnInstanceThatFitsNowhereHasTheFewestOthersMove) {
  Use("replan", 2);
  Place(Request(1, 40, 50));
  Place(Request(2, 40, 50));
  Place(Request(3, 60, 40));
  ASSERT_TRUE(table->Release(1).ok());
  Place(Request(4, 20, 20));
  // 2 lies above what 1 left: only if one of them moves is there room for another of 60 x 60.
  const auto placed = table->Place(Request(5, 60, 60));
  ASSERT_TRUE(placed.ok()) << placed.status();
  EXPECT_EQ(placed->gpu, "gpu0");
  EXPECT_LE(placed->moves.size(), 1u);
  EXPECT_EQ(table->InUse(), 1u);
}

TEST_F(Rectangles, WithoutMovesTheSameInstanceNeedsAnotherGpu) {
  for (const auto& [policy, in_use, moves] :
       {std::tuple("best-area-fit", 2u, 0u), std::tuple("replan", 1u, 1u)}) {
    Use(policy, 2);
    Place(Request(1, 100, 30));
    Place(Request(2, 100, 30));
    Place(Request(3, 100, 30));
    ASSERT_TRUE(table->Release(2).ok());
    const auto placed = table->Place(Request(4, 100, 40));
    ASSERT_TRUE(placed.ok()) << placed.status();
    EXPECT_EQ(table->InUse(), in_use) << policy;
    EXPECT_EQ(placed->moves.size(), moves) << policy;
  }
}

TEST_F(Rectangles, NoMoreInstancesMoveThanAllowed) {
  Use("replan", 2, {.most_moves = 0});
  Place(Request(1, 100, 30));
  Place(Request(2, 100, 30));
  Place(Request(3, 100, 30));
  ASSERT_TRUE(table->Release(2).ok());
  EXPECT_EQ(Place(Request(4, 100, 40)), "gpu1");
}

TEST_F(Rectangles, AFragmentedGpuIsMendedAndAGpuIsEmptiedWhenTheOthersHaveRoom) {
  Use("replan", 2, {.fragmentation = 0.2});
  for (InstanceId id = 1; id <= 4; ++id) Place(Request(id, 100, 25));
  Place(Request(5, 100, 25));
  ASSERT_EQ(table->GpuOf(5), "gpu1");
  EXPECT_THAT(table->Replan(), IsEmpty());
  ASSERT_TRUE(table->Release(2).ok());
  const auto moves = table->Replan();
  ASSERT_THAT(moves, testing::SizeIs(1));
  EXPECT_EQ(moves[0].instance, 5u);
  EXPECT_EQ(moves[0].to, "gpu0");
  EXPECT_EQ(table->InUse(), 1u);

  ASSERT_TRUE(table->Release(1).ok());
  ASSERT_TRUE(table->Release(3).ok());
  // Two of 25 are left, with a hole of 25 on one side of each.
  EXPECT_EQ(Gpu("gpu0").Fragmentation(), 0.25);
  EXPECT_THAT(table->Replan(), testing::SizeIs(1));
  EXPECT_EQ(Gpu("gpu0").Fragmentation(), 0);
  EXPECT_THAT(table->Replan(), IsEmpty());
}

}  // namespace
}  // namespace troupe::cluster::rectangle_table_test
