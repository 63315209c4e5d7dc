#include "cluster/slo/slo_tracker.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cluster/admin/answers.hpp"
#include "cluster/slo/slo_answers.hpp"
#include "cluster/slo/step_trace.hpp"
#include "proto/slo_counts.hpp"

namespace troupe::cluster::slo_tracker_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using testing::ElementsAre;

Time At(Duration since) {
  return Time(since);
}

proto::InferReply Reply(const std::string& function, int code = 0) {
  proto::InferReply reply;
  reply.mutable_function()->set_name(function);
  reply.mutable_function()->set_version("1");
  reply.set_code(code);
  reply.set_node("node-a");
  return reply;
}

// A request with a deadline of 100 ms whose parts took so many milliseconds.
struct Parts {
  int queue = 0, swap = 0, run = 0, network = 0;
};
proto::SloCounts CountsAfter(const std::vector<Parts>& requests) {
  SloTracker tracker("gateway-a");
  for (const auto& parts : requests) {
    auto reply = Reply("f");
    reply.mutable_times()->set_router_queue_ns(Duration(milliseconds(parts.queue / 2)).count());
    reply.mutable_times()->set_node_queue_ns(Duration(milliseconds(parts.queue - parts.queue / 2)).count());
    reply.mutable_times()->set_swap_ns(Duration(milliseconds(parts.swap)).count());
    reply.mutable_times()->set_compute_ns(Duration(milliseconds(parts.run)).count());
    const milliseconds took(parts.queue + parts.swap + parts.run + parts.network);
    tracker.Ended({.reply = reply, .took = took, .deadline = milliseconds(100)}, At(minutes(1)));
  }
  const auto described = tracker.Describe({}, At(minutes(1)));
  return described.functions(0).total();
}

TEST(SloTracker, ALateRequestCountsByItsLongestPart) {
  const auto counts = CountsAfter({{10, 20, 30, 40},    // exactly in time
                                   {60, 20, 20, 10},    // queue
                                   {10, 90, 20, 10},    // swap
                                   {10, 20, 90, 10},    // run
                                   {10, 20, 30, 90}});  // network
  EXPECT_EQ(counts.in_time(), 1u);
  EXPECT_EQ(counts.late_queue(), 1u);
  EXPECT_EQ(counts.late_swap(), 1u);
  EXPECT_EQ(counts.late_run(), 1u);
  EXPECT_EQ(counts.late_network(), 1u);
  EXPECT_EQ(proto::EndedCount(counts), 5u);
}

// A gateway that counted for an hour and ten minutes, was away for `away`, and began anew on a machine that had just started.
proto::FunctionSlo After(Duration away) {
  constexpr std::int64_t kUnix = 1'000'000'000'000'000;
  SloTracker before("gateway-a");
  for (int minute = 0; minute < 70; ++minute)
    before.Ended({.reply = Reply("f"), .deadline = milliseconds(100), .percentile = 99}, At(minutes(minute)));
  const auto kept = before.Keep(At(minutes(69)), kUnix);
  SloTracker after("gateway-a");
  after.Restore(kept, At(minutes(1)), kUnix + away.count());
  after.Ended({.reply = Reply("f"), .deadline = milliseconds(100), .percentile = 99}, At(minutes(2)));
  return after.Describe({}, At(minutes(3))).functions(0);
}

TEST(SloTracker, CountsGoOnInAnotherLife) {
  EXPECT_EQ(After(Duration()).total().in_time(), 71u);
  EXPECT_EQ(After(Duration()).hour().in_time(), 61u);
  EXPECT_EQ(After(Duration()).deadline_ns(), Duration(milliseconds(100)).count());
  EXPECT_EQ(After(Duration()).percentile(), 99);
  EXPECT_EQ(After(minutes(30)).hour().in_time(), 31u);
  EXPECT_EQ(After(minutes(90)).hour().in_time(), 1u);
  EXPECT_EQ(After(minutes(90)).total().in_time(), 71u);
  EXPECT_EQ(After(-minutes(30)).hour().in_time(), 61u) << "the clock was set back";
}

TEST(SloTracker, WhatWasKeptIsNotTrusted) {
  proto::KeptSlos kept;
  kept.set_unix_ns(-1);
  for (std::size_t i = 0; i < SloTracker::kMostFunctions + 10; ++i) {
    auto& one = *kept.add_functions();
    one.mutable_slo()->mutable_function()->set_name(absl::StrCat("f", i));
    for (const std::int64_t age : {std::numeric_limits<std::int64_t>::max(), std::int64_t{-5}})
      one.add_slots()->set_age_ns(age);
    for (auto& slot : *one.mutable_slots()) slot.mutable_counts()->set_failed(1);
  }
  SloTracker tracker("gateway-a");
  tracker.Restore(kept, At(minutes(1)), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(tracker.functions(), SloTracker::kMostFunctions);
  tracker.Restore(kept, At(minutes(1)), 0);
  EXPECT_EQ(tracker.functions(), SloTracker::kMostFunctions);
}

TEST(SloTracker, WhatTheClientMadeImpossibleDoesNotCount) {
  using Code = absl::StatusCode;
  SloTracker tracker("gateway-a");
  for (const Code code :
       {Code::kCancelled, Code::kInvalidArgument, Code::kNotFound, Code::kPermissionDenied}) {
    const auto reply = Reply("f", static_cast<int>(code));
    tracker.Ended({.reply = reply, .took = milliseconds(1)}, At(minutes(1)));
  }
  EXPECT_EQ(tracker.functions(), 0u);
  for (const Code code :
       {Code::kUnavailable, Code::kInternal, Code::kResourceExhausted, Code::kDeadlineExceeded}) {
    auto reply = Reply("f", static_cast<int>(code));
    reply.clear_node();
    tracker.Ended({.reply = reply, .took = milliseconds(1), .deadline = milliseconds(100)}, At(minutes(1)));
  }
  const auto counts = tracker.Describe({}, At(minutes(1))).functions(0).total();
  EXPECT_EQ(counts.failed(), 3u);
  EXPECT_EQ(counts.late_queue(), 1u) << "a request that timed out before a node took it waited in a queue";
}

TEST(SloTracker, TheLastHourForgetsWhatIsOlder) {
  SloTracker tracker("gateway-a");
  const auto reply = Reply("f");
  for (int minute = 0; minute < 180; ++minute)
    tracker.Ended({.reply = reply, .took = milliseconds(1)}, At(minutes(minute)));
  const auto hour = [&](int minute) {
    return proto::EndedCount(tracker.Describe({}, At(minutes(minute))).functions(0).hour());
  };
  EXPECT_EQ(hour(179), 60u);
  EXPECT_EQ(hour(199), 40u);
  EXPECT_EQ(hour(400), 0u);
  EXPECT_EQ(proto::EndedCount(tracker.Describe({}, At(minutes(400))).functions(0).total()), 180u);
}

TEST(SloTracker, OfTooManyFunctionsTheOneThatIsIdleLongestIsForgotten) {
  SloTracker tracker("gateway-a");
  const auto end = [&](const std::string& name) {
    const auto reply = Reply(name);
    tracker.Ended({.reply = reply}, At(minutes(1)));
  };
  for (std::size_t i = 0; i < SloTracker::kMostFunctions; ++i) end(absl::StrCat("f", i));
  end("f0");
  end("newest");
  EXPECT_EQ(tracker.functions(), SloTracker::kMostFunctions);
  std::set<std::string> names;
  const auto described = tracker.Describe({}, At(minutes(1)));
  for (const auto& slo : described.functions()) names.insert(slo.function().name());
  EXPECT_TRUE(names.contains("f0"));
  EXPECT_FALSE(names.contains("f1"));
  EXPECT_TRUE(names.contains("newest"));
}

std::vector<std::string> IdsOf(const proto::GatewayDescription& description) {
  std::vector<std::string> ids;
  for (const auto& request : description.requests()) ids.push_back(request.id());
  return ids;
}

TEST(SloTracker, TheSlowestOfThisMinuteAndTheOneBeforeAreKept) {
  SloTracker tracker("gateway-a");
  proto::DescribeGateway ask;
  ask.set_requests(true);
  const auto reply = Reply("f");
  for (int i = 0; i < 100; ++i) {
    const auto id = absl::StrCat("r", i);
    tracker.Ended({.reply = reply, .took = milliseconds(i * 37 % 100), .id = id}, At(minutes(5)));
  }
  auto slowest = tracker.Describe(ask, At(minutes(6)));
  ASSERT_EQ(slowest.requests_size(), static_cast<int>(SloTracker::kSlowest));
  for (int i = 0; i < slowest.requests_size(); ++i)
    EXPECT_EQ(slowest.requests(i).took_ns(), Duration(milliseconds(99 - i)).count());
  EXPECT_EQ(slowest.requests(0).gateway(), "gateway-a");
  EXPECT_EQ(tracker.Describe(ask, At(minutes(7))).requests_size(), 0) << "nothing ended in the last minute";
}

TEST(SloTracker, ARequestIsFoundByItsIdWhileItIsAmongTheNewest) {
  SloTracker tracker("gateway-a");
  const auto reply = Reply("f");
  const std::string longer(SloTracker::kLongestId + 10, 'x');
  tracker.Ended({.reply = reply, .id = "first"}, At(minutes(1)));
  tracker.Ended({.reply = reply, .took = milliseconds(1), .id = "twice"}, At(minutes(1)));
  tracker.Ended({.reply = reply, .took = milliseconds(2), .id = "twice"}, At(minutes(1)));
  tracker.Ended({.reply = reply, .id = longer}, At(minutes(1)));
  const auto find = [&](const std::string& id) {
    proto::DescribeGateway ask;
    ask.set_requests(true);
    ask.set_id(id);
    return IdsOf(tracker.Describe(ask, At(minutes(90))));
  };
  EXPECT_THAT(find("first"), ElementsAre("first"));
  EXPECT_THAT(find("twice"), ElementsAre("twice", "twice"));
  EXPECT_EQ(find(longer).size(), 1u);
  for (std::size_t i = 0; i < SloTracker::kWithId; ++i) {
    const auto id = absl::StrCat(i);
    tracker.Ended({.reply = reply, .id = id}, At(minutes(2)));
  }
  EXPECT_THAT(find("first"), ElementsAre());
}

TEST(SloTracker, TheRequestsOfARunAreFoundByItInTheOrderOfTheirBeginnings) {
  SloTracker tracker("gateway-a");
  const auto reply = Reply("f");
  const auto ended = [&](const std::string& id, Duration took, Duration at) {
    tracker.Ended({.reply = reply, .took = took, .id = id, .unix_ns = at.count()}, At(minutes(1)));
  };
  ended("run/second", milliseconds(5), milliseconds(30));
  ended("run/first", milliseconds(20), milliseconds(21));
  ended("runs/other", milliseconds(1), milliseconds(9));
  ended("run", milliseconds(40), milliseconds(40));
  proto::DescribeGateway ask;
  ask.set_requests(true);
  ask.set_id("run");
  EXPECT_THAT(IdsOf(tracker.Describe(ask, At(minutes(1)))), ElementsAre("run", "run/first", "run/second"));
  for (std::size_t i = 0; i <= SloTracker::kOfOneId; ++i)
    ended(absl::StrCat("run/many/", i), milliseconds(1), milliseconds(100 + i));
  const auto found = tracker.Describe(ask, At(minutes(1)));
  EXPECT_EQ(found.requests_size(), static_cast<int>(SloTracker::kOfOneId));
  proto::AdminReply all;
  AddTimelines(found, "run", all);
  AddTimelines(found, "run", all);
  EXPECT_EQ(all.timelines_size(), static_cast<int>(SloTracker::kOfOneId));
  EXPECT_EQ(all.timelines(1).id(), "run") << "of the second gateway, which said the same";
}

TEST(StepTrace, AForEachsCallsHaveNumbers) {
  proto::WorkflowStep step;
  step.set_name("detect");
  EXPECT_EQ(StepTrace("run", step, 0), "run/detect");
  step.mutable_for_each()->set_input("x");
  EXPECT_EQ(StepTrace("run", step, 3), "run/detect/3");
  EXPECT_TRUE(IsTracedBy("run/detect/3", "run"));
  EXPECT_TRUE(IsTracedBy("run/detect/3", "run/detect"));
  EXPECT_FALSE(IsTracedBy("run", "run"));
  EXPECT_FALSE(IsTracedBy("runner/detect", "run"));
}

TEST(SloArithmetic, BudgetsAndRequiredRequests) {
  proto::SloCounts counts;
  EXPECT_EQ(proto::Attained(counts), 1);
  EXPECT_EQ(proto::BudgetLeft(counts, 98), 1);
  counts.set_in_time(980);
  counts.set_late_swap(10);
  EXPECT_NEAR(proto::Attained(counts), 980.0 / 990, 1e-12);
  EXPECT_NEAR(proto::BudgetLeft(counts, 98), 1 - (10.0 / 990) / 0.02, 1e-9);
  EXPECT_LT(proto::RequiredRequests(counts, 98), 0);
  counts.set_failed(30);  // 40 of 1,020 missed, 20.4 allowed
  EXPECT_LT(proto::BudgetLeft(counts, 98), 0);
  // With so many more in time the SLO is met, and with one fewer it is not.
  const double more = proto::RequiredRequests(counts, 98);
  EXPECT_NEAR(more, (0.98 * 1020 - 980) / 0.02, 1e-6);
  counts.set_in_time(980 + static_cast<std::uint64_t>(more + 1e-6));
  EXPECT_GE(proto::Attained(counts), 0.98);
  EXPECT_GT(proto::BudgetLeft(counts, 100), -1e9) << "100 % counts as 99.99 %";
}

TEST(SloAnswers, AnAlphaIsToldOfTheGatewaysThatOrderBySlo) {
  const auto reply = Reply("f");
  proto::AdminReply all;
  for (const auto& [name, alpha] : {std::pair("g1", 0.0), std::pair("g2", 4.0)}) {
    SloTracker tracker(name);
    tracker.Ended({.reply = reply, .alpha = alpha}, At(minutes(1)));
    AddSlos(tracker.Describe({}, At(minutes(1))), {}, all);
  }
  ASSERT_EQ(all.alphas_size(), 1);
  EXPECT_EQ(all.alphas(0).member(), "g2");
  EXPECT_EQ(all.alphas(0).alpha(), 4);
}

TEST(SloAnswers, AnAlphaIsToldOfTheNodesThatOrderBySlo) {
  proto::AdminReply all;
  for (const auto& [name, alpha] : {std::pair("n1", 0.0), std::pair("n2", 0.5)}) {
    proto::NodeDescription node;
    node.set_node(name);
    node.set_alpha(alpha);
    GpusOf(node, all);
  }
  ASSERT_EQ(all.alphas_size(), 1);
  EXPECT_EQ(all.alphas(0).member(), "n2");
  EXPECT_EQ(all.alphas(0).alpha(), 0.5);
}

TEST(SloAnswers, GatewaysAreAddedUpInTheOrderOfNames) {
  const auto gateway = [](const std::vector<std::string>& functions, int requests) {
    SloTracker tracker("g");
    for (const auto& name : functions)
      for (int i = 0; i < requests; ++i) {
        const auto reply = Reply(name);
        tracker.Ended(
            {.reply = reply, .took = milliseconds(1), .deadline = milliseconds(5), .percentile = 99},
            At(minutes(1)));
      }
    return tracker.Describe({}, At(minutes(1)));
  };
  proto::AdminReply reply;
  AddSlos(gateway({"m", "z"}, 2), {}, reply);
  AddSlos(gateway({"a", "m"}, 3), {}, reply);
  ASSERT_EQ(reply.slos_size(), 3);
  EXPECT_EQ(reply.slos(0).function().name(), "a");
  EXPECT_EQ(reply.slos(1).function().name(), "m");
  EXPECT_EQ(reply.slos(1).total().in_time(), 5u);
  EXPECT_EQ(reply.slos(1).hour().in_time(), 5u);
  EXPECT_EQ(reply.slos(1).percentile(), 99);
  EXPECT_EQ(reply.slos(2).function().name(), "z");
  proto::FunctionKey key;
  key.set_name("m");
  proto::AdminReply one;
  AddSlos(gateway({"a", "m"}, 1), key, one);
  ASSERT_EQ(one.slos_size(), 1);
  key.set_version("2");
  AddSlos(gateway({"m"}, 1), key, one);
  EXPECT_EQ(one.slos(0).total().in_time(), 1u) << "another version was asked for";
}

}  // namespace
}  // namespace troupe::cluster::slo_tracker_test
