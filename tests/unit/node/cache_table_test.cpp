#include "node/cache_table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.hpp"

namespace troupe::node::cache_table_test {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class CacheTableTest : public testing::Test {
 protected:
  std::vector<std::string> Decide() {
    std::vector<std::string> text;
    for (const CacheAction& action : table.Decide(now)) {
      text.push_back((action.kind == CacheActionKind::kFetch ? "fetch " : "drop ") + action.model);
    }
    table.Check();
    return text;
  }
  void Fetched(const std::string& model) { table.FetchDone(model, absl::OkStatus(), Bytes(), now); }
  CacheTable table{{.region = MiB(100)}};
  Time now{};
};

TEST_F(CacheTableTest, FetchesWhatIsWantedInOrderAFewAtATime) {
  for (const char* model : {"c", "a", "b"}) ASSERT_TRUE(table.Want(model, MiB(20)).ok());
  EXPECT_THAT(Decide(), ElementsAre("fetch c", "fetch a"));
  EXPECT_THAT(Decide(), IsEmpty());
  Fetched("a");
  EXPECT_THAT(Decide(), ElementsAre("fetch b"));
  EXPECT_THAT(table.Held(), ElementsAre("a"));
  EXPECT_EQ(table.used(), MiB(60));
}

TEST_F(CacheTableTest, UnwantedCopiesStayUntilTheRoomIsNeeded) {
  for (const char* model : {"a", "b", "c"}) {
    ASSERT_TRUE(table.Want(model, MiB(30)).ok());
    EXPECT_THAT(Decide(), ElementsAre(std::string("fetch ") + model));
    now += milliseconds(1);
    Fetched(model);
  }
  table.Unwant("a");
  table.Unwant("b");
  table.Touch("a", now + milliseconds(1));
  EXPECT_THAT(Decide(), IsEmpty());
  ASSERT_TRUE(table.Want("d", MiB(40)).ok());
  EXPECT_THAT(Decide(), ElementsAre("drop b"));  // least recently used
  EXPECT_THAT(Decide(), IsEmpty());
  table.DropDone("b");
  EXPECT_THAT(Decide(), ElementsAre("fetch d"));
  EXPECT_EQ(table.Find("b"), nullptr);
}

TEST_F(CacheTableTest, APinnedCopyStaysAndAWantedOneIsNeverDropped) {
  ASSERT_TRUE(table.Want("a", MiB(60)).ok());
  Decide();
  Fetched("a");
  table.Pin("a");
  table.Unwant("a");
  ASSERT_TRUE(table.Want("b", MiB(60)).ok());
  EXPECT_THAT(Decide(), IsEmpty());
  table.Unpin("a");
  EXPECT_THAT(Decide(), ElementsAre("drop a"));
  EXPECT_THAT(std::string(table.Want("c", MiB(60)).message()), HasSubstr("60 MiB of 100 MiB already"));
  EXPECT_THAT(std::string(table.Want("d", MiB(200)).message()), HasSubstr("make the region larger"));
  ASSERT_TRUE(table.Want("a", MiB(40)).ok());  // wanted again while it goes
  table.DropDone("a");
  EXPECT_THAT(Decide(), ElementsAre("fetch b"));
}

TEST_F(CacheTableTest, AFailedFetchIsTriedAgainLater) {
  ASSERT_TRUE(table.Want("a", MiB(10)).ok());
  for (const int expected : {200, 400, 800}) {
    EXPECT_THAT(Decide(), ElementsAre("fetch a"));
    table.FetchDone("a", absl::UnavailableError("manager away"), Bytes(), now);
    EXPECT_THAT(Decide(), IsEmpty());
    EXPECT_EQ(table.NextDue(), now + milliseconds(expected));
    now = table.NextDue();
  }
  EXPECT_EQ(table.Find("a")->last_error.code(), absl::StatusCode::kUnavailable);
  Decide();
  table.Unwant("a");
  Fetched("a");  // came too late to be wanted, and stays until the room is needed
  EXPECT_THAT(table.Held(), ElementsAre("a"));
  EXPECT_EQ(table.NextDue(), Time::max());
}

TEST_F(CacheTableTest, RandomWishesNeverOverfillTheRegion) {
  Random random(7);
  std::vector<std::string> fetching;
  std::vector<std::string> dropping;
  for (int i = 0; i < 20000; ++i) {
    now += milliseconds(random.Below(50));
    const std::string model = "m" + std::to_string(random.Below(20));
    switch (random.Below(5)) {
      case 0:
        (void)table.Want(model, MiB(5 + model.size() * 3));
        break;
      case 1:
        table.Unwant(model);
        break;
      case 2:
        table.Touch(model, now);
        break;
      case 3:
        if (!fetching.empty()) {
          table.FetchDone(fetching.back(), random.Below(5) == 0 ? absl::InternalError("x") : absl::OkStatus(),
                          Bytes(), now);
          fetching.pop_back();
        }
        break;
      default:
        if (!dropping.empty()) table.DropDone(dropping.back()), dropping.pop_back();
        break;
    }
    for (const CacheAction& action : table.Decide(now)) {
      (action.kind == CacheActionKind::kFetch ? fetching : dropping).push_back(action.model);
    }
    table.Check();
  }
}

}  // namespace
}  // namespace troupe::node::cache_table_test
