// Three real workers of one node: one sends a model to the others while it loads it.
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/gpu_worker/worker_harness.hpp"

namespace troupe::gpu::test::broadcast_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::size_t kWeights = 8 << 20;
constexpr std::size_t kRead = (5 << 20) + 4096;  // the place in the weights from which the model reads
constexpr std::uint64_t kAddress = std::uint64_t{35} << 40;  // the address at which a node maps the weights
constexpr int kGpus = 3;

// GPU 0's host copy of the model "m" has the weights of 1, those of the other GPUs have 5, so that a run's
// results tell where its weights came from. The model has four groups of 2 MiB.
class Broadcasts : public testing::TestWithParam<WeightAddresses> {
 protected:
  explicit Broadcasts(BytesPerSecond peer_link = {6e9}, BytesPerSecond host_link = {6e9}) {
    workers_[0].links = *CreateNodeLinks(kGpus, host_link, {}, {{0, 1, peer_link}, {0, 2, peer_link}});
    for (std::uint32_t gpu = 0; gpu < kGpus; ++gpu) {
      WorkerHarness& worker = workers_[gpu];
      if (gpu > 0)
        worker.links = *transport::LinkBuckets::Open(transport::UniqueFd(dup(workers_[0].links.fd())));
      worker.command.gpu = gpu;
      worker.command.device = absl::StrCat("virtual:", gpu);
      worker.command.socket = workers_[0].directory / absl::StrCat("worker-", gpu);
      worker.command.group = MiB(2);
      worker.command.addresses = GetParam();
      copies_[gpu] = PlaceSmall(*worker.host, "m", gpu == 0 ? 1 : 5, kWeights, kRead);
      links_[gpu] = worker.StartAndAdopt();
      EXPECT_EQ(links_[gpu].Ask(PrepareOf(copies_[gpu], 1)).code(), 0);
    }
  }
  [[nodiscard]] proto::WorkerOrder OrderFor(int gpu, const std::string& meeting = "meeting",
                                            const std::vector<std::uint32_t>& gpus = {0, 1, 2}) const {
    proto::WorkerOrder order = SwapInOf(copies_[gpu]);
    order.mutable_swap_in()->set_address(kAddress);
    proto::Broadcast& broadcast = *order.mutable_swap_in()->mutable_broadcast();
    broadcast.set_meeting(meeting);
    *broadcast.mutable_gpus() = {gpus.begin(), gpus.end()};
    broadcast.set_socket(links_[gpus[0]].connection->description().broadcast_socket());
    return order;
  }
  std::uint64_t Passed(const std::string& link) const {
    return workers_[0].links.passed(*workers_[0].links.Find(link)).count();
  }
  // The result of a run tells of which host copy its weights are.
  void ExpectRun(int gpu, bool of_sender) {
    const auto ran = links_[gpu].Ask(RunOf("m", 1));
    ASSERT_EQ(ran.code(), 0) << ran.message();
    if (of_sender)
      EXPECT_THAT(Floats(ran.run().outputs(0).data().inlined()), ElementsAre(1, 3, 5, 0)) << gpu;
    else
      EXPECT_THAT(Floats(ran.run().outputs(0).data().inlined()), ElementsAre(5, 7, 9, 0)) << gpu;
  }
  proto::WorkerOutcome Await(int gpu, std::uint64_t sequence) {
    auto outcome = links_[gpu].heard->Await(sequence);
    EXPECT_EQ(outcome.code(), 0) << gpu << ": " << outcome.message();
    return outcome;
  }
  // No model and no memory is held any more.
  void ExpectEmptied(int gpu) {
    EXPECT_EQ(links_[gpu].Ask(EvictOf("m")).code(), 0) << gpu;
    EXPECT_EQ(links_[gpu].Ask(DescribeOf()).description().free_bytes(), 16u << 20) << gpu;
  }
  // A sender keeps its model until the last receiver has it.
  void ExpectEmptiedSoon(int gpu) {
    while (links_[gpu].Ask(EvictOf("m")).code() == CodeOf(absl::StatusCode::kFailedPrecondition)) continue;
    EXPECT_EQ(links_[gpu].Ask(DescribeOf()).description().free_bytes(), 16u << 20) << gpu;
  }

  WorkerHarness workers_[kGpus];
  proto::HostCopy copies_[kGpus];
  Link links_[kGpus];
};

class SlowBroadcasts : public Broadcasts {
 protected:
  SlowBroadcasts() : Broadcasts({5e7}) {}
  HeldLink held_{workers_[0].links, "gpu0:gpu1", MiB(2)};
};

TEST_P(Broadcasts, AModelComesToAllGroupByGroup) {
  for (const Link& link : links_) {
    EXPECT_TRUE(link.connection->description().broadcasts());
    EXPECT_NE(link.connection->description().broadcast_socket(), "");
  }
  const std::uint64_t over_host_link = Passed("gpu1:in") + Passed("gpu2:in");
  std::uint64_t swaps[kGpus];
  // The receivers may hear of the broadcast before the sender does.
  for (int gpu = kGpus; gpu-- > 0;) swaps[gpu] = links_[gpu].Send(OrderFor(gpu));
  for (int gpu = 0; gpu < kGpus; ++gpu) ExpectRun(gpu, true);
  for (int gpu = 0; gpu < kGpus; ++gpu) {
    const auto swapped = Await(gpu, swaps[gpu]);
    EXPECT_EQ(swapped.bytes(), gpu == 0 ? kWeights : 0) << "only the sender loads from the host";
    EXPECT_EQ(swapped.swap_in().group_ns_size(), 4);
  }
  EXPECT_EQ(Passed("gpu0:gpu1"), kWeights);
  EXPECT_EQ(Passed("gpu0:gpu2"), kWeights);
  EXPECT_LT(Passed("gpu1:in") + Passed("gpu2:in") - over_host_link, 1u << 20)
      << "only the inputs of the runs came over the host's link";
  for (int gpu = kGpus; gpu-- > 0;) ExpectEmptiedSoon(gpu);
}

TEST_P(Broadcasts, AModelThatIsThereIsSentToo) {
  ASSERT_EQ(links_[0].Ask(SwapInOf(copies_[0])).code(), 0);
  for (int round = 0; round < 3; ++round) {
    const std::string meeting = absl::StrCat("round", round);
    const std::uint64_t one = links_[1].Send(OrderFor(1, meeting));
    const std::uint64_t two = links_[2].Send(OrderFor(2, meeting));
    EXPECT_EQ(links_[0].Ask(OrderFor(0, meeting)).bytes(), 0u) << "the model is there: no byte moved to it";
    EXPECT_EQ(Await(1, one).bytes(), 0u);
    EXPECT_EQ(Await(2, two).bytes(), 0u);
    ExpectRun(1, true);
    ExpectEmptied(1);
    ExpectEmptied(2);
  }
  ExpectEmptiedSoon(0);
}

TEST_P(Broadcasts, WithoutOneOfThemAllTakeItFromTheHost) {
  const std::uint64_t zero = links_[0].Send(OrderFor(0));
  const std::uint64_t one = links_[1].Send(OrderFor(1));
  EXPECT_EQ(Await(0, zero).bytes(), kWeights);
  EXPECT_EQ(Await(1, one).bytes(), kWeights);
  ExpectRun(1, false);
  // A receiver that comes late is told at once that the broadcast did not take place.
  EXPECT_EQ(links_[2].Ask(OrderFor(2)).bytes(), kWeights);
  ExpectRun(2, false);
  for (int gpu = 0; gpu < kGpus; ++gpu) ExpectEmptiedSoon(gpu);
}

TEST_P(Broadcasts, AReceiverWithoutRoomDelaysNoOther) {
  auto other = PlaceSmall(*workers_[0].host, "other", 9, 10 << 20);
  ASSERT_EQ(links_[0].Ask(SwapInOf(other)).code(), 0);
  const std::uint64_t one = links_[1].Send(OrderFor(1));
  const std::uint64_t two = links_[2].Send(OrderFor(2));
  EXPECT_TRUE(links_[0].Ask(OrderFor(0)).has_no_fit());
  EXPECT_EQ(Await(1, one).bytes(), kWeights);
  EXPECT_EQ(Await(2, two).bytes(), kWeights);
  ExpectRun(1, false);
}

TEST_P(Broadcasts, WhatAnOrderSaysOfItIsChecked) {
  const auto code = [&](const auto& change) {
    proto::WorkerOrder order = OrderFor(1);
    change(*order.mutable_swap_in()->mutable_broadcast());
    const auto outcome = links_[1].Ask(order);
    EXPECT_NE(outcome.message(), "");
    return outcome.code();
  };
  using Order = proto::Broadcast;
  const int invalid = CodeOf(absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code([](Order& order) { order.clear_gpus(); }), invalid);
  EXPECT_EQ(code([](Order& order) { order.set_gpus(1, 7); }), invalid) << "the GPU is not a member";
  EXPECT_EQ(code([](Order& order) { order.set_gpus(2, 0); }), invalid) << "the GPU is a member twice";
  EXPECT_EQ(code([](Order& order) {
              for (std::uint32_t gpu = 3; gpu < 100; ++gpu) order.add_gpus(gpu);
            }),
            invalid);
  EXPECT_EQ(code([](Order& order) { order.set_meeting(""); }), invalid);
  EXPECT_EQ(code([](Order& order) { order.set_meeting(std::string(1000, 'm')); }), invalid);
  EXPECT_EQ(code([](Order& order) { order.set_socket("/tmp/elsewhere"); }), invalid);
  EXPECT_EQ(code([](Order& order) { order.set_socket(""); }), invalid);
  // When no process listens there is nothing to wait for.
  proto::WorkerOrder order = OrderFor(1);
  order.mutable_swap_in()->mutable_broadcast()->set_socket(workers_[0].directory / "absent");
  EXPECT_EQ(links_[1].Ask(order).bytes(), kWeights);
  ExpectRun(1, false);
  ExpectEmptied(1);
}

TEST_P(SlowBroadcasts, ASenderKilledInTheMiddleIsReplacedByTheHost) {
  const std::uint64_t one = links_[1].Send(OrderFor(1));
  const std::uint64_t two = links_[2].Send(OrderFor(2));
  links_[0].Send(OrderFor(0));
  const std::uint64_t run = links_[1].Send(RunOf("m", 1));
  held_.AwaitHeld();
  ASSERT_TRUE(links_[0].connection->Kill().ok());
  links_[0].heard->AwaitDeath();
  const auto swapped = Await(1, one);
  EXPECT_GT(swapped.bytes(), 0u);
  EXPECT_LT(swapped.bytes(), kWeights) << "bytes that had come before count";
  EXPECT_GT(Await(2, two).bytes(), 0u);
  EXPECT_THAT(Floats(Await(1, run).run().outputs(0).data().inlined()), ElementsAre(5, 7, 9, 0));
  held_.GoOn();
  links_[0] = workers_[0].StartAndAdopt();
  EXPECT_EQ(links_[0].Ask(SwapInOf(copies_[0])).code(), 0);
  ExpectEmptied(1);
  ExpectEmptied(2);
}

TEST_P(SlowBroadcasts, AReceiverKilledInTheMiddleDelaysNoOther) {
  // Neither receiver has more than the first group when one of them dies, however late the test notices.
  HeldLink other(workers_[0].links, "gpu0:gpu2", MiB(2));
  std::uint64_t swaps[kGpus];
  for (int gpu = 0; gpu < kGpus; ++gpu) swaps[gpu] = links_[gpu].Send(OrderFor(gpu));
  held_.AwaitHeld();
  other.AwaitHeld();
  ASSERT_TRUE(links_[1].connection->Kill().ok());
  links_[1].heard->AwaitDeath();
  Await(0, swaps[0]);
  EXPECT_GT(Await(2, swaps[2]).bytes(), 0u);
  ExpectRun(0, true);
  ExpectRun(2, false);
  held_.GoOn();
  other.GoOn();
  ExpectEmptiedSoon(0);
  ExpectEmptied(2);
}

TEST_P(SlowBroadcasts, AWorkerThatIsToldToEndEndsInTheMiddle) {
  const std::uint64_t one = links_[1].Send(OrderFor(1));
  const std::uint64_t two = links_[2].Send(OrderFor(2));
  ASSERT_EQ(links_[0].Ask(OrderFor(0)).code(), 0);
  held_.AwaitHeld();
  EXPECT_EQ(links_[0].Ask(ShutdownOf()).code(), 0);
  const WorkerDeath death = links_[0].heard->AwaitDeath();
  ASSERT_TRUE(death.end.has_value());
  EXPECT_TRUE(death.end->clean()) << death.ToString();
  Await(1, one);
  Await(2, two);
  ExpectRun(1, false);
  ExpectRun(2, false);
}

const auto kAddresses = testing::Values(WeightAddresses::kAdjacent, WeightAddresses::kMapped);
const auto NameOf = [](const auto& info) { return std::string(NameIn(kWeightAddresses, info.param)); };
INSTANTIATE_TEST_SUITE_P(Addresses, Broadcasts, kAddresses, NameOf);
INSTANTIATE_TEST_SUITE_P(Addresses, SlowBroadcasts, kAddresses, NameOf);

}  // namespace
}  // namespace troupe::gpu::test::broadcast_test
