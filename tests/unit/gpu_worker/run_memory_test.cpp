// The device memory that runs hold at each moment, and the memory that is kept for them.
#include <thread>

#include "gmock/gmock.h"
#include "tests/unit/gpu_worker/runner_fixture.hpp"

namespace troupe::gpu::test {
namespace {

using testing::ElementsAre;

constexpr std::int64_t kRows = 4096;  // 64 KiB of each of inputs, outputs and activations

// A plan that needs less and less of its activations, which it does not use; it stops before the step that
// the test says.
class ShrinkingPlan final : public FakePlan {
 public:
  ShrinkingPlan(std::int64_t rows, std::shared_ptr<Gatekeeper> gate)
      : FakePlan(rows), gate_(std::move(gate)) {}
  static constexpr Bytes kWhole = MiB(1);
  [[nodiscard]] Bytes activation_bytes() const override { return kWhole; }
  [[nodiscard]] std::size_t step_count() const override { return 4; }
  [[nodiscard]] Bytes activation_extent(std::size_t step) const override {
    return Bytes(kWhole.count() >> step);
  }
  absl::StatusOr<std::vector<proto::TensorSpec>> Run(const PlanBindings& bindings) const override {
    for (const std::size_t step : {2, 3}) {
      if (absl::Status status = bindings.before_step(step); !status.ok()) return status;
    }
    gate_->Pass();
    PlanBindings rest = bindings;
    rest.before_step = [](std::size_t) { return absl::OkStatus(); };
    return FakePlan::Run(rest);
  }

 private:
  std::shared_ptr<Gatekeeper> gate_;
};

MemoryOptions With(const char* policy) {
  MemoryOptions options;
  options.policy = policy;
  return options;
}

class RunMemoryTest : public RunnerTest {
 protected:
  explicit RunMemoryTest(const char* policy = "fine-resilient")
      : RunnerTest(MakePlain, {.group = KiB(256), .block = KiB(64)}, With(policy)) {}

  void Bring(std::initializer_list<std::int64_t> rows) {
    const auto copy = PlaceSmall(*host_, "m");
    SwapIn(1, copy);
    EXPECT_EQ(Code(1), 0);
    for (const std::int64_t each : rows) {
      const std::size_t plans = preparer_->cache().size();
      Prepare(0, copy, each);
      PumpUntilStage(plans + 1);
    }
  }
  void AwaitEntered(int runs) {
    while (!HasFatalFailure()) {
      {
        const std::lock_guard lock(gate_->mutex);
        if (gate_->entered >= runs) return;
      }
      if (!queue_->Run()) std::this_thread::yield();
    }
  }
  void PumpAll() {
    while (queue_->Run()) {
    }
  }
  void Finish(std::uint64_t sequence) {
    EXPECT_EQ(Code(sequence), 0) << outcomes_[sequence].message();
    EXPECT_TRUE(channel_->Release(outcomes_[sequence].run().outputs(0).data()).ok());
  }
  void ExpectAllFree() {
    EvictAll();
    EXPECT_EQ(memory_->memory().free, memory_->memory().total);
    EXPECT_EQ(memory_->pool().held(), Bytes(0));
    EXPECT_EQ(memory_->pool().size(), Bytes(0));
  }
};

TEST_F(RunMemoryTest, ActivationsAreTakenAtTheLaunchAndGoWhenItHasComputed) {
  Bring({kRows});
  gate_->Set(true);
  for (std::uint64_t i = 10; i < 13; ++i) Run(i, "m", kRows);
  AwaitEntered(1);
  PumpAll();
  // Three runs have their inputs and outputs on the device, and one its activations.
  EXPECT_EQ(memory_->pool().held(), KiB(3 * 128 + 64));
  EXPECT_EQ(memory_->pool().size(), memory_->pool().held())
      << "the next run uses the memory of the one that ends";
  gate_->Set(false);
  for (std::uint64_t i = 10; i < 13; ++i) Finish(i);
  EXPECT_EQ(outcomes_[10].run().device_bytes(), KiB(128 + 64).count()) << "each run says what it took";
  ExpectAllFree();
}

// Eight runs of 12 % compute at a time, each held in its plan.
class InstancesMemoryTest : public RunnerTest {
 protected:
  static constexpr Bytes kInputsAndOutputs = KiB(128), kActivations = KiB(64);  // of one run of kRows
  InstancesMemoryTest()
      : RunnerTest(
            [](VirtualDeviceOptions options) {
              options.concurrency = 8;
              return MakePlain(std::move(options));
            },
            {.group = KiB(256), .block = KiB(64)}, With("fine-resilient")) {
    const auto copy = PlaceSmall(*host_, "m");
    SwapIn(1, copy);
    EXPECT_EQ(Code(1), 0);
    Prepare(2, copy, kRows);
    PumpUntilStage(1);
    function_ = "f/1";
    share_ = 12;
    gate_->Set(true);
  }
  // Runs from 10 on; waits until nothing more happens with so many of them in their plans.
  void Hold(std::uint64_t runs, int computing) {
    for (std::uint64_t i = 0; i < runs; ++i) Run(10 + i, "m", kRows);
    while (Entered() < computing && !HasFatalFailure()) {
      if (!queue_->Run()) std::this_thread::yield();
    }
    while (queue_->Run()) {
    }
  }
  int Entered() {
    const std::lock_guard lock(gate_->mutex);
    return gate_->entered;
  }
  void FinishAll(std::uint64_t runs) {
    gate_->Set(false);
    for (std::uint64_t i = 0; i < runs; ++i) {
      EXPECT_EQ(Code(10 + i), 0) << outcomes_[10 + i].message();
      EXPECT_TRUE(channel_->Release(outcomes_[10 + i].run().outputs(0).data()).ok());
    }
  }
};

TEST_F(InstancesMemoryTest, EightInstancesHaveTheWeightsOnceAndAtMostEightActivations) {
  const Bytes weights = memory_->memory().total - memory_->memory().free;
  constexpr std::uint64_t kRuns = 10;
  Hold(kRuns, 8);
  EXPECT_EQ(Entered(), 8);
  EXPECT_EQ(memory_->pool().held(), kInputsAndOutputs * kRuns + kActivations * 8);
  // The pool keeps one more place for activations: eight times 12 % leave 4 %, and a share may be rounded down.
  EXPECT_LE(memory_->pool().size(), memory_->pool().held() + kActivations);
  EXPECT_EQ(memory_->memory().total - memory_->memory().free, weights + memory_->pool().size())
      << "nothing else is on the GPU: the weights are there once";
  FinishAll(kRuns);
  EXPECT_EQ(gate_->most, 8);
}

TEST_F(InstancesMemoryTest, AFunctionsLimitOfDeviceMemoryHoldsToTheByte) {
  constexpr Bytes kRun = kInputsAndOutputs + kActivations;
  const Bytes weights = residency_->table().SizeOf("m");
  // A byte less than four runs take beside the weights.
  sharing_.set_gpu_mem((weights + kRun * 4).count() - 1);
  Hold(8, 3);
  EXPECT_EQ(Entered(), 3);
  EXPECT_EQ(memory_->pool().held(), kRun * 3) << "the runs that wait for room have none";
  FinishAll(8);
  EXPECT_EQ(gate_->most, 3);
}

TEST_F(InstancesMemoryTest, AFunctionHasAllOfItsLimitOfDeviceMemory) {
  constexpr Bytes kRun = kInputsAndOutputs + kActivations;
  sharing_.set_gpu_mem((residency_->table().SizeOf("m") + kRun * 4).count());
  Hold(8, 4);
  EXPECT_EQ(Entered(), 4);
  EXPECT_EQ(memory_->pool().held(), kRun * 4);
  FinishAll(8);
  EXPECT_EQ(gate_->most, 4);
}

TEST_F(RunMemoryTest, WeightsLeaveWhatAStagedRunWillTake) {
  Bring({kRows, 8 * kRows});
  gate_->Set(true);
  Run(10, "m", kRows);
  AwaitEntered(1);
  Run(11, "m", 8 * kRows);  // 1 MiB of inputs and outputs, 512 KiB between
  PumpAll();
  EXPECT_EQ(memory_->pool().set_aside(), KiB(512 - 64));
  // Weights are refused that would leave too little memory for the run beside those of the first model;
  // smaller ones fit.
  const Bytes free = memory_->memory().free;
  const auto large = PlaceSmall(*host_, "large", 1, free.count() - KiB(32).count());
  SwapIn(2, large);
  EXPECT_EQ(Code(2), CodeOf(absl::StatusCode::kResourceExhausted));
  EXPECT_TRUE(outcomes_[2].has_no_fit());
  std::vector<std::string> small;
  for (std::uint64_t i = 0; i < 200; ++i) {
    SwapIn(100 + i, PlaceSmall(*host_, absl::StrCat("small", i), 1, 32 << 10));
    if (Code(100 + i) != 0) break;
    small.push_back(absl::StrCat("small", i));
  }
  EXPECT_GT(small.size(), 10u);
  EXPECT_LT(small.size(), 200u);
  gate_->Set(false);
  Finish(10);
  Finish(11);
  ExpectAllFree();
}

TEST_F(RunMemoryTest, ARunThatCouldNotBeLaunchedIsNotStaged) {
  Bring({kRows, 8 * kRows});
  // The inputs and outputs of the larger run fit, but its activations do not fit beside them.
  const DeviceRange rest =
      *memory_->Allocate({}, Bytes(memory_->memory().free.count() - KiB(1024 + 256).count()));
  Run(10, "m", 8 * kRows);
  EXPECT_EQ(Code(10), CodeOf(absl::StatusCode::kResourceExhausted));
  EXPECT_TRUE(outcomes_[10].has_no_fit());
  EXPECT_THAT(outcomes_[10].message(), testing::HasSubstr("would leave no range"));
  Run(11, "m", kRows);
  Finish(11);
  memory_->Free(rest);
  ExpectAllFree();
}

TEST_F(RunMemoryTest, RunsOfManySizesTakeTurnsInLittleMemory) {
  Bring({1, kRows, 2 * kRows, 4 * kRows});
  const DeviceRange rest = *memory_->Allocate({}, Bytes(memory_->memory().free.count() - KiB(1024).count()));
  std::vector<std::uint64_t> runs;
  for (std::uint64_t i = 10; i < 40; ++i) {
    Run(i, "m", i % 4 == 0 ? 1 : kRows << (i % 4 - 1));
    runs.push_back(i);
    if (runs.size() == 8) {  // the arena holds no more outputs
      for (const std::uint64_t run : std::exchange(runs, {})) {
        ASSERT_EQ(Code(run), 0) << outcomes_[run].message();
        (void)channel_->Release(outcomes_[run].run().outputs(0).data());
      }
    }
  }
  for (const std::uint64_t run : runs) EXPECT_EQ(Code(run), 0);
  memory_->Free(rest);
  ExpectAllFree();
}

class ShrinkingTest : public RunnerTest {
 protected:
  ShrinkingTest()
      : RunnerTest([gate = keeper_](VirtualDeviceOptions options) {
          options.builder = [gate](const proto::Model&, std::span<const std::byte>,
                                   std::span<const proto::TensorSpec> inputs,
                                   int) -> absl::StatusOr<std::unique_ptr<Plan>> {
            return std::make_unique<ShrinkingPlan>(inputs[0].shape(0), gate);
          };
          return MakePlain(std::move(options));
        }) {}
  ~ShrinkingTest() override { keeper_->Set(false); }
  static inline const std::shared_ptr<Gatekeeper> keeper_ = std::make_shared<Gatekeeper>();
};

TEST_F(ShrinkingTest, ActivationsGoBackAsTheRunPassesTheirLastUse) {
  const auto copy = PlaceSmall(*host_, "m");
  SwapIn(1, copy);
  EXPECT_EQ(Code(1), 0);
  keeper_->Set(true);
  Run(10, "m", 1, 0, 0, &copy);
  const Bytes block = KiB(1);  // the most for one of its inputs or outputs
  while (memory_->pool().held() < KiB(256) || memory_->pool().held() > KiB(256) + block) PumpOnce();
  EXPECT_EQ(memory_->pool().size(), memory_->pool().held());
  EXPECT_GE(memory_->memory().free, memory_->memory().total - KiB(256 + 64));
  EXPECT_GE(memory_->pool().peak(), MiB(1));
  keeper_->Set(false);
  EXPECT_THAT(Output(10), ElementsAre(1, 3, 5, 0));
  EvictAll();
  EXPECT_EQ(memory_->memory().free, memory_->memory().total);
}

class BaselineTest : public RunMemoryTest, public testing::WithParamInterface<const char*> {
 protected:
  BaselineTest() : RunMemoryTest(GetParam()) {}
};

TEST_P(BaselineTest, ServesAndGivesAllBack) {
  Bring({kRows, 8 * kRows});
  for (std::uint64_t i = 10; i < 16; ++i) {
    Run(i, "m", i % 2 == 0 ? kRows : 8 * kRows);
    if (i % 3 == 0) {
      for (std::uint64_t done = i - 2; done <= i; ++done) {
        if (done >= 10) Finish(done);
      }
    }
  }
  EvictAll();
  EXPECT_EQ(memory_->memory().free, memory_->memory().total);
}

TEST_P(BaselineTest, WhatDoesNotFitIsSaid) {
  Bring({8 * kRows});
  const DeviceRange rest =
      *memory_->Allocate({}, Bytes(memory_->memory().free.count() - KiB(1024 + 256).count()));
  Run(10, "m", 8 * kRows);
  EXPECT_EQ(Code(10), CodeOf(absl::StatusCode::kResourceExhausted));
  EXPECT_TRUE(outcomes_[10].has_no_fit());
  memory_->Free(rest);
  EvictAll();
  EXPECT_EQ(memory_->memory().free, memory_->memory().total);
}

INSTANTIATE_TEST_SUITE_P(Policies, BaselineTest,
                         testing::Values("static", "fine", "fine-resilient", "block-cache", "device-malloc"),
                         [](const auto& info) {
                           std::string name(info.param);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

class Extents final : public DevicePlan {
 public:
  explicit Extents(std::vector<Bytes> extents) : extents_(std::move(extents)) {}
  [[nodiscard]] std::span<const proto::TensorSpec> inputs() const override { return {}; }
  [[nodiscard]] std::span<const proto::TensorSpec> outputs() const override { return {}; }
  [[nodiscard]] Bytes input_bytes(std::size_t) const override { return {}; }
  [[nodiscard]] Bytes output_bytes(std::size_t) const override { return {}; }
  [[nodiscard]] Bytes weights_bytes() const override { return {}; }
  [[nodiscard]] Bytes activation_bytes() const override { return extents_.empty() ? Bytes() : extents_[0]; }
  [[nodiscard]] std::size_t step_count() const override { return extents_.size(); }
  [[nodiscard]] Bytes activation_extent(std::size_t step) const override { return extents_[step]; }
  [[nodiscard]] std::span<const std::pair<std::uint64_t, std::uint64_t>> step_weights(
      std::size_t) const override {
    return {};
  }

 private:
  std::vector<Bytes> extents_;
};

TEST(RunNeeds, TrimsWhereMuchIsUsedForTheLastTime) {
  using Trims = std::vector<RunNeeds::Trim>;
  EXPECT_EQ(RunNeeds::TrimsOf(Extents({})), Trims());
  EXPECT_EQ(RunNeeds::TrimsOf(Extents({KiB(100), KiB(1)})), Trims()) << "a trim of so little is not worth it";
  EXPECT_EQ(RunNeeds::TrimsOf(Extents({MiB(8), MiB(8), MiB(8)})), Trims());
  EXPECT_EQ(RunNeeds::TrimsOf(Extents({MiB(8), MiB(7), MiB(6), MiB(3), MiB(3), KiB(1)})),
            (Trims{{2, MiB(6)}, {3, MiB(3)}, {5, KiB(1)}}));
  RunNeeds needs(1);
  auto plan = std::make_shared<Extents>(std::vector{MiB(8), MiB(3)});
  EXPECT_EQ(needs.Of(plan).profile->At(1), MiB(3));
  EXPECT_EQ(needs.Of(plan).profile->run_time(), Duration(0));
  needs.Measured(plan, std::chrono::milliseconds(10), false);
  EXPECT_EQ(needs.Of(plan).profile->run_time(), std::chrono::milliseconds(10));
  needs.Measured(plan, std::chrono::milliseconds(11), false);
  EXPECT_EQ(needs.Of(plan).profile->run_time(), std::chrono::milliseconds(10));
  for (int i = 0; i < 5; ++i)
    EXPECT_EQ(needs.Of(std::make_shared<Extents>(std::vector{MiB(1)})).trims, Trims());
}

TEST(RunNeeds, ARunThatWaitedForWeightsCountsUntilOneDidNot) {
  using std::chrono::milliseconds;
  RunNeeds needs(1);
  const auto plan = std::make_shared<Extents>(std::vector{MiB(8)});
  EXPECT_EQ(needs.Of(plan).resident_run, Duration(0));
  needs.Measured(plan, milliseconds(30), true);
  EXPECT_EQ(needs.Of(plan).resident_run, milliseconds(30));
  needs.Measured(plan, milliseconds(20), false);
  needs.Measured(plan, milliseconds(90), true);
  EXPECT_EQ(needs.Of(plan).resident_run, milliseconds(20));
}

}  // namespace
}  // namespace troupe::gpu::test
