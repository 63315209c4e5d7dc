// A plan whose weights come group by group over a port of the link, each when the test says so.
#pragma once

#include <dlfcn.h>

#include <atomic>
#include <future>
#include <numeric>

#include "gmock/gmock.h"
#include "gpu/cuda/event.hpp"
#include "gpu/cuda/fake/fake_driver.hpp"
#include "gpu/swap/link_port.hpp"
#include "gpu/swap/model_load.hpp"
#include "gtest/gtest.h"
#include "tests/unit/gpu_cuda/fake_cuda.hpp"
#include "tests/unit/gpu_engine/model_builder.hpp"

namespace troupe::gpu::test {

class CudaSwapFixture : public testing::Test {
 protected:
  static constexpr Duration kPatience = std::chrono::minutes(1);

  void SetUp() override {
    if (RealDriver()) GTEST_SKIP() << "only the fake driver tells what it did";
  }
  // y = x + 1 + 2 + ..., so that each step reads a weight of its own.
  void Open(const char* machine, int steps) {
    machine_.emplace(machine);
    opened_ = cuda::Open(SmallOptions());
    ASSERT_NE(opened_.device, nullptr) << opened_.why;
    ModelBuilder builder;
    std::string before = builder.Input("x", {16});
    for (int step = 1; step <= steps; ++step) {
      const std::string after = step == steps ? "y" : "t" + std::to_string(step);
      builder.Step("Add", {before, builder.Floats({16}, std::vector<float>(16, static_cast<float>(step)))},
                   after);
      before = after;
    }
    builder.Output("y", {16});
    weights_ = builder.weights();
    plan_ = *opened_.device->Prepare(builder.model(), weights_, builder.input_specs(), proto::PRECISION_FP32);
    ASSERT_EQ(plan_->step_count(), static_cast<std::size_t>(steps));
    range_ = *opened_.device->Allocate(plan_->weights_bytes());
    port_ = std::make_unique<LinkPort>(*opened_.device, LinkPort::Direction::kIn, LinkPort::Options());
  }

  struct Lane {
    std::unique_ptr<Stream> stream;
    LaunchArguments arguments;
    std::promise<Completion> promise{};
    std::future<Completion> completion{};
    std::atomic<std::size_t> asked = 0;  // steps that were put on the stream, and the next one
    EventPtr event{};
  };
  std::unique_ptr<Lane> MakeLane() {
    auto lane = std::make_unique<Lane>();
    lane->stream = opened_.device->MakeStream();
    lane->arguments.weights = range_;
    lane->arguments.activations = *opened_.device->Allocate(plan_->activation_bytes());
    lane->arguments.inputs = {*opened_.device->Allocate(plan_->input_bytes(0))};
    lane->arguments.outputs = {*opened_.device->Allocate(plan_->output_bytes(0))};
    BringInputs(*lane);
    return lane;
  }
  static void BringInputs(Lane& lane) {
    const std::vector<float> x(16, 0);
    EXPECT_TRUE(lane.stream->CopyIn(lane.arguments.inputs[0], std::as_bytes(std::span(x)), nullptr)
                    ->Wait(kPatience)
                    .ok());
  }
  // Of the weights that are not there yet: nothing of what an earlier test brought is left.
  void BeginLoad(std::size_t groups) {
    const std::vector<std::byte> nothing(weights_.size());
    const auto stream = opened_.device->MakeStream();
    ASSERT_TRUE(stream->CopyIn(range_, nothing, nullptr)->Wait(kPatience).ok());
    load_ = std::make_shared<ModelLoad>(CutEvenly(Bytes(weights_.size()), Bytes(weights_.size() / groups)));
    ASSERT_EQ(load_->groups().size(), groups);
    signals_ = opened_.device->MakeSignals(groups);
    load_->RaisedByDevice(signals_, 0, groups);
  }
  // Puts one group on the link, and waits until it has come, or has not. `counts`: the load hears of it.
  void Bring(std::size_t group, bool counts = true) {
    const Group& at = load_->groups()[group];
    TransferRequest request;
    request.pieces.push_back({range_.Part(Bytes(at.offset), Bytes(at.length)), weights_.data() + at.offset});
    request.signals = signals_;
    request.first_signal = group;
    request.landed = [load = load_, counts](std::size_t, Time now) {
      if (counts) load->Arrived(now);
    };
    auto done = std::make_shared<std::promise<void>>();
    request.done = [load = load_, done](const Completion& completion) {
      if (!completion.status.ok()) load->Failed(completion.status);
      done->set_value();
    };
    port_->Put(std::move(request));
    EXPECT_EQ(done->get_future().wait_for(kPatience), std::future_status::ready);
  }
  void BringAll() {
    for (std::size_t group = load_->arrived(); group < load_->groups().size(); ++group) Bring(group);
  }
  void Launch(Lane& lane) {
    lane.promise = {};
    lane.completion = lane.promise.get_future();
    LaunchArguments arguments = lane.arguments;
    if (load_ != nullptr && !load_->complete()) {
      arguments.gate = [&lane, gate = load_->GateFor(*plan_)](std::size_t step) {
        ++lane.asked;
        return gate(step);
      };
    }
    lane.event = lane.stream->Launch(plan_, arguments, [&lane](const Completion& completion, auto) {
      lane.promise.set_value(completion);
    });
  }
  // Whether all of the launch comes onto its CUDA stream while nothing else happens.
  [[nodiscard]] bool IsPutWhole(const Lane& lane) {
    auto submitted = std::async(std::launch::async, [event = lane.event] {
      (void)dynamic_cast<const cuda::CudaEvent&>(*event).WaitSubmitted();
    });
    if (submitted.wait_for(kPatience) == std::future_status::ready) return true;
    waiting_.push_back(std::move(submitted));  // until the launch has ended
    return false;
  }
  static Completion EndOf(Lane& lane) {
    if (lane.completion.wait_for(kPatience) != std::future_status::ready)
      return {absl::InternalError("never told"), {}, {}};
    return lane.completion.get();
  }
  void ExpectResult(Lane& lane) const {
    std::vector<float> y(16, -1);
    const EventPtr out =
        lane.stream->CopyOut(std::as_writable_bytes(std::span(y)), lane.arguments.outputs[0], nullptr);
    ASSERT_TRUE(out->Wait(kPatience).ok()) << out->status();
    const auto steps = static_cast<float>(plan_->step_count());
    EXPECT_THAT(y, testing::Each(steps * (steps + 1) / 2));
  }
  static cuda::fake::FakeCallCounts CallCounts() {
    cuda::fake::FakeCallCounts counts;
    reinterpret_cast<void (*)(cuda::fake::FakeCallCounts*)>(
        dlsym(dlopen(DriverLibrary().c_str(), RTLD_NOW), "FakeCudaCallCounts"))(&counts);
    return counts;
  }

  std::vector<std::future<void>> waiting_;
  std::optional<FakeMachine> machine_;
  CudaOpened opened_;
  std::vector<std::byte> weights_;
  std::shared_ptr<DevicePlan> plan_;
  DeviceRange range_;  // of the weights on the device
  std::unique_ptr<LinkPort> port_;
  SignalsPtr signals_;
  std::shared_ptr<ModelLoad> load_;
};

}  // namespace troupe::gpu::test
