#include "node/models/cache_table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.hpp"
#include "tests/unit/node/numbered.hpp"

namespace troupe::node::cache_table_test {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string Text(const CacheAction& action) {
  switch (action.kind) {
    case CacheActionKind::kFetch:
      return "fetch " + action.model.text();
    case CacheActionKind::kLoad:
      return "load " + action.model.text();
    case CacheActionKind::kLeave:
      return "leave " + action.model.text();
    case CacheActionKind::kDrop:
      return "drop " + action.model.text();
  }
  return "?";
}

class CacheTableTest : public testing::Test {
 protected:
  std::vector<std::string> Decide() {
    std::vector<std::string> text;
    const auto waits = [this](const ModelNumber& model) { return waited.contains(model.text()); };
    for (const CacheAction& action : table.Decide(now, waits)) text.push_back(Text(action));
    table.Check();
    return text;
  }
  void Fetched(const std::string& model) { table.FetchDone(ModelNamed(model), absl::OkStatus(), now); }
  void Loaded(const std::string& model) {
    table.LoadDone(ModelNamed(model), absl::OkStatus(), Bytes(), now);
    table.Adopted(ModelNamed(model));
  }
  // Adopts one model, up to its host copy.
  void Hold(const std::string& model, Bytes bytes) {
    ASSERT_TRUE(table.Want(ModelNamed(model), bytes).ok());
    Decide();
    Fetched(model);
    Decide();
    Loaded(model);
    ASSERT_TRUE(table.Usable(ModelNamed(model)));
    now += milliseconds(1);
  }
  // A request waits for the model.
  void Wait(const std::string& model) {
    waited.insert(model);
    table.Need(ModelNamed(model));
  }
  CacheState StateOf(const std::string& model) { return table.Find(ModelNamed(model))->state; }

  CacheTable table{{.region = MiB(100)}};
  std::set<std::string> waited;
  Time now{};
};

TEST_F(CacheTableTest, FetchesWhatIsWantedInOrderAFewAtATimeAndLoadsWhatIsThere) {
  for (const char* model : {"c", "a", "b"}) ASSERT_TRUE(table.Want(ModelNamed(model), MiB(20)).ok());
  EXPECT_THAT(Decide(), ElementsAre("fetch c", "fetch a"));
  EXPECT_THAT(Decide(), IsEmpty());
  EXPECT_EQ(table.used(), Bytes()) << "a slow manager takes no room of the region";
  Fetched("a");
  EXPECT_THAT(Decide(), ElementsAre("load a", "fetch b"));
  Loaded("a");
  EXPECT_TRUE(table.Usable(ModelNamed("a")));
  EXPECT_FALSE(table.Usable(ModelNamed("b")));
  EXPECT_EQ(table.used(), MiB(20));
}

TEST_F(CacheTableTest, TheColdestIdleModelGoesToDiskAndStaysAdopted) {
  for (const char* model : {"a", "b", "c"}) Hold(model, MiB(30));
  table.Read(ModelNamed("a"), now);
  table.Unread(ModelNamed("a"), now);
  ASSERT_TRUE(table.Want(ModelNamed("d"), MiB(40)).ok());
  Decide();
  Fetched("d");
  EXPECT_THAT(Decide(), ElementsAre("drop b", "load d"));
  EXPECT_EQ(StateOf("b"), CacheState::kOnDisk);
  Loaded("d");
  // A request for the model brings it back from the disk, and the next coldest model leaves.
  Wait("b");
  EXPECT_THAT(Decide(), ElementsAre("drop c", "load b"));
  Loaded("b");
  EXPECT_TRUE(table.Usable(ModelNamed("b")));
  EXPECT_EQ(table.counts().drops, 2u);
  EXPECT_EQ(table.counts().loads, 5u);
}

TEST_F(CacheTableTest, ACopyThatIsReadGoesWithItsLastReader) {
  Hold("a", MiB(60));
  table.Read(ModelNamed("a"), now);
  table.Read(ModelNamed("a"), now);
  ASSERT_TRUE(table.Want(ModelNamed("b"), MiB(60)).ok());
  Decide();
  Fetched("b");
  EXPECT_THAT(Decide(), ElementsAre("leave a"));
  EXPECT_FALSE(table.Usable(ModelNamed("a")));
  EXPECT_FALSE(table.Unread(ModelNamed("a"), now));
  EXPECT_THAT(Decide(), IsEmpty());
  table.Read(ModelNamed("a"), now);  // the next request of its last reader
  EXPECT_FALSE(table.Unread(ModelNamed("a"), now));
  EXPECT_TRUE(table.Unread(ModelNamed("a"), now));
  EXPECT_THAT(Decide(), ElementsAre("drop a", "load b"));
}

TEST_F(CacheTableTest, WhatGoesAtOneTimeGoesInTheOrderOfNames) {
  for (const char* model : {"y", "z", "x"}) Hold(model, MiB(20));
  for (const char* model : {"z", "x", "y"}) table.Unwant(ModelNamed(model));
  EXPECT_THAT(Decide(), ElementsAre("drop x", "drop y", "drop z"));
  for (const char* model : {"y", "z", "x"}) Hold(model, MiB(30));
  for (const char* model : {"z", "x", "y"}) {
    table.Read(ModelNamed(model), now);
    table.Unread(ModelNamed(model), now);
  }
  ASSERT_TRUE(table.Want(ModelNamed("large"), MiB(60)).ok());
  Decide();
  Fetched("large");
  EXPECT_THAT(Decide(), ElementsAre("drop x", "drop y", "load large"));
  std::vector<std::string> names;
  for (const auto& [model, entry] : table.InOrder()) names.push_back(model.text());
  EXPECT_THAT(names, ElementsAre("large", "x", "y", "z"));
}

TEST_F(CacheTableTest, ModelsThatRequestsWaitForTakeTurns) {
  Hold("a", MiB(60));
  Hold("b", MiB(60));
  EXPECT_EQ(StateOf("a"), CacheState::kOnDisk);
  Wait("b");
  table.Read(ModelNamed("b"), now);
  Wait("a");
  EXPECT_THAT(Decide(), IsEmpty()) << "model b has its turn";
  ASSERT_LT(table.NextDue(), now + milliseconds(101));
  now = table.NextDue();
  EXPECT_THAT(Decide(), ElementsAre("leave b"));
  table.Unread(ModelNamed("b"), now);
  EXPECT_THAT(Decide(), ElementsAre("drop b", "load a"));
  Loaded("a");
  // Model b still waits and stands in the line; a, which no run could use yet, has a longer turn.
  EXPECT_THAT(Decide(), IsEmpty());
  EXPECT_EQ(table.NextDue(), now + milliseconds(1000));
  table.Read(ModelNamed("a"), now);
  EXPECT_THAT(Decide(), IsEmpty());
  EXPECT_EQ(table.NextDue(), now + milliseconds(100));
  table.Unread(ModelNamed("a"), now);
  waited.erase("a");  // a was served
  EXPECT_THAT(Decide(), ElementsAre("drop a", "load b"));
}

TEST_F(CacheTableTest, NoModelPassesTheFirstOfTheLineThatFindsNoRoom) {
  Hold("a", MiB(50));
  Hold("b", MiB(40));
  for (const char* model : {"a", "b"}) Wait(model), table.Read(ModelNamed(model), now);
  ASSERT_TRUE(table.Want(ModelNamed("large"), MiB(80)).ok());
  ASSERT_TRUE(table.Want(ModelNamed("small"), MiB(5)).ok());
  EXPECT_THAT(Decide(), ElementsAre("fetch large", "fetch small"));
  Fetched("small");
  EXPECT_THAT(Decide(), ElementsAre("load small"))
      << "the large model is not on disk yet, so it waits for no room";
  Fetched("large");
  ASSERT_TRUE(table.Want(ModelNamed("tiny"), MiB(1)).ok());
  Loaded("small");
  EXPECT_THAT(Decide(), ElementsAre("fetch tiny"));
  Fetched("tiny");
  EXPECT_THAT(Decide(), IsEmpty());
  now = table.NextDue();
  EXPECT_THAT(Decide(), IsEmpty()) << "one of the two models alone does not make enough room";
  now = table.NextDue();
  EXPECT_THAT(Decide(), ElementsAre("leave a", "leave b"));
  for (const char* model : {"a", "b"}) table.Unread(ModelNamed(model), now);
  EXPECT_THAT(Decide(), ElementsAre("drop a", "drop b", "load large", "load tiny"));
}

TEST_F(CacheTableTest, WhatIsBeingAdoptedStaysAndTakesABoundedPartOfTheRegion) {
  for (const char* model : {"a", "b", "c"}) ASSERT_TRUE(table.Want(ModelNamed(model), MiB(20)).ok());
  Decide();
  Fetched("a");
  Fetched("b");
  EXPECT_THAT(Decide(), ElementsAre("load a", "load b", "fetch c"));
  for (const char* model : {"a", "b"}) table.LoadDone(ModelNamed(model), absl::OkStatus(), Bytes(), now);
  Fetched("c");
  EXPECT_THAT(Decide(), IsEmpty()) << "two models are being prepared";
  table.Adopted(ModelNamed("a"));
  EXPECT_THAT(Decide(), ElementsAre("load c"));
  table.LoadDone(ModelNamed("c"), absl::OkStatus(), Bytes(), now);
  ASSERT_TRUE(table.Want(ModelNamed("d"), MiB(90)).ok());
  Decide();
  Fetched("d");
  EXPECT_THAT(Decide(), IsEmpty());
  table.Adopted(ModelNamed("b"));
  EXPECT_THAT(Decide(), IsEmpty()) << "model c is not ready yet";
  table.Adopted(ModelNamed("c"));
  EXPECT_THAT(Decide(), ElementsAre("drop a", "drop b", "drop c", "load d"));
}

TEST_F(CacheTableTest, AModelWithoutRequestsLeavesTheLine) {
  Hold("a", MiB(60));
  Hold("b", MiB(60));
  Wait("a");
  waited.clear();  // the request for it expired
  EXPECT_THAT(Decide(), IsEmpty());
  EXPECT_TRUE(table.Usable(ModelNamed("b")));
  EXPECT_EQ(table.NextDue(), Time::max());
}

TEST_F(CacheTableTest, AFailedFetchIsTriedAgainLater) {
  ASSERT_TRUE(table.Want(ModelNamed("a"), MiB(10)).ok());
  for (const int expected : {200, 400, 800}) {
    EXPECT_THAT(Decide(), ElementsAre("fetch a"));
    table.FetchDone(ModelNamed("a"), absl::UnavailableError("manager away"), now);
    EXPECT_THAT(Decide(), IsEmpty());
    EXPECT_EQ(table.NextDue(), now + milliseconds(expected));
    now = table.NextDue();
  }
  EXPECT_EQ(table.Find(ModelNamed("a"))->last_error.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Decide(), ElementsAre("fetch a"));
  table.Unwant(ModelNamed("a"));
  Fetched("a");
  EXPECT_EQ(table.Find(ModelNamed("a")), nullptr);
  EXPECT_EQ(table.NextDue(), Time::max());
}

TEST_F(CacheTableTest, WhatIsDamagedOnDiskIsFetchedAgain) {
  Hold("a", MiB(60));
  Hold("b", MiB(60));
  Wait("a");
  EXPECT_THAT(Decide(), ElementsAre("drop b", "load a"));
  table.LoadDone(ModelNamed("a"), absl::DataLossError("it is damaged"), Bytes(), now);
  EXPECT_EQ(StateOf("a"), CacheState::kAbsent);
  EXPECT_THAT(Decide(), ElementsAre("fetch a"));
  Fetched("a");
  EXPECT_THAT(Decide(), ElementsAre("load a"));
  table.LoadDone(ModelNamed("a"), absl::DataLossError("again"), Bytes(), now);
  EXPECT_THAT(Decide(), IsEmpty()) << "a bad disk is not asked without end";
  EXPECT_GT(table.NextDue(), now);
  now = table.NextDue();
  EXPECT_THAT(Decide(), ElementsAre("fetch a"));
  EXPECT_EQ(table.counts().damaged, 2u);
}

TEST_F(CacheTableTest, ScatteredRoomIsMadeLarger) {
  for (const char* model : {"a", "b", "c"}) Hold(model, MiB(30));
  ASSERT_TRUE(table.Want(ModelNamed("d"), MiB(35)).ok());
  Decide();
  Fetched("d");
  EXPECT_THAT(Decide(), ElementsAre("drop a", "load d"));
  table.LoadDone(ModelNamed("d"), absl::ResourceExhaustedError("scattered"), Bytes(), now);
  EXPECT_THAT(Decide(), ElementsAre("drop b", "load d"));
  table.LoadDone(ModelNamed("d"), absl::ResourceExhaustedError("scattered"), Bytes(), now);
  EXPECT_THAT(Decide(), ElementsAre("drop c", "load d"));
  Loaded("d");
  EXPECT_EQ(table.used(), MiB(35));
}

TEST_F(CacheTableTest, WhatCanNeverFitIsRefusedWithTheSizes) {
  EXPECT_THAT(std::string(table.Want(ModelNamed("d"), MiB(200)).message()),
              HasSubstr("make the region larger"));
  EXPECT_EQ(table.Find(ModelNamed("d")), nullptr);
}

TEST_F(CacheTableTest, AnUnwantedModelGoesWhenItIsNotReadAndMayComeBack) {
  Hold("a", MiB(60));
  table.Read(ModelNamed("a"), now);
  table.Unwant(ModelNamed("a"));
  EXPECT_FALSE(table.Usable(ModelNamed("a")));
  EXPECT_THAT(Decide(), IsEmpty());
  ASSERT_TRUE(table.Want(ModelNamed("a"), MiB(60)).ok());  // deployed again
  EXPECT_THAT(Decide(), IsEmpty());
  EXPECT_TRUE(table.Unread(ModelNamed("a"), now));
  EXPECT_THAT(Decide(), ElementsAre("drop a", "load a"));
  Loaded("a");
  table.Unwant(ModelNamed("a"));
  EXPECT_THAT(Decide(), ElementsAre("drop a"));
  EXPECT_EQ(table.Find(ModelNamed("a")), nullptr);
}

// For every sequence of events: the region is never overfilled, no model leaves while it is read, and each
// model gets a turn.
TEST_F(CacheTableTest, RandomUse) {
  Random random(7);
  std::vector<ModelNumber> fetching, loading, readers;
  std::map<std::string, Time> waits_since;
  for (int i = 0; i < 40000; ++i) {
    now += milliseconds(random.Below(20));
    const std::string model = "m" + std::to_string(random.Below(20));
    switch (random.Below(8)) {
      case 0:
        (void)table.Want(ModelNamed(model), MiB(5 + model.size() * 8));
        break;
      case 1:
        if (random.Below(20) == 0 && !waited.contains(model)) table.Unwant(ModelNamed(model));
        if (table.Usable(ModelNamed(model))) table.Adopted(ModelNamed(model));
        break;
      case 2:
        if (table.Find(ModelNamed(model)) == nullptr || !table.Find(ModelNamed(model))->wanted) break;
        waits_since.try_emplace(model, now);
        waited.insert(model);
        if (!table.Usable(ModelNamed(model))) table.Need(ModelNamed(model));
        break;
      case 3:
        if (fetching.empty()) break;
        table.FetchDone(fetching.back(),
                        random.Below(5) == 0 ? absl::UnavailableError("x") : absl::OkStatus(), now);
        fetching.pop_back();
        break;
      case 4:
      case 5:
        if (loading.empty()) break;
        table.LoadDone(loading.back(), random.Below(9) == 0 ? absl::DataLossError("x") : absl::OkStatus(),
                       Bytes(), now);
        if (random.Below(2) == 0) table.Adopted(loading.back());
        loading.pop_back();
        break;
      case 6:
        if (!table.Usable(ModelNamed(model))) break;
        table.Read(ModelNamed(model), now);
        readers.push_back(ModelNamed(model));
        waited.erase(model);
        waits_since.erase(model);
        break;
      default:
        if (readers.empty()) break;
        table.Unread(readers.front(), now);
        readers.erase(readers.begin());
        break;
    }
    for (const CacheAction& action :
         table.Decide(now, [&](const auto& m) { return waited.contains(m.text()); })) {
      if (action.kind == CacheActionKind::kFetch) fetching.push_back(action.model);
      if (action.kind == CacheActionKind::kLoad) loading.push_back(action.model);
    }
    table.Check();
    ASSERT_LE(table.used(), table.region());
    for (const auto& [name, since] : waits_since)
      ASSERT_LT(now - since, std::chrono::minutes(5)) << name << " waits for ever, " << Name(StateOf(name));
  }
  EXPECT_GT(table.counts().loads, 500u);
}

}  // namespace
}  // namespace troupe::node::cache_table_test
