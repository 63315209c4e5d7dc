#include "gpu/worker/model_table.hpp"

#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace troupe::gpu {
namespace {

using State = ModelTable::State;

DeviceRange Range(std::uint64_t size) {
  return {nullptr, Bytes(size)};
}

TEST(ModelTable, GoesThroughItsLife) {
  ModelTable table;
  EXPECT_EQ(table.StateOf("a"), State::kAbsent);
  table.BeginLoading("a", Range(100));
  EXPECT_EQ(table.StateOf("a"), State::kLoading);
  EXPECT_EQ(table.loading(), 1u);
  EXPECT_THAT(table.Resident(), testing::IsEmpty());
  table.Loaded("a");
  EXPECT_EQ(table.StateOf("a"), State::kResident);
  EXPECT_EQ(table.loading(), 0u);
  EXPECT_THAT(table.Resident(), testing::ElementsAre(testing::Pair("a", Bytes(100))));
  const ModelTable::Hold hold = table.Acquire("a");
  EXPECT_EQ(hold.weights.size, Bytes(100));
  (void)table.Acquire("a");
  EXPECT_EQ(table.StateOf("a"), State::kRunning);
  EXPECT_FALSE(table.Release("a", hold).has_value());
  EXPECT_EQ(table.StateOf("a"), State::kRunning);
  EXPECT_FALSE(table.Release("a", hold).has_value());
  EXPECT_EQ(table.StateOf("a"), State::kResident);
  EXPECT_EQ(table.Evict("a")->size, Bytes(100));
  EXPECT_EQ(table.StateOf("a"), State::kAbsent);
}

TEST(ModelTable, TellsWhenWeightsAreWholeAndBeforeTheyMayNotBe) {
  ModelTable table;
  std::array<std::byte, 4> memory{};
  std::vector<std::pair<std::string, std::optional<std::ptrdiff_t>>> told;
  table.Watch([&](const std::string& digest, const std::optional<DeviceRange>& whole) {
    std::optional<std::ptrdiff_t> at;
    if (whole) at = whole->address - memory.data();
    told.emplace_back(digest, at);
  });
  table.BeginLoading("a", {memory.data(), Bytes(1)});
  EXPECT_THAT(told, testing::IsEmpty());
  table.Loaded("a");
  ASSERT_TRUE(table.Move(*table.IdleAt(memory.data()), {memory.data() + 2, Bytes(1)}));
  EXPECT_TRUE(table.Evict("a").ok());
  EXPECT_FALSE(table.Evict("a").ok());
  table.BeginLoading("b", {memory.data(), Bytes(1)});
  EXPECT_TRUE(table.LoadFailed("b").has_value());
  using Told = std::pair<std::string, std::optional<std::ptrdiff_t>>;
  EXPECT_THAT(told, testing::ElementsAre(Told("a", 0), Told("a", 2), Told("a", std::nullopt),
                                         Told("b", std::nullopt)));
}

TEST(ModelTable, RefusesToEvictWhatIsAbsentLoadingOrRunning) {
  ModelTable table;
  EXPECT_EQ(table.Evict("a").status().code(), absl::StatusCode::kNotFound);
  table.BeginLoading("a", Range(1));
  EXPECT_EQ(table.Evict("a").status().code(), absl::StatusCode::kFailedPrecondition);
  table.Loaded("a");
  (void)table.Acquire("a");
  EXPECT_EQ(table.Evict("a").status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(table.StateOf("a"), State::kRunning);
}

TEST(ModelTable, OfTwoThatMoveAModelTheFirstHasMovedIt) {
  ModelTable table;
  std::array<std::byte, 3> memory{};
  table.BeginLoading("a", DeviceRange{memory.data(), Bytes(1)});
  table.Loaded("a");
  const auto one = table.IdleAt(memory.data());
  const auto other = table.IdleAt(memory.data());
  ASSERT_TRUE(one && other);
  EXPECT_TRUE(table.Move(*one, DeviceRange{&memory[1], Bytes(1)}));
  EXPECT_FALSE(table.Move(*other, DeviceRange{&memory[2], Bytes(1)}))
      << "the model is not where that GPU copied it from";
  EXPECT_EQ(table.Evict("a")->address, &memory[1]);
}

TEST(ModelTable, AFailedLoadGivesTheMemoryBack) {
  ModelTable table;
  table.BeginLoading("a", Range(7));
  EXPECT_EQ(table.LoadFailed("a")->size, Bytes(7));
  EXPECT_EQ(table.StateOf("a"), State::kAbsent);
  EXPECT_EQ(table.loading(), 0u);
  table.BeginLoading("a", Range(8));
  table.Loaded("a");
  EXPECT_EQ(table.SizeOf("a"), Bytes(8));
}

TEST(ModelTable, TheMemoryOfAFailedLoadIsItsRunsUntilTheLastLetsGo) {
  ModelTable table;
  table.BeginLoading("a", Range(7));
  const ModelTable::Hold first = table.Acquire("a");
  const ModelTable::Hold second = table.Acquire("a");
  EXPECT_EQ(table.StateOf("a"), State::kLoading) << "the model is held, but not there yet";
  EXPECT_FALSE(table.LoadFailed("a").has_value());
  EXPECT_EQ(table.StateOf("a"), State::kAbsent);
  // The same model is loaded again while the failed load still has users.
  table.BeginLoading("a", Range(8));
  EXPECT_FALSE(table.Release("a", first).has_value());
  table.Loaded("a");
  const ModelTable::Hold third = table.Acquire("a");
  EXPECT_EQ(table.Release("a", second)->size, Bytes(7));
  EXPECT_EQ(table.StateOf("a"), State::kRunning);
  EXPECT_FALSE(table.Release("a", third).has_value());
  EXPECT_EQ(table.Evict("a")->size, Bytes(8));
}

TEST(ModelTableDeathTest, MisuseIsABug) {
  ModelTable table;
  EXPECT_DEATH(table.Loaded("a"), "not in the table");
  table.BeginLoading("a", Range(1));
  EXPECT_DEATH(table.BeginLoading("a", Range(1)), "loaded once");
  table.Loaded("a");
  EXPECT_DEATH((void)table.Release("a", {Range(1), 1}), "more often");
  EXPECT_DEATH((void)table.Acquire("b"), "not in the table");
}

}  // namespace
}  // namespace troupe::gpu
