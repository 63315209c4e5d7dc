// Two real workers with weights mapped to addresses that their node chose.
#include <unistd.h>

#include <fstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gpu/jail/jail.hpp"
#include "gtest/gtest.h"
#include "tests/unit/gpu_worker/worker_harness.hpp"

namespace troupe::gpu::test {
namespace {

using testing::ElementsAre;

constexpr std::uint64_t kChosen = std::uint64_t{35} << 40;

struct MappingWorker {
  explicit MappingWorker(WeightAddresses addresses = WeightAddresses::kMapped) {
    harness.command.addresses = addresses;
    link = harness.StartAndAdopt();
  }
  proto::WorkerOutcome SwapIn(const proto::HostCopy& copy, std::uint64_t address) {
    proto::WorkerOrder order = SwapInOf(copy);
    order.mutable_swap_in()->set_address(address);
    return link.Ask(order);
  }
  std::vector<float> Run(const proto::HostCopy& copy) {
    proto::WorkerOrder order = RunOf(copy.digest(), 1);
    *order.mutable_run()->mutable_model() = copy;
    const auto ran = link.Ask(order);
    EXPECT_EQ(ran.code(), 0) << ran.message();
    return Floats(ran.run().outputs(0).data().inlined());
  }
  // Whether the worker has device memory mapped at this address.
  bool MapsAt(std::uint64_t address) {
    std::ifstream maps(absl::StrCat("/proc/", link.connection->process().pid(), "/maps"));
    const std::string begin = absl::StrCat(absl::Hex(address), "-");
    for (std::string line; std::getline(maps, line);) {
      if (line.starts_with(begin) && line.find("troupe-gpu") != std::string::npos) return true;
    }
    return false;
  }
  std::uint64_t Free() { return link.Ask(DescribeOf()).description().free_bytes(); }
  WorkerHarness harness;
  Link link;
};

// A jailed worker is not dumpable: only root can read its maps.
bool LooksInside() {
  return kJailRelaxed || geteuid() == 0;
}

TEST(MappedAddresses, AModelHasTheSameAddressOnEveryGpu) {
  if (!LooksInside()) GTEST_SKIP() << "only root may look into a worker";
  MappingWorker first;
  MappingWorker second;
  std::vector<std::vector<float>> results;
  for (MappingWorker* worker : {&first, &second}) {
    // Another model is there before, so that the model's blocks lie elsewhere on each GPU.
    if (worker == &second) {
      EXPECT_EQ(worker->SwapIn(PlaceSmall(*worker->harness.host, "o", 9, 3 << 20), 0).code(), 0);
    }
    const auto copy = PlaceSmall(*worker->harness.host, "m", 1, 5 << 20);
    const auto swapped = worker->SwapIn(copy, kChosen);
    ASSERT_EQ(swapped.code(), 0) << swapped.message();
    EXPECT_TRUE(worker->MapsAt(kChosen));
    results.push_back(worker->Run(copy));
  }
  EXPECT_THAT(results[0], ElementsAre(1, 3, 5, 0));
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(first.link.Ask(EvictOf("m")).code(), 0);
  EXPECT_EQ(first.Free(), 16u << 20);
}

TEST(MappedAddresses, HolesCostNothing) {
  if (!LooksInside()) GTEST_SKIP() << "only root may look into a worker";
  for (const auto& [name, addresses] : kWeightAddresses) {
    MappingWorker worker(addresses);
    auto& host = *worker.harness.host;
    // Eight models fill the device; every second one is evicted; no two of the holes are adjacent.
    for (int i = 0; i < 8; ++i)
      ASSERT_EQ(worker.SwapIn(PlaceSmall(host, absl::StrCat("s", i), 1, (2 << 20) - 8192), 0).code(), 0) << i;
    for (int i = 0; i < 8; i += 2) ASSERT_EQ(worker.link.Ask(EvictOf(absl::StrCat("s", i))).code(), 0);
    const auto large = PlaceSmall(host, "large", 3, 7 << 20);
    const auto swapped = worker.SwapIn(large, kChosen);
    ASSERT_EQ(swapped.code(), 0) << name << ": "
                                 << swapped.message();  // adjacent: other models were moved for it
    EXPECT_THAT(worker.Run(large), ElementsAre(3, 5, 7, 0)) << name;
    EXPECT_EQ(worker.MapsAt(kChosen), addresses == WeightAddresses::kMapped);
  }
}

TEST(MappedAddresses, WhereAnotherModelLiesItGoesElsewhere) {
  if (!LooksInside()) GTEST_SKIP() << "only root may look into a worker";
  MappingWorker worker;
  const auto first = PlaceSmall(*worker.harness.host, "first", 1, 3 << 20);
  const auto second = PlaceSmall(*worker.harness.host, "second", 2, 3 << 20);
  ASSERT_EQ(worker.SwapIn(first, kChosen).code(), 0);
  const auto swapped = worker.SwapIn(second, kChosen + (1 << 20));
  ASSERT_EQ(swapped.code(), 0) << swapped.message();
  EXPECT_THAT(worker.Run(first), ElementsAre(1, 3, 5, 0));
  EXPECT_THAT(worker.Run(second), ElementsAre(2, 4, 6, 0));
  // The model is evicted, and another one comes to its address at once; then the same again.
  for (int round = 0; round < 20; ++round) {
    for (const auto& copy : {first, second}) ASSERT_EQ(worker.link.Ask(EvictOf(copy.digest())).code(), 0);
    ASSERT_EQ(worker.SwapIn(second, kChosen).code(), 0);
    EXPECT_TRUE(worker.MapsAt(kChosen));
    ASSERT_EQ(worker.SwapIn(first, kChosen + (8 << 20)).code(), 0);
    EXPECT_THAT(worker.Run(second), ElementsAre(2, 4, 6, 0));
    EXPECT_THAT(worker.Run(first), ElementsAre(1, 3, 5, 0));
  }
}

TEST(MappedAddresses, WhatDoesNotFitSaysSoAndLeavesNothing) {
  if (!LooksInside()) GTEST_SKIP() << "only root may look into a worker";
  MappingWorker worker;
  const auto outcome = worker.SwapIn(PlaceSmall(*worker.harness.host, "m", 1, 17 << 20), kChosen);
  EXPECT_EQ(outcome.code(), CodeOf(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(outcome.no_fit().free(), 16u << 20);
  EXPECT_FALSE(worker.MapsAt(kChosen));
  EXPECT_EQ(worker.Free(), 16u << 20);
}

}  // namespace
}  // namespace troupe::gpu::test
