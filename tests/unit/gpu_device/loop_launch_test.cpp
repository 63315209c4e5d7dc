// A launch whose plan goes round a loop: its limit holds inside the loop, too.
#include "gmock/gmock.h"
#include "gpu/device/virtual_device.hpp"
#include "gpu/engine/control_steps.hpp"
#include "gtest/gtest.h"
#include "tests/unit/gpu_engine/model_builder.hpp"

namespace troupe::gpu::test {
namespace {

constexpr std::int64_t kSide = 256;

// x multiplied by a matrix, so often that it takes most of a minute.
ModelBuilder LongLoop() {
  ModelBuilder builder;
  builder.Input("x", {kSide, kSide});
  proto::Step& loop =
      builder.Step("Loop", {builder.Ints({kMaxTrips}), "", "x", builder.Random({kSide, kSide})}, "y");
  proto::Subgraph& body = *loop.add_subgraphs();
  for (const char* name : {"i", "goes", "v"}) body.add_inputs(name);
  body.add_captures()->set_name("w");
  body.mutable_captures(0)->set_input(3);
  proto::Step& product = *body.add_steps();
  product.set_op("MatMul");
  product.add_inputs("v");
  product.add_inputs("w");
  product.add_outputs("next");
  body.add_outputs("goes");
  body.add_outputs("next");
  builder.Output("y", {kSide, kSide});
  return builder;
}

TEST(LoopLaunch, IsCutAtItsLimitInsideTheLoop) {
  VirtualDeviceOptions options;
  options.builder = Plan::Build;
  const auto device =
      *MakeVirtualDevice(std::move(options), *transport::MemoryFile::Create("test", MiB(16)), nullptr);
  ModelBuilder builder = LongLoop();
  const auto plan =
      device->Prepare(builder.model(), builder.weights(), builder.input_specs(), proto::PRECISION_FP32);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ((*plan)->step_count(), 1U);
  LaunchArguments arguments;
  arguments.weights = *device->Allocate((*plan)->weights_bytes());
  arguments.activations = *device->Allocate((*plan)->activation_bytes());
  arguments.inputs = {*device->Allocate((*plan)->input_bytes(0))};
  arguments.outputs = {*device->Allocate((*plan)->output_bytes(0))};
  arguments.limit = std::chrono::milliseconds(20);
  const std::vector<float> x(kSide * kSide);
  Completion completion;
  {
    const auto stream = device->MakeStream();
    stream->CopyIn(arguments.weights, builder.weights(), nullptr);
    stream->CopyIn(arguments.inputs[0], std::as_bytes(std::span(x)), nullptr);
    stream->Launch(*plan, arguments, [&](const Completion& c, const auto&) { completion = c; });
  }
  EXPECT_EQ(completion.status.code(), absl::StatusCode::kDeadlineExceeded) << completion.status;
  EXPECT_THAT(completion.status.message(), testing::HasSubstr("cut before step 0 of 1"));
  EXPECT_GE(completion.cut_after, arguments.limit);
}

}  // namespace
}  // namespace troupe::gpu::test
