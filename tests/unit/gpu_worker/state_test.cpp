// The state that a function keeps on the device from run to run.
#include "gpu/worker/state_handler.hpp"

#include "gmock/gmock.h"
#include "tests/unit/gpu_worker/runner_fixture.hpp"

namespace troupe::gpu::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// y = s + x and t = s + x for one row; t is the s of the next run. A run with a negative x fails after it has
// written t.
class SumPlan : public Plan {
 public:
  explicit SumPlan(std::shared_ptr<Gatekeeper> gate) : gate_(std::move(gate)) {}
  [[nodiscard]] Bytes activation_bytes() const override { return Bytes(0); }
  [[nodiscard]] std::span<const proto::TensorSpec> outputs() const override { return outputs_; }
  [[nodiscard]] Bytes output_bytes(std::size_t) const override { return Bytes(kColumns * sizeof(float)); }
  [[nodiscard]] std::size_t step_count() const override { return 1; }
  [[nodiscard]] const StepWeights& step_weights(std::size_t) const override { return none_; }
  absl::StatusOr<std::vector<proto::TensorSpec>> Run(const PlanBindings& bindings) const override {
    gate_->Pass();
    const auto* x = reinterpret_cast<const float*>(bindings.inputs[0]);
    const auto* s = reinterpret_cast<const float*>(bindings.inputs[1]);
    for (std::size_t i = 0; i < kColumns; ++i) {
      for (std::byte* output : bindings.outputs) reinterpret_cast<float*>(output)[i] = s[i] + x[i];
    }
    if (x[0] < 0) return absl::InternalError("x is negative");
    return outputs_;
  }

 private:
  std::shared_ptr<Gatekeeper> gate_;
  std::vector<proto::TensorSpec> outputs_{Spec("y", {1, kColumns}), Spec("t", {1, kColumns})};
  StepWeights none_;
};

proto::Model SumModel() {
  proto::Model model;
  model.set_format_version(1);
  model.set_opset(13);
  model.set_name("sum");
  *model.add_inputs() = Spec("x", {1, kColumns});
  *model.add_inputs() = Spec("s", {1, kColumns});
  *model.add_outputs() = Spec("y", {1, kColumns});
  *model.add_outputs() = Spec("t", {1, kColumns});
  return model;
}

class StateTest : public RunnerTest {
 protected:
  StateTest()
      : RunnerTest([this](VirtualDeviceOptions options) {
          options.builder = [this](const proto::Model&, std::span<const std::byte>,
                                   std::span<const proto::TensorSpec>,
                                   int) -> absl::StatusOr<std::unique_ptr<Plan>> {
            return std::make_unique<SumPlan>(gate_);
          };
          return MakePlain(std::move(options));
        }) {
    handler_ = std::make_unique<StateHandler>(*memory_, *queue_, *links_, *residency_, limits_);
    handler_->Connect([this] { runner_->StatesChanged(); },
                      [this](const std::string& payer, Bytes moved) { charged_[payer] += moved.count(); });
    copy_ = PlaceModel(*host_, "m", SumModel(), SmallWeights());
  }

  static proto::StateImage Image(const std::string& function, std::optional<float> value = std::nullopt) {
    proto::StateImage image;
    image.set_function(function);
    proto::Tensor& tensor = *image.add_tensors();
    *tensor.mutable_spec() = Spec("s", {1, kColumns});
    if (value) {
      const std::vector<float> values(kColumns, *value);
      tensor.mutable_data()->set_inlined(values.data(), values.size() * sizeof(float));
    }
    return image;
  }
  void Bring(std::uint64_t sequence, std::vector<proto::StateImage> images) {
    proto::SwapInOrder order;
    *order.mutable_model() = copy_;
    for (proto::StateImage& image : images) *order.add_states() = std::move(image);
    handler_->SwapIn(channel_, order, std::nullopt, ReplyFor(sequence), [this](Reply weights) {
      residency_->SwapIn(Host(copy_), std::nullopt, std::move(weights));
    });
  }
  void Add(std::uint64_t sequence, const std::string& function, float x, std::uint32_t priority = 0) {
    RunRequest request;
    request.sequence = sequence;
    request.order.set_digest("m");
    request.order.set_priority(priority);
    request.order.set_stateful(function);
    auto& named = *request.order.add_state();
    named.set_input("s");
    named.set_output("t");
    auto& input = *request.order.add_inputs();
    *input.mutable_spec() = Spec("x", {1, kColumns});
    const std::vector<float> values(kColumns, x);
    input.mutable_data()->set_inlined(values.data(), values.size() * sizeof(float));
    request.host = Host(copy_);
    request.channel = channel_;
    request.received = transport::SteadyNow();
    runner_->Submit(std::move(request), ReplyFor(sequence));
  }
  // The first number of the sum that this run answered; the run has no other output.
  float Sum(std::uint64_t sequence) {
    const proto::WorkerOutcome& outcome = Await(sequence);
    EXPECT_EQ(outcome.code(), 0) << outcome.message();
    EXPECT_EQ(outcome.run().outputs_size(), 1) << "the state is not an output";
    return outcome.run().outputs_size() == 1 ? Output(sequence)[0] : -1;
  }
  static proto::WriteBackOrder Of(const std::string& function) {
    proto::WriteBackOrder order;
    order.set_digest("m");
    order.set_function(function);
    return order;
  }
  proto::StateOutcome WriteBack(std::uint64_t sequence, const std::string& function = "") {
    handler_->WriteBack(channel_, Of(function), ReplyFor(sequence));
    EXPECT_EQ(Code(sequence), 0);
    return outcomes_[sequence].state();
  }
  static float ValueOf(const proto::StateImage& image) {
    float value = -1;
    std::memcpy(&value, image.tensors(0).data().inlined().data(), sizeof(value));
    return value;
  }

  std::map<std::string, std::uint64_t> charged_;  // bytes, by payer
  proto::HostCopy copy_;
  std::unique_ptr<StateHandler> handler_;
};

TEST_F(StateTest, TheFirstRunFindsZerosAndEachItsPredecessors) {
  Bring(1, {Image("f")});
  for (std::uint64_t i = 2; i <= 6; ++i) Add(i, "f", 1);
  for (std::uint64_t i = 2; i <= 6; ++i) EXPECT_EQ(Sum(i), static_cast<float>(i - 1));
  EXPECT_EQ(Await(6).bytes(), 32u) << "the state does not pass over the link";
}

TEST_F(StateTest, ItsFunctionPaysWhenItComesAndWhenItIsWrittenBack) {
  auto image = Image("f", 40.F);
  image.set_meter("t/f");
  Bring(1, {image});
  Add(2, "f", 2);
  EXPECT_EQ(Sum(2), 42);
  EXPECT_EQ(charged_["t/f"], kColumns * sizeof(float));
  proto::WriteBackOrder order;
  order.set_digest("m");
  order.set_function("f");
  handler_->WriteBack(channel_, order, ReplyFor(3));
  EXPECT_EQ(Code(3), 0);
  EXPECT_EQ(charged_["t/f"], 2 * kColumns * sizeof(float));
}

TEST_F(StateTest, AStateThatIsNotThereIsNeverTakenForZeros) {
  SwapIn(1, copy_);
  EXPECT_EQ(Code(1), 0);
  Add(2, "f", 1);
  EXPECT_EQ(Code(2), CodeOf(absl::StatusCode::kAborted));
  EXPECT_THAT(Await(2).message(), HasSubstr("the state of 'f' is not on this device"));
  Bring(3, {Image("f", 40.F)});  // the model is resident already
  Add(4, "f", 2);
  EXPECT_EQ(Sum(4), 42);
}

TEST_F(StateTest, RunsGoInTheOrderOfTheirArrivalWhateverTheirPriority) {
  Bring(1, {Image("f")});
  gate_->Set(true);
  Add(10, "f", 1, 9);
  Add(11, "f", 2, 5);
  Add(12, "f", 4, 1);
  gate_->Set(false);
  EXPECT_EQ(Sum(10), 1);
  EXPECT_EQ(Sum(11), 3);
  EXPECT_EQ(Sum(12), 7);
}

TEST_F(StateTest, ARunThatFailsOrIsCancelledLeavesItAsItWas) {
  Bring(1, {Image("f")});
  Add(2, "f", 5);
  Add(3, "f", -1);
  Add(4, "f", 7);
  runner_->Cancel(4);
  Add(5, "f", 1);
  EXPECT_EQ(Sum(2), 5);
  EXPECT_EQ(Code(3), CodeOf(absl::StatusCode::kInternal));
  EXPECT_EQ(Code(4), CodeOf(absl::StatusCode::kCancelled));
  EXPECT_EQ(Sum(5), 6);
  EXPECT_EQ(WriteBack(6).states(0).runs(), 2u);
}

TEST_F(StateTest, ARunWhoseDaemonIsGoneAdvancesNothing) {
  Bring(1, {Image("f")});
  Add(2, "f", 5);
  EXPECT_EQ(Sum(2), 5);
  EXPECT_EQ(WriteBack(3).states_size(), 1);
  EXPECT_EQ(WriteBack(4).states_size(), 0) << "nothing has changed";
  gate_->Set(true);
  Add(5, "f", 1);
  AwaitBusy();
  runner_->FailAll(absl::UnavailableError("the daemon is gone"));
  handler_->Abandon();
  gate_->Set(false);
  // The next daemon may not know which images the last one was given.
  const proto::StateOutcome outcome = WriteBack(6);
  ASSERT_EQ(outcome.states_size(), 1);
  EXPECT_EQ(outcome.states(0).runs(), 1u);
  EXPECT_EQ(ValueOf(outcome.states(0)), 5);
}

TEST_F(StateTest, FunctionsOfOneModelHaveStatesOfTheirOwn) {
  Bring(1, {Image("f"), Image("g", 100.F)});
  Add(2, "f", 1);
  Add(3, "g", 1);
  Add(4, "f", 1);
  EXPECT_EQ(Sum(2), 1);
  EXPECT_EQ(Sum(3), 101);
  EXPECT_EQ(Sum(4), 2);
}

// Two functions of one model run at the same time: writing back the state of one does not touch the state of
// the other.
TEST_F(StateTest, AWriteBackOfOneFunctionLeavesItsSiblingAlone) {
  Bring(1, {Image("f"), Image("g", 100.F)});
  Add(2, "f", 1);
  Add(3, "g", 1);
  EXPECT_EQ(Sum(2), 1);
  EXPECT_EQ(Sum(3), 101);
  for (const std::uint64_t again : {0, 1}) {
    const proto::StateOutcome of_f = WriteBack(4 + 2 * again, "f");
    ASSERT_EQ(of_f.states_size(), 1);
    EXPECT_EQ(of_f.states(0).function(), "f");
    EXPECT_EQ(ValueOf(of_f.states(0)), 1);
    const proto::StateOutcome of_g = WriteBack(5 + 2 * again, "g");
    ASSERT_EQ(of_g.states_size(), 1) << "the state is written back also when it has not changed since";
    EXPECT_EQ(of_g.states(0).function(), "g");
    EXPECT_EQ(ValueOf(of_g.states(0)), 101);
  }
  handler_->WriteBack(channel_, Of("h"), ReplyFor(8));
  EXPECT_EQ(Code(8), CodeOf(absl::StatusCode::kNotFound));
}

// A run of another function of the model does not delay a write-back.
TEST_F(StateTest, AWriteBackDoesNotWaitForItsSiblingsRun) {
  Bring(1, {Image("f"), Image("g", 100.F)});
  Add(2, "f", 1);
  EXPECT_EQ(Sum(2), 1);
  gate_->Set(true);
  Add(3, "g", 1);
  AwaitBusy();
  EXPECT_EQ(WriteBack(4, "f").states_size(), 1);
  gate_->Set(false);
  EXPECT_EQ(Sum(3), 101);
}

// Sequences of one function: their names begin alike.
TEST_F(StateTest, OneIsDroppedAndItsSiblingsStay) {
  Bring(1, {Image("f"), Image("f#a"), Image("f#b")});
  for (std::uint64_t i = 2; const char* function : {"f", "f#a", "f#b"}) Add(i++, function, 1);
  for (std::uint64_t i = 2; i <= 4; ++i) EXPECT_EQ(Sum(i), 1);
  const Bytes before = residency_->states().bytes();
  auto drop = Of("f#a");
  drop.set_drop(true);
  handler_->WriteBack(channel_, drop, ReplyFor(5));
  EXPECT_EQ(Code(5), 0);
  EXPECT_TRUE(outcomes_[5].state().states().empty()) << "it is not written back";
  EXPECT_EQ(residency_->states().bytes() * 3, before * 2);
  EXPECT_EQ(residency_->states().Find("f#a"), nullptr);
  handler_->WriteBack(channel_, drop, ReplyFor(6));
  EXPECT_EQ(Code(6), 0) << "what is not there need not go";
  Add(7, "f#a", 1);
  EXPECT_EQ(Code(7), static_cast<int>(absl::StatusCode::kAborted));
  Add(8, "f", 1);
  Add(9, "f#b", 1);
  EXPECT_EQ(Sum(8), 2);
  EXPECT_EQ(Sum(9), 2);
  Bring(10, {Image("f#a")});
  Add(11, "f#a", 1);
  EXPECT_EQ(Sum(11), 1) << "it begins anew";
}

TEST_F(StateTest, AllWithAPrefixAreWrittenBackAndDropped) {
  Bring(1, {Image("f"), Image("f#a"), Image("f#b"), Image("f#c"), Image("g#a")});
  for (std::uint64_t i = 2; const char* function : {"f", "f#a", "f#b", "g#a"}) Add(i++, function, 1);
  for (std::uint64_t i = 2; i <= 5; ++i) EXPECT_EQ(Sum(i), 1);
  auto order = Of("f#");
  order.set_prefix(true);
  handler_->WriteBack(channel_, order, ReplyFor(6));
  ASSERT_EQ(Code(6), 0);
  const auto& states = outcomes_[6].state().states();
  ASSERT_EQ(states.size(), 2) << "of those that have changed";
  EXPECT_EQ(states[0].function(), "f#a");
  EXPECT_EQ(states[1].function(), "f#b");
  order.set_drop(true);
  handler_->WriteBack(channel_, order, ReplyFor(7));
  EXPECT_EQ(Code(7), 0);
  for (const char* gone : {"f#a", "f#b", "f#c"}) EXPECT_EQ(residency_->states().Find(gone), nullptr) << gone;
  EXPECT_NE(residency_->states().Find("f"), nullptr);
  EXPECT_NE(residency_->states().Find("g#a"), nullptr);
  order.clear_drop();
  order.set_function("h#");
  handler_->WriteBack(channel_, order, ReplyFor(8));
  EXPECT_EQ(Code(8), 0) << "none is no error";
}

TEST_F(StateTest, OneThatRunsUseIsDroppedBehindThem) {
  Bring(1, {Image("f")});
  Add(2, "f", 1);
  EXPECT_EQ(Sum(2), 1);
  gate_->Set(true);
  Add(3, "f", 1);
  AwaitBusy();
  auto drop = Of("f");
  drop.set_drop(true);
  handler_->WriteBack(channel_, drop, ReplyFor(4));
  EXPECT_EQ(Code(4), 0);
  EXPECT_NE(residency_->states().Find("f"), nullptr) << "a run reads it";
  gate_->Set(false);
  EXPECT_EQ(Sum(3), 2);
  EXPECT_EQ(residency_->states().Find("f"), nullptr);
}

TEST_F(StateTest, ItIsWrittenBackAtEvictionAndComesBackWithTheModel) {
  Bring(1, {Image("f")});
  Add(2, "f", 3);
  EXPECT_EQ(Sum(2), 3);
  handler_->Evict(channel_, "m", ReplyFor(3));
  EXPECT_EQ(Code(3), 0) << Await(3).message();
  const proto::StateOutcome outcome = outcomes_[3].state();
  ASSERT_EQ(outcome.states_size(), 1);
  EXPECT_EQ(outcome.states(0).runs(), 1u);
  EXPECT_EQ(memory_->memory().free, memory_->memory().total) << "the model and its state are gone";
  Bring(4, {outcome.states(0)});
  Add(5, "f", 4);
  EXPECT_EQ(Sum(5), 7);
  EXPECT_EQ(WriteBack(6).states(0).runs(), 2u);
}

TEST_F(StateTest, AnEvictionWaitsForTheRunAndIsRefusedWhileOthersWait) {
  Bring(1, {Image("f")});
  EXPECT_EQ(Code(1), 0);
  gate_->Set(true);
  Add(2, "f", 3);
  handler_->Evict(channel_, "m", ReplyFor(3));
  EXPECT_EQ(Code(3), CodeOf(absl::StatusCode::kFailedPrecondition));
  handler_->WriteBack(channel_, Of(""), ReplyFor(4));  // this comes behind the run
  gate_->Set(false);
  EXPECT_EQ(Code(4), 0);
  EXPECT_EQ(ValueOf(outcomes_[4].state().states(0)), 3);
}

TEST_F(StateTest, NoFitCountsTheStateAndLeavesNothing) {
  proto::StateImage image = Image("f");
  image.mutable_tensors(0)->mutable_spec()->set_shape(
      0, 200'000);  // a state has 3.2 MB, and there are two of it
  Bring(1, {image});
  EXPECT_EQ(Code(1), CodeOf(absl::StatusCode::kResourceExhausted));
  EXPECT_TRUE(Await(1).has_no_fit());
  EXPECT_EQ(memory_->memory().free, memory_->memory().total);
  EXPECT_EQ(residency_->states().Find("f"), nullptr);
}

TEST_F(StateTest, LargeStateTravelsThroughTheArena) {
  proto::StateImage image = Image("f");
  image.mutable_tensors(0)->mutable_spec()->set_shape(0, 20'000);  // 320 kB
  const std::string bytes(320'000, '\x11');
  *image.mutable_tensors(0)->mutable_data() = *channel_->Put(std::as_bytes(std::span(bytes)), "s");
  ASSERT_TRUE(image.tensors(0).data().has_arena());
  Bring(1, {image});
  EXPECT_EQ(Code(1), 0) << Await(1).message();
  handler_->Abandon();  // as when another daemon adopts the worker
  const proto::StateOutcome outcome = WriteBack(2);
  ASSERT_EQ(outcome.states_size(), 1);
  const auto written = channel_->FetchHere(outcome.states(0).tensors(0).data());
  ASSERT_TRUE(written.ok());
  EXPECT_EQ(std::memcmp(written->bytes().data(), bytes.data(), bytes.size()), 0);
}

TEST_F(StateTest, WhatCannotBeReadDoesNotCome) {
  proto::StateImage image = Image("f");
  image.mutable_tensors(0)->mutable_data()->mutable_arena()->set_socket(directory_ / "absent");
  image.mutable_tensors(0)->mutable_data()->mutable_arena()->set_length(16);
  Bring(1, {image});
  Add(2, "f", 1);  // this run comes behind the first one
  EXPECT_NE(Code(1), 0);
  EXPECT_NE(Code(2), 0);
  EXPECT_THAT(Await(2).message(), HasSubstr("did not come"));
  EXPECT_EQ(residency_->states().Find("f"), nullptr);
  EXPECT_EQ(residency_->states().bytes(), Bytes(0));
}

TEST_F(StateTest, WithoutItsModelItLeavesNothing) {
  for (const bool refused : {true, false}) {
    proto::SwapInOrder order;
    *order.mutable_model() = copy_;
    *order.add_states() = Image("f", 3.F);
    std::optional<Reply> weights;
    const absl::Status gone = absl::UnavailableError("the other GPU is gone");
    handler_->SwapIn(channel_, order, std::nullopt, ReplyFor(refused ? 1 : 2), [&](Reply reply) {
      refused ? reply.Fail(gone) : static_cast<void>(weights.emplace(std::move(reply)));
    });
    if (!refused) {
      const auto state = residency_->states().Find("f");
      ASSERT_NE(state, nullptr);
      while (state->coming && !HasFatalFailure()) PumpOnce();
      weights->Fail(gone);  // the weights come behind the state
    }
    EXPECT_EQ(Code(refused ? 1 : 2), CodeOf(absl::StatusCode::kUnavailable));
    EXPECT_EQ(residency_->states().Find("f"), nullptr);
    EXPECT_EQ(memory_->memory().free, memory_->memory().total);
  }
  Bring(3, {Image("f", 40.F)});
  Add(4, "f", 2);
  EXPECT_EQ(Sum(4), 42);
}

TEST_F(StateTest, BadImagesAndOrdersAreRefused) {
  proto::StateImage twice = Image("f");
  *twice.add_tensors() = twice.tensors(0);
  Bring(1, {twice});
  EXPECT_THAT(Await(1).message(), HasSubstr("s is there twice"));
  proto::StateImage shorter = Image("f", 1.F);
  shorter.mutable_tensors(0)->mutable_data()->set_inlined("abc");
  Bring(2, {shorter});
  EXPECT_THAT(Await(2).message(), HasSubstr("has 3 bytes, its shape needs 16"));
  proto::RunOrder order;
  order.set_stateful("f");
  EXPECT_FALSE(CheckRunInputs(order).ok());
  order.add_state()->set_input("x");
  *order.add_inputs() = SmallInput(1);
  EXPECT_THAT(CheckRunInputs(order).message(), HasSubstr("callers do not send it"));
}

}  // namespace
}  // namespace troupe::gpu::test
