#include "gpu/worker/model_table.hpp"

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
  EXPECT_EQ(table.Acquire("a").size, Bytes(100));
  (void)table.Acquire("a");
  EXPECT_EQ(table.StateOf("a"), State::kRunning);
  table.Release("a");
  EXPECT_EQ(table.StateOf("a"), State::kRunning);
  table.Release("a");
  EXPECT_EQ(table.StateOf("a"), State::kResident);
  EXPECT_EQ(table.Evict("a")->size, Bytes(100));
  EXPECT_EQ(table.StateOf("a"), State::kAbsent);
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

TEST(ModelTable, AFailedLoadGivesTheMemoryBack) {
  ModelTable table;
  table.BeginLoading("a", Range(7));
  EXPECT_EQ(table.LoadFailed("a").size, Bytes(7));
  EXPECT_EQ(table.StateOf("a"), State::kAbsent);
  EXPECT_EQ(table.loading(), 0u);
  table.BeginLoading("a", Range(8));
  table.Loaded("a");
  EXPECT_EQ(table.SizeOf("a"), Bytes(8));
}

TEST(ModelTableDeathTest, MisuseIsABug) {
  ModelTable table;
  EXPECT_DEATH(table.Loaded("a"), "not in the table");
  table.BeginLoading("a", Range(1));
  EXPECT_DEATH(table.BeginLoading("a", Range(1)), "loaded once");
  EXPECT_DEATH((void)table.Acquire("a"), "resident");
  table.Loaded("a");
  EXPECT_DEATH(table.Release("a"), "more often");
}

}  // namespace
}  // namespace troupe::gpu
