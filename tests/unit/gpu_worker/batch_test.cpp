// Runs that answer several requests.
#include "gmock/gmock.h"
#include "gpu/worker/run_batch.hpp"
#include "tests/unit/gpu_worker/runner_fixture.hpp"

namespace troupe::gpu::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// An input x of `rows` rows: first, first + 1, ...
proto::Tensor InputFrom(std::int64_t rows, float first) {
  proto::Tensor tensor = SmallInput(rows);
  std::vector<float> values(static_cast<std::size_t>(rows) * kColumns);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = first + static_cast<float>(i);
  tensor.mutable_data()->set_inlined(values.data(), values.size() * sizeof(float));
  return tensor;
}

std::vector<float> ValuesOf(const proto::Tensor& tensor) {
  const std::string& bytes = tensor.data().inlined();
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

class RunBatchTest : public RunnerTest {
 protected:
  using RunnerTest::RunnerTest;
  // Of requests with so many rows each, whose values begin at 0, 100, 200, ...
  static proto::RunOrder OrderOf(const std::vector<std::int64_t>& rows) {
    proto::RunOrder order;
    order.set_digest("m");
    for (std::size_t i = 0; i < rows.size(); ++i) {
      auto& inputs = i == 0 ? *order.mutable_inputs() : *order.add_members()->mutable_inputs();
      *inputs.Add() = InputFrom(rows[i], static_cast<float>(100 * i));
    }
    return order;
  }
  void Submit(std::uint64_t sequence, proto::RunOrder order, const proto::HostCopy& copy) {
    ASSERT_TRUE(CheckRunInputs(order).ok());
    RunRequest request;
    request.sequence = sequence;
    request.order = std::move(order);
    request.host = Host(copy);
    request.channel = channel_;
    request.received = transport::SteadyNow();
    runner_->Submit(std::move(request), ReplyFor(sequence));
  }
};

TEST_F(RunBatchTest, EachRequestGetsItsPart) {
  const auto copy = BringSmall("m");
  Submit(10, OrderOf({1, 2, 1}), copy);
  const auto outcome = Await(10);
  ASSERT_EQ(outcome.code(), 0) << outcome.message();
  // y = Relu(x + (1, 2, 3, -100))
  ASSERT_EQ(outcome.run().outputs_size(), 1);
  EXPECT_THAT(ValuesOf(outcome.run().outputs(0)), ElementsAre(1, 3, 5, 0));
  ASSERT_EQ(outcome.run().members_size(), 2);
  const auto& second = outcome.run().members(0).outputs(0);
  EXPECT_THAT(second.spec().shape(), ElementsAre(2, 4));
  EXPECT_THAT(ValuesOf(second), ElementsAre(101, 103, 105, 3, 105, 107, 109, 7));
  EXPECT_THAT(ValuesOf(outcome.run().members(1).outputs(0)), ElementsAre(201, 203, 205, 103));
  EXPECT_EQ(outcome.bytes(), 2 * 4 * 4 * 4u);  // four rows of four floats, in and out
  EXPECT_EQ(gate_->entered, 1);
  EvictAll();
  EXPECT_EQ(memory_->memory().free, memory_->memory().total);
}

TEST_F(RunBatchTest, InputsAndOutputsInArenas) {
  const auto copy = BringSmall("m");
  proto::RunOrder order = OrderOf({1, 1});
  auto room = *channel_->ReserveSlice(Bytes(16));
  std::memcpy(room.bytes().data(), order.members(0).inputs(0).data().inlined().data(), 16);
  *order.mutable_members(0)->mutable_inputs(0)->mutable_data() = room.Commit();
  limits_.inline_outputs = Bytes(20);  // the second output goes to the arena
  Submit(10, std::move(order), copy);
  const auto outcome = Await(10);
  ASSERT_EQ(outcome.code(), 0) << outcome.message();
  EXPECT_THAT(ValuesOf(outcome.run().outputs(0)), ElementsAre(1, 3, 5, 0));
  const auto& ref = outcome.run().members(0).outputs(0).data();
  ASSERT_TRUE(ref.has_arena());
  const auto data = *channel_->FetchHere(ref);
  std::vector<float> values(4);
  ASSERT_EQ(data.bytes().size(), 16u);
  std::memcpy(values.data(), data.bytes().data(), 16);
  EXPECT_THAT(values, ElementsAre(101, 103, 105, 3));
}

TEST_F(RunBatchTest, WhatCannotBeJoinedIsRefused) {
  struct Case {
    const char* what;
    std::function<void(proto::RunOrder&)> change;
    const char* says;
  };
  const Case cases[] = {
      {"other columns",
       [](auto& order) {
         *order.mutable_members(0)->mutable_inputs(0)->mutable_spec() = Spec("x", {2, 2});
       },
       "differ in more than their leading dimension"},
      {"another name",
       [](auto& order) { order.mutable_members(0)->mutable_inputs(0)->mutable_spec()->set_name("z"); },
       "differ in more"},
      {"no inputs", [](auto& order) { order.mutable_members(0)->clear_inputs(); }, "one leading dimension"},
      {"too few bytes",
       [](auto& order) { order.mutable_members(0)->mutable_inputs(0)->mutable_data()->set_inlined("x"); },
       "has 1 bytes"},
      {"state",
       [](auto& order) {
         order.set_stateful("f");
         order.add_state()->set_input("s");
         order.mutable_state(0)->set_output("t");
       },
       "runs with state"},
      {"by layer", [](auto& order) { order.set_by_layer(true); }, "by layer"},
      {"no leading dimension",
       [](auto& order) {
         for (auto* input : {order.mutable_inputs(0), order.mutable_members(0)->mutable_inputs(0)}) {
           *input->mutable_spec() = Spec("x", {});
           input->mutable_data()->set_inlined("1234");
         }
       },
       "one leading dimension"},
      {"too many",
       [](auto& order) {
         while (order.members_size() < RunBatch::kMost) *order.add_members() = order.members(0);
       },
       "too large"},
  };
  for (const Case& c : cases) {
    proto::RunOrder order = OrderOf({1, 1});
    c.change(order);
    const absl::Status status = CheckRunInputs(order);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.what;
    EXPECT_THAT(status.message(), HasSubstr(c.says)) << c.what;
  }
}

TEST_F(RunBatchTest, ACancelledBatchThatHasNotBegunIsNotRun) {
  const auto copy = BringSmall("m");
  gate_->Set(true);
  Run(10, "m");
  Submit(11, OrderOf({1, 1}), copy);
  runner_->Cancel(11);
  gate_->Set(false);
  EXPECT_EQ(Code(10), 0);
  EXPECT_EQ(Code(11), CodeOf(absl::StatusCode::kCancelled));
  EXPECT_EQ(Await(11).run().members_size(), 0);
}

TEST(RunBatch, OutputsWithAnotherLeadingDimensionCannotBeDivided) {
  proto::RunOrder order;
  *order.add_inputs() = SmallInput(2);
  const std::vector<proto::TensorSpec> mean = {Spec("mean", {1, 4})};
  EXPECT_TRUE(RunBatch(order).CheckDivisible(mean).ok());  // one request has it all
  *order.add_members()->add_inputs() = SmallInput(1);
  const RunBatch batch(order);
  EXPECT_EQ(batch.rows(), 3);
  EXPECT_EQ(batch.CheckDivisible(mean).code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(batch.CheckDivisible(mean).message(), HasSubstr("a batch of 2 requests with 3 rows"));
  EXPECT_TRUE(batch.CheckDivisible(std::vector{Spec("y", {3, 7})}).ok());
  EXPECT_EQ(batch.PartOf(0, Bytes(30)).size, Bytes(20));
  EXPECT_EQ(batch.PartOf(1, Bytes(30)).offset, Bytes(20));
  EXPECT_EQ(batch.PartOf(1, Bytes(30)).size, Bytes(10));
}

}  // namespace
}  // namespace troupe::gpu::test
