// Weights outlive a real worker process that is killed.
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/gpu_worker/worker_harness.hpp"

namespace troupe::gpu::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

constexpr std::size_t kKeptModel = 1 << 20;

struct KeptWorker {
  KeptWorker() {
    harness.command.group = KiB(256);
    harness.KeepWeights();
    link = harness.StartAndAdopt();
  }
  proto::HostCopy Bring(const std::string& digest) {
    const auto copy = PlaceSmall(*harness.host, digest, 1, kKeptModel, kKeptModel - 64);
    const auto swapped = link.Ask(SwapInOf(copy));
    EXPECT_EQ(swapped.code(), 0) << swapped.message();
    EXPECT_EQ(swapped.bytes(), kKeptModel);
    return copy;
  }
  proto::WorkerOutcome Run(const proto::HostCopy& copy) {
    proto::WorkerOrder order = RunOf(copy.digest(), 1);
    *order.mutable_run()->mutable_model() = copy;
    return link.Ask(order);
  }
  void ExpectRuns(const proto::HostCopy& copy) {
    const auto ran = Run(copy);
    ASSERT_EQ(ran.code(), 0) << ran.message();
    EXPECT_THAT(Floats(ran.run().outputs(0).data().inlined()), ElementsAre(1, 3, 5, 0));
  }
  std::vector<std::string> Resident() {
    std::vector<std::string> digests;
    for (const auto& model : link.connection->description().resident()) digests.push_back(model.digest());
    return digests;
  }
  void Kill() {
    harness.KillAndWait(link);
    link = harness.StartAndAdopt();
  }

  WorkerHarness harness;
  Link link;
};

TEST(KeptProcess, AfterAKillEveryModelRunsAndNothingIsCopied) {
  KeptWorker worker;
  EXPECT_EQ(worker.link.connection->description().memory_bytes(), 16u << 20)
      << "the record is not the device's";
  std::vector<proto::HostCopy> copies;
  for (const char* digest : {"a", "b", "c"}) copies.push_back(worker.Bring(digest));
  for (int round = 0; round < 3; ++round) {
    worker.Kill();
    EXPECT_THAT(worker.Resident(), UnorderedElementsAre("a", "b", "c"));
    EXPECT_EQ(worker.link.connection->description().kept().models(), 3u);
    EXPECT_EQ(worker.link.connection->description().free_bytes(), (16u << 20) - 3 * kKeptModel);
    for (const auto& copy : copies) worker.ExpectRuns(copy);
    const auto described = worker.link.Ask(DescribeOf()).description();
    EXPECT_EQ(described.swaps(), 0u);
    EXPECT_LT(described.copy_in_bytes(), 1000u) << "only the inputs were copied";
    EXPECT_EQ(described.kept().models(), 0u) << "the daemon has heard of it";
  }
  EXPECT_EQ(worker.link.Ask(EvictOf("b")).code(), 0);
  worker.Kill();
  EXPECT_THAT(worker.Resident(), UnorderedElementsAre("a", "c"));
}

TEST(KeptProcess, WhatTheDeadWorkerHasSpoiledComesAgain) {
  KeptWorker worker;
  const auto good = worker.Bring("good");
  const auto bad = worker.Bring("bad");
  worker.harness.KillAndWait(worker.link);
  // The second model lies behind the first one: its last byte is the last one that is not zero.
  auto device = worker.harness.memory.bytes().first(MiB(16).count());
  std::size_t last = device.size();
  while (device[last - 1] == std::byte{0}) --last;
  device[last - 1] ^= std::byte{1};
  worker.link = worker.harness.StartAndAdopt();
  EXPECT_THAT(worker.Resident(), UnorderedElementsAre("bad", "good"));
  worker.ExpectRuns(good);
  const auto ran = worker.Run(bad);
  EXPECT_EQ(ran.code(), CodeOf(absl::StatusCode::kNotFound));
  EXPECT_THAT(ran.message(), HasSubstr("not those of the host copy"));
  EXPECT_EQ(worker.link.Ask(DescribeOf()).description().resident_size(), 1);
  EXPECT_EQ(worker.link.Ask(SwapInOf(bad)).bytes(), kKeptModel);
  worker.ExpectRuns(bad);
}

TEST(KeptProcess, AModelThatWasOnItsWayIsNotKept) {
  KeptWorker worker;
  const auto whole = worker.Bring("whole");
  worker.harness.links = *CreateNodeLinks(1, {5e7});
  worker.Kill();
  worker.ExpectRuns(whole);
  HeldLink held(worker.harness.links, LinkInName(0), MiB(2));
  worker.link.Send(SwapInOf(PlaceSmall(*worker.harness.host, "half", 1, 8 << 20)));
  held.AwaitHeld();
  worker.Kill();
  held.GoOn();
  EXPECT_THAT(worker.Resident(), ElementsAre("whole"));
  EXPECT_EQ(worker.link.connection->description().kept().dropped(), 0u);
  worker.ExpectRuns(whole);
}

TEST(KeptProcess, ARecordOfNonsenseKeepsNothingAndTheWorkerServes) {
  KeptWorker worker;
  const auto copy = worker.Bring("m");
  worker.harness.KillAndWait(worker.link);
  auto record = worker.harness.memory.bytes().subspan(MiB(16).count());
  for (std::size_t i = 8; i < record.size(); ++i) record[i] = static_cast<std::byte>(i * 31 + 1);
  worker.link = worker.harness.StartAndAdopt();
  EXPECT_THAT(worker.Resident(), ElementsAre());
  const auto& kept = worker.link.connection->description().kept();
  EXPECT_GT(kept.dropped(), 100u);
  EXPECT_GT(kept.reasons_size(), 0);
  EXPECT_LE(kept.reasons_size(), 8);
  EXPECT_EQ(worker.link.Ask(SwapInOf(copy)).bytes(), kKeptModel);
  worker.ExpectRuns(copy);
}

TEST(KeptProcess, TheNextDaemonHearsOfTheRecordAndTheNextWorkerNeedNotMeasureTheLink) {
  KeptWorker worker;
  worker.harness.command.group = Bytes(0);  // measured
  worker.Kill();
  worker.harness.learned = worker.link.connection->description();
  ASSERT_GT(worker.harness.learned.link_curve_size(), 0);
  EXPECT_EQ(worker.harness.learned.weight_record(), WeightRecord::Size().count());
  const auto copy = worker.Bring("m");
  worker.harness.learned.mutable_link_curve(0)->set_bytes_per_second(12345);
  worker.Kill();
  EXPECT_EQ(worker.link.connection->description().link_curve(0).bytes_per_second(), 12345);
  EXPECT_EQ(worker.link.connection->description().group_bytes(), worker.harness.learned.group_bytes());
  worker.ExpectRuns(copy);
  // Nothing is known of the link: a probe would write over what was kept.
  worker.harness.learned.Clear();
  worker.Kill();
  EXPECT_EQ(worker.link.connection->description().link_curve_size(), 0);
  worker.ExpectRuns(copy);
  Link next = worker.harness.Adopt(2);
  EXPECT_EQ(next.connection->description().weight_record(), WeightRecord::Size().count());
}

}  // namespace
}  // namespace troupe::gpu::test
