#include "cluster/request_table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::cluster::request_table_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

Time At(int ms) {
  return Time(milliseconds(ms));
}

// The grant does not list what is empty.
proto::CreditGrant Grant(const std::string& node, std::uint64_t limit, std::vector<std::string> adopted,
                         std::vector<std::string> resident = {}, std::uint64_t epoch = 1) {
  proto::CreditGrant grant;
  grant.set_node(node);
  grant.set_node_epoch(epoch);
  grant.set_limit(limit);
  for (const auto& model : adopted) grant.mutable_adopted()->add_digests(model);
  for (const auto& model : resident) grant.mutable_resident()->add_digests(model);
  return grant;
}

RequestTable MakeTable(RouterLimits limits = {}, const char* routing = "locality",
                       const char* ordering = "edf") {
  return RequestTable(limits, *FindRoutingPolicy(routing), *FindOrderingPolicy(ordering));
}

RouterRequest Request(std::uint64_t sequence, const std::string& model = "m") {
  RouterRequest request;
  request.sequence = sequence;
  request.call = {.caller = 1, .call = sequence};
  request.function = "f-" + model;
  request.version = "1";
  request.model = model;
  request.bytes = KiB(1);
  return request;
}

NodeOption LongRun(const char* node) {
  return {node, false, 1, 8, milliseconds(10), milliseconds(200)};
}
NodeOption ShortRuns(const char* node) {
  return {node, false, 3, 8, milliseconds(10), milliseconds(30)};
}

TEST(RoutingPolicy, Choices) {
  struct Case {
    const char* policy;
    std::vector<NodeOption> options;
    std::size_t expected;
  };
  const Case cases[] = {
      {"locality", {{"a", false, 0, 4}, {"b", true, 3, 4}}, 1},
      {"locality", {{"a", true, 2, 4}, {"b", true, 1, 4}}, 1},
      {"locality", {{"a", false, 1, 4}, {"b", false, 1, 8}}, 1},
      {"locality", {{"a", false, 0, 4}, {"b", false, 0, 4}}, 0},
      {"bounded-locality", {{"a", false, 0, 40}, {"b", true, 1, 40}}, 1},
      {"bounded-locality", {{"a", false, 0, 40}, {"b", true, 2, 40}}, 0},
      {"bounded-locality", {{"a", false, 0, 8}, {"b", true, 2, 40}}, 1},  // a larger node has a larger part
      {"bounded-locality", {{"a", false, 8, 40}, {"b", true, 10, 40}}, 1},
      {"bounded-locality", {{"a", true, 20, 40}, {"b", true, 3, 40}}, 1},
      {"load-balance", {{"a", false, 0, 4}, {"b", true, 3, 4}}, 0},
      {"load-balance", {{"a", false, 2, 4}, {"b", true, 2, 8}}, 1},
      // Runs take twice as long at `a`, and a GPU has eight credits.
      {"locality", {{"a", true, 0, 8, milliseconds(20)}, {"b", false, 0, 8, milliseconds(10)}}, 1},
      {"locality",
       {{"a", true, 0, 8, milliseconds(20)}, {"b", false, 1, 8, milliseconds(10), milliseconds(10)}},
       0},
      {"locality",
       {{"a", true, 0, 8, milliseconds(20)}, {"b", true, 1, 16, milliseconds(10), milliseconds(10)}},
       1},
      {"locality",
       {{"a", true, 0, 8, milliseconds(20)}, {"b", true, 7, 8, milliseconds(10), milliseconds(70)}},
       0},
      {"load-balance", {{"a", false, 0, 8, milliseconds(20)}, {"b", false, 0, 8, milliseconds(10)}}, 1},
      {"load-balance",
       {{"a", false, 0, 8, milliseconds(20)}, {"b", false, 2, 8, milliseconds(10), milliseconds(20)}},
       0},
      // And not so much longer that the kinds must differ.
      {"locality", {{"a", true, 2, 8, milliseconds(14)}, {"b", false, 0, 8, milliseconds(10)}}, 0},
      {"locality-kind-blind", {{"a", false, 0, 4}, {"b", true, 3, 4}}, 1},
      // The model is at `a`, where one request runs; or where several wait, and the request would end clearly later.
      {"locality",
       {{"a", true, 1, 8, milliseconds(30), milliseconds(10)}, {"b", false, 0, 8, milliseconds(30)}},
       0},
      {"locality",
       {{"a", true, 3, 8, milliseconds(30), milliseconds(90)}, {"b", false, 0, 8, milliseconds(30)}},
       1},
      {"locality-resident-first",
       {{"a", true, 3, 8, milliseconds(30), milliseconds(90)}, {"b", false, 0, 8, milliseconds(30)}},
       0},
      // One long run is more to do than three short ones.
      {"locality", {LongRun("a"), ShortRuns("b")}, 1},
      {"locality-by-count", {LongRun("a"), ShortRuns("b")}, 0},
      {"locality-kind-blind", {LongRun("a"), ShortRuns("b")}, 0},
      {"locality", {{"a", false, 1, 8, {}, milliseconds(200)}, {"b", false, 3, 8, {}, milliseconds(30)}}, 0},
  };
  for (const Case& c : cases)
    EXPECT_EQ(FindRoutingPolicy(c.policy)->choose(c.options), c.expected) << c.policy;
  EXPECT_THAT(
      std::string(FindRoutingPolicy("nearest").status().message()),
      HasSubstr(
          "locality, locality-own-work, locality-resident-first, locality-by-count, bounded-locality, locality-kind-blind, load-balance"));
}

// What a hello says that the router knows: as long as no grant is missing, the lists need not come again.
TEST(CreditTable, AMissingGrantIsNoticed) {
  CreditTable table;
  const auto known = [&](std::uint64_t number, std::uint64_t epoch = 1) {
    auto grant = Grant("n1", 4, {}, {}, epoch);
    grant.set_number(number);
    table.Apply(grant);
    return table.Find("n1")->grant;
  };
  EXPECT_EQ(known(2), 0u) << "the first one has not come";
  EXPECT_EQ(known(1), 1u);
  EXPECT_EQ(known(2), 2u);
  EXPECT_EQ(known(4), 0u);
  EXPECT_EQ(known(5), 0u) << "the third one is missing still";
  EXPECT_EQ(known(1), 1u) << "its lists are whole";
  EXPECT_EQ(known(2, 2), 0u) << "the first one of the node's next life has not come";
  EXPECT_EQ(known(1, 2), 1u);
  table.AskAnew("n1");
  EXPECT_EQ(table.Find("n1")->grant, 0u);
  EXPECT_EQ(known(0, 2), 0u) << "an earlier release";
}

TEST(CreditTable, AGrantThatTellsOfOthersWorkAloneEndsNoPause) {
  CreditTable table;
  auto grant = Grant("n1", 4, {"m"});
  table.Apply(grant);
  table.Close("n1", At(50));
  grant.clear_adopted();
  grant.set_others_ns(5);
  table.Apply(grant);
  EXPECT_FALSE(table.Find("n1")->Open(At(10)));
  EXPECT_TRUE(table.Find("n1")->Open(At(50)));
  grant.set_limit(5);
  table.Apply(grant);
  EXPECT_TRUE(table.Find("n1")->Open(At(10)));
}

TEST(NodeRuns, ANodeIsAsSlowWithANewModelAsWithOthers) {
  NodeRuns runs;
  runs.Observe("m", "a", milliseconds(20));
  runs.Observe("m", "b", milliseconds(10));
  runs.Observe("new", "b", milliseconds(30));
  EXPECT_EQ(runs.RunAt("new", "a"), milliseconds(60));
  EXPECT_EQ(runs.RunAt("new", "c"), milliseconds(30)) << "it has run nothing: it is tried";
  runs.Observe("other", "a", milliseconds(8));
  EXPECT_EQ(runs.RunAt("other", "b"), milliseconds(4));
  runs.Forget("a");
  EXPECT_EQ(runs.RunAt("new", "a"), milliseconds(30));
}

TEST(NodeRuns, AreThoseOfTheFastestUntilTheNodeHasRunTheModel) {
  NodeRuns runs;
  EXPECT_EQ(runs.RunAt("m", "a"), Duration());
  runs.Observe("m", "a", milliseconds(20));
  EXPECT_EQ(runs.RunAt("m", "b"), milliseconds(20));
  runs.Observe("m", "b", milliseconds(10));
  EXPECT_EQ(runs.RunAt("m", "a"), milliseconds(20));
  EXPECT_EQ(runs.RunAt("m", "c"), milliseconds(10));
  EXPECT_EQ(runs.RunAt("other", "a"), Duration());
  const std::set<std::string> holders = {"a", "c"};
  runs.Keep("m", &holders);
  EXPECT_EQ(runs.RunAt("m", "b"), milliseconds(10)) << "it gave the model up, and is as fast as it was";
  runs.Forget("a");
  EXPECT_EQ(runs.RunAt("m", "a"), Duration());
}

class NodesOfTwoKinds : public testing::Test {
 protected:
  explicit NodesOfTwoKinds(const char* routing = "locality") : table_(MakeTable({}, routing)) {
    for (const char* node : {"fast", "slow"}) table_.Apply(Grant(node, 8, {"m"}, {"m"}));
    const auto first = Ask(0, 0), second = Ask(0, 0);
    table_.Served(first.ticket, absl::OkStatus(), At(1), RunAt(first.node));
    table_.Served(second.ticket, absl::OkStatus(), At(1), RunAt(second.node));
  }
  static Duration RunAt(const std::string& node) { return milliseconds(node == "fast" ? 10 : 20); }
  // A Send without a node: the request waits.
  Send Ask(int now, int deadline) {
    auto request = Request(++asked_);
    request.deadline = milliseconds(deadline);
    EXPECT_TRUE(table_.Admit(request, At(now)).status.ok());
    const auto sends = table_.Decide(At(now));
    return sends.empty() ? Send() : sends.front();
  }

  RequestTable table_;
  std::uint64_t asked_ = 0;
};

TEST_F(NodesOfTwoKinds, ARequestGoesWhereItEndsFirst) {
  EXPECT_EQ(Ask(2, 100).node, "fast");
  EXPECT_EQ(Ask(2, 100).node, "fast") << "behind the other it ends as soon as alone at the slow one";
  EXPECT_EQ(Ask(2, 100).node, "slow");
}

TEST_F(NodesOfTwoKinds, TheSlowerOneIsLeftToThoseWithTime) {
  EXPECT_EQ(Ask(2, 15).node, "fast");
  EXPECT_EQ(Ask(2, 25).node, "fast");
  EXPECT_EQ(Ask(2, 25).node, "slow") << "behind two others it would be late";
}

TEST_F(NodesOfTwoKinds, WhatIsLateAnywhereGoesToTheSlowerOne) {
  EXPECT_EQ(Ask(2, 5).node, "slow");
  table_.NodeLost("slow", "killed");
  EXPECT_EQ(Ask(3, 5).node, "fast") << "no other node holds the model";
}

// By profiles, before any node has run the model. Node `mixed` has GPUs of both kinds.
class ProfiledNodes : public testing::Test {
 protected:
  ProfiledNodes() : table_(MakeTable()) {
    for (const char* node : {"a-slow", "fast", "mixed"}) table_.Apply(Grant(node, 8, {"m"}, {"m"}));
    table_.SetKinds({{"a-slow", {"slow"}}, {"fast", {"fast"}}, {"mixed", {"fast", "slow"}}});
  }
  std::string Ask(RunsByKind runs) {
    auto request = Request(++asked_);
    request.profiled.by_kind = std::move(runs);
    EXPECT_TRUE(table_.Admit(request, At(0)).status.ok());
    return table_.Decide(At(0)).front().node;
  }

  RequestTable table_;
  std::uint64_t asked_ = 0;
};

TEST_F(ProfiledNodes, ARequestGoesWhereItEndsFirst) {
  const RunsByKind runs = {{"slow", milliseconds(35)}, {"fast", milliseconds(10)}};
  std::vector<std::string> nodes;
  for (int i = 0; i < 7; ++i) nodes.push_back(Ask(runs));
  EXPECT_THAT(nodes, testing::ElementsAre("fast", "mixed", "fast", "mixed", "fast", "mixed", "a-slow"));
}

TEST_F(ProfiledNodes, AKindWithoutAProfileCountsAsItWasLearned) {
  EXPECT_EQ(Ask({{"fast", milliseconds(10)}}), "a-slow") << "nothing is known of it: it is tried";
}

TEST(RequestTable, RequestsGoWhereTheLeastIsToDo) {
  RequestTable table = MakeTable();
  for (const char* node : {"n1", "n2"}) table.Apply(Grant(node, 8, {"long", "short"}, {"long", "short"}));
  std::uint64_t sequence = 0;
  const auto ask = [&](const std::string& model) {
    EXPECT_TRUE(table.Admit(Request(++sequence, model), At(0)).status.ok());
    return table.Decide(At(0)).front();
  };
  for (const auto& [model, run] :
       {std::pair("long", milliseconds(200)), std::pair("short", milliseconds(10))})
    table.Served(ask(model).ticket, absl::OkStatus(), At(1), run);
  const auto busy = ask("long");
  const std::string idle = busy.node == "n1" ? "n2" : "n1";
  for (int i = 0; i < 3; ++i) EXPECT_EQ(ask("short").node, idle);
  table.Check();
  table.Served(busy.ticket, absl::OkStatus(), At(200), milliseconds(200));
  EXPECT_EQ(ask("short").node, busy.node) << "it has nothing to do";
  table.NodeLost(idle, "killed");
  table.Check();
}

// Two nodes alike, at one of which another router's requests have half a second to run.
class OthersWork : public testing::Test {
 protected:
  explicit OthersWork(const char* routing = "locality") : table_(MakeTable({}, routing)) {
    for (const char* node : {"n1", "n2"}) Tell(node, {});
    table_.Served(Ask(), absl::OkStatus(), At(1), milliseconds(50));
    Tell("n1", milliseconds(500));
  }
  void Tell(const char* node, Duration others) {
    auto grant = Grant(node, 8, {"m"}, {"m"});
    grant.set_others_ns(others.count());
    grant.set_fit_gpus(1);
    table_.Apply(grant);
  }
  // A request's ticket. node_: where it was sent.
  std::uint64_t Ask() {
    EXPECT_TRUE(table_.Admit(Request(++sequence_), At(0)).status.ok());
    const auto send = table_.Decide(At(0)).front();
    node_ = send.node;
    return send.ticket;
  }
  RequestTable table_;
  std::uint64_t sequence_ = 0;
  std::string node_;
};

TEST_F(OthersWork, IsWorkThatIsAheadOfARequest) {
  for (int i = 0; i < 4; ++i) {
    Ask();
    EXPECT_EQ(node_, "n2") << i;
  }
  Tell("n1", {});
  Ask();
  EXPECT_EQ(node_, "n1") << "the others' requests have run";
  table_.Check();
}

TEST_F(OthersWork, CountsForAllGpusOfANode) {
  auto grant = Grant("n1", 8, {"m"}, {"m"});
  grant.set_others_ns(Duration(milliseconds(500)).count());
  grant.set_fit_gpus(100);
  table_.Apply(grant);
  Ask();
  Ask();
  EXPECT_EQ(node_, "n1") << "each of a hundred GPUs has five milliseconds to do";
}

class OwnWorkAlone : public OthersWork {
 protected:
  OwnWorkAlone() : OthersWork("locality-own-work") {}
};

TEST_F(OwnWorkAlone, IsWhatTheBaselineGoesBy) {
  Ask();
  EXPECT_EQ(node_, "n1");
  Ask();
  EXPECT_EQ(node_, "n2");
}

class NodesTakenToBeAlike : public NodesOfTwoKinds {
 protected:
  NodesTakenToBeAlike() : NodesOfTwoKinds("locality-kind-blind") {}
};

TEST_F(NodesTakenToBeAlike, GetRequestsInTurn) {
  EXPECT_EQ(Ask(2, 15).node, "fast");
  EXPECT_EQ(Ask(2, 15).node, "slow");
  EXPECT_EQ(Ask(2, 5).node, "fast");
}

TEST(RequestTable, ARequestLeavesOnACreditAndComesBackServed) {
  RequestTable table = MakeTable();
  ASSERT_TRUE(table.Admit(Request(1), At(0)).status.ok());
  EXPECT_TRUE(table.Decide(At(0)).empty());  // no node holds the model
  table.Apply(Grant("n1", 1, {"m"}));
  ASSERT_TRUE(table.Admit(Request(2), At(1)).status.ok());
  const auto sends = table.Decide(At(5));
  ASSERT_EQ(sends.size(), 1u);  // the node has one credit
  EXPECT_EQ(sends[0].sequence, 1u);
  EXPECT_EQ(sends[0].node, "n1");
  EXPECT_EQ(sends[0].node_epoch, 1u);
  EXPECT_EQ(sends[0].queued, milliseconds(5));
  EXPECT_EQ(sends[0].timeout_in, seconds(30) - milliseconds(5));
  const auto finished = table.Served(sends[0].ticket, absl::OkStatus(), At(9));
  ASSERT_EQ(finished.size(), 1u);
  EXPECT_EQ(finished[0].end, RequestEnd::kServed);
  EXPECT_TRUE(table.credits().Find("n1")->resident.contains("m"));
  EXPECT_EQ(table.Decide(At(9)).size(), 1u);
  EXPECT_TRUE(table.Served(sends[0].ticket, absl::OkStatus(), At(9)).empty());  // a second reply is ignored
  table.Check();
}

TEST(RequestTable, TheMostUrgentGoesFirst) {
  RequestTable table = MakeTable();
  table.Apply(Grant("n1", 0, {"a", "b"}));
  struct Arrival {
    std::uint64_t sequence;
    const char* model;
    std::uint32_t priority;
    int deadline_ms;
  };
  // The expected order: priority 1 first, then by deadline, requests without a deadline last; 0 stands for
  // the default priority, 100.
  const Arrival arrivals[] = {
      {1, "a", 0, 50}, {2, "b", 0, 20}, {3, "a", 1, 500}, {4, "b", 200, 1}, {5, "a", 0, 0}};
  for (const Arrival& a : arrivals) {
    RouterRequest request = Request(a.sequence, a.model);
    request.priority = a.priority;
    request.deadline = milliseconds(a.deadline_ms);
    ASSERT_TRUE(table.Admit(request, At(0)).status.ok());
  }
  table.Apply(Grant("n1", 10, {"a", "b"}));
  std::vector<std::uint64_t> order;
  for (const Send& send : table.Decide(At(1))) order.push_back(send.sequence);
  EXPECT_THAT(order, testing::ElementsAre(3, 2, 1, 5, 4));
}

TEST(RequestTable, FunctionsNearTheirSloGoFirst) {
  RequestTable table = MakeTable({.max_requests = 1000}, "locality", "slo-aware");
  table.Apply(Grant("n1", 1, {"good", "near"}));
  std::uint64_t next = 1;
  const auto serve = [&](const std::string& model, bool in_time) {
    RouterRequest request = Request(next++, model);
    request.deadline = seconds(1);
    request.percentile = 98;
    ASSERT_TRUE(table.Admit(request, At(0)).status.ok());
    const auto sends = table.Decide(At(0));
    ASSERT_EQ(sends.size(), 1u);
    EXPECT_EQ(sends[0].percentile, 98);
    table.Served(sends[0].ticket, absl::OkStatus(), in_time ? At(10) : At(1001));
  };
  for (int i = 0; i < 40; ++i) serve("good", true);
  for (int i = 0; i < 40; ++i) serve("near", i > 0);
  // Waiting requests are put in order anew when functions change their places.
  ASSERT_TRUE(table.Admit(Request(next++, "good"), At(0)).status.ok());
  ASSERT_TRUE(table.Admit(Request(next++, "near"), At(1)).status.ok());
  const auto sends = table.Decide(At(2000));
  ASSERT_EQ(sends.size(), 1u);
  EXPECT_EQ(sends[0].sequence, next - 1);
  table.Check();
}

TEST(RequestTable, FullQueuesRefuseWithRetryAfter) {
  RequestTable table = MakeTable({.max_requests = 2, .max_bytes = KiB(3)});
  ASSERT_TRUE(table.Admit(Request(1), At(0)).status.ok());
  RouterRequest large = Request(2);
  large.bytes = KiB(4);
  const Admission bytes = table.Admit(large, At(0));
  EXPECT_EQ(bytes.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(bytes.status.message()), HasSubstr("4 KiB"));
  ASSERT_TRUE(table.Admit(Request(3), At(0)).status.ok());
  const Admission count = table.Admit(Request(4), At(0));
  EXPECT_EQ(count.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_GE(count.retry_after, milliseconds(50));
  EXPECT_EQ(table.counts().rejected, 2u);
  table.Check();
}

TEST(RequestTable, ABouncedRequestTriesTheOtherHolderThenPauses) {
  RequestTable table = MakeTable();
  table.Apply(Grant("n1", 2, {"m"}, {"m"}));
  table.Apply(Grant("n2", 2, {"m"}));
  ASSERT_TRUE(table.Admit(Request(1), At(0)).status.ok());
  auto sends = table.Decide(At(0));
  ASSERT_EQ(sends.size(), 1u);
  EXPECT_EQ(sends[0].node, "n1");
  EXPECT_TRUE(table.Bounced(sends[0].ticket, proto::BOUNCE_NOT_ADOPTED, "not yet", At(1)).empty());
  sends = table.Decide(At(1));
  ASSERT_EQ(sends.size(), 1u);
  EXPECT_EQ(sends[0].node, "n2");
  EXPECT_EQ(sends[0].attempt, 1u);  // a refusal does not count as an attempt
  EXPECT_TRUE(table.Bounced(sends[0].ticket, proto::BOUNCE_NOT_ADOPTED, "not yet", At(2)).empty());
  EXPECT_TRUE(table.Decide(At(3)).empty());
  EXPECT_EQ(table.NextDue(), At(52));
  EXPECT_TRUE(table.Expire(At(52)).empty());
  EXPECT_EQ(table.Decide(At(52)).size(), 1u);
  table.Check();
}

// Two nodes hold the model. The first has refused the request, and the second takes nothing: it drains, or has no GPU.
TEST(RequestTable, ARefusalEndsAfterAMomentAlsoWhileAnotherHolderTakesNothing) {
  for (const bool drains : {false, true}) {
    RequestTable table = MakeTable();
    table.Apply(Grant("n1", 2, {"m"}, {"m"}));
    auto idle = Grant("n2", drains ? 2 : 0, {"m"});
    idle.set_draining(drains);
    table.Apply(idle);
    ASSERT_TRUE(table.Admit(Request(1), At(0)).status.ok());
    const auto ticket = table.Decide(At(0)).at(0).ticket;
    EXPECT_TRUE(table.Bounced(ticket, proto::BOUNCE_NOT_ADOPTED, "not yet", At(1)).empty());
    ASSERT_TRUE(table.Admit(Request(2), At(1)).status.ok());
    auto sends = table.Decide(At(2));
    ASSERT_EQ(sends.size(), 1u) << "a request that the node has not refused waits behind one that it has";
    EXPECT_EQ(sends[0].sequence, 2u);
    EXPECT_EQ(table.NextDue(), At(51));
    sends = table.Decide(At(51));
    ASSERT_EQ(sends.size(), 1u) << "the refusal does not end";
    EXPECT_EQ(sends[0].sequence, 1u);
    EXPECT_EQ(sends[0].node, "n1");
    table.Check();
  }
}

TEST(RequestTable, ANodeThatRefusesIsLeftAloneForAMoment) {
  RequestTable table = MakeTable();
  table.Apply(Grant("n1", 4, {"m", "k"}));
  ASSERT_TRUE(table.Admit(Request(1, "m"), At(0)).status.ok());
  const auto sends = table.Decide(At(0));
  ASSERT_EQ(sends.size(), 1u);
  table.Bounced(sends[0].ticket, proto::BOUNCE_NO_CREDIT, "full", At(1));
  ASSERT_TRUE(table.Admit(Request(2, "k"), At(1)).status.ok());
  EXPECT_TRUE(table.Decide(At(10)).empty());
  EXPECT_EQ(table.NextDue(), At(51));
  EXPECT_EQ(table.Decide(At(51)).size(), 2u);
  // A new grant ends the pause of the node at once.
  RequestTable other = MakeTable();
  other.Apply(Grant("n1", 4, {"m"}));
  ASSERT_TRUE(other.Admit(Request(1), At(0)).status.ok());
  other.Bounced(other.Decide(At(0))[0].ticket, proto::BOUNCE_NO_CREDIT, "full", At(1));
  other.Apply(Grant("n1", 4, {"m"}));
  ASSERT_TRUE(other.Admit(Request(2), At(2)).status.ok());
  EXPECT_EQ(other.Decide(At(2)).size(), 1u);
}

TEST(RequestTable, TooManyRefusalsEndIt) {
  RequestTable table = MakeTable({.max_bounces = 2});
  table.Apply(Grant("n1", 4, {"m"}));
  ASSERT_TRUE(table.Admit(Request(1), At(0)).status.ok());
  int now = 0;
  std::vector<RequestFinished> finished;
  while (finished.empty() && now < 10000) {
    for (const Send& send : table.Decide(At(now))) {
      finished = table.Bounced(send.ticket, proto::BOUNCE_NO_GPU, "no GPU is fit", At(now));
    }
    now += 50;
  }
  ASSERT_EQ(finished.size(), 1u);
  EXPECT_EQ(finished[0].status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(finished[0].status.message()), HasSubstr("no GPU is fit"));
  EXPECT_GT(finished[0].retry_after, Duration::zero());
}

TEST(RequestTable, ADeadNodesRequestsRunElsewhereAtMostThreeTimes) {
  RequestTable table = MakeTable();
  ASSERT_TRUE(table.Admit(Request(1), At(0)).status.ok());
  std::vector<RequestFinished> finished;
  for (int life = 1; life <= 3; ++life) {
    EXPECT_TRUE(finished.empty());
    table.Apply(Grant("n1", 1, {"m"}, {}, static_cast<std::uint64_t>(life)));
    const auto sends = table.Decide(At(life));
    ASSERT_EQ(sends.size(), 1u);
    EXPECT_EQ(sends[0].attempt, static_cast<std::uint32_t>(life));
    EXPECT_EQ(sends[0].node_epoch, static_cast<std::uint64_t>(life));
    finished = table.NodeLost("n1", "killed");
    EXPECT_TRUE(table.Served(sends[0].ticket, absl::OkStatus(), At(life)).empty());  // the reply is late
    table.Check();
  }
  ASSERT_EQ(finished.size(), 1u);
  EXPECT_EQ(finished[0].status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(finished[0].attempts, 3u);
}

TEST(RequestTable, ANodeThatJoinsAgainStillHasWhatItWasSent) {
  RequestTable table = MakeTable();
  table.Apply(Grant("n1", 2, {"m"}, {}, 1));
  ASSERT_TRUE(table.Admit(Request(1), At(0)).status.ok());
  const auto sends = table.Decide(At(0));
  ASSERT_EQ(sends.size(), 1u);
  // Restarts of the manager do not count as attempts of the request.
  for (std::uint64_t epoch = 2; epoch <= 6; ++epoch) table.Apply(Grant("n1", 2, {"m"}, {}, epoch));
  EXPECT_EQ(table.credits().Find("n1")->in_flight, 1u);
  EXPECT_TRUE(table.Decide(At(1)).empty()) << "the request is under way";
  ASSERT_TRUE(table.Admit(Request(2), At(1)).status.ok());
  const auto next = table.Decide(At(1));
  ASSERT_EQ(next.size(), 1u);
  EXPECT_EQ(next[0].node_epoch, 6u);
  table.Apply(Grant("n1", 9, {"m"}, {}, 1));  // a grant of the node's old life
  EXPECT_EQ(table.credits().Find("n1")->limit, 2u);
  const auto served = table.Served(sends[0].ticket, absl::OkStatus(), At(2));
  ASSERT_EQ(served.size(), 1u);
  EXPECT_EQ(served[0].end, RequestEnd::kServed);
  EXPECT_EQ(served[0].attempts, 1u);
  table.Check();
}

TEST(RequestTable, ANodeThatDiedAndIsBackUnderItsNameHasLostWhatItWasSent) {
  RequestTable table = MakeTable();
  table.Apply(Grant("n1", 1, {"m"}, {"m"}, 1));
  ASSERT_TRUE(table.Admit(Request(1), At(0)).status.ok());
  const auto sends = table.Decide(At(0));
  ASSERT_EQ(sends.size(), 1u);
  EXPECT_TRUE(table.NodeLost("n1", "killed").empty());
  table.Apply(Grant("n1", 1, {"m"}, {}, 2));
  EXPECT_EQ(table.credits().Find("n1")->in_flight, 0u);
  EXPECT_TRUE(table.credits().Find("n1")->resident.empty());
  const auto again = table.Decide(At(1));
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].node_epoch, 2u);
  EXPECT_EQ(again[0].attempt, 2u);
  EXPECT_TRUE(table.Served(sends[0].ticket, absl::OkStatus(), At(2)).empty())
      << "the reply is from the node's earlier life";
  EXPECT_EQ(table.credits().Find("n1")->in_flight, 1u);
  table.Check();
}

TEST(RequestTable, TimeoutsEndWhatWaitsAndWhatIsSent) {
  RequestTable table = MakeTable();
  table.Apply(Grant("n1", 1, {"m"}));
  RouterRequest request = Request(1);
  request.timeout = milliseconds(100);
  ASSERT_TRUE(table.Admit(request, At(0)).status.ok());
  request = Request(2);
  request.timeout = milliseconds(200);
  ASSERT_TRUE(table.Admit(request, At(0)).status.ok());
  const auto sends = table.Decide(At(0));
  ASSERT_EQ(sends.size(), 1u);
  EXPECT_EQ(table.NextDue(), At(100));
  EXPECT_TRUE(table.Expire(At(99)).empty());
  auto finished = table.Expire(At(100));
  ASSERT_EQ(finished.size(), 1u);
  EXPECT_EQ(finished[0].end, RequestEnd::kExpired);
  EXPECT_EQ(finished[0].node, "n1");  // the node has to be told
  EXPECT_EQ(finished[0].status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(table.Decide(At(101)).empty());  // the credit comes back with the reply
  EXPECT_TRUE(table.Served(sends[0].ticket, absl::CancelledError(""), At(110)).empty());
  EXPECT_EQ(table.Decide(At(110)).size(), 1u);
  finished = table.Expire(At(1000));
  ASSERT_EQ(finished.size(), 1u);
  EXPECT_EQ(finished[0].sequence, 2u);
  EXPECT_TRUE(table.Decide(At(1000)).empty());
  EXPECT_EQ(table.NextDue(), Time::max());
  table.Check();
}

TEST(RequestTable, AWaitingTimeoutSaysThatNoNodeHoldsTheModel) {
  RequestTable table = MakeTable();
  ASSERT_TRUE(table.Admit(Request(1), At(0)).status.ok());
  const auto finished = table.Expire(At(30000));
  ASSERT_EQ(finished.size(), 1u);
  EXPECT_THAT(std::string(finished[0].status.message()), HasSubstr("no node holds its model"));
}

TEST(RequestTable, CancellationFindsTheRequestByItsCall) {
  RequestTable table = MakeTable();
  table.Apply(Grant("n1", 1, {"m"}));
  ASSERT_TRUE(table.Admit(Request(1), At(0)).status.ok());
  ASSERT_TRUE(table.Admit(Request(2), At(0)).status.ok());
  ASSERT_EQ(table.Decide(At(0)).size(), 1u);
  EXPECT_TRUE(table.Cancel({.caller = 2, .call = 1}).empty());
  const auto sent = table.Cancel({.caller = 1, .call = 1});
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].node, "n1");
  const auto waiting = table.Cancel({.caller = 1, .call = 2});
  ASSERT_EQ(waiting.size(), 1u);
  EXPECT_TRUE(waiting[0].node.empty());
  EXPECT_TRUE(table.Cancel({.caller = 1, .call = 2}).empty());
  RouterRequest reused = Request(3);
  reused.call = {.caller = 1, .call = 9};
  ASSERT_TRUE(table.Admit(reused, At(1)).status.ok());
  reused.sequence = 4;
  EXPECT_EQ(table.Admit(reused, At(1)).status.code(), absl::StatusCode::kInvalidArgument);
  table.Check();
}

TEST(RequestTable, ARemovedFunctionsWaitingRequestsGetNotFound) {
  RequestTable table = MakeTable();
  table.Apply(Grant("n1", 1, {"a", "b"}));
  ASSERT_TRUE(table.Admit(Request(1, "a"), At(0)).status.ok());
  ASSERT_EQ(table.Decide(At(0)).size(), 1u);
  ASSERT_TRUE(table.Admit(Request(2, "a"), At(0)).status.ok());
  ASSERT_TRUE(table.Admit(Request(3, "b"), At(0)).status.ok());
  const auto finished = table.FunctionGone("f-a", "1", absl::NotFoundError("removed"));
  ASSERT_EQ(finished.size(), 1u);  // requests that were sent still finish
  EXPECT_EQ(finished[0].sequence, 2u);
  EXPECT_EQ(finished[0].status.code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(table.FunctionGone("f-a", "2", absl::NotFoundError("removed")).empty());
  EXPECT_EQ(table.waiting(), 1u);
  table.Check();
}

TEST(RequestTable, AGrantRepeatsNoListOfModels) {
  RequestTable table = MakeTable();
  table.Apply(Grant("n1", 4, {"a", "b"}, {"a"}));
  table.Apply(Grant("n1", 3, {}, {}));
  EXPECT_EQ(table.credits().Find("n1")->limit, 3u);
  EXPECT_THAT(table.credits().Find("n1")->adopted, testing::ElementsAre("a", "b"));
  EXPECT_THAT(table.credits().Find("n1")->resident, testing::ElementsAre("a"));
  ASSERT_TRUE(table.Admit(Request(1, "b"), At(0)).status.ok());
  EXPECT_EQ(table.Decide(At(0)).size(), 1u);
  auto grant = Grant("n1", 4, {"c", "a"});  // a peer may mix the order up
  grant.mutable_resident();                 // the list is given and empty
  table.Apply(grant);
  EXPECT_THAT(table.credits().Find("n1")->adopted, testing::ElementsAre("a", "c"));
  EXPECT_TRUE(table.credits().Find("n1")->resident.empty());
  ASSERT_TRUE(table.Admit(Request(2, "b"), At(0)).status.ok());
  EXPECT_TRUE(table.Decide(At(0)).empty()) << "the model was taken off the node";
  grant = Grant("n1", 4, {"z", "b", "a"});
  grant.mutable_adopted()->set_added(true);
  table.Apply(grant);
  EXPECT_THAT(table.credits().Find("n1")->adopted, testing::ElementsAre("a", "b", "c", "z"));
  EXPECT_EQ(table.Decide(At(0)).size(), 1u) << "the model that the node adopted is used at once";
  grant = Grant("n1", 4, {"y", "w"});
  grant.mutable_adopted()->set_added(true);
  for (const char* model : {"b", "never-there", "w"}) grant.mutable_adopted()->add_removed(model);
  table.Apply(grant);
  EXPECT_THAT(table.credits().Find("n1")->adopted, testing::ElementsAre("a", "c", "y", "z"))
      << "what came and went is not there";
  EXPECT_EQ(table.credits().Holders("b"), nullptr);
  EXPECT_NE(table.credits().Holders("c"), nullptr) << "a removal that is told names no other model";
  ASSERT_TRUE(table.Admit(Request(3, "b"), At(0)).status.ok());
  EXPECT_TRUE(table.Decide(At(0)).empty()) << "the model was taken off the node";
  grant = Grant("n1", 4, {});
  grant.mutable_adopted();
  table.Apply(grant);
  EXPECT_TRUE(table.credits().Find("n1")->adopted.empty());
  EXPECT_EQ(table.credits().Holders("a"), nullptr);
  table.Apply(Grant("n1", 4, {}, {}, 2));
  EXPECT_TRUE(table.credits().Find("n1")->adopted.empty()) << "a new life of a node begins without models";
  table.Check();
}

TEST(RequestTable, ADrainingNodeGetsNothing) {
  RequestTable table = MakeTable();
  proto::CreditGrant grant = Grant("n1", 4, {"m"});
  grant.set_draining(true);
  table.Apply(grant);
  ASSERT_TRUE(table.Admit(Request(1), At(0)).status.ok());
  EXPECT_TRUE(table.Decide(At(0)).empty());
  grant.set_draining(false);
  table.Apply(grant);
  EXPECT_EQ(table.Decide(At(0)).size(), 1u);
}

}  // namespace
}  // namespace troupe::cluster::request_table_test
