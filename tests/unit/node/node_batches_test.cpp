// Requests that one run answers, as a node's effects: one order, and an answer for each request.
#include "tests/unit/node/node_fixture.hpp"

namespace troupe::node::node_batches_test {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::IsEmpty;

class NodeBatchesTest : public NodeTest {
 protected:
  static NodeSettings Joining() {
    NodeSettings settings = Settings(1);
    settings.policies.batching = "greedy";
    settings.scheduler.swap_ahead = 1;
    return settings;
  }
  NodeBatchesTest() : NodeTest(Joining()) {
    Up(0);
    Hello(7);
  }
  static proto::FunctionRecord Open(std::uint32_t max_batch = 2) {
    auto function = Function("f");
    for (auto* spec : {function.add_inputs(), function.add_outputs()}) {
      spec->set_type(proto::FP32);
      spec->add_shape(-1);
      spec->add_shape(1);
    }
    function.mutable_inputs(0)->set_name("x");
    function.mutable_outputs(0)->set_name("y");
    function.mutable_sharing()->set_max_batch(max_batch);
    return function;
  }
  static proto::WorkerOutcome Prepared(std::int64_t rows) {
    proto::WorkerOutcome outcome;
    outcome.mutable_prepared()->set_weights_bytes(MiB(100).count());
    outcome.mutable_prepared()->set_activation_bytes(MiB(1).count() * static_cast<std::uint64_t>(rows));
    outcome.mutable_prepared()->add_outputs()->add_shape(rows);
    return outcome;
  }
  // The model is on the GPU, runs of one and of two rows are prepared, and runs of one were measured.
  void Learn() {
    EXPECT_THAT(Adopt(Open()), ElementsAre("order 0 prepare packed-f"));
    EXPECT_THAT(Answered(0, "prepare", Prepared(1)),
                ElementsAre("adopted 1000 OK", "order 0 prepare packed-f"));
    EXPECT_EQ(OrderOf(0, "prepare").prepare().inputs(0).shape(0), 2);
    EXPECT_THAT(Answered(0, "prepare", Prepared(2)), IsEmpty());
    for (Ask ask = 1; ask <= 4; ++ask) {
      AskFor(ask);
      if (ask == 1) Answered(0, "swap-in");
      EXPECT_THAT(Answered(0, "run", Ran(1)), ElementsAre(absl::StrCat("answer ", ask, " OK")));
    }
  }
  Lines AskFor(Ask ask) {
    RequestArrived arrived;
    arrived.ask = ask;
    auto& message = arrived.message;
    message.mutable_id()->set_router(7);
    message.mutable_id()->set_sequence(ask);
    *message.mutable_function() = Open().key();
    message.set_model_digest(Open().model_digest());
    auto& input = *message.add_inputs();
    *input.mutable_spec() = Open().inputs(0);
    input.mutable_spec()->set_shape(0, 1);
    input.mutable_data()->set_inlined(absl::StrCat("question ", ask));
    return On(std::move(arrived));
  }
  Lines Cancel(Ask ask) { return On(RequestCancelled{{7, ask}}); }
  // The outputs of the latest run order's requests, each in an arena's slice of its own.
  proto::WorkerOutcome Ran(int requests) {
    proto::WorkerOutcome outcome;
    auto& run = *outcome.mutable_run();
    run.set_compute_ns(Duration(milliseconds(10)).count());
    for (int i = 0; i < requests; ++i) {
      auto& output = i == 0 ? *run.add_outputs() : *run.add_members()->add_outputs();
      output.mutable_spec()->set_name("y");
      output.mutable_data()->mutable_arena()->set_slice(++slices_);
    }
    return outcome;
  }
  // One request runs; two more came meanwhile, and are joined when it has ended.
  void Join() {
    Learn();
    AskFor(10);
    EXPECT_THAT(AskFor(11), IsEmpty());
    EXPECT_THAT(AskFor(12), IsEmpty());
    EXPECT_THAT(Answered(0, "run", Ran(1)), ElementsAre("answer 10 OK", "order 0 run packed-f"));
  }

 private:
  std::uint64_t slices_ = 0;
};

TEST_F(NodeBatchesTest, OneOrderAndAnAnswerForEach) {
  Join();
  const auto order = OrderOf(0, "run").run();
  EXPECT_EQ(order.inputs(0).data().inlined(), "question 11");
  ASSERT_EQ(order.members_size(), 1);
  EXPECT_EQ(order.members(0).inputs(0).data().inlined(), "question 12");
  EXPECT_THAT(Answered(0, "run", Ran(2)), ElementsAre("answer 11 OK", "answer 12 OK"));
}

TEST_F(NodeBatchesTest, ARunIsCancelledWhenNoneOfItsRequestsIsWanted) {
  Join();
  EXPECT_THAT(Cancel(12), IsEmpty());
  EXPECT_THAT(Cancel(11), ElementsAre("order 0 cancel"));
  EXPECT_EQ(OrderOf(0, "cancel").cancel().target(), OrderOf(0, "run").sequence());
  EXPECT_THAT(Answered(0, "run", Failed(absl::StatusCode::kCancelled)),
              ElementsAre("answer 11 CANCELLED", "answer 12 CANCELLED"));
}

TEST_F(NodeBatchesTest, AFailureRunsApartAndTheCancelledOneIsNotRunAgain) {
  Join();
  EXPECT_THAT(Cancel(11), IsEmpty());
  EXPECT_THAT(Answered(0, "run", Failed(absl::StatusCode::kInternal)),
              ElementsAre("answer 11 CANCELLED", "order 0 run packed-f"));
  EXPECT_EQ(OrderOf(0, "run").run().inputs(0).data().inlined(), "question 12");
  EXPECT_EQ(OrderOf(0, "run").run().members_size(), 0);
  EXPECT_THAT(Answered(0, "run", Failed(absl::StatusCode::kInternal)), ElementsAre("answer 12 INTERNAL"));
}

// The worker says how much room it had. The scheduler hears of it, and plans the requests of a run without room again.
TEST_F(NodeBatchesTest, ARunWithoutRoomIsPlannedAgainOrTooLarge) {
  Learn();
  auto full = Failed(absl::StatusCode::kResourceExhausted);
  full.mutable_no_fit()->set_free(MiB(1).count());
  EXPECT_THAT(AskFor(5), ElementsAre("order 0 run packed-f"));
  AskFor(6);
  AskFor(7);
  EXPECT_THAT(Answered(0, "run", Ran(1)), ElementsAre("answer 5 OK", "order 0 run packed-f"));
  EXPECT_THAT(Answered(0, "run", full), ElementsAre("order 0 run packed-f")) << "each runs by itself";
  EXPECT_THAT(Answered(0, "run", Ran(1)), ElementsAre("answer 6 OK", "order 0 run packed-f"));
  // Nothing else is on the GPU that could leave it.
  EXPECT_THAT(Answered(0, "run", full), ElementsAre("answer 7 FAILED_PRECONDITION"));
}

TEST_F(NodeBatchesTest, AWorkerThatDoesNotAnswerAllIsNotBelieved) {
  Join();
  // What it did answer is freed, and both run again.
  EXPECT_THAT(Answered(0, "run", Ran(1)), ElementsAre("order 0 release", "order 0 run packed-f"));
  EXPECT_EQ(OrderOf(0, "run").run().members_size(), 0);
}

TEST_F(NodeBatchesTest, ALostWorkerLosesNoRequest) {
  Join();
  Report(0, proto::ExecutorReport::DOWN);
  EXPECT_THAT(Answered(0, "run", Ran(2)), IsEmpty());  // of a worker that is gone
  const auto lines = Up(0);
  EXPECT_THAT(lines, testing::Contains("order 0 run packed-f"));
  EXPECT_EQ(OrderOf(0, "run").run().members_size(), 0);
}

TEST_F(NodeBatchesTest, WhatCannotBeDividedIsNotJoined) {
  EXPECT_THAT(Adopt(Open()), ElementsAre("order 0 prepare packed-f"));
  Answered(0, "prepare", Prepared(1));
  auto mean = Prepared(2);
  mean.mutable_prepared()->mutable_outputs(0)->set_shape(0, 1);
  Answered(0, "prepare", mean);
  for (Ask ask = 1; ask <= 4; ++ask) {
    AskFor(ask);
    if (ask == 1) Answered(0, "swap-in");
    Answered(0, "run", Ran(1));
  }
  AskFor(10);
  AskFor(11);
  AskFor(12);
  Answered(0, "run", Ran(1));
  EXPECT_EQ(OrderOf(0, "run").run().members_size(), 0);
}

TEST_F(NodeBatchesTest, PlansForBatchesGoAsFarAsTheFunctionSays) {
  Adopt(Open(4));
  for (const std::int64_t rows : {1, 2, 4}) {
    EXPECT_EQ(OrderOf(0, "prepare").prepare().inputs(0).shape(0), rows);
    Answered(0, "prepare", Prepared(rows));
  }
  EXPECT_EQ(OrderOf(0, "prepare").prepare().inputs(0).shape(0), 4);
}

}  // namespace
}  // namespace troupe::node::node_batches_test
