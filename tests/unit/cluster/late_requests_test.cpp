// `edf-late-last` at a router: a request that can no longer meet its deadline is sent behind those that can,
// and has its own turns.
#include <gtest/gtest.h>

#include "cluster/request_table.hpp"

namespace troupe::cluster::late_requests_test {
namespace {

using std::chrono::milliseconds;

Time At(int ms) {
  return Time(milliseconds(ms));
}

// One node takes one request at a time; runs take 10 ms, and the table has seen that.
class LateRequests : public testing::Test {
 protected:
  explicit LateRequests(const char* ordering = "edf-late-last")
      : table_{{}, *FindRoutingPolicy("locality"), *FindOrderingPolicy(ordering)} {
    proto::CreditGrant grant;
    grant.set_node("n");
    grant.set_node_epoch(1);
    grant.set_limit(1);
    grant.mutable_adopted()->add_digests("m");
    table_.Apply(grant);
    Admit(1, 1000, 0);
    sent_ = table_.Decide(At(0)).at(0).ticket;
    Admit(2, 1000, 0);
    (void)Then(10);
  }
  void Admit(std::uint64_t sequence, int deadline_ms, int now_ms, const std::string& function = "m",
             Duration profiled = {}) {
    RouterRequest request;
    request.sequence = sequence;
    request.model = "m";
    request.function = function;
    request.version = "1";
    request.deadline = milliseconds(deadline_ms);
    request.profiled.shortest = profiled;
    ASSERT_TRUE(table_.Admit(request, At(now_ms)).status.ok());
  }
  // The request that is sent when the one under way has been served.
  std::uint64_t Then(int now_ms) {
    (void)table_.Served(sent_, absl::OkStatus(), At(now_ms), milliseconds(10));
    const auto sends = table_.Decide(At(now_ms));
    table_.Check();
    sent_ = sends.at(0).ticket;
    return sends.at(0).sequence;
  }

  RequestTable table_;
  std::uint64_t sent_ = 0;
};

TEST_F(LateRequests, WhatIsLateGoesBehindWhatIsNot) {
  Admit(3, 50, 10);
  Admit(4, 100, 10);
  EXPECT_EQ(Then(41), 4u);  // 3 is due at 60, too early for a run behind another one
  EXPECT_EQ(Then(50), 3u);
}

TEST_F(LateRequests, WhatCanStillEndInTimeGoesFirst) {
  Admit(3, 50, 10);
  Admit(4, 100, 10);
  EXPECT_EQ(Then(40), 3u);
}

TEST_F(LateRequests, WhatAProfileSaysOfItsRunCountsForMoreThanWhatWasLearned) {
  Admit(3, 50, 10, "m", milliseconds(40));
  Admit(4, 100, 10);
  EXPECT_EQ(Then(21), 4u);  // 3 is due at 60, and takes 40
  EXPECT_EQ(Then(30), 3u);
  Admit(5, 50, 40, "m", milliseconds(1));
  Admit(6, 100, 40);
  EXPECT_EQ(Then(88), 5u);  // 5 is due at 90
}

TEST_F(LateRequests, WithoutADeadlineNothingIsLate) {
  Admit(3, 0, 10);
  Admit(4, 50, 10);
  EXPECT_EQ(Then(100), 3u);
}

TEST_F(LateRequests, OneOfSixteenIsLate) {
  Admit(3, 50, 10);
  for (std::uint64_t other = 4; other < 30; ++other) Admit(other, 10'000, 10);
  int others = 0;
  while (Then(100 + others) != 3) ++others;
  EXPECT_EQ(others, 16);
}

TEST_F(LateRequests, HalfOfANodesPlacesAreForOthers) {
  proto::CreditGrant grant;
  grant.set_node("n");
  grant.set_node_epoch(1);
  grant.set_limit(4);
  table_.Apply(grant);
  for (std::uint64_t late = 3; late < 8; ++late) Admit(late, 50, 10);
  EXPECT_EQ(table_.Decide(At(100)).size(), 1u);  // this request goes beside the one that runs
  EXPECT_TRUE(table_.Decide(At(100)).empty());
  Admit(8, 500, 100);
  Admit(9, 500, 100);
  EXPECT_EQ(table_.Decide(At(100)).size(), 2u);
  table_.Check();
}

class Budgets : public LateRequests {
 protected:
  Budgets() : LateRequests("edf-error-budget") {}
};

TEST_F(Budgets, AFunctionThatWillNotMeetItsSloYields) {
  for (std::uint64_t next = 100; next < 120; ++next) {
    Admit(next, 5, 10, "lost");
    EXPECT_EQ(Then(10), next);
    Admit(next + 100, 1000, 10);
    EXPECT_EQ(Then(20), next + 100);  // the request before was late
  }
  Admit(4, 200, 100, "lost");
  Admit(5, 300, 100);
  EXPECT_EQ(Then(100), 5u);
  EXPECT_EQ(Then(100), 4u);
}

}  // namespace
}  // namespace troupe::cluster::late_requests_test
