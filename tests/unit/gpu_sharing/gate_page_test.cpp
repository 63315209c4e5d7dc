// Workers of one GPU, each with a page of its own on one file: as processes have them.
#include "gpu/sharing/gate_page.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/temporary_directory.hpp"
#include "transport/memory_file.hpp"

namespace troupe::gpu {
namespace {

class GatePageTest : public testing::Test {
 protected:
  std::unique_ptr<GatePage> Open(std::size_t slot) { return *GatePage::Open(path_, slot); }
  test::TemporaryDirectory directory_;
  const std::string path_ = directory_ / "gate";
};

TEST_F(GatePageTest, WhatOneHasTheOthersSeeAndCannotTake) {
  const auto a = Open(0);
  const auto b = Open(1);
  EXPECT_TRUE(a->Set({.units = 0b0011}, 1));
  EXPECT_EQ(b->Others().units, 0b0011u);
  EXPECT_FALSE(b->Set({.units = 0b0110}, 1));
  EXPECT_EQ(a->Others().units, 0u) << "what was not taken is not shown";
  EXPECT_TRUE(b->Set({.units = 0b1100}, 1));
  EXPECT_FALSE(b->Set({.units = 0b1100, .without_share = 1}, 1));
  a->Reduce({});
  EXPECT_TRUE(b->Set({.units = 0b1111}, 1));
  EXPECT_FALSE(a->Set({.whole = true}, 1));
}

TEST_F(GatePageTest, RunsWithoutAShareAreCountedOverAllWorkers) {
  const auto a = Open(0);
  const auto b = Open(5);
  EXPECT_TRUE(a->Set({.without_share = 2}, 3));
  EXPECT_TRUE(b->Set({.without_share = 1}, 3));
  EXPECT_FALSE(a->Set({.without_share = 3}, 3));
  EXPECT_EQ(b->Others().without_share, 2u);
}

TEST_F(GatePageTest, ASlotBelongsToOneWorkerThatLives) {
  auto a = Open(3);
  const auto again = GatePage::Open(path_, 3);
  EXPECT_EQ(again.status().code(), absl::StatusCode::kAlreadyExists);
  a.reset();
  EXPECT_TRUE(GatePage::Open(path_, 3).ok());
  EXPECT_FALSE(GatePage::Open(path_, GatePage::kSlots).ok());
}

TEST_F(GatePageTest, WhatAWorkerHadThatWasKilledIsFree) {
  const auto survivor = Open(0);
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    auto page = GatePage::Open(path_, 1);
    const bool taken = page.ok() && (*page)->Set({.whole = true}, 1);
    (void)!write(ready[1], taken ? "y" : "n", 1);
    for (;;) pause();
  }
  char answer = 0;
  ASSERT_EQ(read(ready[0], &answer, 1), 1);
  ASSERT_EQ(answer, 'y');
  EXPECT_FALSE(survivor->ClearDead()) << "it lives";
  EXPECT_TRUE(survivor->Others().whole);
  ASSERT_EQ(kill(child, SIGKILL), 0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(survivor->ClearDead());
  EXPECT_FALSE(survivor->Others().whole);
  EXPECT_TRUE(survivor->Set({.whole = true}, 1));
  close(ready[0]);
  close(ready[1]);
}

// Processes that take and give back at random: no two ever have the same unit.
TEST_F(GatePageTest, NoTwoProcessesHaveTheSameSms) {
  constexpr int kWorkers = 3;
  // A counter for each unit, shared by the processes: who has it.
  auto owners = *transport::MemoryFile::Create("owners", Bytes(4096));
  auto* const counts = reinterpret_cast<std::atomic<int>*>(owners.bytes().data());
  std::vector<pid_t> children;
  for (int worker = 0; worker < kWorkers; ++worker) {
    const pid_t child = fork();
    if (child != 0) {
      children.push_back(child);
      continue;
    }
    auto page = GatePage::Open(path_, static_cast<std::size_t>(worker));
    if (!page.ok()) _exit(2);
    std::mt19937_64 random(static_cast<std::uint64_t>(worker) + 1);
    int taken = 0;
    for (int step = 0; step < 50'000 || taken < 100; ++step) {
      const std::uint64_t units = std::uint64_t{0b11} << (random() % 7);
      if (!(*page)->Set({.units = units}, 1)) continue;
      ++taken;
      for (int unit = 0; unit < 8; ++unit)
        if ((units >> unit & 1) != 0 && counts[unit].fetch_add(1) != 0) _exit(1);
      for (int unit = 0; unit < 8; ++unit)
        if ((units >> unit & 1) != 0) counts[unit].fetch_sub(1);
      (*page)->Reduce({});
    }
    _exit(0);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
}

}  // namespace
}  // namespace troupe::gpu
