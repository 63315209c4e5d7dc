// A run and the swap that brings its model, group by group: the test decides which copies pass over the link.
#include <thread>

#include "gmock/gmock.h"
#include "tests/unit/gpu_swap/held_device.hpp"
#include "tests/unit/gpu_worker/runner_fixture.hpp"

namespace troupe::gpu::test {
namespace {

constexpr std::size_t kGroup = 64 << 10;

// y = x + the first float of each of the four groups; each step reads one group.
class FourGroupPlan : public Plan {
 public:
  explicit FourGroupPlan(std::int64_t rows) : outputs_{Spec("y", {rows, kColumns})} {
    for (std::uint64_t i = 0; i < 4; ++i) steps_[i].ranges = {{i * kGroup, 16}};
    count_ = static_cast<std::size_t>(rows) * kColumns;
  }
  [[nodiscard]] Bytes activation_bytes() const override { return Bytes(0); }
  [[nodiscard]] std::span<const proto::TensorSpec> outputs() const override { return outputs_; }
  [[nodiscard]] Bytes output_bytes(std::size_t) const override { return Bytes(count_ * sizeof(float)); }
  [[nodiscard]] std::size_t step_count() const override { return 4; }
  [[nodiscard]] const StepWeights& step_weights(std::size_t step) const override { return steps_[step]; }
  absl::StatusOr<std::vector<proto::TensorSpec>> Run(const PlanBindings& bindings) const override {
    const auto* x = reinterpret_cast<const float*>(bindings.inputs[0]);
    auto* y = reinterpret_cast<float*>(bindings.outputs[0]);
    std::copy(x, x + count_, y);
    for (std::size_t step = 0; step < 4; ++step) {
      if (absl::Status status = bindings.before_step(step); !status.ok()) return status;
      const float w = *reinterpret_cast<const float*>(bindings.weights + step * kGroup);
      for (std::size_t i = 0; i < count_; ++i) y[i] += w;
    }
    return outputs_;
  }

 private:
  std::vector<proto::TensorSpec> outputs_;
  StepWeights steps_[4];
  std::size_t count_ = 0;
};

class PipelineTest : public RunnerTest {
 protected:
  explicit PipelineTest(const std::string& swap = "grouped")
      : RunnerTest(
            [](VirtualDeviceOptions options) {
              options.builder = [](const proto::Model&, std::span<const std::byte>,
                                   std::span<const proto::TensorSpec> inputs,
                                   int) -> absl::StatusOr<std::unique_ptr<Plan>> {
                return std::make_unique<FourGroupPlan>(inputs[0].shape(0));
              };
              auto held = std::make_unique<HeldDevice>(*MakeVirtualDevice(
                  std::move(options), *transport::MemoryFile::Create("device", MiB(4)), nullptr));
              held->Hold(false);
              return held;
            },
            {.swap = swap, .group = Bytes(kGroup), .block = Bytes(kGroup)}) {}

  // A model of four groups; the first float of each is `value`.
  proto::HostCopy Place(const std::string& digest, float value = 1) {
    std::vector<std::byte> weights(4 * kGroup);
    for (std::size_t i = 0; i < 4; ++i) std::memcpy(weights.data() + i * kGroup, &value, sizeof(value));
    proto::Model model = SmallModel();
    model.mutable_weights()->Clear();
    for (std::uint64_t i = 0; i < 8; ++i) {  // two tensors of each group
      auto* weight = model.add_weights();
      weight->set_name(absl::StrCat("w", i));
      weight->set_offset(i * kGroup / 2);
      weight->set_length(16);
    }
    return PlaceModel(*host_, digest, model, weights);
  }
  // Prepares the model ahead; its weights are held back, group by group.
  void BeginSwap(std::uint64_t sequence, const proto::HostCopy& copy) {
    const std::size_t plans = preparer_->cache().size();
    Prepare(0, copy, 1);
    PumpUntilStage(plans + 1);
    held_->Hold(true);
    SwapIn(sequence, copy);
    held_->Hold(false);
  }
  bool Computing() { return device_->engine(Engine::kCompute).busy; }
  // The first step has been reached, and may have begun to wait for the group of the second one.
  void PumpUntilComputing() {
    AwaitBusy();
    while (device_->engine(Engine::kCompute).progress == 0) std::this_thread::yield();
  }
  void ExpectAllFree() {
    EvictAll();
    EXPECT_EQ(memory_->memory().free, memory_->memory().total);
  }
  HeldDevice* const held_ = static_cast<HeldDevice*>(device_);
};

TEST_F(PipelineTest, ARunBeginsWithTheFirstGroupAndWaitsForEachOther) {
  BeginSwap(1, Place("m"));
  ASSERT_EQ(held_->held(), 4u);
  Run(2, "m");
  EXPECT_FALSE(Computing());
  held_->Pass();
  PumpUntilComputing();
  EXPECT_FALSE(outcomes_.contains(1));
  held_->Pass(3);
  EXPECT_THAT(Output(2), testing::ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(order_, testing::ElementsAre(1, 2));
  const proto::SwapInOutcome& swap = outcomes_[1].swap_in();
  EXPECT_EQ(swap.group_bytes(), kGroup);
  ASSERT_EQ(swap.group_ns_size(), 4);
  const proto::RunOutcome& run = outcomes_[2].run();
  EXPECT_GE(run.first_step_ns(), swap.group_ns(0));
  EXPECT_EQ(run.last_group_ns(), swap.group_ns(3));
  EXPECT_EQ(outcomes_[1].bytes(), 4 * kGroup);
  ExpectAllFree();
}

TEST_F(PipelineTest, TracesTellWhenEachStepWasReached) {
  BeginSwap(1, Place("m"));
  RunRequest request;
  request.sequence = 2;
  request.order.set_digest("m");
  request.order.set_trace(true);
  *request.order.add_inputs() = SmallInput(1);
  request.channel = channel_;
  runner_->Submit(std::move(request), ReplyFor(2));
  held_->Pass(4);
  ASSERT_EQ(Code(2), 0);
  const auto& steps = outcomes_[2].run().step_begin_ns();
  ASSERT_EQ(steps.size(), 4);
  EXPECT_TRUE(std::is_sorted(steps.begin(), steps.end()));
  Run(3, "m");
  EXPECT_EQ(Code(3), 0);
  EXPECT_EQ(outcomes_[3].run().step_begin_ns_size(), 0);
  EXPECT_EQ(outcomes_[3].run().last_group_ns(), 0) << "all weights were there before";
}

TEST_F(PipelineTest, WhatIsResidentComputesWhileAnotherModelComes) {
  const auto here = Place("here", 2);
  Prepare(0, here, 1);
  PumpUntilStage(1);
  SwapIn(1, here);
  ASSERT_EQ(Code(1), 0);
  BeginSwap(2, Place("coming"));
  for (std::uint64_t i = 10; i < 14; ++i) Run(i, "coming");  // more runs than are staged at a time
  for (std::uint64_t i = 20; i < 24; ++i) Run(i, "here");
  for (std::uint64_t i = 20; i < 24; ++i) EXPECT_EQ(Code(i), 0);
  EXPECT_FALSE(outcomes_.contains(10));
  held_->PassAll();
  for (std::uint64_t i = 10; i < 14; ++i) EXPECT_THAT(Output(i), testing::ElementsAre(4, 5, 6, 7));
  ExpectAllFree();
}

TEST_F(PipelineTest, AGroupThatFailsFailsItsRunsAndTheModelCanComeAgain) {
  const auto copy = Place("m");
  BeginSwap(1, copy);
  for (std::uint64_t i = 10; i < 15; ++i) Run(i, "m");  // runs that compute, are staged, and wait
  held_->Pass(2);
  PumpUntilComputing();
  held_->Fail(absl::DataLossError("the link broke"));
  held_->PassAll();
  EXPECT_EQ(Code(1), CodeOf(absl::StatusCode::kDataLoss));
  for (std::uint64_t i = 10; i < 15; ++i) EXPECT_EQ(Code(i), CodeOf(absl::StatusCode::kDataLoss)) << i;
  EXPECT_EQ(runner_->in_flight(), 0u);
  EXPECT_EQ(memory_->memory().free, memory_->memory().total) << "some device memory was not freed";
  SwapIn(2, copy);
  Run(20, "m");
  EXPECT_THAT(Output(20), testing::ElementsAre(4, 5, 6, 7));
  ExpectAllFree();
}

TEST_F(PipelineTest, ACancelledRunIsAnsweredAfterItsModelWhichStays) {
  BeginSwap(1, Place("m"));
  Run(10, "m");
  Run(11, "m");
  held_->Pass();
  PumpUntilComputing();
  runner_->Cancel(10);  // this run computes already and goes on
  runner_->Cancel(11);
  while (queue_->Run()) {
  }
  EXPECT_TRUE(outcomes_.empty());
  held_->PassAll();
  EXPECT_EQ(Code(10), 0);
  EXPECT_EQ(Code(11), CodeOf(absl::StatusCode::kCancelled));
  EXPECT_EQ(order_.front(), 1u);
  ExpectAllFree();
}

TEST_F(PipelineTest, EvictionWhileItComesIsRefused) {
  BeginSwap(1, Place("m"));
  residency_->Evict("m", ReplyFor(2));
  EXPECT_EQ(Code(2), CodeOf(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(outcomes_[2].message(), testing::HasSubstr("being swapped in"));
  held_->PassAll();
  EXPECT_EQ(Code(1), 0);
  residency_->Evict("m", ReplyFor(3));
  EXPECT_EQ(Code(3), 0);
  EXPECT_EQ(memory_->memory().free, memory_->memory().total);
}

TEST_F(PipelineTest, ARunWithoutRoomWaitsForItsModelBeforeItSaysSo) {
  const auto copy = Place("m");
  const DeviceRange rest = *memory_->Allocate({}, Bytes(memory_->memory().free.count() - 4 * kGroup));
  BeginSwap(1, copy);
  Run(2, "m");
  held_->Pass(3);
  while (queue_->Run()) {
  }
  EXPECT_FALSE(outcomes_.contains(2));
  held_->PassAll();
  EXPECT_EQ(Code(2), CodeOf(absl::StatusCode::kResourceExhausted));
  EXPECT_TRUE(outcomes_[2].has_no_fit());
  EXPECT_THAT(order_, testing::ElementsAre(1, 2));
  memory_->Free(rest);
  ExpectAllFree();
}

TEST_F(PipelineTest, ASecondOrderForTheSameModelWaitsForTheFirst) {
  const auto copy = Place("m");
  BeginSwap(1, copy);
  SwapIn(2, copy);
  EXPECT_EQ(held_->held(), 4u);
  held_->PassAll();
  EXPECT_EQ(Code(1), 0);
  EXPECT_EQ(Code(2), 0);
  EXPECT_EQ(outcomes_[1].bytes(), 4 * kGroup);
  EXPECT_EQ(outcomes_[2].bytes(), 0u) << "the weights moved once";
}

class WholeTest : public PipelineTest {
 protected:
  WholeTest() : PipelineTest("whole") {}
};

TEST_F(WholeTest, ARunWaitsForAllOfItsModel) {
  BeginSwap(1, Place("m"));
  Run(2, "m");
  held_->Pass(3);
  while (queue_->Run()) {
  }
  EXPECT_FALSE(Computing());
  EXPECT_EQ(runner_->in_flight(), 1u);
  held_->PassAll();
  EXPECT_THAT(Output(2), testing::ElementsAre(4, 5, 6, 7));
  EXPECT_EQ(outcomes_[1].swap_in().group_ns_size(), 1);
  EXPECT_EQ(outcomes_[2].run().last_group_ns(), 0);
}

class PerTensorTest : public PipelineTest {
 protected:
  PerTensorTest() : PipelineTest("per-tensor") {}
};

TEST_F(PerTensorTest, EachTensorIsAGroup) {
  const auto copy = Place("m");
  BeginSwap(1, copy);
  Run(2, "m");
  held_->PassAll();
  EXPECT_THAT(Output(2), testing::ElementsAre(4, 5, 6, 7));
  EXPECT_EQ(outcomes_[1].swap_in().group_ns_size(), 8);
  proto::HostCopy broken = copy;
  broken.set_digest("other");
  *broken.mutable_model() = copy.weights();
  SwapIn(3, broken);
  EXPECT_NE(Code(3), 0);
  ExpectAllFree();
}

}  // namespace
}  // namespace troupe::gpu::test
