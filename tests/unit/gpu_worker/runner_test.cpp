#include "gpu/worker/runner.hpp"

#include "gmock/gmock.h"
#include "tests/unit/gpu_worker/runner_fixture.hpp"

namespace troupe::gpu::test {
namespace {

using testing::ElementsAre;

TEST_F(RunnerTest, ARunWaitsForItsModelAndItsPlan) {
  const auto copy = PlaceSmall(*host_, "m");
  SwapIn(1, copy);
  Run(2, "m", 2, 0, 0, &copy);  // neither the model nor its plan is there yet
  EXPECT_THAT(Output(2), ElementsAre(1, 3, 5, 0, 5, 7, 9, 0));
  EXPECT_EQ(Await(1).bytes(), 64u);
  EXPECT_EQ(Await(2).bytes(), 64u);  // 32 in, 32 out
  EXPECT_EQ(Await(2).run().outputs(0).spec().shape(0), 2);
  EvictAll();
  EXPECT_EQ(memory_->memory().free, memory_->memory().total);
}

TEST_F(RunnerTest, ARunOfAnAbsentModelOrPlanIsRefused) {
  const auto copy = PlaceSmall(*host_, "m");
  Run(1, "m");
  EXPECT_EQ(Code(1), CodeOf(absl::StatusCode::kNotFound));
  SwapIn(2, copy);
  Run(3, "m");
  EXPECT_EQ(Code(3), CodeOf(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(outcomes_[3].message(), testing::HasSubstr("not prepared"));
  EXPECT_EQ(Code(2), 0);
}

TEST_F(RunnerTest, SmallerPrioritiesComputeFirst) {
  BringSmall("m");
  gate_->Set(true);
  Run(10, "m");
  for (std::uint64_t i = 11; i <= 13; ++i) Run(i, "m", 1, 5);
  Run(14, "m", 1, 1);
  gate_->Set(false);
  for (std::uint64_t i = 10; i <= 14; ++i) EXPECT_EQ(Code(i), 0);
  // Runs 11 and 12 were staged when 14 came; of the staged runs the most urgent one computes first.
  const auto at = [&](std::uint64_t s) {
    return std::find(order_.begin(), order_.end(), s) - order_.begin();
  };
  EXPECT_LT(at(10), at(14));
  EXPECT_LT(at(14), at(13));
  EXPECT_LT(at(11), at(12));
  EXPECT_LT(at(12), at(13));
}

TEST_F(RunnerTest, TheMostUrgentComputesFirst) {
  BringSmall("m");
  gate_->Set(true);
  Run(10, "m");
  const Time now = transport::SteadyNow();
  for (std::uint64_t i = 11; i <= 12; ++i) Run(i, "m");
  deadline_ = now + std::chrono::hours(2);
  Run(14, "m");
  deadline_ = now + std::chrono::hours(1);
  Run(15, "m");
  deadline_ = now + std::chrono::hours(3);
  Run(16, "m");
  gate_->Set(false);
  for (std::uint64_t i : {10, 11, 12, 14, 15, 16}) EXPECT_EQ(Code(i), 0);
  // Runs 11 and 12 were staged when the others came.
  std::erase_if(order_, [](std::uint64_t s) { return s < 13; });
  EXPECT_THAT(order_, testing::ElementsAre(15, 14, 16));
}

// The runs have a second; the test tries again when this machine was too slow to launch them within it.
TEST_F(RunnerTest, WhatIsLateYields) {
  BringSmall("m");
  for (std::uint64_t sequence = 10;; sequence += 10) {
    const Time begin = transport::SteadyNow();
    gate_->Set(true);
    for (std::uint64_t i = 0; i < 3; ++i) Run(sequence + i, "m");  // one run computes, two are staged
    deadline_ = begin;
    Run(sequence + 3, "m");
    deadline_ = begin + std::chrono::hours(1);
    Run(sequence + 4, "m");
    deadline_ = std::nullopt;
    gate_->Set(false);
    for (std::uint64_t i = 0; i < 5; ++i) EXPECT_EQ(Code(sequence + i), 0);
    if (transport::SteadyNow() - begin >= kUnhurried) continue;
    std::erase_if(order_, [sequence](std::uint64_t s) { return s < sequence + 3; });
    EXPECT_THAT(order_, testing::ElementsAre(sequence + 4, sequence + 3));
    return;
  }
}

// Once the swap is answered the model's host copy may leave the region: no copy may read it then.
TEST_F(RunnerTest, ARunThatIsGivenUpWhileItsPlanIsMadeIsAnsweredWithThePlan) {
  const auto copy = PlaceSmall(*host_, "m");
  SwapIn(1, copy);
  Await(1);
  Run(2, "m", 1, 0, 0, &copy);
  runner_->Cancel(2);
  EXPECT_FALSE(outcomes_.contains(2));
  EXPECT_EQ(preparer_->cache().size(), 0u);
  EXPECT_EQ(Code(2), CodeOf(absl::StatusCode::kCancelled));
  EXPECT_EQ(preparer_->cache().size(), 1u);
  EXPECT_EQ(runner_->in_flight(), 0u);
}

TEST_F(RunnerTest, AWaitingRunIsCancelledARunningOneIsNot) {
  BringSmall("m");
  gate_->Set(true);
  for (std::uint64_t i = 10; i <= 14; ++i) Run(i, "m");
  AwaitBusy();
  runner_->Cancel(10);
  runner_->Cancel(12);
  runner_->Cancel(14);
  runner_->Cancel(99);
  EXPECT_EQ(Code(14), CodeOf(absl::StatusCode::kCancelled));
  EXPECT_EQ(Code(12), CodeOf(absl::StatusCode::kCancelled));
  gate_->Set(false);
  EXPECT_EQ(Code(10), 0);
  EXPECT_EQ(Code(11), 0);
  EXPECT_EQ(Code(13), 0);
  EXPECT_EQ(runner_->in_flight(), 0u);
}

TEST_F(RunnerTest, ARunThatDidNotBeginInTimeIsDropped) {
  BringSmall("m");
  gate_->Set(true);
  Run(10, "m");
  AwaitBusy();
  Run(11, "m", 1, 0, 1'000'000'000);
  Run(12, "m");
  while (runner_->NextDue() == Time::max() && !HasFatalFailure())
    PumpOnce();  // the run's inputs come in first
  const Time due = runner_->NextDue();
  runner_->Expire(due - Duration(1));
  EXPECT_FALSE(outcomes_.contains(11));
  runner_->Expire(due);
  EXPECT_EQ(Code(11), CodeOf(absl::StatusCode::kDeadlineExceeded));
  gate_->Set(false);
  EXPECT_EQ(Code(10), 0);
  EXPECT_EQ(Code(12), 0);
}

TEST_F(RunnerTest, WhatDoesNotFitIsAnsweredWithWhatThereIs) {
  const auto big = PlaceSmall(*host_, "big", 1, 3 << 20);
  const auto other = PlaceSmall(*host_, "other", 1, 2 << 20);
  SwapIn(1, big);
  SwapIn(2, other);
  EXPECT_EQ(Code(2), CodeOf(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(outcomes_[2].no_fit().free(), 1u << 20);
  EXPECT_EQ(outcomes_[2].no_fit().largest(), 1u << 20);
  EXPECT_EQ(Code(1), 0);
  residency_->Evict("big", ReplyFor(3));
  EXPECT_EQ(Code(3), 0);
  SwapIn(4, other);
  EXPECT_EQ(Code(4), 0);
}

TEST_F(RunnerTest, ARunThatCannotFitAtAllIsAnswered) {
  const auto big = PlaceSmall(*host_, "big", 1, (4 << 20) - 512);
  SwapIn(1, big);
  Run(2, "big", 64, 0, 0, &big);
  EXPECT_EQ(Code(2), CodeOf(absl::StatusCode::kResourceExhausted));
  EXPECT_TRUE(outcomes_[2].has_no_fit());
  EvictAll();
  EXPECT_EQ(memory_->memory().free, memory_->memory().total);
}

TEST_F(RunnerTest, RunsWaitForRoomThatOthersHold) {
  // Each run needs more than a third of the free memory: the runs take turns, and none fails.
  const auto copy = PlaceSmall(*host_, "m", 1, 64);
  SwapIn(1, copy);
  for (std::uint64_t i = 10; i < 16; ++i)
    Run(i, "m", 32 << 10, 0, 0, &copy);  // inputs, outputs and activations of 512 KiB
  for (std::uint64_t i = 10; i < 16; ++i) {
    EXPECT_EQ(Code(i), 0) << outcomes_[i].message();
    ASSERT_TRUE(outcomes_[i].run().outputs(0).data().has_arena());
    EXPECT_TRUE(channel_->Release(outcomes_[i].run().outputs(0).data()).ok());
  }
  EvictAll();
  EXPECT_EQ(memory_->memory().free, memory_->memory().total);
  EXPECT_EQ(channel_->used(), Bytes(0));
}

TEST_F(RunnerTest, AFullArenaFailsTheRunAndNothingLeaks) {
  const auto copy = PlaceSmall(*host_, "m");
  SwapIn(1, copy);
  std::uint64_t sequence = 10;
  while (true) {
    Run(sequence, "m", 32 << 10, 0, 0, &copy);
    if (Code(sequence) != 0) break;
    ++sequence;
    ASSERT_LT(sequence, 20u);
  }
  EXPECT_EQ(Code(sequence), CodeOf(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(outcomes_[sequence].message(), testing::HasSubstr("output y"));
  EvictAll();
  EXPECT_EQ(memory_->memory().free, memory_->memory().total);
}

TEST_F(RunnerTest, WhatIsUsedIsNotEvicted) {
  BringSmall("m");
  gate_->Set(true);
  Run(10, "m");
  residency_->Evict("m", ReplyFor(11));
  EXPECT_EQ(Code(11), CodeOf(absl::StatusCode::kFailedPrecondition));
  gate_->Set(false);
  EXPECT_EQ(Code(10), 0);
  residency_->Evict("m", ReplyFor(12));
  EXPECT_EQ(Code(12), 0);
  residency_->Evict("m", ReplyFor(13));
  EXPECT_EQ(Code(13), CodeOf(absl::StatusCode::kNotFound));
}

TEST_F(RunnerTest, APlanThatCannotBeMadeFailsItsRunsAndIsTriedAgain) {
  proto::Model broken = SmallModel();
  broken.set_name("broken");
  const auto copy = PlaceModel(*host_, "m", broken, SmallWeights());
  SwapIn(1, copy);
  Run(2, "m", 1, 0, 0, &copy);
  Run(3, "m", 1, 0, 0, &copy);
  EXPECT_EQ(Code(2), CodeOf(absl::StatusCode::kUnimplemented));
  EXPECT_EQ(Code(3), CodeOf(absl::StatusCode::kUnimplemented));
  Run(4, "m", 1, 0, 0, &copy);
  EXPECT_EQ(Code(4), CodeOf(absl::StatusCode::kUnimplemented));
}

TEST_F(RunnerTest, InputsThatAreNotThereFailOnlyTheirRun) {
  const auto copy = PlaceSmall(*host_, "m");
  SwapIn(1, copy);
  Prepare(2, copy, 1);
  PumpUntilStage(1);
  RunRequest request;
  request.sequence = 5;
  request.order.set_digest("m");
  auto& tensor = *request.order.add_inputs();
  *tensor.mutable_spec() = Spec("x", {1, kColumns});
  *tensor.mutable_data()->mutable_arena() = channel_->ArenaAddress();
  tensor.mutable_data()->mutable_arena()->set_offset(64);
  tensor.mutable_data()->mutable_arena()->set_length(16);
  tensor.mutable_data()->mutable_arena()->set_slice(77);
  request.channel = channel_;
  runner_->Submit(std::move(request), ReplyFor(5));
  Run(6, "m");
  EXPECT_EQ(Code(5), CodeOf(absl::StatusCode::kDataLoss));
  EXPECT_THAT(outcomes_[5].message(), testing::HasSubstr("input x"));
  EXPECT_EQ(Code(6), 0);
}

TEST_F(RunnerTest, InputsInAnArenaAreRead) {
  const auto copy = PlaceSmall(*host_, "m");
  SwapIn(1, copy);
  for (std::uint64_t sequence = 5; sequence < 8; ++sequence) {
    proto::Tensor input = SmallInput(1);
    auto room = *channel_->ReserveSlice(Bytes(16));
    std::memcpy(room.bytes().data(), input.data().inlined().data(), 16);
    *input.mutable_data() = room.Commit();
    RunRequest request;
    request.sequence = sequence;
    request.order.set_digest("m");
    *request.order.add_inputs() = input;
    request.host = Host(copy);
    request.channel = channel_;
    runner_->Submit(std::move(request), ReplyFor(sequence));
    EXPECT_THAT(Output(sequence), ElementsAre(1, 3, 5, 0));
    EXPECT_TRUE(channel_->Release(input.data()).ok());
  }
  EXPECT_EQ(channel_->used(), Bytes(0));
}

TEST_F(RunnerTest, AbandoningDropsWhatWaitsAndKeepsWhatIsResident) {
  BringSmall("m");
  gate_->Set(true);
  for (std::uint64_t i = 10; i <= 14; ++i) Run(i, "m");
  AwaitBusy();
  runner_->FailAll(absl::UnavailableError("gone"));
  EXPECT_EQ(Code(13), CodeOf(absl::StatusCode::kUnavailable));
  Run(10, "m");  // the next daemon's sequences begin anew
  gate_->Set(false);
  while (runner_->in_flight() > 0 && !HasFatalFailure()) PumpOnce();
  EXPECT_THAT(residency_->table().Resident(), testing::SizeIs(1));
  EvictAll();
  EXPECT_EQ(memory_->memory().free, memory_->memory().total);
}

TEST_F(RunnerTest, ASequenceInUseIsRefused) {
  const auto copy = PlaceSmall(*host_, "m");
  SwapIn(1, copy);
  gate_->Set(true);
  Run(10, "m", 1, 0, 0, &copy);
  Run(10, "m", 1, 0, 0, &copy);
  EXPECT_EQ(Code(10), CodeOf(absl::StatusCode::kInvalidArgument));
  outcomes_.clear();
  gate_->Set(false);
  EXPECT_EQ(Code(10), 0);
}

TEST_F(RunnerTest, TooManyWaitingRunsAreRefused) {
  limits_.waiting_runs = 3;
  const auto copy = PlaceSmall(*host_, "m");
  SwapIn(1, copy);
  for (std::uint64_t i = 10; i <= 13; ++i) Run(i, "m", 1, 0, 0, &copy);
  EXPECT_EQ(Code(13), CodeOf(absl::StatusCode::kResourceExhausted));
  for (std::uint64_t i = 10; i <= 12; ++i) EXPECT_EQ(Code(i), 0);
}

TEST_F(RunnerTest, HostCopiesThatMakeNoSenseAreRefused) {
  proto::HostCopy copy = PlaceSmall(*host_, "m");
  EXPECT_TRUE(ResolveHostCopy(region_, copy).ok());
  for (const std::string& digest :
       {std::string(), std::string("a b"), std::string(200, 'x'), std::string("\n")}) {
    copy.set_digest(digest);
    EXPECT_EQ(ResolveHostCopy(region_, copy).status().code(), absl::StatusCode::kInvalidArgument);
  }
  copy = PlaceSmall(*host_, "m");
  copy.mutable_weights()->set_length(~std::uint64_t{0});
  EXPECT_FALSE(ResolveHostCopy(region_, copy).ok());
  copy = PlaceSmall(*host_, "m");
  copy.mutable_model()->set_offset(~std::uint64_t{0} - 3);
  EXPECT_FALSE(ResolveHostCopy(region_, copy).ok());
  // The range is within the region, but holds no model, or one whose weights are elsewhere.
  copy = PlaceSmall(*host_, "m");
  copy.mutable_weights()->set_length(32);
  EXPECT_EQ(ReadModel(Host(copy), "cpu").status().code(), absl::StatusCode::kDataLoss);
  proto::Model model = SmallModel();
  model.mutable_weights(0)->set_offset(~std::uint64_t{0} - 8);
  EXPECT_EQ(ReadModel(Host(PlaceModel(*host_, "m", model, SmallWeights())), "cpu").status().code(),
            absl::StatusCode::kDataLoss);
  model = SmallModel();
  model.set_packed_for("cuda-sm90/1");
  EXPECT_EQ(ReadModel(Host(PlaceModel(*host_, "m", model, SmallWeights())), "cpu").status().code(),
            absl::StatusCode::kFailedPrecondition);
  copy = PlaceSmall(*host_, "m");
  *copy.mutable_model() = copy.weights();
  EXPECT_FALSE(ReadModel(Host(copy), "cpu").ok());
}

TEST(CheckRunInputs, PartsOfAnInputGoTogether) {
  const auto refusal = [](const std::vector<proto::Tensor>& tensors) {
    proto::RunOrder order;
    for (const proto::Tensor& tensor : tensors) *order.add_inputs() = tensor;
    return std::string(CheckRunInputs(order).message());
  };
  const auto more = [](proto::Tensor tensor) {
    tensor.set_continues(true);
    return tensor;
  };
  const proto::Tensor first = SmallInput(2);
  EXPECT_EQ(refusal({first, more(SmallInput(3)), more(SmallInput(0))}), "");
  EXPECT_THAT(refusal({more(first)}), HasSubstr("input x is said to continue another, and is the first"));
  proto::Tensor other = more(first);
  other.mutable_spec()->set_name("z");
  EXPECT_THAT(refusal({first, other}), HasSubstr("does not go with it"));
  other = more(first);
  other.mutable_spec()->set_shape(1, 2);
  other.mutable_spec()->add_shape(2);
  EXPECT_THAT(refusal({first, other}), HasSubstr("does not go with it"));
  other = more(first);
  other.mutable_spec()->set_type(proto::INT32);
  EXPECT_THAT(refusal({first, other}), HasSubstr("does not go with it"));
  other = more(first);
  other.mutable_spec()->set_shape(0, std::numeric_limits<std::int64_t>::max());
  EXPECT_THAT(refusal({first, other}), HasSubstr("does not go with it")) << "more rows than a shape can have";
  EXPECT_THAT(refusal({first, first}), HasSubstr("input x was given twice"));
  EXPECT_THAT(refusal(std::vector<proto::Tensor>(1, first)), "");
  std::vector<proto::Tensor> many(WorkerLimits().tensors + 1, more(first));
  many.front().set_continues(false);
  EXPECT_THAT(refusal(many), HasSubstr("input x comes in too many parts"));
  proto::RunOrder batch;
  *batch.add_inputs() = first;
  *batch.add_inputs() = more(first);
  *batch.add_members()->add_inputs() = first;
  EXPECT_THAT(std::string(CheckRunInputs(batch).message()), HasSubstr("an input in parts"));
}

TEST(CheckRunInputs, EveryTensorMustBeWhatItsShapeSays) {
  proto::RunOrder order;
  *order.add_inputs() = SmallInput(2);
  EXPECT_TRUE(CheckRunInputs(order).ok());
  *order.add_inputs() = SmallInput(2);
  EXPECT_EQ(CheckRunInputs(order).code(), absl::StatusCode::kInvalidArgument);
  order.mutable_inputs()->RemoveLast();
  order.mutable_inputs(0)->mutable_spec()->set_shape(0, 3);
  EXPECT_EQ(CheckRunInputs(order).code(), absl::StatusCode::kInvalidArgument);
  order.mutable_inputs(0)->mutable_spec()->set_shape(0, std::int64_t{1} << 60);
  EXPECT_EQ(CheckRunInputs(order).code(), absl::StatusCode::kInvalidArgument);
  order.mutable_inputs(0)->mutable_spec()->set_shape(0, -1);
  EXPECT_EQ(CheckRunInputs(order).code(), absl::StatusCode::kInvalidArgument);
  order.mutable_inputs(0)->mutable_spec()->set_type(proto::BYTES);
  EXPECT_EQ(CheckRunInputs(order).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace troupe::gpu::test
