// Routing by GPU: tables of what nodes tell and where requests go (LALB, 003, Algorithms 1 and 2, over all nodes).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "cluster/request_table.hpp"

namespace troupe::cluster::gpu_turns_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Time At(int ms) {
  return Time(milliseconds(ms));
}

// What a node tells of a GPU, and of what models cost on it: a load takes 2 s and a run 1 s, and three models fit.
struct ToldGpu {
  std::uint32_t gpu = 0;
  std::vector<std::string> resident{};
  bool ready = true;
  std::uint64_t others = 0;
  Duration others_left{};
  std::uint32_t kind = 0;
};

class Routed : public testing::Test {
 protected:
  explicit Routed(const char* routing = "lalb-o3", RouterLimits limits = {})
      : table_(limits, *FindRoutingPolicy(routing), *FindOrderingPolicy("fifo")) {}

  static proto::CreditGrant GrantOf(const std::string& node, const std::vector<ToldGpu>& gpus,
                                    const std::vector<std::string>& adopted = {"a", "b", "c", "d"},
                                    std::uint64_t limit = 8) {
    proto::CreditGrant grant;
    grant.set_node(node);
    grant.set_node_epoch(1);
    grant.set_limit(limit);
    for (const auto& model : adopted) {
      grant.mutable_adopted()->add_digests(model);
      for (std::uint32_t kind = 0; kind < 2; ++kind) {
        auto& cost = *grant.add_costs();
        cost.set_digest(model);
        cost.set_kind(kind);
        cost.set_load_ns(Duration(seconds(2)).count());
        cost.set_run_ns(Duration(seconds(kind == 0 ? 1 : 5)).count());
        cost.set_bytes(MiB(300).count());
        cost.set_run_bytes(MiB(100).count());
      }
    }
    for (const auto& told : gpus) {
      auto& standing = *grant.add_gpus();
      standing.set_gpu(told.gpu);
      standing.set_ready(told.ready);
      standing.set_kind(told.kind);
      standing.set_memory_bytes(GiB(1).count());
      standing.set_others(told.others);
      standing.set_others_ns(told.others_left.count());
      for (const auto& model : told.resident) standing.add_resident(model);
    }
    return grant;
  }
  void Told(const proto::CreditGrant& grant) {
    table_.Apply(grant);
    table_.Check();
  }

  // The numbers of the requests are 1, 2, ...
  void Ask(const std::string& model, int at) {
    RouterRequest request;
    request.sequence = ++sequence_;
    request.function = "f-" + model;
    request.version = "1";
    request.model = model;
    ASSERT_TRUE(table_.Admit(request, At(at)).status.ok());
  }
  // "1 to n1/0" for each request that was sent.
  std::vector<std::string> Decide(int at) {
    std::vector<std::string> sent;
    for (const Send& send : table_.Decide(At(at))) {
      EXPECT_TRUE(send.gpu.has_value());
      tickets_[send.sequence] = send.ticket;
      sent.push_back(std::to_string(send.sequence) + " to " + send.node + "/" + std::to_string(*send.gpu));
    }
    table_.Check();
    return sent;
  }
  void Serve(std::uint64_t sequence, int at) {
    EXPECT_EQ(table_.Served(tickets_.at(sequence), absl::OkStatus(), At(at)).size(), 1u);
  }

  RequestTable table_;
  std::map<std::uint64_t, std::uint64_t> tickets_;

 private:
  std::uint64_t sequence_ = 0;
};

class InOrder : public Routed {
 protected:
  InOrder() : Routed("lalb") {}
};
class FirstIdle : public Routed {
 protected:
  FirstIdle() : Routed("first-idle") {}
};
class Patient : public Routed {
 protected:
  Patient() : Routed("lalb-o3=2") {}
};

TEST_F(Routed, AnIdleGpuTakesTheFirstRequestWhoseModelItHas) {
  Told(GrantOf("n1", {{.gpu = 0, .resident = {"b"}}}));
  Ask("a", 0);
  Ask("b", 1);
  Ask("b", 2);
  EXPECT_THAT(Decide(3), ElementsAre("2 to n1/0"));
  EXPECT_THAT(Decide(4), IsEmpty());
}

TEST_F(Routed, ARequestGoesToAnotherIdleGpuThatHasItsModelWhicheverNodeThatIs) {
  Told(GrantOf("n1", {{.gpu = 0}}));
  Told(GrantOf("n2", {{.gpu = 0, .ready = false}, {.gpu = 1, .resident = {"a"}}}));
  Ask("a", 0);
  Ask("b", 0);
  // n1 is asked first: it has nothing, so it sends the one away and brings the model of the other.
  EXPECT_THAT(Decide(0), ElementsAre("1 to n2/1", "2 to n1/0"));
}

TEST_F(Routed, ABusyGpuThatHasTheModelGetsTheRequestWhenThatIsSoonerThanALoad) {
  Told(GrantOf("n1", {{.gpu = 0, .resident = {"a"}}}));
  Told(GrantOf("n2", {{.gpu = 0}}));
  Ask("a", 0);
  EXPECT_THAT(Decide(0), ElementsAre("1 to n1/0"));
  // Behind one run of 1 s it has run after 2 s; behind two after 3 s, which a load and a run take, too.
  Ask("a", 0);
  EXPECT_THAT(Decide(0), ElementsAre("2 to n1/0"));
  Ask("a", 0);
  EXPECT_THAT(Decide(0), ElementsAre("3 to n2/0"));
  // A second later the one on n1 is nearly done, and n2 has two seconds to go: the queue of n1 is the shorter one.
  Ask("a", 1000);
  EXPECT_THAT(Decide(1000), IsEmpty());  // no GPU is idle
  Serve(1, 1000);
  EXPECT_THAT(Decide(1000), IsEmpty());
  Serve(2, 2000);
  EXPECT_THAT(Decide(2000), ElementsAre("4 to n1/0"));
}

TEST_F(Routed, TheGpusOfOneNodeAreChosenLikeThoseOfMany) {
  Told(GrantOf("n1", {{.gpu = 0, .resident = {"a"}}, {.gpu = 1}}));
  Ask("a", 0);
  Ask("a", 0);
  Ask("a", 0);
  EXPECT_THAT(Decide(0), ElementsAre("1 to n1/0", "2 to n1/0", "3 to n1/1"));
}

TEST_F(InOrder, ARequestIsPassedOnceAndThenPlacedHitOrMiss) {
  Told(GrantOf("n1", {{.gpu = 0, .resident = {"b"}}}));
  Ask("a", 0);
  for (int i = 0; i < 3; ++i) Ask("b", 1);
  EXPECT_THAT(Decide(2), ElementsAre("2 to n1/0"));
  Serve(2, 3);
  EXPECT_THAT(Decide(3), ElementsAre("1 to n1/0"));  // 'visits higher than the limit', which is zero
}

TEST_F(Patient, ARequestIsPassedOnceMoreThanTheLimitSays) {
  Told(GrantOf("n1", {{.gpu = 0, .resident = {"b"}}}));
  Ask("a", 0);
  for (int i = 0; i < 5; ++i) Ask("b", 1);
  std::vector<std::string> order;
  for (int at = 2; at < 8; ++at) {
    const auto sent = Decide(at);
    ASSERT_EQ(sent.size(), 1u);
    order.push_back(sent.front().substr(0, 1));
    Serve(std::stoull(order.back()), at);
  }
  EXPECT_THAT(order, ElementsAre("2", "3", "4", "1", "5", "6"));
}

TEST_F(Patient, OnlyAGpuThatCouldHaveTakenARequestPassesIt) {
  Told(GrantOf("n1", {{.gpu = 0, .resident = {"b"}}}, {"b"}));  // n1 cannot run a
  Ask("a", 0);
  for (int i = 0; i < 6; ++i) Ask("b", 1);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(Decide(i).size(), 1u);
    Serve(2 + static_cast<std::uint64_t>(i), i);
  }
  Told(GrantOf("n2", {{.gpu = 0, .resident = {"b"}}}, {"a", "b"}));
  // Both take b; to n2 the first request has not been passed yet, so it takes b as well.
  Ask("b", 7);
  EXPECT_THAT(Decide(7), ElementsAre("7 to n1/0", "8 to n2/0"));
}

TEST_F(FirstIdle, WhicheverGpuIsIdleTakesTheFirstRequest) {
  Told(GrantOf("n1", {{.gpu = 0, .resident = {"b"}}}));
  Told(GrantOf("n2", {{.gpu = 0, .resident = {"a"}}}));
  Ask("a", 0);
  Ask("b", 0);
  Ask("b", 0);
  EXPECT_THAT(Decide(0), ElementsAre("1 to n1/0", "2 to n2/0"));
  Serve(2, 1);
  EXPECT_THAT(Decide(1), ElementsAre("3 to n2/0"));
}

TEST_F(Routed, TheLeastRecentlyUsedModelIsTakenToGoForOneThatComes) {
  Told(GrantOf("n1", {{.gpu = 0}}));
  for (const char* model :
       {"a", "b", "c"}) {  // the third one fits only just: 3 x 300 MiB and 100 MiB for a run
    Ask(model, 0);
    const auto sent = Decide(0);
    ASSERT_EQ(sent.size(), 1u);
    Serve(static_cast<std::uint64_t>(sent.front()[0] - '0'), 0);
  }
  Ask("a", 1);  // 4: used again
  Decide(1);
  Serve(4, 1);
  Ask("d", 2);  // 5: b has to go
  Decide(2);
  Serve(5, 2);
  Ask("b", 3);
  Ask("c", 3);
  EXPECT_THAT(Decide(3), ElementsAre("7 to n1/0"));  // c is there, b is not
  // The node knows better: b is there, and c is not.
  Serve(7, 4);
  Told(GrantOf("n1", {{.gpu = 0, .resident = {"a", "b", "d"}}}));
  Ask("c", 5);
  EXPECT_THAT(Decide(5), ElementsAre("6 to n1/0"));
}

TEST_F(Routed, WhatTheNodeHadNotSeenYetWhenItToldIsStillOnItsWay) {
  Told(GrantOf("n1", {{.gpu = 0}}));
  Told(GrantOf("n2", {{.gpu = 0}}));
  Ask("a", 0);
  EXPECT_THAT(Decide(0), ElementsAre("1 to n1/0"));
  Told(GrantOf("n1", {{.gpu = 0}}));  // on its way before the request came there
  Ask("a", 1000);
  Ask("b", 1000);
  // The model is coming to n1: in 3 s the second request has run there, and a little later here.
  EXPECT_THAT(Decide(1001), ElementsAre("2 to n1/0", "3 to n2/0"));
}

TEST_F(Routed, WhatOthersHaveOnAGpuKeepsItBusy) {
  Told(GrantOf("n1", {{.gpu = 0, .resident = {"a"}, .others = 1, .others_left = milliseconds(500)}}));
  Told(GrantOf("n2", {{.gpu = 0}}));
  Ask("a", 0);
  EXPECT_THAT(Decide(0), ElementsAre("1 to n1/0"));  // 1.5 s, against 3 s
  Told(GrantOf("n1", {{.gpu = 0, .resident = {"a"}, .others = 4, .others_left = seconds(5)}}));
  Ask("a", 0);
  EXPECT_THAT(Decide(0), ElementsAre("2 to n2/0"));
  Ask("b", 0);
  EXPECT_THAT(Decide(0), IsEmpty());
  Serve(1, 1);
  EXPECT_THAT(Decide(1), IsEmpty());  // the others are still there
  Told(GrantOf("n1", {{.gpu = 0, .resident = {"a"}}}));
  EXPECT_THAT(Decide(2), ElementsAre("3 to n1/0"));
}

TEST_F(Routed, RunsAreJudgedByTheKindOfTheirGpu) {
  Told(GrantOf("n1", {{.gpu = 0, .resident = {"a"}, .kind = 1}}));  // a run takes 5 s there
  Told(GrantOf("n2", {{.gpu = 0, .others = 1}}));
  Ask("a", 0);
  EXPECT_THAT(Decide(0), ElementsAre("1 to n1/0"));
  Told(GrantOf("n2", {{.gpu = 0}}));
  Ask("a", 0);
  EXPECT_THAT(Decide(0), ElementsAre("2 to n2/0"));  // 3 s with a load, 10 s there
}

TEST_F(Routed, ANodeThatIsLostTakesItsGpusAndItsRequestsComeBack) {
  Told(GrantOf("n1", {{.gpu = 0, .resident = {"a"}}}));
  Told(GrantOf("n2", {{.gpu = 0, .ready = false}}));
  Ask("a", 0);
  Ask("a", 0);
  EXPECT_THAT(Decide(0), ElementsAre("1 to n1/0"));
  EXPECT_THAT(table_.NodeLost("n1", "killed"), IsEmpty());
  EXPECT_THAT(Decide(1), IsEmpty());
  Told(GrantOf("n2", {{.gpu = 0}}));
  EXPECT_THAT(Decide(2), ElementsAre("1 to n2/0"));
  // Request 2 lost nothing; request 1 did, so nothing waits behind it.
  Told(GrantOf("n3", {{.gpu = 0}}));
  EXPECT_THAT(Decide(3), ElementsAre("2 to n3/0"));
}

TEST_F(Routed, ALostWorkerCountsAsAnAttemptAndItsGpuIsOutUntilItsNodeTellsOfIt) {
  Told(GrantOf("n1", {{.gpu = 0, .resident = {"a"}}, {.gpu = 1, .ready = false}}));
  Ask("a", 0);
  for (int attempt = 1; attempt <= 2; ++attempt) {
    EXPECT_THAT(Decide(attempt), ElementsAre("1 to n1/0"));
    EXPECT_THAT(table_.Bounced(tickets_[1], proto::BOUNCE_NO_GPU, "the worker is gone", At(attempt), 1),
                IsEmpty());
    EXPECT_THAT(Decide(attempt), IsEmpty());
    Told(GrantOf("n1", {{.gpu = 0}}));
  }
  EXPECT_THAT(Decide(5), ElementsAre("1 to n1/0"));
  const auto finished = table_.Bounced(tickets_[1], proto::BOUNCE_NO_GPU, "the worker is gone", At(6), 1);
  ASSERT_EQ(finished.size(), 1u);
  EXPECT_EQ(finished[0].attempts, 3u);
  EXPECT_THAT(std::string(finished[0].status.message()), HasSubstr("the worker is gone"));
}

TEST_F(Routed, AWaitingRequestWhoseGpuIsLostGoesToAnotherOneAtOnce) {
  Told(GrantOf("n1", {{.gpu = 0, .resident = {"a"}}, {.gpu = 1, .others = 1}}));
  Ask("a", 0);
  EXPECT_THAT(Decide(0), ElementsAre("1 to n1/0"));
  Told(GrantOf("n1", {{.gpu = 1}}));
  EXPECT_THAT(table_.Bounced(tickets_[1], proto::BOUNCE_NO_GPU, "no worker", At(1)), IsEmpty());
  EXPECT_THAT(Decide(1), ElementsAre("1 to n1/1"));  // the rest of the node is not closed
}

TEST_F(Routed, DrainingNodesAndNodesWithoutACreditTakeNoPart) {
  auto draining = GrantOf("n1", {{.gpu = 0, .resident = {"a"}}});
  draining.set_draining(true);
  Told(draining);
  Told(GrantOf("n2", {{.gpu = 0}, {.gpu = 1, .resident = {"a"}}}, {"a", "b"}, 1));
  Ask("a", 0);
  Ask("b", 0);
  EXPECT_THAT(Decide(0), ElementsAre("1 to n2/1"));
  Told(GrantOf("n3", {{.gpu = 0}}));
  EXPECT_THAT(Decide(1), ElementsAre("2 to n3/0"));
}

TEST_F(Routed, ARequestWaitsForABusyGpuWhoseCreditsAreSpentWhereThatIsSoonerThanALoad) {
  Told(GrantOf("n1", {{.gpu = 0, .resident = {"a"}}}, {"a"}, 1));
  Ask("a", 0);
  EXPECT_THAT(Decide(0), ElementsAre("1 to n1/0"));
  Told(GrantOf("n2", {{.gpu = 0}}));
  Ask("a", 0);
  Ask("b", 0);
  EXPECT_THAT(Decide(0), ElementsAre("3 to n2/0"));  // 2 waits, and 3 does not wait for it
  Told(GrantOf("n3", {{.gpu = 0}}));
  Ask("a", 0);
  EXPECT_THAT(Decide(0),
              ElementsAre("4 to n3/0"));  // behind 1 and 2 it would wait for as long as a load takes
  Serve(1, 900);
  EXPECT_THAT(Decide(900), ElementsAre("2 to n1/0"));
}

TEST_F(Routed, AModelGoesOnlyWhereItFits) {
  auto small = GrantOf("n1", {{.gpu = 0}});
  small.mutable_gpus(0)->set_memory_bytes(MiB(399).count());
  Told(small);
  Told(GrantOf("n2", {{.gpu = 0, .others = 1}}));
  Ask("a", 0);
  EXPECT_THAT(Decide(0), IsEmpty());
  EXPECT_THAT(table_.NodeLost("n2", "killed"), IsEmpty());
  EXPECT_THAT(Decide(1), ElementsAre("1 to n1/0"));  // it fits nowhere, and the node says why
}

TEST_F(Routed, NodesThatTellOfNoGpusAreRefusedByName) {
  auto isolated = GrantOf("n1", {});
  isolated.set_gpus_withheld("has isolated runtimes");
  Told(isolated);
  RouterRequest request;
  request.sequence = 100;
  request.function = "f";
  request.model = "a";
  const auto refused = table_.Admit(request, At(0));
  EXPECT_EQ(refused.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.status.message()), HasSubstr("node 'n1' has isolated runtimes"));
  Told(GrantOf("n2", {{.gpu = 0}}));
  EXPECT_TRUE(table_.Admit(request, At(0)).status.ok());
  EXPECT_THAT(Decide(0), ElementsAre("100 to n2/0"));
}

TEST_F(Routed, WhatANodeTellsIsBounded) {
  auto strange =
      GrantOf("n1", {{.gpu = 0, .others = 0, .others_left = Duration(-5)}, {.gpu = 4'000'000'000}});
  auto& cost = *strange.add_costs();
  cost.set_digest("a");
  cost.set_kind(4'000'000'000);
  strange.mutable_costs(0)->set_run_ns(std::numeric_limits<std::int64_t>::max());
  strange.mutable_costs(0)->set_load_ns(-1);
  Told(strange);
  Ask("a", 0);
  EXPECT_THAT(Decide(0), ElementsAre("1 to n1/0"));
}

TEST(GpuRouting, ItsLimitIsPartOfItsName) {
  EXPECT_EQ(FindRoutingPolicy("lalb-o3=7")->by_gpu->limit, 7u);
  EXPECT_EQ(FindRoutingPolicy("lalb-o3")->by_gpu->limit, 25u);
  EXPECT_EQ(FindRoutingPolicy("lalb")->by_gpu->limit, 0u);
  for (const char* wrong : {"lalb-o3=", "lalb-o3=x", "lalb-o3=7x", "lalb-o3=99999999999"})
    EXPECT_EQ(FindRoutingPolicy(wrong).status().code(), absl::StatusCode::kInvalidArgument) << wrong;
}

}  // namespace
}  // namespace troupe::cluster::gpu_turns_test
