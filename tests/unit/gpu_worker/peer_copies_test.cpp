// Two real workers of one node: one copies a model from the other's GPU.
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/gpu_worker/worker_harness.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::gpu::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::size_t kWeights = 8 << 20;
constexpr std::size_t kRead = (5 << 20) + 4096;  // the place in the weights from which the model reads
constexpr std::uint64_t kAddress = std::uint64_t{35} << 40;  // the address at which a node maps the weights

proto::WorkerOrder PinOf(const std::string& digest) {
  proto::WorkerOrder order;
  order.mutable_pin()->set_digest(digest);
  return order;
}
proto::WorkerOrder UnpinOf(std::uint64_t pin) {
  proto::WorkerOrder order;
  order.mutable_unpin()->set_pin(pin);
  return order;
}

// GPU 0 has the model "m" with the weights of 1; the host copy that GPU 1's daemon names has those of 5, so
// that a run's results tell where its weights came from. The model has four groups of 2 MiB. The parameter is
// the way in which both workers hold weights: in one range, or in eight blocks between other models.
class PeerCopies : public testing::TestWithParam<WeightAddresses> {
 protected:
  explicit PeerCopies(BytesPerSecond peer_link = {6e9}) {
    source_.links = *CreateNodeLinks(2, {6e9}, {}, {{0, 1, peer_link}});
    destination_.links = *transport::LinkBuckets::Open(transport::UniqueFd(dup(source_.links.fd())));
    destination_.command.gpu = 1;
    destination_.command.device = "virtual:1";
    destination_.command.socket = source_.directory / "worker-1";
    source_.command.group = destination_.command.group = MiB(2);
    source_.command.addresses = destination_.command.addresses = GetParam();
    source_copy_ = PlaceSmall(*source_.host, "m", 1, kWeights, kRead);
    host_copy_ = PlaceSmall(*destination_.host, "m", 5, kWeights, kRead);
    here_ = destination_.StartAndAdopt();
    there_ = source_.StartAndAdopt();
    SwapInBetweenOthers();
    EXPECT_EQ(here_.Ask(PrepareOf(host_copy_, 1)).code(), 0);
  }
  [[nodiscard]] bool mapped() const { return GetParam() == WeightAddresses::kMapped; }
  // Sixteen models fill the device; every second one is evicted before the model comes, the others after.
  void SwapInBetweenOthers() {
    proto::HostCopy other = PlaceSmall(*source_.host, "other", 9, 1 << 20);
    const auto name = [](int i) { return absl::StrCat("other", i); };
    for (int i = 0; i < 16 && mapped(); ++i) {
      other.set_digest(name(i));
      EXPECT_EQ(there_.Ask(SwapInOf(other)).code(), 0);
    }
    for (int i = 0; i < 16 && mapped(); i += 2) EXPECT_EQ(there_.Ask(EvictOf(name(i))).code(), 0);
    proto::WorkerOrder order = SwapInOf(source_copy_);
    order.mutable_swap_in()->set_address(kAddress);
    EXPECT_EQ(there_.Ask(order).code(), 0);
    for (int i = 1; i < 16 && mapped(); i += 2) EXPECT_EQ(there_.Ask(EvictOf(name(i))).code(), 0);
  }
  proto::PinOutcome Pin() {
    const auto outcome = there_.Ask(PinOf("m"));
    EXPECT_EQ(outcome.code(), 0) << outcome.message();
    return outcome.pin();
  }
  proto::WorkerOrder SwapInFrom(const proto::PinOutcome& pinned) const {
    proto::WorkerOrder order = SwapInOf(host_copy_);
    order.mutable_swap_in()->set_from_gpu(0);
    order.mutable_swap_in()->set_address(kAddress);
    *order.mutable_swap_in()->mutable_pinned() = pinned.memory();
    return order;
  }
  std::uint64_t Passed(const std::string& link) const {
    return source_.links.passed(*source_.links.Find(link)).count();
  }
  // Nothing of a failed copy is left, and the model comes from the host as usual.
  void ExpectHostServes() {
    EXPECT_EQ(here_.Ask(DescribeOf()).description().free_bytes(), 16u << 20);
    EXPECT_EQ(here_.Ask(SwapInOf(host_copy_)).code(), 0);
    const auto ran = here_.Ask(RunOf("m", 1));
    ASSERT_EQ(ran.code(), 0) << ran.message();
    EXPECT_THAT(Floats(ran.run().outputs(0).data().inlined()), ElementsAre(5, 7, 9, 0));
    EXPECT_EQ(here_.Ask(EvictOf("m")).code(), 0);
    EXPECT_EQ(here_.Ask(DescribeOf()).description().free_bytes(), 16u << 20);
  }
  void ExpectNotCome(std::uint64_t swap, std::uint64_t run) {
    const auto swapped = here_.heard->Await(swap);
    EXPECT_EQ(swapped.code(), CodeOf(absl::StatusCode::kUnavailable)) << swapped.message();
    EXPECT_THAT(swapped.message(), HasSubstr("GPU 0 has not pinned it any more"));
    const auto ran = here_.heard->Await(run);
    EXPECT_EQ(ran.code(), CodeOf(absl::StatusCode::kNotFound)) << ran.message();
  }

  WorkerHarness source_;
  WorkerHarness destination_;
  proto::HostCopy source_copy_;
  proto::HostCopy host_copy_;
  Link here_;   // to GPU 1
  Link there_;  // to GPU 0
};

// The link between the two GPUs stops in the middle of the first copy.
class SlowPeerCopies : public PeerCopies {
 protected:
  SlowPeerCopies() : PeerCopies({5e7}) {}
  // Some groups have arrived, and some have not.
  void StopInTheMiddle() { link_.AwaitHeld(); }
  HeldLink link_{source_.links, "gpu0:gpu1", MiB(2)};
};

TEST_P(PeerCopies, AModelComesFromTheOtherGpuGroupByGroup) {
  EXPECT_TRUE(here_.connection->description().peer_copies());
  const std::uint64_t over_host_link = Passed("gpu1:in");
  const proto::PinOutcome pinned = Pin();
  EXPECT_EQ(pinned.memory().ranges_size(), mapped() ? 8 : 1);
  const std::uint64_t swap = here_.Send(SwapInFrom(pinned));
  const auto ran = here_.Ask(RunOf("m", 1));
  ASSERT_EQ(ran.code(), 0) << ran.message();
  EXPECT_THAT(Floats(ran.run().outputs(0).data().inlined()), ElementsAre(1, 3, 5, 0));
  const auto swapped = here_.heard->Await(swap);
  ASSERT_EQ(swapped.code(), 0) << swapped.message();
  EXPECT_EQ(swapped.bytes(), kWeights);
  EXPECT_EQ(swapped.swap_in().group_bytes(), 2u << 20);
  EXPECT_EQ(swapped.swap_in().group_ns_size(), 4);
  EXPECT_EQ(Passed("gpu0:gpu1"), kWeights);
  EXPECT_LT(Passed("gpu1:in") - over_host_link, 1u << 20)
      << "only the inputs of the run came over the host's link";
  // The model stays on GPU 0 until it is unpinned.
  EXPECT_EQ(there_.Ask(EvictOf("m")).code(), CodeOf(absl::StatusCode::kFailedPrecondition));
  there_.Send(UnpinOf(pinned.pin()));
  EXPECT_EQ(there_.Ask(EvictOf("m")).code(), 0);
  EXPECT_EQ(there_.Ask(DescribeOf()).description().free_bytes(), 16u << 20);
  EXPECT_EQ(here_.Ask(EvictOf("m")).code(), 0);
  EXPECT_EQ(here_.Ask(DescribeOf()).description().free_bytes(), 16u << 20);
}

TEST_P(PeerCopies, OnlyWhatIsThereIsPinned) {
  EXPECT_EQ(there_.Ask(PinOf("other")).code(), CodeOf(absl::StatusCode::kNotFound));
  EXPECT_EQ(there_.Ask(PinOf("")).code(), CodeOf(absl::StatusCode::kNotFound));
  there_.Send(UnpinOf(0));
  there_.Send(UnpinOf(17));  // this pin never existed: nothing happens
  EXPECT_EQ(there_.Ask(EvictOf("m")).code(), 0);
}

TEST_P(PeerCopies, APinThatEndedIsRefused) {
  const proto::PinOutcome pinned = Pin();
  there_.Send(UnpinOf(pinned.pin()));
  EXPECT_EQ(there_.Ask(DescribeOf()).code(), 0);  // once this is answered the model is unpinned
  const std::uint64_t swap = here_.Send(SwapInFrom(pinned));
  ExpectNotCome(swap, here_.Send(RunOf("m", 1)));
  ExpectHostServes();
}

TEST_P(PeerCopies, WhatAnOrderSaysOfAPinIsChecked) {
  const proto::PinOutcome pinned = Pin();
  const auto code = [&](const auto& change) {
    proto::WorkerOrder order = SwapInFrom(pinned);
    change(*order.mutable_swap_in());
    const auto outcome = here_.Ask(order);
    EXPECT_NE(outcome.message(), "");
    EXPECT_EQ(here_.Ask(DescribeOf()).description().free_bytes(), 16u << 20);
    return outcome.code();
  };
  using Swap = proto::SwapInOrder;
  EXPECT_EQ(code([](Swap& swap) { swap.clear_pinned(); }), CodeOf(absl::StatusCode::kInvalidArgument));
  const int invalid = CodeOf(absl::StatusCode::kInvalidArgument);
  const auto last = [](Swap& swap) { return &*swap.mutable_pinned()->mutable_ranges()->rbegin(); };
  for (const std::uint64_t length :
       {std::uint64_t{0}, last(*SwapInFrom(pinned).mutable_swap_in())->length() - 1,
        kWeights + std::uint64_t{1}, ~std::uint64_t{0}}) {
    EXPECT_EQ(code([&](Swap& swap) { last(swap)->set_length(length); }), invalid) << length;
  }
  EXPECT_EQ(code([](Swap& swap) { swap.mutable_pinned()->add_ranges(); }), invalid) << "the range is empty";
  EXPECT_EQ(code([](Swap& swap) {
              swap.mutable_pinned()->clear_ranges();
              for (std::size_t i = 0; i < kWeights; i += 256)
                swap.mutable_pinned()->add_ranges()->set_length(256);
            }),
            invalid)
      << "there are too many ranges";
  const int outside = CodeOf(absl::StatusCode::kOutOfRange);
  EXPECT_EQ(code([&](Swap& swap) { last(swap)->set_offset((16 << 20) - 4096); }), outside);
  EXPECT_EQ(code([&](Swap& swap) { last(swap)->set_offset(~std::uint64_t{0} - 4096); }), outside);
  EXPECT_EQ(code([](Swap& swap) { swap.set_from_gpu(7); }), CodeOf(absl::StatusCode::kNotFound));
  const int unavailable = CodeOf(absl::StatusCode::kUnavailable);
  EXPECT_EQ(code([](Swap& swap) { swap.mutable_pinned()->mutable_memory()->set_arena(17); }), unavailable);
  EXPECT_EQ(code([](Swap& swap) { swap.mutable_pinned()->mutable_memory()->set_host("elsewhere"); }),
            unavailable);
  EXPECT_EQ(code([](Swap& swap) { swap.mutable_pinned()->mutable_memory()->set_socket("/tmp/absent"); }),
            unavailable);
  EXPECT_EQ(code([](Swap& swap) { swap.mutable_pinned()->mutable_memory()->set_socket(""); }), unavailable);
  ExpectHostServes();
}

TEST_P(SlowPeerCopies, ASourceKilledInMidCopyIsNotTrusted) {
  const std::uint64_t swap = here_.Send(SwapInFrom(Pin()));
  const std::uint64_t run = here_.Send(RunOf("m", 1));
  StopInTheMiddle();
  ASSERT_TRUE(there_.connection->Kill().ok());
  there_.heard->AwaitDeath();
  // The next worker of GPU 0 uses the same memory for another model.
  Link again = source_.StartAndAdopt();
  EXPECT_EQ(again.connection->description().free_bytes(), 16u << 20);
  EXPECT_EQ(again.Ask(SwapInOf(PlaceSmall(*source_.host, "other", 9, kWeights))).code(), 0);
  link_.GoOn();
  ExpectNotCome(swap, run);
  ExpectHostServes();
}

TEST_P(SlowPeerCopies, AModelUnpinnedInMidCopyIsNotTrusted) {
  const proto::PinOutcome pinned = Pin();
  const std::uint64_t swap = here_.Send(SwapInFrom(pinned));
  const std::uint64_t run = here_.Send(RunOf("m", 1));
  StopInTheMiddle();
  there_.Send(UnpinOf(pinned.pin()));
  EXPECT_EQ(there_.Ask(EvictOf("m")).code(), 0);
  link_.GoOn();
  ExpectNotCome(swap, run);
  ExpectHostServes();
}

TEST_P(SlowPeerCopies, PinsEndWithTheDaemonThatAskedForThem) {
  const std::uint64_t swap = here_.Send(SwapInFrom(Pin()));
  const std::uint64_t run = here_.Send(RunOf("m", 1));
  StopInTheMiddle();
  source_.reader->Remove(there_.id);
  there_.connection->Close();
  there_ = source_.Adopt(2);
  EXPECT_EQ(there_.Ask(EvictOf("m")).code(), 0);
  link_.GoOn();
  ExpectNotCome(swap, run);
}

TEST_P(SlowPeerCopies, ADestinationKilledInMidCopyLeavesThePinToItsDaemon) {
  const proto::PinOutcome pinned = Pin();
  here_.Send(SwapInFrom(pinned));
  StopInTheMiddle();
  ASSERT_TRUE(here_.connection->Kill().ok());
  here_.heard->AwaitDeath();
  EXPECT_EQ(there_.Ask(EvictOf("m")).code(), CodeOf(absl::StatusCode::kFailedPrecondition));
  here_ = destination_.StartAndAdopt();
  EXPECT_EQ(here_.connection->description().free_bytes(), 16u << 20);
  there_.Send(UnpinOf(pinned.pin()));
  EXPECT_EQ(there_.Ask(EvictOf("m")).code(), 0);
  EXPECT_EQ(there_.Ask(DescribeOf()).description().free_bytes(), 16u << 20);
}

const auto kAddresses = testing::Values(WeightAddresses::kAdjacent, WeightAddresses::kMapped);
const auto NameOf = [](const auto& info) { return std::string(NameIn(kWeightAddresses, info.param)); };
INSTANTIATE_TEST_SUITE_P(Addresses, PeerCopies, kAddresses, NameOf);
INSTANTIATE_TEST_SUITE_P(Addresses, SlowPeerCopies, kAddresses, NameOf);

}  // namespace
}  // namespace troupe::gpu::test
