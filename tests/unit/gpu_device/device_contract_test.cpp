// What every device promises. A device joins with a line in INSTANTIATE_TEST_SUITE_P; a device in a plug-in
// has a test binary of its own for that.
#include <future>
#include <numeric>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/gpu_device/device_fixture.hpp"
#include "tests/unit/gpu_device/small_model.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::gpu::test {
namespace {

constexpr Duration kPatience = std::chrono::seconds(30);

std::vector<std::byte> Pattern(std::size_t size, unsigned seed) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>((i * 31 + seed) & 0xff);
  return bytes;
}

class DeviceContract : public testing::TestWithParam<DeviceKind> {
 protected:
  void SetUp() override { device_ = GetParam().make(); }

  DeviceRange Take(Bytes size) {
    auto range = device_->Allocate(size);
    EXPECT_TRUE(range.ok()) << range.status();
    return *range;
  }
  std::shared_ptr<DevicePlan> PrepareSmall(std::int64_t rows) {
    const auto weights = SmallWeights();
    const std::vector<proto::TensorSpec> inputs = {Spec("x", {rows, kColumns})};
    auto plan = device_->Prepare(SmallModel(), weights, inputs, proto::PRECISION_FP32);
    EXPECT_TRUE(plan.ok()) << plan.status();
    return *plan;
  }

  std::unique_ptr<Device> device_;
};

TEST_P(DeviceContract, SaysWhatItIs) {
  EXPECT_FALSE(device_->info().name.empty());
  EXPECT_EQ(device_->info().memory, device_->memory().total);
  EXPECT_TRUE(device_->Health().ok());
}

TEST_P(DeviceContract, MemoryIsBoundedAndTheAccountingCloses) {
  const MemoryUse before = device_->memory();
  EXPECT_EQ(before.free, before.total);
  std::vector<DeviceRange> taken;
  const Bytes piece = Bytes(before.total.count() / 8);
  for (;;) {
    auto range = device_->Allocate(piece);
    if (!range.ok()) {
      EXPECT_EQ(range.status().code(), absl::StatusCode::kResourceExhausted);
      break;
    }
    taken.push_back(*range);
  }
  EXPECT_GE(taken.size(), 7u);
  EXPECT_LT(device_->memory().largest, piece);
  std::vector<std::byte*> addresses;
  for (const DeviceRange& range : taken) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(range.address) % 256, 0u);
    addresses.push_back(range.address);
  }
  std::sort(addresses.begin(), addresses.end());
  for (std::size_t i = 1; i < addresses.size(); ++i) {
    EXPECT_GE(addresses[i] - addresses[i - 1], static_cast<std::ptrdiff_t>(piece.count()));
  }
  for (const DeviceRange& range : taken) device_->Free(range);
  EXPECT_EQ(device_->memory().free, before.free);
  EXPECT_EQ(device_->memory().largest, before.largest);
}

TEST_P(DeviceContract, MoreThanThereIsIsRefused) {
  EXPECT_EQ(device_->Allocate(device_->memory().total + Bytes(1)).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(device_->Allocate(Bytes(~std::uint64_t{0})).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_P(DeviceContract, AnEmptyRangeIsARange) {
  const DeviceRange range = Take(Bytes(0));
  auto stream = device_->MakeStream();
  EXPECT_TRUE(stream->CopyIn(range, {}, nullptr)->Wait(kPatience).ok());
  device_->Free(range);
}

TEST_P(DeviceContract, BytesComeBackAsTheyWent) {
  for (const std::size_t size :
       {std::size_t{1}, std::size_t{4096}, std::size_t{64 << 10}, std::size_t{3 << 20} | 5}) {
    const auto out = Pattern(size, 7);
    std::vector<std::byte> back(size);
    const DeviceRange range = Take(Bytes(size));
    auto stream = device_->MakeStream();
    stream->CopyIn(range, out, nullptr);
    EXPECT_TRUE(stream->CopyOut(back, range, nullptr)->Wait(kPatience).ok());
    EXPECT_EQ(out, back) << size;
    device_->Free(range);
  }
}

TEST_P(DeviceContract, BytesMoveWithinTheDevice) {
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{5}, std::size_t{64 << 10}, std::size_t{2 << 20} | 5}) {
    const auto out = Pattern(size, 11);
    std::vector<std::byte> back(size);
    const DeviceRange first = Take(Bytes(size));
    const DeviceRange second = Take(Bytes(size));
    auto stream = device_->MakeStream();
    stream->CopyIn(first, out, nullptr);
    stream->CopyWithin(second, first, nullptr);
    EXPECT_TRUE(stream->CopyOut(back, second, nullptr)->Wait(kPatience).ok());
    EXPECT_EQ(out, back) << size;
    device_->Free(first);
    device_->Free(second);
  }
}

TEST_P(DeviceContract, OneStreamIsInOrder) {
  const DeviceRange range = Take(KiB(256));
  auto stream = device_->MakeStream();
  std::vector<int> order;
  std::vector<std::vector<std::byte>> sources;
  for (unsigned i = 0; i < 6; ++i) sources.push_back(Pattern(i % 2 ? 100 : 256 << 10, i));
  std::vector<std::byte> back(256 << 10);
  for (int i = 0; i < 6; ++i) {
    stream->CopyIn(range, sources[static_cast<std::size_t>(i)],
                   [&order, i](const Completion&) { order.push_back(i); });
  }
  ASSERT_TRUE(stream->CopyOut(back, range, nullptr)->Wait(kPatience).ok());
  EXPECT_THAT(order, testing::ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_TRUE(std::equal(sources[5].begin(), sources[5].end(), back.begin()));
  device_->Free(range);
}

TEST_P(DeviceContract, CompletionsTellTimesThatMakeSense) {
  const DeviceRange range = Take(MiB(2));
  const auto bytes = Pattern(2 << 20, 1);
  std::promise<Completion> completed;
  auto stream = device_->MakeStream();
  stream->CopyIn(range, bytes, [&](const Completion& completion) { completed.set_value(completion); });
  const Completion completion = completed.get_future().get();
  EXPECT_TRUE(completion.status.ok());
  EXPECT_GT(completion.end, completion.begin);
  device_->Free(range);
}

TEST_P(DeviceContract, StreamsWaitForEventsOfOtherStreams) {
  const DeviceRange range = Take(MiB(4));
  const auto bytes = Pattern(4 << 20, 3);
  std::vector<std::byte> back(4 << 20);
  auto in = device_->MakeStream();
  auto out = device_->MakeStream();
  const EventPtr there = in->CopyIn(range, bytes, nullptr);
  out->Wait(there);
  ASSERT_TRUE(out->CopyOut(back, range, nullptr)->Wait(kPatience).ok());
  EXPECT_TRUE(there->done());
  EXPECT_EQ(bytes, back);
  device_->Free(range);
}

TEST_P(DeviceContract, DestroyingAStreamWaitsForIt) {
  const DeviceRange range = Take(MiB(4));
  const auto bytes = Pattern(4 << 20, 3);
  EventPtr event;
  {
    auto stream = device_->MakeStream();
    event = stream->CopyIn(range, bytes, nullptr);
  }
  EXPECT_TRUE(event->done());
  device_->Free(range);
}

TEST_P(DeviceContract, AnIdleEngineIsNotBusyAndMovedBefore) {
  const DeviceRange range = Take(MiB(1));
  const auto bytes = Pattern(1 << 20, 3);
  const std::uint64_t before = device_->engine(Engine::kCopyIn).progress;
  {
    auto stream = device_->MakeStream();
    stream->CopyIn(range, bytes, nullptr);
  }
  EXPECT_GT(device_->engine(Engine::kCopyIn).progress, before);
  EXPECT_FALSE(device_->engine(Engine::kCopyIn).busy);
  device_->Free(range);
}

TEST_P(DeviceContract, APlanDescribesItself) {
  const auto plan = PrepareSmall(3);
  ASSERT_EQ(plan->inputs().size(), 1u);
  EXPECT_EQ(plan->inputs()[0].name(), "x");
  EXPECT_EQ(plan->input_bytes(0), Bytes(48));
  ASSERT_EQ(plan->outputs().size(), 1u);
  EXPECT_EQ(plan->outputs()[0].shape(0), 3);
  EXPECT_EQ(plan->output_bytes(0), Bytes(48));
  EXPECT_EQ(plan->weights_bytes(), Bytes(64));
  ASSERT_GE(plan->step_count(), 1u);
  ASSERT_EQ(plan->step_weights(0).size(), 1u);
  EXPECT_EQ(plan->step_weights(0)[0].second, 16u);
}

TEST_P(DeviceContract, InputsThatDoNotFitTheModelAreRefused) {
  const auto weights = SmallWeights();
  const std::vector<std::vector<proto::TensorSpec>> wrong = {
      {},
      {Spec("z", {1, kColumns})},
      {Spec("x", {1, 5})},
      {Spec("x", {kColumns})},
      {Spec("x", {-1, kColumns})},
      {Spec("x", {1, kColumns}, proto::INT64)},
      {Spec("x", {1, kColumns}), Spec("x", {1, kColumns})},
      {Spec("x", {1, kColumns}), Spec("z", {1})},
      {Spec("x", {std::int64_t{1} << 62, kColumns})},
  };
  for (const auto& inputs : wrong) {
    EXPECT_EQ(device_->Prepare(SmallModel(), weights, inputs, proto::PRECISION_FP32).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

// The weights, input, activations and output of the small model, and the values that came out.
struct SmallRun {
  SmallRun(Device& device, std::shared_ptr<DevicePlan> plan) : device(device), plan(std::move(plan)) {
    arguments.weights = *device.Allocate(this->plan->weights_bytes());
    arguments.activations = *device.Allocate(this->plan->activation_bytes());
    arguments.inputs = {*device.Allocate(this->plan->input_bytes(0))};
    arguments.outputs = {*device.Allocate(this->plan->output_bytes(0))};
    x.resize(this->plan->input_bytes(0).count() / sizeof(float));
    std::iota(x.begin(), x.end(), 0.0F);
    y.resize(x.size(), -1);
  }
  ~SmallRun() {
    for (const auto& range :
         {arguments.weights, arguments.activations, arguments.inputs[0], arguments.outputs[0]}) {
      device.Free(range);
    }
  }
  absl::Status Go(Stream& stream) {
    stream.CopyIn(arguments.inputs[0], std::as_bytes(std::span(x)), nullptr);
    stream.Launch(plan, arguments,
                  [this](const Completion& completion, std::vector<proto::TensorSpec> shapes) {
                    launched = completion;
                    outputs = std::move(shapes);
                  });
    return stream.CopyOut(std::as_writable_bytes(std::span(y)), arguments.outputs[0], nullptr)
        ->Wait(kPatience);
  }
  Device& device;
  std::shared_ptr<DevicePlan> plan;
  LaunchArguments arguments;
  std::vector<std::byte> weights = SmallWeights();
  std::vector<float> x;
  std::vector<float> y;
  Completion launched;
  std::vector<proto::TensorSpec> outputs;
};

TEST_P(DeviceContract, ALaunchComputes) {
  auto stream = device_->MakeStream();
  SmallRun run(*device_, PrepareSmall(2));
  stream->CopyIn(run.arguments.weights, run.weights, nullptr);
  ASSERT_TRUE(run.Go(*stream).ok());
  EXPECT_TRUE(run.launched.status.ok()) << run.launched.status;
  ASSERT_EQ(run.outputs.size(), 1u);
  EXPECT_EQ(run.outputs[0].shape(0), 2);
  if (GetParam().computes) {
    EXPECT_THAT(run.y, testing::ElementsAre(1, 3, 5, 0, 5, 7, 9, 0));
  } else {
    EXPECT_THAT(run.y, testing::Each(0));
  }
}

TEST_P(DeviceContract, AStepWaitsForItsGate) {
  auto compute = device_->MakeStream();
  auto copies = device_->MakeStream();
  auto blocker = device_->MakeStream();
  SmallRun run(*device_, PrepareSmall(1));
  // The weights arrive only behind a long copy, after the launch was submitted.
  const DeviceRange room = Take(MiB(4));
  const auto filler = Pattern(4 << 20, 1);
  copies->CopyIn(room, filler, nullptr);
  const EventPtr weights = copies->CopyIn(run.arguments.weights, run.weights, nullptr);
  std::vector<std::size_t> asked;
  run.arguments.gate = [&](std::size_t step) -> EventPtr {
    asked.push_back(step);
    return step == 0 ? weights : nullptr;
  };
  ASSERT_TRUE(run.Go(*compute).ok());
  EXPECT_TRUE(weights->done());
  EXPECT_THAT(asked, testing::ElementsAre(0, 1));
  if (GetParam().computes) {
    EXPECT_EQ(run.y[0], 1);
  }
  device_->Free(room);
}

// Gates that the host opens, each for a group of weights that has arrived.
class HostEvent : public Event {
 public:
  [[nodiscard]] bool done() const override {
    return told_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }
  [[nodiscard]] absl::Status status() const override { return told_.get(); }
  [[nodiscard]] absl::Status Wait(Duration timeout) const override {
    if (told_.wait_for(timeout) != std::future_status::ready) return absl::DeadlineExceededError("pending");
    return told_.get();
  }
  void Tell(absl::Status status) { promise_.set_value(std::move(status)); }

 private:
  std::promise<absl::Status> promise_;
  std::shared_future<absl::Status> told_ = promise_.get_future().share();
};

// The host waits until it is told that the steps before have ended.
TEST_P(DeviceContract, AStepWaitsForWhatTheHostKnows) {
  auto stream = device_->MakeStream();
  for (const absl::Status& told : {absl::OkStatus(), absl::UnavailableError("it does not come")}) {
    SmallRun run(*device_, PrepareSmall(1));
    ASSERT_TRUE(stream->CopyIn(run.arguments.weights, run.weights, nullptr)->Wait(kPatience).ok());
    const auto event = std::make_shared<HostEvent>();
    run.arguments.gate = [&](std::size_t step) -> EventPtr { return step == 1 ? event : nullptr; };
    run.arguments.marks = {1};
    run.arguments.reached = [&](std::size_t) { event->Tell(told); };
    EXPECT_TRUE(run.Go(*stream).ok());
    EXPECT_EQ(run.launched.status, told);
    if (told.ok() && GetParam().computes) {
      EXPECT_EQ(run.y[0], 1);
    }
  }
}

class SignalledEvent final : public HostEvent {
 public:
  explicit SignalledEvent(SignalsPtr signals) : signals_(std::move(signals)) {}
  [[nodiscard]] SignalRange signals() const override {
    return {signals_, signals_ == nullptr ? 0 : signals_->count()};
  }

 private:
  const SignalsPtr signals_;
};

// The copy is ordered after the launch, and the host tells of it only when the launch has computed.
TEST_P(DeviceContract, ALaunchWaitsForTheSignalOfACopyOnTheDevice) {
  auto compute = device_->MakeStream();
  auto copies = device_->MakeStream();
  SmallRun run(*device_, PrepareSmall(1));
  const auto event = std::make_shared<SignalledEvent>(device_->MakeSignals(1));
  if (event->signals().of == nullptr) GTEST_SKIP() << "this device has no signals";
  run.arguments.gate = [&](std::size_t) { return event; };
  const std::vector<std::byte> nothing(run.y.size() * sizeof(float));
  ASSERT_TRUE(copies->CopyIn(run.arguments.outputs[0], nothing, nullptr)->Wait(kPatience).ok());
  compute->CopyIn(run.arguments.inputs[0], std::as_bytes(std::span(run.x)), nullptr);
  const EventPtr launched = compute->Launch(run.plan, run.arguments, nullptr);
  copies->Raise({event->signals().of, 0});
  copies->CopyIn(run.arguments.weights, run.weights, nullptr);
  const Time until = transport::SteadyNow() + kPatience;
  do {
    ASSERT_TRUE(copies->CopyOut(std::as_writable_bytes(std::span(run.y)), run.arguments.outputs[0], nullptr)
                    ->Wait(kPatience)
                    .ok());
  } while (run.y[0] != 1 && transport::SteadyNow() < until);
  EXPECT_EQ(run.y[0], 1);
  EXPECT_FALSE(launched->done()) << "its result does not count before the event";
  event->Tell(absl::OkStatus());
  EXPECT_TRUE(launched->Wait(kPatience).ok());
}

TEST_P(DeviceContract, ALaunchWhoseSignalsAreReleasedEndsWithTheErrorOfItsEvent) {
  auto stream = device_->MakeStream();
  SmallRun run(*device_, PrepareSmall(1));
  const auto event = std::make_shared<SignalledEvent>(device_->MakeSignals(1));
  if (event->signals().of == nullptr) GTEST_SKIP() << "this device has no signals";
  run.arguments.gate = [&](std::size_t) { return event; };
  const EventPtr launched = stream->Launch(run.plan, run.arguments, nullptr);
  event->signals().of->Release();
  event->Tell(absl::DataLossError("it does not come"));
  EXPECT_EQ(launched->Wait(kPatience).code(), absl::StatusCode::kDataLoss);
  ASSERT_TRUE(stream->CopyIn(run.arguments.weights, run.weights, nullptr)->Wait(kPatience).ok());
  run.arguments.gate = nullptr;
  ASSERT_TRUE(run.Go(*stream).ok());
  EXPECT_TRUE(run.launched.status.ok()) << run.launched.status;
}

TEST_P(DeviceContract, LaunchesOfSeveralStreamsAllEnd) {
  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<std::unique_ptr<SmallRun>> runs;
  for (int i = 0; i < 4; ++i) {
    streams.push_back(device_->MakeStream());
    runs.push_back(std::make_unique<SmallRun>(*device_, PrepareSmall(i + 1)));
    streams.back()->CopyIn(runs.back()->arguments.weights, runs.back()->weights, nullptr);
  }
  for (std::size_t i = 0; i < streams.size(); ++i) EXPECT_TRUE(runs[i]->Go(*streams[i]).ok());
  streams.clear();
  for (const auto& run : runs) {
    if (GetParam().computes) {
      EXPECT_EQ(run->y[1], 3);
    }
  }
  EXPECT_GT(device_->compute_busy(), Duration(0));
}

// Each launch waits half way for the one that is launched after it: one at a time they would wait for ever.
TEST_P(DeviceContract, AsManyLaunchesComputeAtATimeAsItSays) {
  const std::size_t concurrency = device_->info().concurrency;
  ASSERT_GE(concurrency, 1u);
  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<std::unique_ptr<SmallRun>> runs;
  std::vector<std::promise<EventPtr>> launched(concurrency);
  std::vector<std::shared_future<EventPtr>> events;
  for (auto& promise : launched) events.push_back(promise.get_future().share());
  for (std::size_t i = 0; i < concurrency; ++i) {
    streams.push_back(device_->MakeStream());
    runs.push_back(std::make_unique<SmallRun>(*device_, PrepareSmall(2)));
    SmallRun& run = *runs.back();
    streams[i]->CopyIn(run.arguments.weights, run.weights, nullptr)->Wait(kPatience).IgnoreError();
    streams[i]->CopyIn(run.arguments.inputs[0], std::as_bytes(std::span(run.x)), nullptr);
    if (i + 1 < concurrency) {
      run.arguments.gate = [next = events[i + 1]](std::size_t step) {
        return step == 1 ? next.get() : nullptr;
      };
    }
    launched[i].set_value(streams[i]->Launch(run.plan, run.arguments, nullptr));
  }
  for (const auto& event : events) EXPECT_TRUE(event.get()->Wait(kPatience).ok());
  for (std::size_t i = 0; i < concurrency; ++i) {
    std::vector<float>& y = runs[i]->y;
    EXPECT_TRUE(streams[i]
                    ->CopyOut(std::as_writable_bytes(std::span(y)), runs[i]->arguments.outputs[0], nullptr)
                    ->Wait(kPatience)
                    .ok());
    if (GetParam().computes) {
      EXPECT_THAT(y, testing::ElementsAre(1, 3, 5, 0, 5, 7, 9, 0)) << i;
    }
  }
  streams.clear();
  EXPECT_FALSE(device_->engine(Engine::kCompute).busy);
}

TEST_P(DeviceContract, AStreamTellsOfItsOwnLaunches) {
  auto stream = device_->MakeStream();
  SmallRun run(*device_, PrepareSmall(1));
  EXPECT_FALSE(stream->launches().busy);
  ASSERT_TRUE(run.Go(*stream).ok());
  EXPECT_GE(stream->launches().progress, run.plan->step_count());
  EXPECT_EQ(device_->MakeStream()->launches().progress, 0u);
}

TEST_P(DeviceContract, EverythingFreedIsEverythingFree) {
  {
    SmallRun run(*device_, PrepareSmall(8));
    auto stream = device_->MakeStream();
    EXPECT_TRUE(run.Go(*stream).ok());
  }
  EXPECT_EQ(device_->memory().free, device_->memory().total);
}

// Memory of another device of this kind, filled with a pattern.
struct OtherDevice {
  explicit OtherDevice(const DeviceKind& kind) : device(kind.make()) {
    range = *device->Allocate(Bytes(pattern.size()));
    const auto stream = device->MakeStream();
    EXPECT_TRUE(stream->CopyIn(range, pattern, nullptr)->Wait(kPatience).ok());
  }
  std::vector<std::byte> pattern = Pattern((1 << 20) + 1024, 5);
  std::unique_ptr<Device> device;
  DeviceRange range;
};

TEST_P(DeviceContract, CopiesFromAnotherDevice) {
  if (!device_->info().peer_copies) GTEST_SKIP() << "this machine has no other GPU";
  OtherDevice other(GetParam());
  auto shared = other.device->Share(other.range.Part(Bytes(512), Bytes(1 << 20)));
  ASSERT_TRUE(shared.ok()) << shared.status();
  auto opened = device_->OpenPeer(1, *std::move(shared));
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ((*opened)->size(), Bytes(1 << 20));
  const DeviceRange to = Take(MiB(1));
  const auto stream = device_->MakeStream();
  // The copy comes in two pieces, the second one first.
  const Bytes half = KiB(512);
  EXPECT_TRUE(stream->CopyPeer(to.Part(half, half), *opened, half, nullptr)->Wait(kPatience).ok());
  std::promise<Completion> done;
  stream->CopyPeer(to.Part(Bytes(0), half), *opened, Bytes(0),
                   [&](const Completion& completion) { done.set_value(completion); });
  const Completion completion = done.get_future().get();
  EXPECT_TRUE(completion.status.ok()) << completion.status;
  EXPECT_LE(completion.begin, completion.end);
  std::vector<std::byte> back(1 << 20);
  EXPECT_TRUE(stream->CopyOut(back, to, nullptr)->Wait(kPatience).ok());
  EXPECT_TRUE(std::equal(back.begin(), back.end(), other.pattern.begin() + 512));
  device_->Free(to);
}

// Only the owner of the memory knows whether its content still counts; the device promises that it can be
// read.
TEST_P(DeviceContract, MemoryOfAnotherDeviceCanBeReadAfterItsOwnersEnd) {
  if (!device_->info().peer_copies) GTEST_SKIP() << "this machine has no other GPU";
  OtherDevice other(GetParam());
  auto opened = device_->OpenPeer(1, *other.device->Share(other.range));
  ASSERT_TRUE(opened.ok()) << opened.status();
  other.device.reset();
  const DeviceRange to = Take(Bytes(other.pattern.size()));
  const auto stream = device_->MakeStream();
  EXPECT_TRUE(stream->CopyPeer(to, *opened, Bytes(0), nullptr)->Wait(kPatience).ok());
  opened->reset();
  device_->Free(to);
}

TEST_P(DeviceContract, MemoryOfAnotherDeviceIsChecked) {
  if (!device_->info().peer_copies) GTEST_SKIP() << "this machine has no other GPU";
  OtherDevice other(GetParam());
  const auto open = [&](std::uint32_t gpu, Bytes offset, Bytes size) {
    auto shared = other.device->Share(other.range);
    EXPECT_TRUE(shared.ok()) << shared.status();
    shared->parts = {{Bytes(0), Bytes(1)}, {offset, size}};
    return device_->OpenPeer(gpu, *std::move(shared)).status().code();
  };
  EXPECT_EQ(open(1, Bytes(0), MiB(1)), absl::StatusCode::kOk);
  EXPECT_EQ(open(1, GiB(64), Bytes(1)), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(open(1, Bytes(0), GiB(64)), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(open(1, Bytes(~std::uint64_t{0}), Bytes(2)), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(open(2, Bytes(0), MiB(1)), absl::StatusCode::kNotFound) << "there is no link to that device";
  EXPECT_FALSE(device_->OpenPeer(1, SharedRange()).ok()) << "the range is not memory of a device";
}

// Three ranges that begin at a multiple of the device's unit and are not adjacent, and whose size is not a
// multiple of it.
struct Scattered {
  Scattered(Device& device, Bytes piece)
      : unit(device.MappingUnit()), whole(*device.Allocate(piece * 6 + unit)) {
    const auto begin = reinterpret_cast<std::uintptr_t>(whole.address);
    const Bytes first((begin + unit.count() - 1) / unit.count() * unit.count() - begin);
    for (const std::uint64_t i : {5, 0, 2}) pieces.push_back(whole.Part(first + piece * i, piece));
  }
  Bytes unit;
  DeviceRange whole;
  std::vector<DeviceRange> pieces;
};
constexpr std::uint64_t kMappedAt = std::uint64_t{33} << 40;

TEST_P(DeviceContract, MemoryInPiecesIsOneRangeWhereItWasMapped) {
  if (device_->MappingUnit() == Bytes(0)) GTEST_SKIP() << "this device maps nothing";
  const Bytes piece = AlignUp(KiB(64), device_->MappingUnit());
  Scattered scattered(*device_, piece);
  const auto mapped = device_->Map(kMappedAt, scattered.pieces);
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(mapped->address), kMappedAt);
  EXPECT_EQ(mapped->size, piece * 3);
  const auto stream = device_->MakeStream();
  const auto pattern = Pattern(mapped->size.count() - 10, 9);
  EXPECT_TRUE(
      stream->CopyIn(mapped->Part(Bytes(5), Bytes(pattern.size())), pattern, nullptr)->Wait(kPatience).ok());
  std::vector<std::byte> back(pattern.size());
  EXPECT_TRUE(
      stream->CopyOut(back, mapped->Part(Bytes(5), Bytes(pattern.size())), nullptr)->Wait(kPatience).ok());
  EXPECT_EQ(back, pattern);
  // The second piece is read under its own address.
  std::vector<std::byte> second(piece.count());
  EXPECT_TRUE(stream->CopyOut(second, scattered.pieces[1], nullptr)->Wait(kPatience).ok());
  EXPECT_TRUE(std::equal(second.begin(), second.end(),
                         pattern.begin() + static_cast<std::ptrdiff_t>(piece.count()) - 5));
  // A copy within the device goes from pieces to pieces.
  const DeviceRange to = Take(piece * 2);
  EXPECT_TRUE(stream->CopyWithin(to, mapped->Part(piece, piece * 2), nullptr)->Wait(kPatience).ok());
  EXPECT_TRUE(stream->CopyOut(second, to.Part(Bytes(0), piece), nullptr)->Wait(kPatience).ok());
  EXPECT_TRUE(std::equal(second.begin(), second.end(),
                         pattern.begin() + static_cast<std::ptrdiff_t>(piece.count()) - 5));
  // Another device copies the mapping as one range, across the ends of two of its pieces.
  const auto shared = device_->Share(mapped->Part(Bytes(5), Bytes(pattern.size())));
  ASSERT_TRUE(shared.ok()) << shared.status();
  EXPECT_EQ(shared->parts.size(), 3u);
  EXPECT_EQ(device_->Share(mapped->Part(piece, piece))->parts.size(), 1u);
  if (device_->info().peer_copies) {
    const auto destination = GetParam().make();
    const auto opened =
        destination->OpenPeer(1, *device_->Share(mapped->Part(Bytes(5), Bytes(pattern.size()))));
    ASSERT_TRUE(opened.ok()) << opened.status();
    EXPECT_EQ((*opened)->size(), Bytes(pattern.size()));
    const DeviceRange there = *destination->Allocate(Bytes(pattern.size()));
    const auto copies = destination->MakeStream();
    const Bytes cut = piece + Bytes(77);
    const Bytes rest = Bytes(pattern.size()) - cut;
    EXPECT_TRUE(copies->CopyPeer(there.Part(cut, rest), *opened, cut, nullptr)->Wait(kPatience).ok());
    EXPECT_TRUE(
        copies->CopyPeer(there.Part(Bytes(0), cut), *opened, Bytes(0), nullptr)->Wait(kPatience).ok());
    EXPECT_TRUE(copies->CopyOut(back, there, nullptr)->Wait(kPatience).ok());
    EXPECT_EQ(back, pattern);
  }
  device_->Unmap(*mapped);
  device_->Free(to);
  device_->Free(scattered.whole);
}

TEST_P(DeviceContract, AnAddressHoldsOneMappingAndCanBeUsedAgain) {
  if (device_->MappingUnit() == Bytes(0)) GTEST_SKIP() << "this device maps nothing";
  Scattered scattered(*device_, AlignUp(KiB(64), device_->MappingUnit()));
  const std::vector<DeviceRange> first = {scattered.pieces[0], scattered.pieces[1]};
  const std::vector<DeviceRange> other = {scattered.pieces[2]};
  for (int round = 0; round < 50; ++round) {
    const auto mapped = device_->Map(kMappedAt, round % 2 == 0 ? first : other);
    ASSERT_TRUE(mapped.ok()) << mapped.status();
    EXPECT_EQ(device_->Map(kMappedAt, other).status().code(), absl::StatusCode::kAlreadyExists);
    EXPECT_EQ(device_->Map(kMappedAt + device_->MappingUnit().count() * (round % 2 == 0 ? 1 : 0), other)
                  .status()
                  .code(),
              absl::StatusCode::kAlreadyExists);
    const auto anywhere = device_->Map(0, other);
    ASSERT_TRUE(anywhere.ok()) << anywhere.status();
    device_->Unmap(*anywhere);
    device_->Unmap(*mapped);  // the address is mapped again at once
  }
  EXPECT_EQ(device_->Map(kMappedAt + 1, other).status().code(), absl::StatusCode::kInvalidArgument);
  device_->Free(scattered.whole);
}

TEST_P(DeviceContract, RunsReadTheirWeightsWhereTheyWereMapped) {
  if (device_->MappingUnit() == Bytes(0)) GTEST_SKIP() << "this device maps nothing";
  if (!GetParam().computes) GTEST_SKIP() << "a timed device computes nothing";
  Scattered scattered(*device_, AlignUp(KiB(64), device_->MappingUnit()));
  const auto mapped = device_->Map(kMappedAt, scattered.pieces);
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  const auto plan = PrepareSmall(1);
  const auto weights = SmallWeights();
  const auto stream = device_->MakeStream();
  EXPECT_TRUE(stream->CopyIn(*mapped, weights, nullptr)->Wait(kPatience).ok());
  LaunchArguments arguments;
  arguments.weights = mapped->Part(Bytes(0), plan->weights_bytes());
  arguments.activations = Take(plan->activation_bytes());
  arguments.inputs = {Take(plan->input_bytes(0))};
  arguments.outputs = {Take(plan->output_bytes(0))};
  const std::vector<float> x = {0, 1, 2, 3};
  EXPECT_TRUE(
      stream->CopyIn(arguments.inputs[0], std::as_bytes(std::span(x)), nullptr)->Wait(kPatience).ok());
  EXPECT_TRUE(stream->Launch(plan, arguments, nullptr)->Wait(kPatience).ok());
  std::vector<float> y(4);
  EXPECT_TRUE(stream->CopyOut(std::as_writable_bytes(std::span(y)), arguments.outputs[0], nullptr)
                  ->Wait(kPatience)
                  .ok());
  EXPECT_NE(y, std::vector<float>(4));
  // The same values come from adjacent weights.
  const DeviceRange adjacent = Take(plan->weights_bytes());
  EXPECT_TRUE(stream->CopyIn(adjacent, std::span(weights).first(plan->weights_bytes().count()), nullptr)
                  ->Wait(kPatience)
                  .ok());
  arguments.weights = adjacent;
  EXPECT_TRUE(stream->Launch(plan, arguments, nullptr)->Wait(kPatience).ok());
  std::vector<float> again(4);
  EXPECT_TRUE(stream->CopyOut(std::as_writable_bytes(std::span(again)), arguments.outputs[0], nullptr)
                  ->Wait(kPatience)
                  .ok());
  EXPECT_EQ(y, again);
  device_->Unmap(*mapped);
}

INSTANTIATE_TEST_SUITE_P(Devices, DeviceContract, testing::ValuesIn(DevicesUnderTest()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace troupe::gpu::test
