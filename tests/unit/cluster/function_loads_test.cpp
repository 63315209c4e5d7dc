// What gateways and nodes tell of functions whose instances follow their load, and what the manager makes of it.
#include "cluster/ownership/function_loads.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/requests/function_arrivals.hpp"
#include "tests/unit/cluster/records.hpp"

namespace troupe::cluster::function_loads_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::IsEmpty;
using testing::SizeIs;

const std::set<FunctionVersion> kScaled = {{"f", 1}};

proto::Heartbeat From(const std::string& member, std::uint64_t arrived, std::uint64_t waiting,
                      std::uint64_t served = 0, std::int64_t gpu_ns = 0) {
  proto::Heartbeat heartbeat;
  heartbeat.set_name(member);
  auto& demand = *heartbeat.add_function_demand();
  demand.mutable_key()->set_name("f");
  demand.mutable_key()->set_version("1");
  demand.set_arrived(arrived);
  demand.set_waiting(waiting);
  demand.set_served(served);
  demand.set_gpu_ns(gpu_ns);
  return heartbeat;
}

TEST(FunctionLoads, CountsOfAllMembersAddUpUntilTheyAreTaken) {
  FunctionLoads loads;
  const Time now{seconds(10)};
  loads.Hear(From("g1", 3, 2), kScaled, now);
  loads.Hear(From("g1", 4, 1), kScaled, now);
  loads.Hear(From("g2", 5, 7), kScaled, now);
  loads.Hear(From("n1", 0, 0, 9, 500), kScaled, now);
  loads.Hear(From("n2", 0, 0, 1, -5), kScaled, now);
  const auto taken = loads.Take(now);
  ASSERT_THAT(taken, SizeIs(1));
  const auto& load = taken.at({"f", 1});
  EXPECT_EQ(load.arrived, 12u);
  EXPECT_EQ(load.served, 10u);
  EXPECT_EQ(load.gpu_time, Duration(500)) << "a time below 0 does not count";
  EXPECT_EQ(load.waiting, 8u) << "of each gateway what it said last";
  EXPECT_EQ(loads.Take(now).at({"f", 1}).arrived, 0u);
}

TEST(FunctionLoads, WhatWaitsAtAGatewayThatIsSilentDoesNotCountForLong) {
  FunctionLoads loads;
  const Time now{seconds(10)};
  loads.Hear(From("g1", 1, 4), kScaled, now);
  EXPECT_EQ(loads.Take(now + FunctionLoads::kFresh).at({"f", 1}).waiting, 4u);
  EXPECT_THAT(loads.Take(now + FunctionLoads::kFresh + milliseconds(1)), IsEmpty());
  loads.Hear(From("g1", 1, 4), kScaled, now);
  proto::Heartbeat empty;
  empty.set_name("g1");
  loads.Hear(empty, kScaled, now);
  EXPECT_EQ(loads.Take(now).at({"f", 1}).waiting, 0u)
      << "a heartbeat without the function says that nothing waits";
}

TEST(FunctionLoads, OfOtherFunctionsAndBeyondAllReasonNothingIsKept) {
  FunctionLoads loads;
  const Time now{seconds(10)};
  loads.Hear(From("g1", 1, 1), {}, now);
  EXPECT_THAT(loads.Take(now), IsEmpty());
  for (int i = 0; i < 3; ++i)
    loads.Hear(From("g1", UINT64_MAX, UINT64_MAX, UINT64_MAX, INT64_MAX), kScaled, now);
  const auto load = loads.Take(now).at({"f", 1});
  EXPECT_EQ(load.arrived, FunctionLoads::kMost);
  EXPECT_EQ(load.waiting, FunctionLoads::kMost);
  EXPECT_EQ(load.served, FunctionLoads::kMost);
  EXPECT_EQ(load.gpu_time, seconds(30'000));
}

class Arrivals : public testing::Test {
 protected:
  Arrivals() {
    function_.mutable_key()->set_version("1");
    function_.mutable_sharing()->add_automatic("quota_request");
  }
  void Ask(std::uint64_t sequence) {
    arrivals_.Arrived(function_);
    RouterRequest request;
    request.sequence = sequence;
    request.function = "f";
    request.version = "1";
    request.model = function_.model_digest();
    EXPECT_TRUE(table_.Admit(request, now_).status.ok());
  }

  const Time now_{seconds(10)};
  proto::FunctionRecord function_ = FunctionOf("f");
  FunctionArrivals arrivals_;
  RequestTable table_{RouterLimits(), *FindRoutingPolicy("locality"), *FindOrderingPolicy("fifo")};
};

TEST_F(Arrivals, EachHeartbeatTellsWhatCameAndWhatWaits) {
  Ask(1);
  Ask(2);
  auto told = arrivals_.Take(table_);
  ASSERT_THAT(told, SizeIs(1));
  EXPECT_EQ(told[0].key().version(), "1");
  EXPECT_EQ(told[0].arrived(), 2u);
  EXPECT_EQ(told[0].waiting(), 2u);
  told = arrivals_.Take(table_);
  ASSERT_THAT(told, SizeIs(1)) << "as long as requests wait";
  EXPECT_EQ(told[0].arrived(), 0u);
  table_.CancelSequence(1);
  table_.CancelSequence(2);
  EXPECT_THAT(arrivals_.Take(table_), IsEmpty());
  EXPECT_THAT(arrivals_.Take(table_), IsEmpty());
}

TEST_F(Arrivals, HowRequestsEndedIsToldOnce) {
  const auto end = [&](int code, Duration took, Duration swap) {
    proto::InferReply reply;
    reply.set_code(code);
    *reply.mutable_function() = function_.key();
    reply.mutable_times()->set_swap_ns(swap.count());
    arrivals_.Ended({.reply = reply, .took = took, .deadline = milliseconds(100)});
  };
  end(0, milliseconds(50), milliseconds(20));
  end(0, milliseconds(150), milliseconds(100));  // late for its swap
  end(0, milliseconds(250), milliseconds(100));  // late anyway
  end(0, milliseconds(150), {});
  end(static_cast<int>(absl::StatusCode::kDeadlineExceeded), milliseconds(120),
      milliseconds(60));  // for its swap
  end(static_cast<int>(absl::StatusCode::kDeadlineExceeded), milliseconds(90), {});
  end(static_cast<int>(absl::StatusCode::kCancelled), milliseconds(500), {});
  auto told = arrivals_.Take(table_);
  ASSERT_THAT(told, SizeIs(1)) << "though none came meanwhile";
  EXPECT_EQ(told[0].arrived(), 0u);
  EXPECT_EQ(told[0].ended(), 6u) << "a request that its client gave up counts for no SLO";
  EXPECT_EQ(told[0].late(), 2u) << "which would have been in time with their model on the GPU";
  EXPECT_EQ(told[0].swap_ns(), Duration(milliseconds(280)).count());
  EXPECT_THAT(arrivals_.Take(table_), IsEmpty());
}

TEST_F(Arrivals, OnlyFunctionsThatAreScaledAreCounted) {
  function_.mutable_sharing()->clear_automatic();
  Ask(1);
  EXPECT_THAT(arrivals_.Take(table_), IsEmpty());
}

}  // namespace
}  // namespace troupe::cluster::function_loads_test
