// Outputs of workflows' steps that stay with the workers that computed them, under virtual time: gateways, nodes and the
// manager are the production ones.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/actors/world.hpp"

namespace troupe::actors {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr char kChain[] = R"(
name: chain
inputs:
  image: {type: FP32, shape: [-1, 4]}
steps:
  - {name: one, function: net-a, inputs: {x: image}}
  - {name: two, function: net-b, inputs: {x: one.out_x}}
  - {name: three, function: net-c, inputs: {x: two.out_x}}
outputs: {y: three.out_x}
)";
// Every slice of what `first` gives is a call of its own, and `last` reads two tensors that different steps left.
constexpr char kFan[] = R"(
name: fan
inputs:
  image: {type: FP32, shape: [-1, 4]}
steps:
  - {name: first, function: net-a, inputs: {x: image}}
  - {name: each, function: net-b, inputs: {x: first.out_x}, fan_out: {input: x, dimension: 0}}
  - {name: last, function: join, inputs: {a: first.out_x, b: each.out_x}}
outputs: {y: last.out_a, z: last.out_b}
)";
// Its runs are short, and it says itself that the first step is not to be made again.
constexpr char kSure[] = R"(
name: sure
inputs:
  image: {type: FP32, shape: [-1, 4]}
steps:
  - {name: one, function: net-a, inputs: {x: image}, durable: bytes}
  - {name: two, function: net-b, inputs: {x: one.out_x}}
  - {name: three, function: net-c, inputs: {x: two.out_x}}
outputs: {y: three.out_x}
)";
// Two steps read what the first one left, side by side.
constexpr char kFork[] = R"(
name: fork
inputs:
  image: {type: FP32, shape: [-1, 4]}
steps:
  - {name: one, function: net-a, inputs: {x: image}, durable: bytes}
  - {name: two, function: net-b, inputs: {x: one.out_x}}
  - {name: three, function: net-c, inputs: {x: one.out_x}}
outputs: {y: two.out_x, z: three.out_x}
)";

class KeptTensors : public ::testing::Test {
 protected:
  static FakeWorkerProfile RunsOf(Duration run) {
    FakeWorkerProfile profile;
    profile.run = run;
    return profile;
  }
  // By default runs are so short that what they give is not written.
  explicit KeptTensors(Duration run = milliseconds(1), std::size_t nodes = 2,
                       const std::string& topology = "")
      : world_(nodes, 2, RunsOf(run), {}, GiB(2),
               [topology](NodeOptions& options) { options.topology = *node::Topology::Parse(topology); }) {}
  void SetUp() override {
    for (const char* name : {"net-a", "net-b", "net-c"}) ASSERT_TRUE(world_.Deploy(name, MiB(1)).ok());
    ASSERT_TRUE(world_.Deploy("join", MiB(1), milliseconds(100), {"a", "b"}).ok());
    for (const char* yaml : {kChain, kFan, kSure}) Submit(yaml);
    world_.Run(seconds(2));
  }
  void Submit(const std::string& yaml) {
    proto::AdminRequest submit;
    submit.mutable_submit_workflow()->set_yaml(yaml);
    const auto submitted = world_.Ask(submit);
    ASSERT_TRUE(submitted.ok()) << submitted.status();
  }
  static std::string Bytes(std::int64_t rows) {
    std::string bytes(static_cast<std::size_t>(rows) * 16, '\0');
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i % 251);
    return bytes;
  }
  // The answer's number.
  std::size_t Ask(const std::string& workflow, const std::string& key = "", std::uint64_t call = 0) {
    proto::InferRequest request;
    request.mutable_function()->set_name(workflow);
    request.set_run_key(key);
    request.set_call(call);
    auto& input = *request.add_inputs();
    input.mutable_spec()->set_name("image");
    input.mutable_spec()->set_type(proto::FP32);
    input.mutable_spec()->add_shape(3);
    input.mutable_spec()->add_shape(4);
    input.mutable_data()->set_inlined(Bytes(3));
    replies_.emplace_back();
    const auto number = replies_.size() - 1;
    world_.gateway(0).front->Infer(
        std::move(request), [this, number](proto::InferReply reply) { replies_[number] = std::move(reply); });
    return number;
  }
  void ExpectRight(std::size_t number) {
    ASSERT_TRUE(replies_[number].has_value()) << number;
    ASSERT_EQ(replies_[number]->code(), 0) << replies_[number]->message();
    for (const auto& output : replies_[number]->outputs())
      EXPECT_EQ(output.data().inlined(), Bytes(3)) << output.spec().name();
  }
  [[nodiscard]] virtual std::vector<std::string> Nodes() const { return {"node-1", "node-2"}; }
  std::size_t Kept() {
    std::size_t kept = 0;
    for (const auto& name : Nodes())
      for (const auto& worker : world_.node(name).workers) kept += worker->life.tensors.size();
    return kept;
  }
  // The most at any millisecond of a time that passes.
  std::size_t MostKeptWithin(Duration time) {
    std::size_t most = 0;
    for (const auto end = world_.Now() + time; world_.Now() < end;) {
      world_.Run(milliseconds(1));
      most = std::max(most, Kept());
    }
    return most;
  }
  // Bytes of kept tensors that others were to read.
  std::uint64_t Exported() {
    std::uint64_t bytes = 0;
    for (const auto& name : Nodes()) bytes += world_.node(name).channel->used().count();
    return bytes;
  }
  std::string HolderOfSome() {
    for (const char* name : {"node-1", "node-2"})
      for (const auto& worker : world_.node(name).workers)
        if (worker->life.tensors.size() > 0) return name;
    return "";
  }
  std::uint64_t Runs() {
    std::uint64_t runs = 0;
    for (const char* name : {"node-1", "node-2"})
      for (const auto& worker : world_.node(name).workers) runs += worker->runs;
    return runs;
  }

  World world_;
  std::vector<std::optional<proto::InferReply>> replies_;
};

TEST_F(KeptTensors, TheStepsOfARunReadThemWhereTheyAre) {
  const auto run = Ask("chain");
  const auto most = MostKeptWithin(seconds(1));
  ExpectRight(run);
  EXPECT_GT(most, 0u);
  EXPECT_EQ(Kept(), 0u);
  EXPECT_EQ(Exported(), 0u);
}

TEST_F(KeptTensors, SlicesArePartsAndComeTogetherWhereTheyAreRead) {
  const auto run = Ask("fan");
  const auto most = MostKeptWithin(seconds(5));
  ExpectRight(run);
  EXPECT_EQ(most, 1u + 3u) << "what the first step left, and what each call of the second one did";
  EXPECT_EQ(Kept(), 0u);
  EXPECT_EQ(Exported(), 0u);
}

// As workers do that a new daemon has taken over from an earlier release.
TEST_F(KeptTensors, WhereAWorkerDoesNotKnowPartsTheGatewayPutsThemTogether) {
  const auto old = world_.node("node-1").workers.front();
  old->input_parts = false;
  old->kill();
  world_.Run(seconds(10));
  const auto run = Ask("fan");
  const auto most = MostKeptWithin(seconds(5));
  ExpectRight(run);
  EXPECT_EQ(most, 1u) << "what the first step left";
}

TEST_F(KeptTensors, ManyRunsLeaveNothing) {
  std::vector<std::size_t> runs;
  for (int i = 0; i < 20; ++i) runs.push_back(Ask(i % 2 == 0 ? "chain" : "fan"));
  world_.Run(seconds(20));
  for (const auto run : runs) ExpectRight(run);
  EXPECT_EQ(Kept(), 0u);
  EXPECT_EQ(Exported(), 0u);
}

TEST_F(KeptTensors, AThousandCancelledRunsLeaveNothing) {
  for (std::uint64_t call = 1; call <= 1000; ++call) {
    Ask(call % 2 == 0 ? "chain" : "fan", "", call);
    world_.Run(milliseconds(1 + call % 9));
    world_.gateway(0).front->Cancel(call);
  }
  world_.Run(seconds(10));
  EXPECT_EQ(Kept(), 0u);
  EXPECT_EQ(Exported(), 0u);
}

TEST_F(KeptTensors, AWorkerThatDiesWithThemMakesTheirStepsRunAgain) {
  const auto run = Ask("chain");
  while (Kept() == 0) world_.Run(milliseconds(1));
  const auto before = Runs();
  for (const auto& worker : world_.node(HolderOfSome()).workers) worker->kill();
  world_.Run(seconds(10));
  ExpectRight(run);
  EXPECT_GE(Runs(), before + 3u);
  EXPECT_EQ(Kept(), 0u);
}

TEST_F(KeptTensors, ANodeThatDiesWithThemMakesTheirStepsRunAgain) {
  const auto run = Ask("chain");
  while (Kept() == 0) world_.Run(milliseconds(1));
  world_.KillNode(HolderOfSome());
  world_.Run(seconds(20));
  ExpectRight(run);
}

TEST_F(KeptTensors, AGatewayThatGoesOnWithARunComputesThemAnew) {
  world_.StartGateway();
  world_.Run(seconds(1));
  Ask("chain", "key");
  while (Kept() == 0) world_.Run(milliseconds(1));
  world_.KillGateway(0);
  world_.asked = 1;
  world_.Run(seconds(20));
  EXPECT_EQ(Kept(), 0u);
  proto::AdminRequest show;
  show.mutable_show_run()->set_run("key");
  const auto shown = world_.Ask(show);
  ASSERT_TRUE(shown.ok()) << shown.status();
  ASSERT_EQ(shown->runs_size(), 1);
  EXPECT_EQ(shown->runs(0).state(), proto::RUN_SUCCEEDED) << shown->runs(0).message();
  EXPECT_EQ(shown->runs(0).outputs(0).inlined(), Bytes(3));
}

TEST_F(KeptTensors, AStepThatIsDurableByItsBytesIsNotMadeAgain) {
  const auto run = Ask("sure");
  while (Kept() == 0) world_.Run(milliseconds(1));
  world_.Run(milliseconds(1));  // the step is committed
  const auto before = Runs();
  for (const auto& worker : world_.node(HolderOfSome()).workers) worker->kill();
  world_.Run(seconds(10));
  ExpectRight(run);
  EXPECT_LE(Runs(), before + 2) << "the first step is not run again";
  EXPECT_EQ(Kept(), 0u);
}

// One node of two GPUs with a link between them.
class LinkedKeptTensors : public KeptTensors {
 protected:
  LinkedKeptTensors() : KeptTensors(milliseconds(1), 1, "link:0-1=25GB") {}
  [[nodiscard]] std::vector<std::string> Nodes() const override { return {"node-1"}; }
  std::uint64_t Pulled() {
    std::uint64_t pulled = 0;
    for (const auto& worker : world_.node("node-1").workers) pulled += worker->pulled;
    return pulled;
  }
};

TEST_F(LinkedKeptTensors, ReadersOnTheOtherGpuGetThemOverTheLink) {
  std::vector<std::size_t> runs;
  for (int i = 0; i < 20; ++i) runs.push_back(Ask("fan"));  // more than one GPU has time for
  std::uint64_t exported = 0;
  for (int i = 0; i < 2000; ++i) {
    world_.Run(milliseconds(1));
    exported = std::max(exported, Exported());
  }
  for (const auto run : runs) ExpectRight(run);
  EXPECT_GT(Pulled(), 0u);
  EXPECT_EQ(exported, 0u) << "nothing passed the host";
  EXPECT_EQ(Kept(), 0u);
}

TEST_F(LinkedKeptTensors, WorkersThatDieLeaveNoPinAndNoCopy) {
  std::vector<std::size_t> runs;
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 8; ++i) runs.push_back(Ask("fan"));
    world_.Run(milliseconds(3 + round % 5));
    world_.node("node-1").workers[static_cast<std::size_t>(round % 2)]->kill();
    world_.Run(milliseconds(500));
  }
  world_.Run(seconds(20));
  for (const auto run : runs) ExpectRight(run);
  EXPECT_GT(Pulled(), 0u);
  EXPECT_EQ(Kept(), 0u);
  EXPECT_EQ(Exported(), 0u);
}

class WrittenTensors : public KeptTensors {
 protected:
  WrittenTensors() : KeptTensors(milliseconds(20)) {}
};

TEST_F(WrittenTensors, WhatCostsMoreToComputeThanToWriteIsReadFromTheStoreWhenItIsLost) {
  const auto run = Ask("chain");
  while (Kept() == 0) world_.Run(milliseconds(1));
  world_.Run(milliseconds(5));  // the step is committed, and the next one has begun
  const auto before = Runs();
  for (const auto& worker : world_.node(HolderOfSome()).workers) worker->kill();
  world_.Run(seconds(10));
  ExpectRight(run);
  EXPECT_EQ(Runs(), before + 2) << "the first step is not run again";
  EXPECT_EQ(Kept(), 0u);
}

// Each of the two readers learns for itself that the worker has lost it.
TEST_F(WrittenTensors, TwoReadersOfALostOneReadItFromTheStore) {
  Submit(kFork);
  world_.Run(seconds(1));
  const auto run = Ask("fork");
  while (Kept() == 0) world_.Run(milliseconds(1));
  world_.Run(milliseconds(5));  // the step is committed, and both readers have begun
  const auto before = Runs();
  for (const auto& worker : world_.node(HolderOfSome()).workers) worker->kill();
  world_.Run(seconds(10));
  ExpectRight(run);
  EXPECT_EQ(Runs(), before + 2) << "the first step is not run again";
  EXPECT_EQ(Kept(), 0u);
}

TEST_F(WrittenTensors, AnotherGatewayGoesOnBehindThem) {
  world_.StartGateway();
  world_.Run(seconds(1));
  Ask("chain", "key");
  while (Kept() == 0) world_.Run(milliseconds(1));
  world_.Run(milliseconds(5));
  const auto before = Runs();
  world_.KillGateway(0);
  world_.asked = 1;
  world_.Run(seconds(20));
  EXPECT_EQ(Runs(), before + 2);
  EXPECT_EQ(Kept(), 0u);
}

TEST_F(KeptTensors, AClientCannotNameThem) {
  proto::InferRequest request;
  request.mutable_function()->set_name("net-a");
  auto& input = *request.add_inputs();
  input.mutable_spec()->set_name("x");
  input.mutable_data()->mutable_kept()->set_node("node-1");
  std::optional<proto::InferReply> reply;
  world_.system().spawn([&](caf::event_based_actor* self) {
    self->request(world_.gateway(0).front->actor(), caf::infinite, request)
        .then([&](proto::InferReply& answer) { reply = std::move(answer); });
  });
  world_.Run(seconds(1));
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(reply->code(), static_cast<int>(absl::StatusCode::kInvalidArgument));
}

// A function with state has one home, so that an input which the other node keeps has to be exported.
TEST_F(KeptTensors, RequestsThatEndWhileTheirInputsComeGiveTheirCreditsBack) {
  proto::StateTensor state;
  state.set_input("s");
  state.set_output("t");
  proto::AdminRequest deploy;
  deploy.mutable_deploy()->set_name("sum");
  deploy.mutable_deploy()->set_onnx_digest(world_.MakeModel("sum", MiB(1), {"x"}, {state}));
  *deploy.mutable_deploy()->add_state() = state;
  ASSERT_TRUE(world_.Ask(deploy).ok());
  proto::InferRequest request;
  request.mutable_function()->set_name("sum");
  auto& input = *request.add_inputs();
  input.mutable_spec()->set_name("x");
  for (int i = 0; i < 100; ++i) {
    input.mutable_data()->mutable_kept()->set_node(i % 2 == 0 ? "node-1" : "node-2");
    request.set_call(static_cast<std::uint64_t>(i));
    world_.system().spawn([&](caf::event_based_actor* self) {
      proto::CancelInfer cancel;
      cancel.set_call(request.call());
      self->request(world_.router(), caf::infinite, request).then([](const proto::InferReply&) {});
      self->send(world_.router(), std::move(cancel));
    });
    world_.Settle();
  }
  world_.Infer("sum", 1000);
  world_.ExpectAnswers();
}

// Each of them ends while it is sent, which gives its credit to the next one.
TEST_F(KeptTensors, ThousandsOfRequestsWhoseInputsAreLostEndOneAfterTheOther) {
  world_.Settle();
  constexpr int kMany = 4000;
  proto::InferRequest request;
  request.mutable_function()->set_name("net-a");
  auto& input = *request.add_inputs();
  input.mutable_spec()->set_name("x");
  input.mutable_data()->mutable_kept()->set_node("gone");
  int lost = 0;
  const auto drain = [&](const char* node, bool on) {
    proto::AdminRequest wish;
    wish.mutable_drain()->set_name(node);
    wish.mutable_drain()->set_drain(on);
    ASSERT_TRUE(world_.Ask(wish).ok());
  };
  drain("node-1", true);
  drain("node-2", true);
  for (int i = 0; i < kMany; ++i) {
    request.set_call(static_cast<std::uint64_t>(i));
    world_.system().spawn([&](caf::event_based_actor* self) {
      self->request(world_.router(), caf::infinite, request).then([&](const proto::InferReply& reply) {
        lost += reply.code() == static_cast<int>(absl::StatusCode::kDataLoss) ? 1 : 0;
      });
    });
  }
  world_.Settle();
  EXPECT_EQ(lost, 0);
  drain("node-1", false);
  world_.Run(seconds(1));
  EXPECT_EQ(lost, kMany);
}

}  // namespace
}  // namespace troupe::actors
