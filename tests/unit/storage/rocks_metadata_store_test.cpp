// What only the durable store has: restarts, kills, damage, a lock, a full disk.
#include "storage/rocks_metadata_store.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/status.hpp"
#include "tests/unit/storage/child_test.hpp"
#include "tests/unit/storage/files.hpp"
#include "tests/unit/storage/small_file_system.hpp"
#include "tests/unit/storage/stores.hpp"

namespace troupe::storage {
namespace {

using testing::HasSubstr;

TEST(RocksMetadataStore, KeepsAllTablesOverARestart) {
  TemporaryDirectory directory;
  {
    const auto store = MustOpen(directory / "a/b/c");  // parent folders are made
    for (const Table table : kAllTables) {
      Batch batch;
      batch.Put(table, "key", TableName(table));
      ASSERT_TRUE(CommitAndWait(*store, std::move(batch)).ok());
    }
  }
  const auto store = MustOpen(directory / "a/b/c");
  for (const Table table : kAllTables) EXPECT_EQ(*store->Get(table, "key"), TableName(table));
}

TEST(RocksMetadataStore, TheDestructorCommitsWhatWasQueued) {
  TemporaryDirectory directory;
  std::atomic<int> done = 0;
  {
    const auto store = MustOpen(directory.path());
    for (int i = 0; i < 100; ++i) {
      Batch batch;
      batch.Put(Table::kRuns, std::to_string(i), "v");
      store->Commit(std::move(batch), [&](const absl::Status& status) { done += status.ok(); });
    }
  }
  EXPECT_EQ(done, 100);
  EXPECT_TRUE(MustOpen(directory.path())->Get(Table::kRuns, "99").ok());
}

// The child commits from two threads and writes the number of each acknowledged commit to its standard
// output, a pipe; it is killed in the middle. Each commit whose number reached the pipe must be in the store.
TEST(RocksMetadataStoreChild, DISABLED_CommitForever) {
  auto store = RocksMetadataStore::Open(std::getenv(kChildDirectory));
  ASSERT_TRUE(store.ok()) << store.status();
  const auto work = [&](std::uint32_t first) {
    for (std::uint32_t i = first;; i += 2) {
      if (!PutOne(**store, SequenceKey(i), std::string(i % 2000, 'v')).ok()) _exit(3);
      if (::write(kAcknowledgements, &i, sizeof i) != sizeof i) _exit(4);
    }
  };
  std::thread other(work, 1);
  work(0);
}

TEST(RocksMetadataStore, NothingAcknowledgedIsLostByKillNine) {
  TemporaryDirectory directory;
  for (std::size_t round = 0; round < 3; ++round) {
    const std::string path = directory / std::to_string(round);
    const std::string told =
        RunUntilKilled("RocksMetadataStoreChild.DISABLED_CommitForever", path, 4 * (150 + round));
    std::vector<std::uint32_t> acknowledged(told.size() / 4);
    std::memcpy(acknowledged.data(), told.data(), acknowledged.size() * 4);
    const auto store = MustOpen(path);
    EXPECT_GE(store->recovery().mark, acknowledged.size()) << "the mark lags behind an acknowledgement";
    for (const std::uint32_t each : acknowledged) {
      const auto value = store->Get(Table::kRuns, SequenceKey(each));
      ASSERT_TRUE(value.ok()) << value.status();
      EXPECT_EQ(value->size(), each % 2000);
    }
  }
}

TEST(RocksMetadataStore, ASecondProcessIsToldWhoHoldsTheDirectory) {
  TemporaryDirectory directory;
  const auto store = MustOpen(directory.path());
  const absl::Status status = RocksMetadataStore::Open(directory.path()).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_EQ(status.message(), "directory " + directory.path() + " is locked by pid " +
                                  std::to_string(::getpid()) + ": stop it or choose another");
}

TEST(RocksMetadataStore, AnUnwritablePlaceIsNamed) {
  TemporaryDirectory directory;
  WriteFile(directory / "file", "x");
  EXPECT_THAT(std::string(RocksMetadataStore::Open(directory / "file").status().message()),
              HasSubstr("/file"));
  const absl::Status under = RocksMetadataStore::Open(directory / "file/below").status();
  EXPECT_FALSE(under.ok());
  const absl::Status proc = RocksMetadataStore::Open("/proc/troupe-data").status();
  EXPECT_FALSE(proc.ok());
  EXPECT_THAT(std::string(proc.message()), HasSubstr("/proc/troupe-data"));
  if (::geteuid() != 0) {
    ::chmod(directory.path().c_str(), 0500);
    EXPECT_TRUE(absl::IsPermissionDenied(RocksMetadataStore::Open(directory / "new").status()));
    ::chmod(directory.path().c_str(), 0700);
  }
}

TEST(RocksMetadataStore, AnotherFormatIsRefusedAndLeftAlone) {
  TemporaryDirectory directory;
  ASSERT_TRUE(PutOne(*MustOpen(directory.path()), "k", "v").ok());
  EXPECT_EQ(ReadAll(directory / "FORMAT"), "troupe-metadata 2\n");
  WriteFile(directory / "FORMAT", "troupe-metadata 7\n");
  const absl::Status newer = RocksMetadataStore::Open(directory.path()).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(newer));
  EXPECT_THAT(std::string(newer.message()), HasSubstr("has metadata format 7, this build reads up to 2"));
  for (const char* foreign :
       {"", "troupe-metadata", "troupe-metadata 0\n", "troupe-metadata x\n", "other 1\n"}) {
    WriteFile(directory / "FORMAT", foreign);
    EXPECT_TRUE(absl::IsDataLoss(RocksMetadataStore::Open(directory.path()).status())) << foreign;
  }
  std::filesystem::remove(directory / "FORMAT");
  EXPECT_TRUE(absl::IsDataLoss(RocksMetadataStore::Open(directory.path()).status()));
  WriteFile(directory / "FORMAT", "troupe-metadata 2\n");
  EXPECT_TRUE(MustOpen(directory.path())->Get(Table::kRuns, "k").ok());
}

TEST(RocksMetadataStore, AVanishedDatabaseIsALossAndNoFreshStart) {
  TemporaryDirectory directory;
  ASSERT_TRUE(PutOne(*MustOpen(directory.path()), "k", "v").ok());
  std::filesystem::remove(directory / "db/CURRENT");
  const absl::Status status = RocksMetadataStore::Open(directory.path()).status();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_FALSE(FindFile(directory / "db", ".log").empty())
      << "the files that are left must stay for a repair";
  std::filesystem::remove_all(directory / "db");
  EXPECT_TRUE(absl::IsDataLoss(RocksMetadataStore::Open(directory.path()).status()));
  EXPECT_FALSE(std::filesystem::exists(directory / "db/CURRENT"));
}

void FillUp(const std::string& path) {
  std::ofstream file(path, std::ios::binary);
  const std::string block(1 << 16, 'x');
  while (file.write(block.data(), static_cast<std::streamsize>(block.size())).flush()) {
  }
}

TEST(RocksMetadataStoreChild, DISABLED_FillAndRecover) {
  const std::string path = std::getenv(kChildDirectory);
  auto store = MustOpen(path + "/data");
  ASSERT_TRUE(PutOne(*store, "before", "v").ok());
  FillUp(path + "/filler");
  for (int i = 0; i < 20; ++i) {
    const absl::Status full = PutOne(*store, "during" + std::to_string(i), std::string(100000, 'v'));
    ASSERT_TRUE(absl::IsResourceExhausted(full) && IsDiskFull(full)) << full;
  }
  EXPECT_TRUE(store->Get(Table::kRuns, "before").ok());
  std::filesystem::remove(path + "/filler");
  ASSERT_TRUE(PutOne(*store, "after", "v").ok());
  store.reset();
  store = MustOpen(path + "/data");
  EXPECT_TRUE(store->Get(Table::kRuns, "before").ok());
  EXPECT_TRUE(store->Get(Table::kRuns, "after").ok());
}

// The store has no reserve, so that RocksDB's own writes meet the end of the disk, also in the middle of one.
TEST(RocksMetadataStoreChild, DISABLED_FillByCommits) {
  const std::string path = std::getenv(kChildDirectory);
  RocksMetadataStore::Limits limits;
  limits.disk_reserve = Bytes(0);
  auto opened = RocksMetadataStore::Open(path + "/data", limits);
  ASSERT_TRUE(opened.ok()) << opened.status();
  auto store = *std::move(opened);
  WriteFile(path + "/filler", std::string(24 << 20, 'x'));
  std::vector<std::string> acknowledged;
  int failed = 0;
  for (std::uint64_t i = 0; failed < 4; ++i) {
    const absl::Status status = PutOne(*store, SequenceKey(i), std::string(200000, 'v'));
    if (status.ok()) acknowledged.push_back(SequenceKey(i));
    ASSERT_TRUE(status.ok() || IsDiskFull(status)) << status;
    failed += !status.ok();
  }
  EXPECT_GT(acknowledged.size(), 10u);
  EXPECT_FALSE(std::filesystem::exists(path + "/data/db/LOG"));  // its full disk would abort the process
  std::filesystem::remove(path + "/filler");
  ASSERT_TRUE(PutOne(*store, "after", "v").ok());
  store.reset();
  store = MustOpen(path + "/data");
  EXPECT_TRUE(store->Get(Table::kRuns, "after").ok());
  for (const std::string& key : acknowledged) ASSERT_TRUE(store->Get(Table::kRuns, key).ok());
}

// Root may write where no other user may, but not to a file system that is mounted for reading.
TEST(RocksMetadataStoreChild, DISABLED_ReadOnly) {
  const std::string path = std::getenv(kChildDirectory);
  ASSERT_TRUE(PutOne(*MustOpen(path + "/data"), "before", "v").ok());
  ASSERT_EQ(::mount(nullptr, path.c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr), 0)
      << std::strerror(errno);
  const absl::Status refused = RocksMetadataStore::Open(path + "/data").status();
  EXPECT_TRUE(absl::IsPermissionDenied(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr(path + "/data"));
  ASSERT_EQ(::mount(nullptr, path.c_str(), nullptr, MS_REMOUNT, nullptr), 0);
  EXPECT_TRUE(MustOpen(path + "/data")->Get(Table::kRuns, "before").ok());
}

TEST(RocksMetadataStore, AFileSystemForReadingIsNamed) {
  TemporaryDirectory directory;
  const int result =
      RunInSmallFileSystem("RocksMetadataStoreChild.DISABLED_ReadOnly", directory.path(), "32m");
  if (result == 77) GTEST_SKIP() << "needs the right to mount a tmpfs";
  EXPECT_EQ(result, 0);
}

TEST(RocksMetadataStore, AFullDiskFailsCleanlyKeepsReadingAndRecovers) {
  TemporaryDirectory directory;
  const int result =
      RunInSmallFileSystem("RocksMetadataStoreChild.DISABLED_FillAndRecover", directory.path(), "32m");
  if (result == 77) GTEST_SKIP() << "needs the right to mount a tmpfs";
  EXPECT_EQ(result, 0);
}

TEST(RocksMetadataStore, FillingTheDiskByCommitsLosesNothingAcknowledged) {
  TemporaryDirectory directory;
  const int result =
      RunInSmallFileSystem("RocksMetadataStoreChild.DISABLED_FillByCommits", directory.path(), "64m");
  if (result == 77) GTEST_SKIP() << "needs the right to mount a tmpfs";
  EXPECT_EQ(result, 0);
}

}  // namespace
}  // namespace troupe::storage
