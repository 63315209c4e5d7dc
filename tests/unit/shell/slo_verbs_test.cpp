// The verbs slo and why.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/slo.pb.h"
#include "tests/unit/shell/fake_admin_client.hpp"

namespace troupe::shell {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Request = proto::AdminRequest;

proto::AdminReply SloReply() {
  proto::AdminReply reply;
  auto& slo = *reply.add_slos();
  slo.mutable_function()->set_name("digits");
  slo.mutable_function()->set_version("2");
  slo.set_deadline_ns(50'000'000);
  slo.set_percentile(98);
  slo.mutable_hour()->set_in_time(970);
  slo.mutable_hour()->set_late_swap(20);
  slo.mutable_hour()->set_failed(10);
  slo.mutable_total()->set_in_time(5000);
  reply.add_alphas()->set_member("gateway-a");
  reply.mutable_alphas(0)->set_alpha(2);
  auto& plain = *reply.add_slos();
  plain.mutable_function()->set_name("plain");
  plain.mutable_function()->set_version("1");
  plain.mutable_hour()->set_in_time(7);
  return reply;
}

TEST(SloVerbs, TheTableSaysWhatIsLeftAndWhyRequestsWereLate) {
  Harness troupe;
  troupe.cluster.Answer(Request::kShowSlo, SloReply());
  ASSERT_EQ(troupe.Run("slo"), ExitCode::kOk);
  EXPECT_TRUE(troupe.cluster.asked.back().show_slo().key().name().empty());
  // 3 % were missed, and 2 % may be: the budget is overdrawn by half, and (0.98 x 1000 - 970) / 0.02 more are required.
  const auto text = troupe.out();
  EXPECT_THAT(text, HasSubstr("97.00 %"));
  EXPECT_THAT(text, HasSubstr("-50 %"));
  EXPECT_THAT(text, HasSubstr(" 500 "));
  EXPECT_THAT(text, HasSubstr("50 ms at 98 %"));
  EXPECT_THAT(text, HasSubstr("alpha      2 at gateway-a"));
  ASSERT_EQ(troupe.Run("slo --since-start"), ExitCode::kOk);
  EXPECT_THAT(troupe.out(), AllOf(HasSubstr("100.00 %"), HasSubstr("5000")));
  EXPECT_THAT(troupe.out(), testing::Not(HasSubstr("-5000"))) << "what is met requires nothing";
}

TEST(SloVerbs, OneFunctionAndOneVersionCanBeAskedFor) {
  Harness troupe;
  troupe.cluster.Answer(Request::kShowSlo, proto::AdminReply());
  ASSERT_EQ(troupe.Run("slo digits --version 2"), ExitCode::kOk);
  EXPECT_EQ(troupe.cluster.asked.back().show_slo().key().name(), "digits");
  EXPECT_EQ(troupe.cluster.asked.back().show_slo().key().version(), "2");
  EXPECT_THAT(troupe.out(), HasSubstr("no request has ended yet"));
}

proto::RequestTimeline Late() {
  proto::RequestTimeline request;
  request.set_id("order-7");
  request.set_gateway("gateway-a");
  request.mutable_function()->set_name("digits");
  request.mutable_function()->set_version("2");
  request.set_took_ns(100'000'000);
  request.set_deadline_ns(60'000'000);
  request.set_node("node-a");
  request.set_gpu(1);
  request.set_attempts(2);
  auto& times = *request.mutable_times();
  times.set_router_queue_ns(10'000'000);
  times.set_node_queue_ns(20'000'000);
  times.set_swap_ns(50'000'000);
  times.set_compute_ns(15'000'000);
  request.mutable_story()->set_source("host");
  request.mutable_story()->set_swapped_bytes(1 << 20);
  request.mutable_story()->set_waiting(3);
  request.mutable_story()->add_beside("bert");
  request.mutable_story()->set_batch_size(4);
  return request;
}

TEST(SloVerbs, WhyShowsEachPartOfARequestsTime) {
  Harness troupe;
  proto::AdminReply reply;
  *reply.add_timelines() = Late();
  troupe.cluster.Answer(Request::kExplainRequest, reply);
  ASSERT_EQ(troupe.Run("why order-7"), ExitCode::kOk);
  EXPECT_EQ(troupe.cluster.asked.back().explain_request().id(), "order-7");
  const auto text = troupe.out();
  EXPECT_THAT(
      text, AllOf(HasSubstr("late by 40 ms"), HasSubstr("gateway gateway-a, node node-a, GPU 1, 2 attempts"),
                  HasSubstr("3 others waited when it came"), HasSubstr("from: host"),
                  HasSubstr("its run answered 4 requests; its GPU had besides: bert")));
  EXPECT_THAT(text, HasSubstr("50 ms  ###############  ")) << "half of the time, so half of the bar";
  EXPECT_THAT(text, HasSubstr("network, copies, pauses of its quota"));
}

TEST(SloVerbs, WhyWithoutARequestShowsTheSlowest) {
  Harness troupe;
  troupe.cluster.Answer(Request::kExplainRequest, proto::AdminReply());
  ASSERT_EQ(troupe.Run("why"), ExitCode::kOk);
  EXPECT_THAT(troupe.out(), HasSubstr("no request has ended in the last minute"));
}

TEST(SloVerbs, WhyDrawsWhenTheStepsOfARunBeganAndEnded) {
  Harness troupe;
  proto::AdminReply reply;
  const auto add = [&](const std::string& id, std::int64_t began_ms, std::int64_t ended_ms) {
    auto& request = *reply.add_timelines();
    request = Late();
    request.set_id(id);
    request.set_ended_unix_ns(ended_ms * 1'000'000);
    request.set_took_ns((ended_ms - began_ms) * 1'000'000);
  };
  add("night/detect", 1000, 1100);
  add("night/types/0", 1100, 1300);
  troupe.cluster.Answer(Request::kExplainRequest, reply);
  ASSERT_EQ(troupe.Run("why night"), ExitCode::kOk);
  EXPECT_THAT(troupe.out(), testing::StartsWith("run night  2 requests in 300 ms\n"));
  // A third of thirty cells, and what is left.
  EXPECT_THAT(troupe.out(),
              HasSubstr("detect                    100 ms  |##########                    |  +0 ns\n"));
  EXPECT_THAT(troupe.out(),
              HasSubstr("types/0                   200 ms  |          ####################|  +100 ms\n"));
  EXPECT_THAT(troupe.out(), HasSubstr("id         night/types/0")) << "each request in full below";
}

TEST(SloVerbs, WhySeparatesRequestsByALine) {
  Harness troupe;
  proto::AdminReply reply;
  *reply.add_timelines() = Late();
  *reply.add_timelines() = Late();
  troupe.cluster.Answer(Request::kExplainRequest, reply);
  ASSERT_EQ(troupe.Run("why"), ExitCode::kOk);
  EXPECT_THAT(troupe.out(),
              AllOf(HasSubstr("\n\ndigits version 2"), testing::StartsWith("digits version 2")));
}

TEST(SloVerbs, WhyShowsAFailureWithoutWhatWouldMoveTheCursor) {
  Harness troupe;
  proto::AdminReply reply;
  auto& failed = *reply.add_timelines();
  failed = Late();
  failed.clear_node();
  failed.set_code(14);
  failed.set_message("no node\x1b[31m takes it");
  troupe.cluster.Answer(Request::kExplainRequest, reply);
  ASSERT_EQ(troupe.Run("why"), ExitCode::kOk);
  EXPECT_THAT(troupe.out(), AllOf(HasSubstr("failed: no node"), HasSubstr("no node took it")));
  EXPECT_THAT(troupe.out(), testing::Not(HasSubstr("\x1b[31m"))) << "what others wrote moves no cursor";
}

}  // namespace
}  // namespace troupe::shell
