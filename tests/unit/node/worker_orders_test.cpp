#include "node/runtimes/worker_orders.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace troupe::node::orders_test {
namespace {

using std::chrono::nanoseconds;

proto::WorkerOutcome Outcome(absl::StatusCode code, std::int64_t begin, std::int64_t end) {
  proto::WorkerOutcome outcome;
  outcome.set_code(static_cast<int>(code));
  outcome.set_begin_ns(begin);
  outcome.set_end_ns(end);
  return outcome;
}

// Without this limit weights and a run of 2^63 bytes each would wrap to a model of size zero, which fits
// anywhere.
TEST(Orders, SizesThatNoDeviceHasAreRefused) {
  constexpr std::uint64_t kPiB = std::uint64_t{1} << 50;
  proto::PreparedOutcome prepared;
  EXPECT_TRUE(CheckSizes(prepared).ok());
  prepared.set_weights_bytes(kPiB);
  prepared.set_activation_bytes(kPiB);
  EXPECT_TRUE(CheckSizes(prepared).ok());
  for (const std::uint64_t size : {kPiB + 1, std::uint64_t{1} << 63, UINT64_MAX}) {
    prepared.set_activation_bytes(size);
    prepared.set_weights_bytes(1);
    EXPECT_TRUE(absl::IsDataLoss(CheckSizes(prepared))) << size;
    prepared.set_activation_bytes(1);
    prepared.set_weights_bytes(size);
    const auto refused = CheckSizes(prepared);
    EXPECT_TRUE(absl::IsDataLoss(refused)) << size;
    EXPECT_NE(refused.message().find(std::to_string(size)), std::string::npos) << refused;
  }
}

TEST(Orders, APlanAheadIsForRowsOfTheLikelySize) {
  proto::FunctionRecord function;
  proto::TensorSpec& input = *function.add_inputs();
  for (const std::int64_t size : {-1, 3, -1, -1}) input.add_shape(size);
  const auto shape = [&](std::uint32_t rows) {
    const auto sizes = PrepareOrderFor(function, {}, rows).prepare().inputs(0).shape();
    return std::vector<std::int64_t>(sizes.begin(), sizes.end());
  };
  EXPECT_EQ(shape(1), (std::vector<std::int64_t>{1, 3, 1, 1}));
  function.set_likely_size(8);
  EXPECT_EQ(shape(4), (std::vector<std::int64_t>{4, 3, 8, 8}));
  function.add_likely_sizes(16);
  function.add_likely_sizes(32);
  EXPECT_EQ(shape(4), (std::vector<std::int64_t>{4, 3, 16, 32}));
  function.add_likely_rows(9);  // a stage's input has nine for one row of the model
  EXPECT_EQ(shape(4), (std::vector<std::int64_t>{36, 3, 16, 32}));
}

TEST(Orders, ASwapInNamesTheGpuThatItCopiesFrom) {
  proto::HostCopy copy;
  copy.set_digest("m");
  Dispatch dispatch;
  dispatch.source = SwapSource::kHost;
  EXPECT_FALSE(SwapInOrderFor(dispatch, copy, Time()).swap_in().has_from_gpu());
  EXPECT_FALSE(SwapInOrderFor(dispatch, copy, Time()).swap_in().has_deadline_in_ns());
  dispatch.source = SwapSource::kPeer;
  dispatch.peer = 0;
  dispatch.deadline = Time(nanoseconds(5));
  const auto order = SwapInOrderFor(dispatch, copy, Time(nanoseconds(7)));
  EXPECT_EQ(order.swap_in().deadline_in_ns(), -2);  // a late order is still sent
  EXPECT_EQ(RunOrderFor(dispatch, {}, copy, Time(nanoseconds(7))).run().deadline_in_ns(), -2);
  EXPECT_TRUE(order.swap_in().has_from_gpu());
  EXPECT_EQ(order.swap_in().from_gpu(), 0u);
  EXPECT_EQ(order.swap_in().model().digest(), "m");
}

TEST(Orders, ARunByLayerSaysSo) {
  Dispatch dispatch;
  EXPECT_FALSE(RunOrderFor(dispatch, {}, {}, Time()).run().by_layer());
  dispatch.source = SwapSource::kLayers;
  EXPECT_TRUE(RunOrderFor(dispatch, {}, {}, Time()).run().by_layer());
  const auto done = RunDoneFor(dispatch, {}, Outcome(absl::StatusCode::kNotFound, 1, 2));
  EXPECT_EQ(done.end, RunEnd::kNotResident) << "the node loads the model whole";
}

TEST(Orders, ARunIsLearnedAsIfItHadBeenAloneOnItsGpu) {
  const Dispatch dispatch;
  auto run = Outcome(absl::StatusCode::kOk, 1000, 2000);
  run.mutable_run()->set_compute_ns(600);
  for (const auto& [others, had] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {0, 600}, {250, 350}, {600, 0}, {900, 0}, {-5, 600}}) {  // no worker is believed beyond its run
    run.mutable_run()->set_others_ns(others);
    const auto done = RunDoneFor(dispatch, {}, run);
    EXPECT_EQ(done.computed, Duration(had)) << others;
    EXPECT_EQ(done.took, Duration(1000 - (600 - had))) << others;
  }
  run.mutable_run()->set_compute_ns(-7);
  EXPECT_EQ(RunDoneFor(dispatch, {}, run).computed, Duration::zero());
  EXPECT_EQ(RunDoneFor(dispatch, {}, run).took, Duration(1000));
}

TEST(Orders, WhatARunTeaches) {
  Dispatch dispatch;
  auto run = Outcome(absl::StatusCode::kOk, 50, 90);
  EXPECT_EQ(RunDoneFor(dispatch, {}, run).since_swap, Duration::zero());
  EXPECT_FALSE(RunDoneFor(dispatch, {}, run).waited_for_weights);
  dispatch.source = SwapSource::kHost;
  const auto swap = Outcome(absl::StatusCode::kOk, 10, 60);
  run.mutable_run()->set_last_group_ns(60);
  const auto done = RunDoneFor(dispatch, swap, run);
  EXPECT_EQ(done.took, nanoseconds(40));
  EXPECT_EQ(done.since_swap, nanoseconds(80));
  EXPECT_TRUE(done.waited_for_weights);
}

TEST(Orders, HowSwapsFail) {
  using Code = absl::StatusCode;
  struct Case {
    const char* what;
    SwapSource source;
    Code swap;
    Code run;
    RunEnd end;
    Code status;
  };
  const Case cases[] = {
      {"from the host: the swap is what went wrong", SwapSource::kHost, Code::kInternal, Code::kNotFound,
       RunEnd::kRan, Code::kInternal},
      {"from a GPU that is gone: planned again", SwapSource::kPeer, Code::kUnavailable, Code::kNotFound,
       RunEnd::kNotResident, Code::kNotFound},
      {"gone while the run was under way", SwapSource::kPeer, Code::kUnavailable, Code::kInternal,
       RunEnd::kNotResident, Code::kInternal},
      {"the model had left", SwapSource::kResident, Code::kOk, Code::kNotFound, RunEnd::kNotResident,
       Code::kNotFound},
      {"the run's own fault", SwapSource::kPeer, Code::kOk, Code::kInvalidArgument, RunEnd::kRan,
       Code::kInvalidArgument},
  };
  for (const Case& c : cases) {
    Dispatch dispatch;
    dispatch.source = c.source;
    dispatch.peer = c.source == SwapSource::kPeer ? 1 : kNoGpu;
    const auto done = RunDoneFor(dispatch, Outcome(c.swap, 1, 2), Outcome(c.run, 2, 3));
    EXPECT_EQ(done.end, c.end) << c.what;
    EXPECT_EQ(done.status.code(), c.status) << c.what;
  }
  // A lack of room is reported as such, from whichever source the weights would have come.
  Dispatch dispatch;
  dispatch.source = SwapSource::kPeer;
  auto swap = Outcome(Code::kResourceExhausted, 1, 2);
  swap.mutable_no_fit()->set_free(7);
  const auto done = RunDoneFor(dispatch, swap, Outcome(Code::kNotFound, 2, 3));
  EXPECT_EQ(done.end, RunEnd::kNoFit);
  EXPECT_EQ(done.free, Bytes(7));
}

}  // namespace
}  // namespace troupe::node::orders_test
