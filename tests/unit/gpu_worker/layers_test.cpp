// Runs by layer: the test decides which copies pass over the link.
#include <iterator>
#include <set>
#include <thread>

#include "gmock/gmock.h"
#include "tests/unit/gpu_swap/held_device.hpp"
#include "tests/unit/gpu_worker/runner_fixture.hpp"

namespace troupe::gpu::test {
namespace {

using testing::ElementsAre;

constexpr std::size_t kPart = 64 << 10;
constexpr std::size_t kParts = 12;

// y = x + the first and the last float of each part, with one part for each step.
class PartsPlan final : public Plan {
 public:
  explicit PartsPlan(std::int64_t rows) : outputs_{Spec("y", {rows, kColumns})} {
    for (std::uint64_t i = 0; i < kParts; ++i) steps_[i].ranges = {{i * kPart, kPart}};
    count_ = static_cast<std::size_t>(rows) * kColumns;
  }
  [[nodiscard]] Bytes activation_bytes() const override { return Bytes(64); }
  [[nodiscard]] std::span<const proto::TensorSpec> outputs() const override { return outputs_; }
  [[nodiscard]] Bytes output_bytes(std::size_t) const override { return Bytes(count_ * sizeof(float)); }
  [[nodiscard]] std::size_t step_count() const override { return kParts; }
  [[nodiscard]] const StepWeights& step_weights(std::size_t step) const override { return steps_[step]; }
  absl::StatusOr<std::vector<proto::TensorSpec>> Run(const PlanBindings& bindings) const override {
    const auto* x = reinterpret_cast<const float*>(bindings.inputs[0]);
    auto* y = reinterpret_cast<float*>(bindings.outputs[0]);
    std::copy(x, x + count_, y);
    for (std::size_t step = 0; step < kParts; ++step) {
      if (absl::Status status = bindings.before_step(step); !status.ok()) return status;
      const auto* w = reinterpret_cast<const float*>(PartOf(bindings, step));
      for (std::size_t i = 0; i < count_; ++i) y[i] += w[0] + w[kPart / sizeof(float) - 1];
    }
    return outputs_;
  }

 private:
  static const std::byte* PartOf(const PlanBindings& bindings, std::size_t step) {
    if (bindings.places.empty()) return bindings.weights + step * kPart;
    const auto behind = std::ranges::upper_bound(bindings.places, step * kPart, {}, &WeightPlace::offset);
    return std::prev(behind)->address + (step * kPart - std::prev(behind)->offset);
  }

  std::vector<proto::TensorSpec> outputs_;
  StepWeights steps_[kParts];
  std::size_t count_ = 0;
};

class LayersTest : public RunnerTest {
 protected:
  explicit LayersTest(std::size_t concurrency = 1)
      : RunnerTest(
            [concurrency](VirtualDeviceOptions options) {
              options.concurrency = concurrency;
              options.builder = [](const proto::Model&, std::span<const std::byte>,
                                   std::span<const proto::TensorSpec> inputs,
                                   int) -> absl::StatusOr<std::unique_ptr<Plan>> {
                return std::make_unique<PartsPlan>(inputs[0].shape(0));
              };
              auto held = std::make_unique<HeldDevice>(*MakeVirtualDevice(
                  std::move(options), *transport::MemoryFile::Create("device", MiB(4)), nullptr));
              held->Hold(false);
              return held;
            },
            {.group = Bytes(kPart), .block = Bytes(kPart)}) {}

  // The first float of part i is i + value, the last one 1.
  proto::HostCopy Place(const std::string& digest, float value = 0) {
    std::vector<std::byte> weights(kParts * kPart);
    for (std::size_t i = 0; i < kParts; ++i) {
      const float first = static_cast<float>(i) + value;
      const float last = 1;
      std::memcpy(weights.data() + i * kPart, &first, sizeof(first));
      std::memcpy(weights.data() + (i + 1) * kPart - sizeof(last), &last, sizeof(last));
    }
    proto::Model model = SmallModel();
    model.mutable_weights()->Clear();
    return PlaceModel(*host_, digest, model, weights);
  }
  static float Sum(float value = 0) {
    return static_cast<float>(kParts) * (value + 1) + static_cast<float>(kParts * (kParts - 1) / 2);
  }
  void Prepared(const proto::HostCopy& copy) {
    const std::size_t plans = preparer_->cache().size();
    Prepare(0, copy, 1);
    PumpUntilStage(plans + 1);
  }
  void RunByLayer(std::uint64_t sequence, const proto::HostCopy& copy, std::int64_t timeout_ns = 0) {
    RunRequest request;
    request.sequence = sequence;
    request.order.set_digest(copy.digest());
    request.order.set_by_layer(true);
    request.order.set_timeout_ns(timeout_ns);
    *request.order.mutable_model() = copy;
    *request.order.add_inputs() = SmallInput(1);
    request.host = Host(copy);
    request.channel = channel_;
    request.received = transport::SteadyNow();
    runner_->Submit(std::move(request), ReplyFor(sequence));
  }
  void PumpAll() {
    while (queue_->Run()) {
    }
  }
  // Passes copies in their order until the run is answered.
  void PassUntilAnswered(std::uint64_t sequence) {
    while (!outcomes_.contains(sequence)) {
      if (held_->held() > 0) held_->Pass();
      if (!queue_->Run()) std::this_thread::yield();
    }
  }
  void ExpectAllFree() {
    EvictAll();
    EXPECT_EQ(runner_->in_flight(), 0u);
    EXPECT_EQ(memory_->memory().free, memory_->memory().total);
    EXPECT_EQ(memory_->pool().held(), Bytes(0));
  }
  HeldDevice* const held_ = static_cast<HeldDevice*>(device_);
};

TEST_F(LayersTest, GivesWhatAResidentRunGivesInAFractionOfTheMemory) {
  const auto copy = Place("m", 2);
  RunByLayer(1, copy);
  EXPECT_THAT(Output(1), ElementsAre(Sum(2), Sum(2) + 1, Sum(2) + 2, Sum(2) + 3));
  EXPECT_EQ(outcomes_[1].bytes(), kParts * kPart + 32);
  EXPECT_GT(outcomes_[1].run().last_group_ns(), 0);
  EXPECT_EQ(residency_->table().StateOf("m"), ModelTable::State::kAbsent);
  EXPECT_LT(memory_->pool().peak(), Bytes(kParts * kPart / 2));
  ExpectAllFree();
  SwapIn(2, copy);
  Run(3, "m", 1);
  EXPECT_EQ(Output(3), Output(1));
  RunByLayer(4, copy);  // the model is resident now: no copy comes
  EXPECT_EQ(Output(4), Output(1));
  EXPECT_EQ(outcomes_[4].bytes(), 32u);
  ExpectAllFree();
}

TEST_F(LayersTest, NothingComesBeforeItsPlaceIsFree) {
  const auto copy = Place("m");
  Prepared(copy);
  held_->Hold(true);
  RunByLayer(1, copy);
  // The window holds as many copies as it has places; the input stands behind them.
  const std::size_t first = held_->held() - 1;
  EXPECT_LT(first, kParts / 2);
  EXPECT_GE(first, 2u);
  std::set<std::byte*> places;
  std::size_t parts = 0;
  while (!outcomes_.contains(1)) {
    EXPECT_LE(held_->held(), first + 1);
    if (held_->held() > 0) {
      if (held_->front().size == Bytes(kPart)) {
        places.insert(held_->front().address);
        ++parts;
      }
      held_->Pass();
    }
    if (!queue_->Run()) std::this_thread::yield();
  }
  EXPECT_EQ(Output(1)[0], Sum());
  EXPECT_EQ(parts, kParts);
  EXPECT_EQ(places.size(), first) << "every place was used again";
  ExpectAllFree();
}

TEST_F(LayersTest, APartThatFailsFailsTheRunOnceTheOthersHavePassed) {
  const auto copy = Place("m");
  Prepared(copy);
  held_->Hold(true);
  RunByLayer(1, copy);
  held_->Pass();
  PumpAll();
  held_->Fail(absl::DataLossError("the link broke"));
  PumpAll();
  EXPECT_FALSE(outcomes_.contains(1)) << "copies still read the model's host copy";
  PassUntilAnswered(1);
  EXPECT_EQ(Code(1), CodeOf(absl::StatusCode::kDataLoss));
  held_->PassAll();
  PumpAll();
  ExpectAllFree();
  held_->Hold(false);
  RunByLayer(2, copy);
  EXPECT_EQ(Output(2)[0], Sum());
  ExpectAllFree();
}

TEST_F(LayersTest, ARunThatIsCancelledOrExpiresIsAnsweredWhenNoCopyIsOnItsWay) {
  const auto copy = Place("m");
  Prepared(copy);
  held_->Hold(true);
  RunByLayer(1, copy);
  PumpAll();
  runner_->Cancel(1);
  PumpAll();
  EXPECT_FALSE(outcomes_.contains(1));
  PassUntilAnswered(1);
  EXPECT_EQ(Code(1), CodeOf(absl::StatusCode::kCancelled));
  held_->PassAll();
  PumpAll();
  RunByLayer(2, copy, 1'000'000'000);
  // The run's input comes behind the parts: when the input has arrived the run is ready, although no part had
  // been before.
  runner_->FailAll(absl::UnavailableError("gone"));
  PassUntilAnswered(2);
  EXPECT_EQ(Code(2), CodeOf(absl::StatusCode::kUnavailable));
  held_->PassAll();
  PumpAll();
  ExpectAllFree();
}

TEST_F(LayersTest, WithoutRoomForItsWindowItSaysSo) {
  const auto copy = Place("m");
  Prepared(copy);
  const DeviceRange rest = *memory_->Allocate({}, Bytes(memory_->memory().free.count() - kPart));
  RunByLayer(1, copy);
  EXPECT_EQ(Code(1), CodeOf(absl::StatusCode::kResourceExhausted));
  EXPECT_TRUE(outcomes_[1].has_no_fit());
  memory_->Free(rest);
  RunByLayer(2, copy);
  EXPECT_EQ(Output(2)[0], Sum());
  ExpectAllFree();
}

TEST_F(LayersTest, OneAfterTheOtherInLittleMemory) {
  std::vector<proto::HostCopy> copies;
  for (int i = 0; i < 4; ++i) copies.push_back(Place(absl::StrCat("m", i), static_cast<float>(i)));
  // The device has room for one window and a half.
  const DeviceRange rest = *memory_->Allocate({}, Bytes(memory_->memory().free.count() - 6 * kPart));
  for (std::uint64_t i = 0; i < 20; ++i) RunByLayer(10 + i, copies[i % 4]);
  for (std::uint64_t i = 0; i < 20; ++i) {
    EXPECT_EQ(Code(10 + i), 0) << outcomes_[10 + i].message();
    EXPECT_EQ(Output(10 + i)[0], Sum(static_cast<float>(i % 4))) << i;
  }
  memory_->Free(rest);
  ExpectAllFree();
}

TEST_F(LayersTest, WhatMakesNoSenseIsRefused) {
  const auto copy = Place("m");
  RunRequest request;
  request.sequence = 1;
  request.order.set_digest("m");
  request.order.set_by_layer(true);
  *request.order.add_inputs() = SmallInput(1);
  request.channel = channel_;
  runner_->Submit(std::move(request), ReplyFor(1));
  EXPECT_EQ(Code(1), CodeOf(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(outcomes_[1].message(), testing::HasSubstr("host copy"));
  request = RunRequest();
  request.sequence = 2;
  request.order.set_digest("m");
  request.order.set_by_layer(true);
  request.order.set_stateful("f");
  *request.order.add_inputs() = SmallInput(1);
  request.host = Host(copy);
  request.channel = channel_;
  runner_->Submit(std::move(request), ReplyFor(2));
  EXPECT_EQ(Code(2), CodeOf(absl::StatusCode::kNotFound))
      << "the node has to bring the model whole, with its state";
  ExpectAllFree();
}

class TwoLayersTest : public LayersTest {
 protected:
  TwoLayersTest() : LayersTest(2) {}
};

TEST_F(TwoLayersTest, TwoAtATimeBesideAResidentOne) {
  const auto here = Place("here", 5);
  Prepared(here);
  SwapIn(1, here);
  EXPECT_EQ(Code(1), 0);
  const auto a = Place("a", 1);
  const auto b = Place("b", 3);
  for (std::uint64_t i = 0; i < 30; ++i) {
    if (i % 3 == 0) RunByLayer(10 + i, a);
    if (i % 3 == 1) RunByLayer(10 + i, b);
    if (i % 3 == 2) Run(10 + i, "here", 1);
  }
  for (std::uint64_t i = 0; i < 30; ++i) {
    const float value = i % 3 == 0 ? 1 : i % 3 == 1 ? 3 : 5;
    EXPECT_EQ(Output(10 + i)[0], Sum(value)) << i;
  }
  ExpectAllFree();
}

}  // namespace
}  // namespace troupe::gpu::test
