// A node's usage ledger, told what its workers' pages say: what is counted, what is told to the manager, and that
// no crash between two steps loses a count or counts it twice.
#include "node/usage/usage_ledger.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/usage_amount.hpp"

namespace troupe::node::usage_ledger_test {
namespace {

using proto::DayOf;
using std::chrono::hours;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::int64_t kMillisecond = 1'000'000;

proto::NodeUsage NewFile() {
  proto::NodeUsage file;
  file.set_ledger("ledger");
  return file;
}

// What the worker of a page has counted for the function "t/f".
proto::MeterReading PageOf(const std::string& name, std::uint64_t runs, bool closed = false) {
  proto::MeterReading page;
  page.set_page(name);
  page.set_closed(closed);
  auto& count = *page.add_counts();
  count.set_key("t/f");
  count.set_runs(runs);
  count.set_gpu_ns(runs * kMillisecond);
  count.set_bytes_moved(runs * 100);
  return page;
}

std::string Text(const proto::UsageAmount& amount) {
  return absl::StrCat(amount.tenant(), "/", amount.function(), " day ", amount.day(), ": ", amount.runs(),
                      " runs, ", amount.gpu_ns() / kMillisecond, " ms, ", amount.bytes_moved(), " bytes");
}

class Ledger : public testing::Test {
 protected:
  // As at the node's first start.
  Ledger() : ledger_(NewFile(), true) { EXPECT_THAT(Read({}), IsEmpty()); }

  std::vector<std::string> Read(const std::vector<proto::MeterReading>& pages, std::int64_t day = 7) {
    return ledger_.Read(pages, seconds(1), day);
  }
  // Writes the file when there is something to write.
  void Save() {
    if (auto file = ledger_.TakeFile()) {
      disk_ = *std::move(file);
      dropped_ = ledger_.Saved(true);
    }
  }
  // The daemon dies and starts again with what is on its disk.
  void Restart() { ledger_ = UsageLedger(disk_, false); }
  // The manager stores what it is told; it answers as often as it is asked.
  void Tell() {
    const auto* open = ledger_.Open();
    if (open == nullptr) return;
    if (open->sequence() > stored_) {
      stored_ = open->sequence();
      for (const auto& amount : open->amounts()) {
        runs_ += amount.runs();
        told_.push_back(Text(amount));
      }
    }
    ledger_.Stored(stored_);
  }
  void SaveAndTell() {
    Save();
    Tell();
  }

  UsageLedger ledger_;
  proto::NodeUsage disk_ = NewFile();
  std::vector<std::string> dropped_;
  std::vector<std::string> told_;
  std::uint64_t stored_ = 0, runs_ = 0;
};

TEST_F(Ledger, WhatAPageGrowsByIsTold) {
  Read({PageOf("a", 3)});
  SaveAndTell();
  Read({PageOf("a", 5)});
  SaveAndTell();
  EXPECT_THAT(told_, ElementsAre("t/f day 7: 3 runs, 3 ms, 300 bytes", "t/f day 7: 2 runs, 2 ms, 200 bytes"));
}

TEST_F(Ledger, AStatementIsNotToldBeforeItIsInTheFile) {
  Read({PageOf("a", 3)});
  const auto file = ledger_.TakeFile();
  ASSERT_TRUE(file.has_value());
  EXPECT_EQ(ledger_.Open(), nullptr);
  EXPECT_THAT(ledger_.Saved(true), IsEmpty());
  ASSERT_NE(ledger_.Open(), nullptr);
  EXPECT_EQ(ledger_.Open()->sequence(), 1u);
}

TEST_F(Ledger, AStatementStaysAsItIsUntilItIsStored) {
  Read({PageOf("a", 3)});
  Save();
  Read({PageOf("a", 5)});
  Save();
  ASSERT_NE(ledger_.Open(), nullptr);
  EXPECT_EQ(ledger_.Open()->SerializeAsString(), disk_.open().SerializeAsString());
  EXPECT_EQ(ledger_.Open()->amounts(0).runs(), 3u);
  Tell();
  SaveAndTell();
  EXPECT_EQ(runs_, 5u);
}

TEST_F(Ledger, ADiskThatIsFullLosesNothing) {
  Read({PageOf("a", 3)});
  ASSERT_TRUE(ledger_.TakeFile().has_value());
  EXPECT_THAT(ledger_.Saved(false), IsEmpty());
  EXPECT_EQ(ledger_.Open(), nullptr);
  Read({PageOf("a", 4)});
  SaveAndTell();
  SaveAndTell();
  EXPECT_EQ(runs_, 4u);
}

TEST_F(Ledger, ADaemonThatDiesAfterAnyStepCountsEachRunOnce) {
  // `step`: after how many steps the daemon dies. The worker goes on counting meanwhile.
  for (int step = 0; step < 6; ++step) {
    ledger_ = UsageLedger(NewFile(), false);
    disk_ = NewFile();
    stored_ = runs_ = 0;
    std::uint64_t counted = 0;
    for (int round = 0; round < 4; ++round) {
      counted += 2;
      int left = step;
      const auto alive = [&left] { return left-- > 0; };
      if (alive()) Read({PageOf("a", counted)});
      if (alive()) {
        if (auto file = ledger_.TakeFile()) {
          if (alive()) disk_ = *std::move(file);
          if (alive()) static_cast<void>(ledger_.Saved(true));
        }
        if (alive()) Tell();
      }
      Restart();
    }
    for (int round = 0; round < 4; ++round) {
      Read({PageOf("a", counted)});
      SaveAndTell();
    }
    EXPECT_EQ(runs_, counted) << "the daemon died after step " << step;
  }
}

TEST_F(Ledger, AStatementThatWasStoredIsNotToldAgainAsAnother) {
  Read({PageOf("a", 3)});
  Save();
  Tell();
  Restart();  // before it has written that the statement is stored
  ASSERT_NE(ledger_.Open(), nullptr);
  EXPECT_EQ(ledger_.Open()->sequence(), 1u);
  Tell();
  Read({PageOf("a", 3)});
  SaveAndTell();
  EXPECT_EQ(runs_, 3u);
}

TEST_F(Ledger, ThePageOfAnEndedWorkerGoesWhenTheFileHasItsLastCounts) {
  Read({PageOf("a", 3)});
  Save();
  EXPECT_THAT(dropped_, IsEmpty());
  Read({PageOf("a", 4, true)});
  Save();
  EXPECT_THAT(dropped_, ElementsAre("a"));
  Read({PageOf("b", 1)});
  Save();
  EXPECT_EQ(disk_.pages_size(), 1) << "what was read of a page that is gone is forgotten";
  for (int i = 0; i < 3; ++i) SaveAndTell();
  EXPECT_EQ(runs_, 5u);
}

TEST_F(Ledger, APageThatCannotBeReadIsNotTakenForAnotherOneLater) {
  Read({PageOf("a", 3)});
  proto::MeterReading unread;
  unread.set_page("a");
  unread.set_unread(true);
  Read({unread});
  Read({PageOf("a", 4)});
  for (int i = 0; i < 3; ++i) SaveAndTell();
  EXPECT_EQ(runs_, 4u);
}

TEST_F(Ledger, ANewLedgerDoesNotChargeAgainWhatALostOneCounted) {
  ledger_ = UsageLedger(NewFile(), true);
  Read({PageOf("a", 30)});
  Read({PageOf("a", 31), PageOf("b", 1)});
  for (int i = 0; i < 2; ++i) SaveAndTell();
  EXPECT_EQ(runs_, 2u);
}

TEST_F(Ledger, ACountThatFallsIsNotChargedAgainWhenItGrows) {
  Read({PageOf("a", 5)});
  Read({PageOf("a", 2)});
  Read({PageOf("a", 5)});
  for (int i = 0; i < 2; ++i) SaveAndTell();
  EXPECT_EQ(runs_, 5u);
}

TEST_F(Ledger, AWorkerCannotChargeMoreThanItCanHaveComputed) {
  auto page = PageOf("a", 1);
  page.mutable_counts(0)->set_gpu_ns(
      static_cast<std::uint64_t>(std::chrono::nanoseconds(hours(1000)).count()));
  EXPECT_THAT(Read({page}), ElementsAre(HasSubstr("is not charged")));
  EXPECT_THAT(Read({page}), IsEmpty()) << "it is said once";
  Save();
  ASSERT_NE(ledger_.Open(), nullptr);
  EXPECT_LE(ledger_.Open()->amounts(0).gpu_ns(),
            static_cast<std::uint64_t>(std::chrono::nanoseconds(hours(11)).count()));
}

TEST_F(Ledger, AClockThatJumpsMovesUsageToAnotherDayAndLosesNothing) {
  Read({PageOf("a", 1)}, 8);
  Read({PageOf("a", 3)}, 7);
  SaveAndTell();
  EXPECT_THAT(told_, ElementsAre("t/f day 7: 2 runs, 2 ms, 200 bytes", "t/f day 8: 1 runs, 1 ms, 100 bytes"));
}

TEST(Days, BeginAtMidnightOfUtc) {
  constexpr std::int64_t kDay = 86'400'000'000'000;
  EXPECT_EQ(DayOf(0), 0);
  EXPECT_EQ(DayOf(kDay - 1), 0);
  EXPECT_EQ(DayOf(kDay), 1);
  EXPECT_EQ(DayOf(-1), -1);
}

}  // namespace
}  // namespace troupe::node::usage_ledger_test
