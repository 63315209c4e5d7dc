// Two real workers of one node: one copies a tensor that a run has left on the other's GPU.
#include <unistd.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/gpu_worker/worker_harness.hpp"

namespace troupe::gpu::test {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kTensorRows = 4608;  // 72 KiB: more than a message carries
constexpr std::uint64_t kRowBytes = kColumns * sizeof(float);
constexpr std::uint64_t kTensorBytes = kTensorRows * kRowBytes;
constexpr std::uint64_t kTensor = 7;  // its number at GPU 0
constexpr std::uint64_t kCopy = 9;    // the copy's at GPU 1

proto::Tensor Rows(std::uint64_t number, std::int64_t first, std::int64_t rows) {
  proto::Tensor tensor;
  *tensor.mutable_spec() = Spec("x", {rows, kColumns});
  auto& kept = *tensor.mutable_data()->mutable_kept();
  kept.set_number(number);
  kept.set_offset(static_cast<std::uint64_t>(first) * kRowBytes);
  kept.set_length(static_cast<std::uint64_t>(rows) * kRowBytes);
  return tensor;
}

// The model "m" is on both GPUs, with weights of its own on each, so that a result tells where it was computed. A run on GPU 0
// has left a tensor there.
class TensorCopies : public testing::Test {
 protected:
  explicit TensorCopies(BytesPerSecond peer_link = {6e9}) {
    source_.links = *CreateNodeLinks(2, {6e9}, {}, {{0, 1, peer_link}});
    destination_.links = *transport::LinkBuckets::Open(transport::UniqueFd(dup(source_.links.fd())));
    destination_.command.gpu = 1;
    destination_.command.device = "virtual:1";
    destination_.command.socket = source_.directory / "worker-1";
    source_copy_ = PlaceSmall(*source_.host, "m", 1);
    destination_copy_ = PlaceSmall(*destination_.host, "m", 5);
    here_ = destination_.StartAndAdopt();
    there_ = source_.StartAndAdopt();
    Ready(there_, source_copy_);
    Ready(here_, destination_copy_);
    free_here_ = Describe(here_).free_bytes();
    proto::WorkerOrder run = RunOf("m", kTensorRows);
    proto::KeepOutput& keep = *run.mutable_run()->add_keep();
    keep.set_output("y");
    keep.set_number(kTensor);
    const proto::WorkerOutcome ran = there_.Ask(run);
    EXPECT_EQ(ran.code(), 0) << ran.message();
    EXPECT_TRUE(ran.run().outputs(0).data().has_kept());
  }
  static void Ready(Link& link, const proto::HostCopy& copy) {
    EXPECT_EQ(link.Ask(SwapInOf(copy)).code(), 0);
    EXPECT_EQ(link.Ask(PrepareOf(copy, kTensorRows)).code(), 0);
  }
  static proto::WorkerDescription Describe(Link& link) { return link.Ask(DescribeOf()).description(); }
  proto::WorkerOutcome Pin(std::int64_t first = 0, std::int64_t rows = kTensorRows) {
    proto::WorkerOrder order;
    *order.mutable_pin()->mutable_tensor() = Rows(kTensor, first, rows).data().kept();
    return there_.Ask(order);
  }
  void Unpin(std::uint64_t pin) {
    proto::WorkerOrder order;
    order.mutable_unpin()->set_pin(pin);
    there_.Send(order);
  }
  static proto::WorkerOrder PullOf(const proto::PinnedMemory& pinned, std::uint64_t length = kTensorBytes,
                                   std::uint64_t number = kCopy) {
    proto::WorkerOrder order;
    order.mutable_pull()->set_number(number);
    order.mutable_pull()->set_length(length);
    order.mutable_pull()->set_from_gpu(0);
    *order.mutable_pull()->mutable_pinned() = pinned;
    return order;
  }
  static void Drop(Link& link, std::uint64_t number) {
    proto::WorkerOrder order;
    order.mutable_release()->add_kept(number);
    link.Send(order);
  }
  // What a run over the input leaves in the arena of its worker.
  static std::vector<float> Read(Link& link, const proto::Tensor& input) {
    proto::WorkerOrder order;
    order.mutable_run()->set_digest("m");
    *order.mutable_run()->add_inputs() = input;
    const proto::WorkerOutcome ran = link.Ask(order);
    EXPECT_EQ(ran.code(), 0) << ran.message();
    if (ran.code() != 0) return {};
    const proto::TensorRef& ref = ran.run().outputs(0).data();
    if (ref.has_inlined()) return Floats(ref.inlined());
    transport::ArenaClient reader{transport::ArenaClient::Options()};
    const auto output = reader.Resolve(ref.arena());
    EXPECT_TRUE(output.ok()) << output.status();
    return output.ok() ? Floats(output->bytes) : std::vector<float>();
  }
  // What the two runs, one on each GPU, make of counting numbers.
  static std::vector<float> Expected(std::int64_t first = 0, std::int64_t rows = kTensorRows) {
    std::vector<float> values;
    const auto width = static_cast<std::int64_t>(kColumns);
    for (std::int64_t i = first * width; i < (first + rows) * width; ++i) {
      auto value = static_cast<float>(i);
      for (const float bias : {1.0F, 5.0F})
        value = std::max(0.0F, value + Floats(SmallWeights(bias))[static_cast<std::size_t>(i % width)]);
      values.push_back(value);
    }
    return values;
  }
  std::uint64_t Passed() const { return source_.links.passed(*source_.links.Find("gpu0:gpu1")).count(); }
  void ExpectNothingHere() {
    const proto::WorkerDescription here = Describe(here_);
    EXPECT_EQ(here.kept_tensors(), 0u);
    EXPECT_EQ(here.kept_device_bytes(), 0u);
    EXPECT_EQ(here.free_bytes(), free_here_);
  }

  WorkerHarness source_;
  WorkerHarness destination_;
  proto::HostCopy source_copy_;
  proto::HostCopy destination_copy_;
  Link here_;   // to GPU 1
  Link there_;  // to GPU 0
  std::uint64_t free_here_ = 0;
};

// The link between the two GPUs stops in the middle of the first copy.
class SlowTensorCopies : public TensorCopies {
 protected:
  SlowTensorCopies() : TensorCopies({5e6}) {}
  HeldLink link_{source_.links, "gpu0:gpu1", KiB(16)};
};

TEST_F(TensorCopies, ATensorComesOverTheLinkAndIsReadWhereItCame) {
  const proto::WorkerOutcome pinned = Pin();
  ASSERT_EQ(pinned.code(), 0) << pinned.message();
  const proto::WorkerOutcome pulled = here_.Ask(PullOf(pinned.pin().memory()));
  ASSERT_EQ(pulled.code(), 0) << pulled.message();
  EXPECT_EQ(pulled.bytes(), kTensorBytes);
  EXPECT_EQ(Passed(), kTensorBytes);
  Unpin(pinned.pin().pin());
  EXPECT_EQ(Read(here_, Rows(kCopy, 0, kTensorRows)), Expected());
  EXPECT_EQ(Describe(here_).pulled_tensor_bytes(), kTensorBytes);
  EXPECT_EQ(Describe(here_).kept_tensors(), 1u);
  EXPECT_EQ(Describe(there_).kept_tensors(), 1u) << "the source stays";
  Drop(here_, kCopy);
  EXPECT_EQ(Describe(here_).kept_tensors(), 0u);
  EXPECT_EQ(Describe(here_).kept_device_bytes(), 0u);
}

TEST_F(TensorCopies, APartOfATensorComesAlone) {
  const proto::WorkerOutcome pinned = Pin(1024, 64);
  ASSERT_EQ(pinned.code(), 0) << pinned.message();
  EXPECT_EQ(here_.Ask(PrepareOf(destination_copy_, 64)).code(), 0);
  const proto::WorkerOutcome pulled = here_.Ask(PullOf(pinned.pin().memory(), 64 * kRowBytes));
  ASSERT_EQ(pulled.code(), 0) << pulled.message();
  EXPECT_EQ(Passed(), 64 * kRowBytes);
  EXPECT_EQ(Read(here_, Rows(kCopy, 0, 64)), Expected(1024, 64));
}

TEST_F(TensorCopies, APinKeepsWhatIsReleasedMeanwhile) {
  const proto::WorkerOutcome pinned = Pin();
  ASSERT_EQ(pinned.code(), 0) << pinned.message();
  Drop(there_, kTensor);
  EXPECT_GT(Describe(there_).kept_device_bytes(), 0u);
  ASSERT_EQ(here_.Ask(PullOf(pinned.pin().memory())).code(), 0);
  EXPECT_EQ(Read(here_, Rows(kCopy, 0, kTensorRows)), Expected());
  Unpin(pinned.pin().pin());
  EXPECT_EQ(Describe(there_).kept_device_bytes(), 0u);
  EXPECT_EQ(Pin().code(), CodeOf(absl::StatusCode::kNotFound));
}

TEST_F(TensorCopies, WhatIsNotPinnedAnyMoreDoesNotCome) {
  const proto::WorkerOutcome pinned = Pin();
  Unpin(pinned.pin().pin());
  EXPECT_EQ(Describe(there_).kept_tensors(), 1u);  // it has heard of that
  const proto::WorkerOutcome pulled = here_.Ask(PullOf(pinned.pin().memory()));
  EXPECT_EQ(pulled.code(), CodeOf(absl::StatusCode::kUnavailable));
  EXPECT_THAT(pulled.message(), HasSubstr("GPU 0 has not pinned it any more"));
  ExpectNothingHere();
}

TEST_F(SlowTensorCopies, APinThatEndsInTheMiddleSpoilsTheCopy) {
  const proto::WorkerOutcome pinned = Pin();
  const std::uint64_t pull = here_.Send(PullOf(pinned.pin().memory()));
  link_.AwaitHeld();
  Unpin(pinned.pin().pin());
  EXPECT_EQ(Describe(there_).kept_tensors(), 1u);
  link_.GoOn();
  EXPECT_EQ(here_.heard->Await(pull).code(), CodeOf(absl::StatusCode::kUnavailable));
  ExpectNothingHere();
}

TEST_F(SlowTensorCopies, ASourceThatDiesInTheMiddleSpoilsTheCopy) {
  const proto::WorkerOutcome pinned = Pin();
  const std::uint64_t pull = here_.Send(PullOf(pinned.pin().memory()));
  link_.AwaitHeld();
  source_.KillAndWait(there_);
  link_.GoOn();
  EXPECT_EQ(here_.heard->Await(pull).code(), CodeOf(absl::StatusCode::kUnavailable));
  ExpectNothingHere();
}

TEST_F(SlowTensorCopies, WhatComesAfterTheDaemonHasGoneIsNotKept) {
  const proto::WorkerOutcome pinned = Pin();
  here_.Send(PullOf(pinned.pin().memory()));
  link_.AwaitHeld();
  destination_.reader->Remove(here_.id);
  here_ = Link();
  here_ = destination_.Adopt(2);
  link_.GoOn();
  const Time give_up = transport::SteadyNow() + kPatience;
  while (Describe(here_).kept_device_bytes() > 0 && transport::SteadyNow() < give_up)
    std::this_thread::yield();
  ExpectNothingHere();
}

TEST_F(TensorCopies, OrdersThatMakeNoSenseAreRefused) {
  const proto::PinnedMemory memory = Pin().pin().memory();
  EXPECT_EQ(here_.Ask(PullOf(memory, kTensorBytes + 1)).code(), CodeOf(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(here_.Ask(PullOf(memory, kTensorBytes - 1)).code(), CodeOf(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(here_.Ask(PullOf({}, 0)).code(), CodeOf(absl::StatusCode::kInvalidArgument));
  proto::PinnedMemory large = memory;
  large.mutable_ranges(0)->set_length(12 << 20);
  EXPECT_EQ(here_.Ask(PullOf(large, 12 << 20)).code(), CodeOf(absl::StatusCode::kResourceExhausted));
  ExpectNothingHere();
  ASSERT_EQ(here_.Ask(PullOf(memory)).code(), 0);
  EXPECT_EQ(here_.Ask(PullOf(memory)).code(), CodeOf(absl::StatusCode::kAlreadyExists));
  EXPECT_EQ(Pin(1, kTensorRows).code(), CodeOf(absl::StatusCode::kOutOfRange));
}

TEST_F(TensorCopies, WhatHasLeftTheDeviceIsExportedInstead) {
  // There is room for it in all, but not in one range: the tensor lies in between.
  const std::size_t weights = (16 << 20) - (128 << 10);
  EXPECT_LE(weights, Describe(there_).free_bytes());
  EXPECT_GT(weights, Describe(there_).largest_free_bytes());
  const proto::WorkerOutcome swapped = there_.Ask(SwapInOf(PlaceSmall(*source_.host, "large", 1, weights)));
  ASSERT_EQ(swapped.code(), 0) << swapped.message();
  EXPECT_GT(Describe(there_).moved_tensor_bytes(), 0u);
  const proto::WorkerOutcome pinned = Pin();
  EXPECT_EQ(pinned.code(), CodeOf(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(pinned.message(), HasSubstr("has left the device"));
  proto::WorkerOrder exported;
  *exported.mutable_export_tensor()->mutable_tensor() = Rows(kTensor, 0, kTensorRows).data().kept();
  EXPECT_EQ(there_.Ask(exported).code(), 0);
}

}  // namespace
}  // namespace troupe::gpu::test
