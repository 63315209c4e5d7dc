// What the manager makes of statements of usage: each counts once, whatever is lost on the way.
#include "absl/strings/str_cat.h"
#include "cluster/records/usage_totals.hpp"
#include "tests/unit/cluster/cluster_fixture.hpp"

namespace troupe::cluster::usage_test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

proto::UsageStatement Statement(const std::string& ledger, std::uint64_t sequence, std::uint64_t runs = 1) {
  proto::UsageStatement statement;
  statement.set_ledger(ledger);
  statement.set_sequence(sequence);
  auto& amount = *statement.add_amounts();
  amount.set_tenant("t");
  amount.set_function("f");
  amount.set_day(7);
  amount.set_runs(runs);
  return statement;
}

class MeteredUsageTest : public ClusterTest {
 protected:
  MeteredUsageTest() {
    Begin();
    Stored();
    JoinNode("n1");
    Stored();
    JoinNode("n2");
    Stored();
  }
  Lines Says(const std::string& node, std::uint64_t epoch, const proto::UsageStatement& statement) {
    HeartbeatHeard heard{.ask = 1};
    heard.heartbeat.set_name(node);
    heard.heartbeat.set_epoch(epoch);
    heard.heartbeat.set_sequence(++beats_);
    heard.heartbeat.set_usage_ledger(statement.ledger());
    *heard.heartbeat.mutable_usage() = statement;
    return On(std::move(heard));
  }
  std::uint64_t beats_ = 0;
};

TEST_F(MeteredUsageTest, AStatementIsAcknowledgedWhenItIsDurable) {
  EXPECT_THAT(Says("n1", 1, Statement("a", 1)),
              ElementsAre("store usage/total/t/f/7 usage/ledger/a", "heard"));
  EXPECT_THAT(Says("n1", 1, Statement("a", 1)), ElementsAre("heard")) << "it is on its way";
  EXPECT_THAT(Stored(), IsEmpty());
  EXPECT_THAT(Says("n1", 1, Statement("a", 1)), ElementsAre("heard, usage 1 stored"));
}

TEST_F(MeteredUsageTest, AGatewayCannotChargeAnything) {
  JoinGateway("g1", 1);
  Stored();
  EXPECT_THAT(Says("g1", 3, Statement("a", 1)), ElementsAre("heard"));
}

TEST_F(MeteredUsageTest, StatementsThatComeDuringACommitShareTheNext) {
  Says("n1", 1, Statement("a", 1));
  EXPECT_THAT(Says("n2", 2, Statement("b", 1)), ElementsAre("heard"));
  EXPECT_THAT(Stored(), ElementsAre("store usage/total/t/f/7 usage/ledger/b"));
}

TEST_F(MeteredUsageTest, WhatCouldNotBeStoredIsTriedAgainAsItWas) {
  Says("n1", 1, Statement("a", 1));
  EXPECT_THAT(Stored(absl::ResourceExhaustedError("the disk is full")),
              ElementsAre("manager: usage-not-stored"));
  EXPECT_THAT(Says("n2", 2, Statement("b", 1)), ElementsAre("heard"));
  EXPECT_THAT(Pulse(), Contains("store usage/total/t/f/7 usage/ledger/a"))
      << "it may be on the disk: nothing else is written before it";
  EXPECT_THAT(Stored(), ElementsAre("store usage/total/t/f/7 usage/ledger/b"));
}

TEST_F(MeteredUsageTest, AClockThatIsAnHourOffIsSaidOnce) {
  HeartbeatHeard heard{.ask = 1};
  heard.heartbeat.set_name("n1");
  heard.heartbeat.set_epoch(1);
  heard.heartbeat.set_sequence(++beats_);
  heard.heartbeat.set_usage_ledger("a");
  heard.heartbeat.set_unix_ns((now.time_since_epoch() + std::chrono::hours(1)).count());
  EXPECT_THAT(On(heard), Contains("n1: clock-off"));
  heard.heartbeat.set_sequence(++beats_);
  EXPECT_THAT(On(heard), Not(Contains("n1: clock-off")));
}

TEST(UsageTotals, AStatementCountsOnceAlsoForAManagerThatStartsAgain) {
  UsageTotals totals;
  const std::vector<HeardStatement> heard = {{"n1", Statement("a", 1, 2)}, {"n2", Statement("b", 1, 3)}};
  const auto changes = totals.Prepare({.statements = heard, .folded = {}});
  UsageTotals after;  // of a manager that finds the commit on its disk
  for (const auto& change : changes.all()) {
    proto::UsageAmount amount;
    proto::UsageLedger ledger;
    if (change.key.starts_with("usage/total/")) {
      ASSERT_TRUE(amount.ParseFromString(*change.value));
      after.Load(amount);
    } else {
      ASSERT_TRUE(ledger.ParseFromString(*change.value));
      after.Load(ledger);
    }
  }
  after.Apply({.statements = heard, .folded = {}});
  proto::ListUsage wish;
  wish.set_first_day(7);
  wish.set_last_day(7);
  const auto sums = after.Sum(wish);
  ASSERT_EQ(sums.size(), 1u);
  EXPECT_EQ(sums[0].runs(), 5u);
}

proto::UsageAmount RunsOn(std::int64_t day, std::uint64_t runs) {
  proto::UsageAmount amount;
  amount.set_tenant("t");
  amount.set_function("f");
  amount.set_day(day);
  amount.set_runs(runs);
  return amount;
}

// Day 31 is 1970-02-01.
TEST(UsageTotals, DaysOfMoreThanAYearAgoAreAddedUpByMonth) {
  UsageTotals totals;
  for (const std::int64_t day : {30, 31, 40, 58, 59}) totals.Load(RunsOn(day, 10));
  EXPECT_THAT(totals.Old(58 + UsageTotals::kDaysKept, 10),
              ElementsAre(UsageDay{"t", "f", 30}, UsageDay{"t", "f", 40}));
  EXPECT_EQ(totals.Old(UsageTotals::kDaysKept + 100, 2).size(), 2u) << "at most as many as were asked for";
  const UsageChange change = {.statements = {}, .folded = totals.Old(59 + UsageTotals::kDaysKept, 10)};
  std::vector<std::string> written;
  const auto changes = totals.Prepare(change);
  for (const auto& one : changes.all()) written.push_back((one.value ? "put " : "delete ") + one.key);
  EXPECT_THAT(written,
              ElementsAre("put usage/total/t/f/0", "put usage/total/t/f/31", "delete usage/total/t/f/30",
                          "delete usage/total/t/f/40", "delete usage/total/t/f/58"));
  totals.Apply(change);
  EXPECT_THAT(totals.Old(59 + UsageTotals::kDaysKept, 10), IsEmpty());
  proto::ListUsage wish;
  wish.set_by(proto::ListUsage::DAY);
  wish.set_last_day(100);
  std::vector<std::string> lines;
  for (const auto& sum : totals.Sum(wish)) lines.push_back(absl::StrCat(sum.day(), " ", sum.runs()));
  EXPECT_THAT(lines, ElementsAre("0 10", "31 30", "59 10"));
}

TEST_F(MeteredUsageTest, OldDaysAreAddedUpBetweenStatements) {
  Says("n1", 1, Statement("a", 1));
  Stored();
  now += std::chrono::hours(24) * (UsageTotals::kDaysKept + 8);
  EXPECT_THAT(Pulse(), Contains("store usage/total/t/f/0 -usage/total/t/f/7"));
  EXPECT_THAT(Says("n2", 2, Statement("b", 1)), Not(Contains(HasSubstr("store"))));
  EXPECT_THAT(Stored(), ElementsAre("store usage/total/t/f/7 usage/ledger/b"));
  Stored();
  EXPECT_THAT(Pulse(), Not(Contains(HasSubstr("usage/total"))))
      << "a day later the old ones are looked for again";
}

TEST(UsageTotals, AreSummedByTenantFunctionOrDay) {
  UsageTotals totals;
  for (const char* function : {"f", "g"}) {
    for (const std::int64_t day : {6, 7, 8}) {
      proto::UsageAmount amount;
      amount.set_tenant("t");
      amount.set_function(function);
      amount.set_day(day);
      amount.set_runs(10);
      totals.Load(amount);
    }
  }
  proto::ListUsage wish;
  wish.set_first_day(7);
  wish.set_last_day(8);
  const auto lines = [&](proto::ListUsage::By by) {
    wish.set_by(by);
    std::vector<std::string> out;
    for (const auto& sum : totals.Sum(wish))
      out.push_back(absl::StrCat(sum.tenant(), "/", sum.function(), "/", sum.day(), " ", sum.runs()));
    return out;
  };
  EXPECT_THAT(lines(proto::ListUsage::TENANT), ElementsAre("t//0 40"));
  EXPECT_THAT(lines(proto::ListUsage::FUNCTION), ElementsAre("t/f/0 20", "t/g/0 20"));
  EXPECT_THAT(lines(proto::ListUsage::DAY), ElementsAre("t/f/7 10", "t/f/8 10", "t/g/7 10", "t/g/8 10"));
}

}  // namespace
}  // namespace troupe::cluster::usage_test
