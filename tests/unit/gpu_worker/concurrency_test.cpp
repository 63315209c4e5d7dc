// Several functions at a time in one worker: gates, one for each model, tell which of them compute.
#include <thread>

#include "gmock/gmock.h"
#include "tests/unit/gpu_worker/runner_fixture.hpp"

namespace troupe::gpu::test {
namespace {

using testing::ElementsAre;

using Gates = std::map<std::string, std::shared_ptr<Gatekeeper>>;

class ConcurrencyTest : public RunnerTest {
 protected:
  explicit ConcurrencyTest(std::uint32_t concurrency = 2, const SharingOptions& sharing = {})
      : ConcurrencyTest(concurrency, sharing, MakeGates()) {}
  ~ConcurrencyTest() override {
    for (const auto& [name, gate] : gates_) gate->Set(false);
  }

  // Models that are resident and prepared for one row; y = max(0, x + (value, value + 1, value + 2, -100)).
  void Bring(const std::string& name, float value = 1) {
    proto::Model model = SmallModel();
    model.set_name(name);
    const auto copy = PlaceModel(*host_, name, model, SmallWeights(value));
    const std::size_t plans = preparer_->cache().size();
    Prepare(0, copy, 1);
    PumpUntilStage(plans + 1);
    SwapIn(sequence_, copy);
    EXPECT_EQ(Code(sequence_++), 0);
  }
  void Close(const std::string& name) { gates_.at(name)->Set(true); }
  void Open(const std::string& name) { gates_.at(name)->Set(false); }
  void AwaitComputing(const std::string& name, int runs = 1) {
    // The inputs of the runs come in first, and the main loop hears of each.
    while (!HasFatalFailure()) {
      {
        const std::lock_guard lock(gates_.at(name)->mutex);
        if (gates_.at(name)->entered >= runs) return;
      }
      if (!queue_->Run()) std::this_thread::yield();
    }
  }
  // Run 1 of "a" and run 2 of "b" compute, and stay there until their gates are opened.
  void HoldTwo() {
    Close("a");
    Close("b");
    Run(1, "a");
    Run(2, "b");
    AwaitComputing("a");
    AwaitComputing("b");
  }
  int Most(const std::string& name) { return gates_.at(name)->most; }
  void ExpectAllFree() {
    EvictAll();
    EXPECT_EQ(memory_->memory().free, memory_->memory().total);
    EXPECT_EQ(runner_->in_flight(), 0u);
  }
  Gates gates_;

 private:
  ConcurrencyTest(std::uint32_t concurrency, SharingOptions sharing, const Gates& gates)
      : RunnerTest(Maker(gates), {.group = KiB(256), .block = KiB(64)}, {}, With(concurrency, sharing)),
        gates_(gates) {}
  static SharingOptions With(std::uint32_t concurrency, SharingOptions sharing) {
    sharing.concurrency = concurrency;
    return sharing;
  }
  static MakeDevice Maker(const Gates& gates) {
    return [gates](VirtualDeviceOptions options) {
      options.concurrency = 4;
      options.builder = [gates](const proto::Model& model, std::span<const std::byte>,
                                std::span<const proto::TensorSpec> inputs,
                                int) -> absl::StatusOr<std::unique_ptr<Plan>> {
        return std::make_unique<HeldPlan>(inputs[0].shape(0), gates.at(model.name()));
      };
      return MakePlain(std::move(options));
    };
  }
  static Gates MakeGates() {
    Gates gates;
    for (const char* name : {"a", "b", "c", "d"}) gates[name] = std::make_shared<Gatekeeper>();
    return gates;
  }
  std::uint64_t sequence_ = 1000;
};

TEST_F(ConcurrencyTest, TwoFunctionsComputeAtATime) {
  Bring("a");
  Bring("b", 10);
  HoldTwo();
  Open("b");
  EXPECT_THAT(Output(2), ElementsAre(10, 12, 14, 0));
  EXPECT_FALSE(outcomes_.contains(1));
  Open("a");
  EXPECT_THAT(Output(1), ElementsAre(1, 3, 5, 0));
  ExpectAllFree();
}

TEST_F(ConcurrencyTest, RunsThatComputeBesideEachOtherDivideTheTimeOfTheGpu) {
  Bring("a");
  Bring("b", 10);
  HoldTwo();
  Open("a");
  Open("b");
  for (const std::uint64_t id : {1, 2}) {
    EXPECT_EQ(Code(id), 0);
    const proto::RunOutcome& run = outcomes_[id].run();
    EXPECT_GT(run.others_ns(), 0) << "run " << id;
    EXPECT_LT(run.others_ns(), run.compute_ns()) << "run " << id;
  }
  Run(3, "a");
  EXPECT_EQ(Code(3), 0);
  EXPECT_EQ(outcomes_[3].run().others_ns(), 0);
}

TEST_F(ConcurrencyTest, RunsOfOneFunctionComputeBesideEachOtherAndEachHasItsOwnResults) {
  Bring("a");
  Close("a");
  function_ = "f";
  for (std::uint64_t i = 1; i <= 6; ++i) Run(i, "a");  // more runs than compute
  AwaitComputing("a", 2);
  Open("a");
  for (std::uint64_t i = 1; i <= 6; ++i) EXPECT_THAT(Output(i), ElementsAre(1, 3, 5, 0));
  EXPECT_EQ(Most("a"), 2);
  ExpectAllFree();
}

TEST_F(ConcurrencyTest, AFunctionThatHasAllItsInstancesAtWorkLetsOthersPass) {
  Bring("a");
  Bring("b", 10);
  Close("a");
  function_ = "f";
  sharing_.set_max_instances(1);
  for (std::uint64_t i = 1; i <= 6; ++i) Run(i, "a");
  AwaitComputing("a");
  function_ = "g";
  for (std::uint64_t i = 11; i <= 13; ++i) Run(i, "b");
  for (std::uint64_t i = 11; i <= 13; ++i) EXPECT_THAT(Output(i), ElementsAre(10, 12, 14, 0));
  EXPECT_FALSE(outcomes_.contains(1));
  Open("a");
  for (std::uint64_t i = 1; i <= 6; ++i) EXPECT_THAT(Output(i), ElementsAre(1, 3, 5, 0));
  EXPECT_EQ(Most("a"), 1);
  ExpectAllFree();
}

TEST_F(ConcurrencyTest, NoMoreComputeThanThereAreStreams) {
  for (const char* name : {"a", "b", "c"}) Bring(name);
  Close("c");
  HoldTwo();
  Run(3, "c");
  while (queue_->Run()) {
  }
  EXPECT_EQ(gates_["c"]->entered, 0);
  Open("a");
  EXPECT_EQ(Code(1), 0);
  AwaitComputing("c");
  Open("b");
  Open("c");
  EXPECT_EQ(Code(2), 0);
  EXPECT_EQ(Code(3), 0);
  ExpectAllFree();
}

class SharesTest : public ConcurrencyTest {
 protected:
  SharesTest() : ConcurrencyTest(4) {
    for (const char* name : {"a", "b", "c", "d"}) {
      Bring(name);
      Close(name);
    }
  }
  void Run(std::uint64_t sequence, const std::string& name, std::uint32_t percent) {
    share_ = percent;
    ConcurrencyTest::Run(sequence, name);
    Settle();
  }
  // Every run that can be launched has been.
  void Settle() {
    while (device_->engine(Engine::kCopyIn).busy || queue_->Run()) {
    }
  }
  bool Computes(const std::string& name) {
    const std::lock_guard lock(gates_.at(name)->mutex);
    return gates_.at(name)->inside > 0;
  }
};

TEST_F(SharesTest, RunsComputeTogetherUpToTheWholeGpuAndNonePassesTheFirstThatWaits) {
  Run(1, "a", 50);
  Run(2, "b", 24);
  AwaitComputing("a");
  AwaitComputing("b");
  Run(3, "c", 60);
  Run(4, "d", 12);  // this run would fit
  EXPECT_FALSE(Computes("c"));
  EXPECT_FALSE(Computes("d"));
  Open("b");
  EXPECT_EQ(Code(2), 0);
  Settle();
  EXPECT_FALSE(Computes("d")) << "run c still waits";
  Open("a");
  EXPECT_EQ(Code(1), 0);
  AwaitComputing("c");
  AwaitComputing("d");
  Open("c");
  Open("d");
  EXPECT_EQ(Code(3), 0);
  EXPECT_EQ(Code(4), 0);
  ExpectAllFree();
}

// From run to run shares change, and no plan is made anew.
TEST_F(SharesTest, AShareIsTheRunsOwnAndWithoutOneTheGpuIsSharedWithThoseOfThatKind) {
  Run(1, "a", 0);
  Run(2, "b", 0);
  AwaitComputing("a");
  AwaitComputing("b");
  Run(3, "c", 6);
  EXPECT_FALSE(Computes("c"));
  Open("a");
  Open("b");
  AwaitComputing("c");
  Run(4, "a", 90);
  AwaitComputing("a", 2);
  Run(5, "b", 0);
  Open("c");
  EXPECT_EQ(Code(3), 0);
  for (const std::uint64_t sequence : {1, 2, 4, 5}) EXPECT_EQ(Code(sequence), 0);
  ExpectAllFree();
}

TEST_F(SharesTest, WhatWaitsForSmsIsCancelledAndLetsOthersIn) {
  Run(1, "a", 60);
  AwaitComputing("a");
  Run(2, "b", 60);
  Run(3, "c", 24);
  EXPECT_FALSE(Computes("c"));
  runner_->Cancel(2);
  EXPECT_EQ(Code(2), CodeOf(absl::StatusCode::kCancelled));
  AwaitComputing("c");
  for (const char* name : {"a", "c"}) Open(name);
  EXPECT_EQ(Code(1), 0);
  EXPECT_EQ(Code(3), 0);
  ExpectAllFree();
}

TEST_F(ConcurrencyTest, WhatWaitsIsCancelledOrExpiresWhatComputesGoesOn) {
  for (const char* name : {"a", "b", "c"}) Bring(name);
  HoldTwo();
  Run(3, "c");
  Run(4, "c", 1, 0, 1'000'000'000);
  while (runner_->NextDue() == Time::max() && !HasFatalFailure()) PumpOnce();
  for (const std::uint64_t run : {1, 2, 3}) runner_->Cancel(run);
  EXPECT_EQ(Code(3), CodeOf(absl::StatusCode::kCancelled));
  runner_->Expire(runner_->NextDue());
  EXPECT_EQ(Code(4), CodeOf(absl::StatusCode::kDeadlineExceeded));
  Open("b");
  Open("a");
  EXPECT_EQ(Code(1), 0);
  EXPECT_EQ(Code(2), 0);
  ExpectAllFree();
}

TEST_F(ConcurrencyTest, AHangOfOneIsSeenWhileTheOtherGoesOn) {
  Bring("a");
  Bring("b");
  Close("a");
  Run(1, "a");
  AwaitComputing("a");
  const Time begin = transport::SteadyNow();
  ProgressWatch watch({std::chrono::hours(1), std::chrono::seconds(10), std::chrono::hours(1)});
  const auto observe = [&](int second) {
    const Time now = begin + std::chrono::seconds(second);
    runner_->ShowCompute(now);
    watch.Observe(ReadControlPage(page_), now);
    return watch.Hung(now);
  };
  EXPECT_FALSE(observe(0));
  const std::uint64_t progress = ReadControlPage(page_).progress();
  for (int second = 1; second <= 11; ++second) {
    Run(static_cast<std::uint64_t>(10 + second), "b");
    EXPECT_EQ(Code(static_cast<std::uint64_t>(10 + second)), 0);
    const auto hung = observe(second);
    ASSERT_EQ(hung.has_value(), second == 11) << second;
    if (hung) {
      EXPECT_THAT(*hung, testing::HasSubstr("compute stands still at order 1 "));
    }
    EXPECT_EQ(ReadControlPage(page_).progress(), progress) << "the node's watchdog sees it too";
  }
  Open("a");
  EXPECT_EQ(Code(1), 0);
  ExpectAllFree();
}

TEST_F(ConcurrencyTest, AbandoningLeavesWhatComputes) {
  for (const char* name : {"a", "b", "c"}) Bring(name);
  HoldTwo();
  Run(3, "c");
  runner_->FailAll(absl::UnavailableError("gone"));
  EXPECT_EQ(Code(3), CodeOf(absl::StatusCode::kUnavailable));
  EXPECT_EQ(runner_->in_flight(), 2u);
  Open("a");
  Open("b");
  while (runner_->in_flight() > 0 && !HasFatalFailure()) PumpOnce();
  ExpectAllFree();
}

class ManyTest : public ConcurrencyTest {
 protected:
  ManyTest() : ConcurrencyTest(4) {}
};

TEST_F(ManyTest, ResultsStayRight) {
  const std::vector<std::string> names = {"a", "b", "c", "d"};
  for (std::size_t i = 0; i < names.size(); ++i) Bring(names[i], static_cast<float>(10 * i + 1));
  for (std::uint64_t i = 0; i < 400; ++i) Run(i + 1, names[i * 7 % 4], 1, i % 3);
  for (std::uint64_t i = 0; i < 400; ++i) {
    const auto first = static_cast<float>(10 * (i * 7 % 4) + 1);
    EXPECT_THAT(Output(i + 1), ElementsAre(first, first + 2, first + 4, 0)) << i;
  }
  ExpectAllFree();
}

}  // namespace
}  // namespace troupe::gpu::test
