// The reader of RocksDB's logs, on logs that RocksDB wrote and on damaged copies of them.
#include "storage/log_scan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/storage/stores.hpp"

namespace troupe::storage {
namespace {

using testing::HasSubstr;

LogScan ScanText(const std::string& log) {
  LogScan scan;
  ScanLog("000001.log", std::as_bytes(std::span(log)), scan);
  return scan;
}

// A log of commits of these sizes in bytes, with one change each.
std::string LogOf(const std::vector<std::size_t>& sizes) {
  TemporaryDirectory directory;
  {
    const auto store = MustOpen(directory.path());
    for (std::size_t i = 0; i < sizes.size(); ++i)
      EXPECT_TRUE(PutOne(*store, std::to_string(i), std::string(sizes[i], 'v')).ok());
  }
  return ReadAll(FindFile(directory / "db", ".log"));
}

TEST(LogScan, ReadsWhatRocksDbWrote) {
  // Small commits, commits that end near the end of a block, and commits of several blocks.
  std::vector<std::size_t> sizes = {1, 0, 500, 32000, 640, 32768, 100000, 5};
  for (std::size_t i = 0; i < 300; ++i) sizes.push_back(i * 37 % 1000);
  const LogScan scan = ScanText(LogOf(sizes));
  EXPECT_FALSE(scan.damaged()) << scan.damage << " at " << scan.damaged_at;
  EXPECT_EQ(scan.changes, sizes.size());
  EXPECT_EQ(scan.last, sizes.size());
  EXPECT_FALSE(scan.lost());
}

TEST(LogScan, FollowsALogIntoTheNext) {
  TemporaryDirectory directory;
  {
    const auto store = MustOpen(directory.path());
    // Enough for several logs: each table's memory is written out at 8 MiB.
    for (int i = 0; i < 50; ++i) {
      ASSERT_TRUE(PutOne(*store, std::to_string(i), std::string(400000, 'v')).ok());
      ASSERT_TRUE(PutOne(*store, std::to_string(i), "small", Table::kNodes).ok());
    }
  }
  const auto scan = ScanLogs(directory / "db");
  ASSERT_TRUE(scan.ok()) << scan.status();
  EXPECT_FALSE(scan->damaged()) << scan->damaged_file << ": " << scan->damage;
  EXPECT_EQ(scan->last, 100u);
  EXPECT_EQ(ScanLogs(directory / "nowhere")->last, 0u);
}

TEST(LogScan, ZerosBehindTheEndAreRoomThatWasReserved) {
  const std::string log = LogOf({100, 200});
  EXPECT_FALSE(ScanText(log + std::string(100000, '\0')).damaged());
  EXPECT_EQ(ScanText(log + std::string(100000, '\0')).last, 2u);
  EXPECT_FALSE(ScanText("").damaged());
  EXPECT_FALSE(ScanText(std::string(70000, '\0')).damaged());
}

TEST(LogScan, AnyDamagedByteIsSeenAndTellsWhatWasAcknowledged) {
  const std::string log = LogOf({300, 300, 40000, 300});
  const std::size_t last_begins = log.size() - LogOf({300}).size();
  for (std::size_t at = 0; at < log.size(); at += 53) {
    std::string damaged = log;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    const LogScan scan = ScanText(damaged);
    ASSERT_TRUE(scan.damaged()) << at;
    EXPECT_LT(scan.last, 4u);
    EXPECT_LE(scan.damaged_at, at);
    // The last group proves those before it; nothing proves the last one itself.
    EXPECT_EQ(scan.lost(), at < last_begins)
        << at << ": " << scan.damage << ", last " << scan.last << ", proven " << scan.proven;
  }
}

TEST(LogScan, ALogThatIsCutShortHasItsWholeGroups) {
  const std::string log = LogOf({300, 300, 40000, 300});
  for (const std::size_t room : {0, 100000}) {  // the zeros that a killed manager leaves
    for (std::size_t size = 0; size < log.size(); size += 101) {
      const LogScan scan = ScanText(log.substr(0, size) + std::string(room, '\0'));
      EXPECT_LT(scan.last, 4u) << size;
      EXPECT_FALSE(scan.lost()) << "no later group proves that one is lost: " << size;
    }
  }
}

TEST(LogScan, AZeroedSectorIsAHoleAndNoEnd) {
  std::string log = LogOf({300, 2000, 300, 300});
  std::fill(log.begin() + 512, log.begin() + 1024, '\0');
  const LogScan scan = ScanText(log);
  EXPECT_TRUE(scan.lost());
  EXPECT_EQ(scan.last, 1u);
  EXPECT_EQ(scan.proven, 3u);
}

TEST(LogScan, AMissingLogIsAHole) {
  const std::string first = LogOf({300}), all = LogOf({300, 300, 300});
  // The third group alone as a log of its own: its parts do not depend on where they stand in a block.
  const std::string third = all.substr(all.size() - first.size());
  LogScan scan;
  ScanLog("000001.log", std::as_bytes(std::span(first)), scan);
  ScanLog("000003.log", std::as_bytes(std::span(third)), scan);
  EXPECT_TRUE(scan.hole);
  EXPECT_TRUE(scan.lost());
  EXPECT_EQ(scan.last, 1u);
  EXPECT_EQ(scan.damaged_file, "000003.log");
  EXPECT_THAT(scan.damage, HasSubstr("missing"));
}

TEST(LogScan, BytesOfNoLogAreNoCommits) {
  std::string noise(200000, '\0');
  std::uint64_t state = 1;
  for (char& byte : noise)
    byte = static_cast<char>((state = state * 6364136223846793005u + 1442695040888963407u) >> 56);
  const LogScan scan = ScanText(noise);
  EXPECT_TRUE(scan.damaged());
  EXPECT_EQ(scan.last, 0u);
  EXPECT_EQ(scan.proven, 0u);
}

}  // namespace
}  // namespace troupe::storage
