// How a store treats files that were damaged, cut short, removed or put back: no acknowledged record is ever
// dropped silently, and records that were never acknowledged do not keep a store from opening.
#include "storage/store_recovery.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rocksdb/db.h>

#include <functional>

#include "storage/record_frame.hpp"
#include "storage/zeroed_logs.hpp"
#include "tests/unit/storage/power.hpp"
#include "tests/unit/storage/stores.hpp"

namespace troupe::storage {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr char kHelp[] = "troupe store restore";

class StoreRecovery : public testing::Test {
 protected:
  // `commits` of one change each, keys "0", "1", ...; the store is closed.
  void Fill(int commits, std::size_t bytes = 300) {
    const auto store = MustOpen(path());
    for (int i = 0; i < commits; ++i)
      ASSERT_TRUE(PutOne(*store, std::to_string(i), std::string(bytes, 'v')).ok());
    count_ = commits;
  }
  // The mark is as after a power failure, or a crash between the last write and its acknowledgement.
  void SetMark(std::uint64_t sequence) {
    const auto mark = CommitMark::Read(path() + "/MARK");
    ASSERT_TRUE(CommitMark::Write(path() + "/MARK", {sequence, mark->database}).ok());
  }
  void ExpectRefused(const std::string& because) {
    const auto before = FilesOf(path());
    const absl::Status status = RocksMetadataStore::Open(path()).status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(kHelp));
    EXPECT_THAT(std::string(status.message()), HasSubstr(because));
    EXPECT_EQ(FilesOf(path()), before) << "a store that is refused is left as it is";
  }
  // The store opens with the first `commits` commits, and says what it dropped.
  void ExpectDropped(int commits) {
    const auto store = MustOpen(path());
    ASSERT_NE(store, nullptr);
    EXPECT_FALSE(store->recovery().dropped_from.empty());
    EXPECT_GT(store->recovery().dropped, Bytes(0));
    EXPECT_THAT(store->recovery().Line(), HasSubstr("never acknowledged"));
    for (int i = 0; i < count_; ++i)
      EXPECT_EQ(store->Get(Table::kRuns, std::to_string(i)).ok(), i < commits) << i;
    EXPECT_TRUE(PutOne(*store, "new", "v").ok());
  }
  [[nodiscard]] std::string path() const { return directory_ / "store"; }
  [[nodiscard]] std::string Log() const { return FindFile(path() + "/db", ".log"); }
  void Change(const std::string& file, const std::function<void(std::string&)>& how) {
    std::string bytes = ReadAll(file);
    how(bytes);
    std::filesystem::permissions(file, std::filesystem::perms::owner_all);
    WriteFile(file, bytes);
  }

  TemporaryDirectory directory_;
  int count_ = 0;
};

TEST_F(StoreRecovery, AWholeStoreSaysWhatItHas) {
  Fill(5);
  auto store = MustOpen(path());
  EXPECT_EQ(store->recovery().format, 2);
  EXPECT_EQ(store->recovery().mark, 5u);
  EXPECT_EQ(store->recovery().sequence, 5u);
  EXPECT_THAT(
      store->recovery().Line(),
      HasSubstr("metadata of format 2: changes up to number 5, the mark at 5, nothing dropped, opened in "));
  store.reset();
  store = MustOpen(path());  // the logs are empty now
  EXPECT_EQ(store->recovery().mark, 5u);
  EXPECT_EQ(MustOpen(directory_ / "new")->recovery().Line(), "metadata: an empty store was made");
}

TEST_F(StoreRecovery, AnyDamagedByteOfAnAcknowledgedLogRefuses) {
  Fill(4);
  const std::string whole = directory_ / "whole";
  CopyStore(path(), whole);
  const std::size_t size = ReadAll(Log()).size();
  for (std::size_t at = 0; at < size; at += 71) {
    CopyStore(whole, path());
    Change(Log(), [at](std::string& log) { log[at] = static_cast<char>(log[at] ^ 0x40); });
    SCOPED_TRACE(at);
    ExpectRefused("were acknowledged");
  }
}

TEST_F(StoreRecovery, AnAcknowledgedLogThatIsCutShortRefuses) {
  Fill(4);
  const std::string whole = directory_ / "whole";
  CopyStore(path(), whole);
  const std::size_t size = ReadAll(Log()).size();
  for (std::size_t left = 0; left < size; left += 101) {
    CopyStore(whole, path());
    std::filesystem::resize_file(Log(), left);
    SCOPED_TRACE(left);
    ExpectRefused("were acknowledged (MARK)");
  }
}

TEST_F(StoreRecovery, ATornLastRecordBehindTheMarkIsDroppedAndSaid) {
  Fill(4);
  SetMark(3);  // the fourth commit was written and never acknowledged
  const std::string whole = directory_ / "whole";
  CopyStore(path(), whole);
  const std::size_t size = ReadAll(Log()).size(), record = size / 4;
  for (const std::size_t cut : {1ul, 10ul, record - 8, record - 1}) {
    CopyStore(whole, path());
    std::filesystem::resize_file(Log(), size - cut);
    SCOPED_TRACE(cut);
    ExpectDropped(3);
    CopyStore(whole, path());
    Change(Log(),
           [cut](std::string& log) { std::fill(log.end() - static_cast<long>(cut), log.end(), '\0'); });
    std::filesystem::resize_file(Log(), size + 100'000);  // the room that a killed manager leaves
    ExpectDropped(3);
  }
  for (const std::size_t at :
       {size - record, size - record + 4, size - 1}) {  // its length is right, its bytes are not
    CopyStore(whole, path());
    Change(Log(), [at](std::string& log) { log[at] = static_cast<char>(log[at] ^ 0x40); });
    SCOPED_TRACE(at);
    ExpectDropped(3);
  }
  CopyStore(whole, path());
  Change(Log(), [&](std::string& log) { std::fill(log.end() - 200, log.end() - 100, '\0'); });
  ExpectDropped(3);
}

// The files that a manager leaves when it is killed, and when it ends by itself.
TEST_F(StoreRecovery, ALogHasRoomAheadOfItsRecordsUntilItIsClosed) {
  const std::string killed = directory_ / "killed";
  {
    const auto store = MustOpen(path());
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(PutOne(*store, std::to_string(i), std::string(100'000, 'v')).ok());
      EXPECT_EQ(ReadAll(Log()).size() % kLogStep.count(), 0u);
    }
    CopyStore(path(), killed);
  }
  EXPECT_LT(ReadAll(Log()).size(), 301'000u);
  for (const auto& place : {killed, path()}) {
    const auto store = MustOpen(place);
    EXPECT_TRUE(store->recovery().dropped_from.empty()) << store->recovery().Line();
    for (int i = 0; i < 3; ++i) EXPECT_EQ(store->Get(Table::kRuns, std::to_string(i))->size(), 100'000u);
  }
}

TEST_F(StoreRecovery, AMarkThatAPowerFailureLeftBehindIsMadeUpForByTheLog) {
  Fill(6);
  SetMark(1);
  const std::string whole = directory_ / "whole";
  CopyStore(path(), whole);
  const std::size_t record = ReadAll(Log()).size() / 6;
  for (int damaged = 0; damaged < 5; ++damaged) {
    CopyStore(whole, path());
    const std::size_t at = record * static_cast<std::size_t>(damaged) + 50;
    Change(Log(), [at](std::string& log) { log[at] = static_cast<char>(log[at] ^ 0x40); });
    SCOPED_TRACE(damaged);
    ExpectRefused("changes up to number 5 were acknowledged");
  }
  CopyStore(whole, path());
  Change(Log(), [&](std::string& log) { log[record * 5 + 50] ^= 0x40; });
  ExpectDropped(5);  // this is the limit of detection: docs/guarantees.md
}

TEST_F(StoreRecovery, AZeroedSectorIsNoEndOfTheLog) {
  Fill(8);
  SetMark(0);
  Change(Log(), [](std::string& log) { std::fill(log.begin() + 512, log.begin() + 1024, '\0'); });
  ExpectRefused("were acknowledged");
}

TEST_F(StoreRecovery, AMissingLogRefuses) {
  Fill(3);
  std::filesystem::remove(Log());
  ExpectRefused("");
}

// The older of two logs holds records that one table has not written out yet.
TEST_F(StoreRecovery, AMissingOlderLogRefuses) {
  {
    const auto store = MustOpen(path());
    ASSERT_TRUE(PutOne(*store, "small", "v", Table::kNodes).ok());
    for (int i = 0; i < 30; ++i)
      ASSERT_TRUE(PutOne(*store, std::to_string(i), std::string(400000, 'v')).ok());
  }
  std::string oldest;
  int logs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(path() + "/db")) {
    if (entry.path().extension() != ".log") continue;
    ++logs;
    if (oldest.empty() || entry.path().string() < oldest) oldest = entry.path().string();
  }
  ASSERT_GE(logs, 2);
  const std::string whole = directory_ / "whole";
  CopyStore(path(), whole);
  std::filesystem::remove(oldest);
  ExpectRefused("");
  CopyStore(whole, path());
  EXPECT_TRUE(MustOpen(path())->Get(Table::kNodes, "small").ok());
}

TEST_F(StoreRecovery, FilesThatAreMissingOrDamagedAreRefusedOrNamed) {
  Fill(20, 3000);
  MustOpen(path());  // writes the log out to a table file
  ASSERT_FALSE(FindFile(path() + "/db", ".sst").empty());
  const std::string whole = directory_ / "whole";
  CopyStore(path(), whole);
  std::filesystem::remove(FindFile(path() + "/db", ".sst"));
  ExpectRefused("");
  for (const char* name : {"CURRENT", "IDENTITY"}) {
    CopyStore(whole, path());
    std::filesystem::remove(path() + "/db/" + name);
    ExpectRefused("");
  }
  CopyStore(whole, path());
  for (const auto& entry : std::filesystem::directory_iterator(path() + "/db"))
    if (entry.path().filename().string().starts_with("MANIFEST")) std::filesystem::remove(entry.path());
  ExpectRefused("");
  // A damaged block is reported by the read that meets it.
  CopyStore(whole, path());
  Change(FindFile(path() + "/db", ".sst"), [](std::string& table) { table[5000] ^= 1; });
  const auto store = RocksMetadataStore::Open(path());
  if (!store.ok()) return ExpectRefused("");
  const absl::Status scan = (*store)->Scan(Table::kRuns, "", [](auto, auto) { return true; });
  EXPECT_TRUE(absl::IsDataLoss(scan)) << scan;
  EXPECT_THAT(std::string(scan.message()), HasSubstr(kHelp));
}

TEST_F(StoreRecovery, AMarkThatIsMissingDamagedOrOfAnotherStoreRefuses) {
  Fill(3);
  const std::string whole = directory_ / "whole";
  CopyStore(path(), whole);
  std::filesystem::remove(path() + "/MARK");
  ExpectRefused("MARK is missing");
  CopyStore(whole, path());
  WriteFile(path() + "/MARK", std::string(1024, 'x'));
  ExpectRefused("MARK, the mark of the last acknowledged commit, is damaged");
  CopyStore(whole, path());
  ASSERT_TRUE(PutOne(*MustOpen(directory_ / "other"), "k", "v").ok());
  CopyStore(directory_ / "other/db", path() + "/db");
  ExpectRefused("MARK was written for another database");
}

TEST_F(StoreRecovery, AnOlderCopyOfTheDatabaseIsNotTakenForTheNewest) {
  Fill(3);
  CopyStore(path() + "/db", directory_ / "old");
  ASSERT_TRUE(PutOne(*MustOpen(path()), "later", "v").ok());
  CopyStore(directory_ / "old", path() + "/db");
  ExpectRefused("changes up to number 4 were acknowledged (MARK), and they end with number 3");
}

// Writes a store as a build of format 1 did: the same tables and frames, no mark.
void WriteFormatOne(const std::string& path, int records) {
  std::filesystem::create_directories(path);
  rocksdb::DBOptions options;
  options.create_if_missing = options.create_missing_column_families = true;
  std::vector<rocksdb::ColumnFamilyDescriptor> families{{rocksdb::kDefaultColumnFamilyName, {}}};
  for (const Table table : kAllTables)
    families.emplace_back(TableName(table), rocksdb::ColumnFamilyOptions());
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
  rocksdb::DB* db = nullptr;
  ASSERT_TRUE(rocksdb::DB::Open(options, path + "/db", families, &handles, &db).ok());
  rocksdb::WriteOptions synced;
  synced.sync = true;
  for (int i = 0; i < records; ++i) {
    const std::string key = std::to_string(i);
    ASSERT_TRUE(db->Put(synced, handles[4], key, FrameRecord(Table::kRuns, key, "from format 1")).ok());
  }
  for (auto* handle : handles) ASSERT_TRUE(db->DestroyColumnFamilyHandle(handle).ok());
  delete db;
  WriteFile(path + "/FORMAT", "troupe-metadata 1\n");
}

TEST_F(StoreRecovery, AStoreOfTheEarlierFormatIsUpgraded) {
  WriteFormatOne(path(), 5);
  {
    const auto store = MustOpen(path());
    ASSERT_NE(store, nullptr);
    EXPECT_THAT(store->recovery().Line(), HasSubstr("metadata of format 1"));
    EXPECT_THAT(store->recovery().Line(), HasSubstr("upgraded to format 2"));
    for (int i = 0; i < 5; ++i) EXPECT_EQ(*store->Get(Table::kRuns, std::to_string(i)), "from format 1");
    ASSERT_TRUE(PutOne(*store, "later", "v").ok());
  }
  EXPECT_EQ(ReadAll(path() + "/FORMAT"), "troupe-metadata 2\n");
  EXPECT_EQ(CommitMark::Read(path() + "/MARK")->sequence, 6u);
  EXPECT_EQ(MustOpen(path())->recovery().format, 2);
}

TEST_F(StoreRecovery, TheEarlierFormatsLogsAreJudgedToo) {
  WriteFormatOne(path(), 5);
  const std::string whole = directory_ / "whole";
  CopyStore(path(), whole);
  Change(Log(), [](std::string& log) { log[log.size() / 2] ^= 1; });
  ExpectRefused("were acknowledged");
  CopyStore(whole, path());
  std::filesystem::resize_file(Log(), ReadAll(Log()).size() - 5);
  count_ = 5;
  ExpectDropped(4);
}

TEST_F(StoreRecovery, AnUpgradeThatIsCutShortIsDoneAgain) {
  WriteFormatOne(path(), 2);
  MustOpen(path());
  WriteFile(path() + "/FORMAT", "troupe-metadata 1\n");  // the mark is there, the format is not
  EXPECT_TRUE(MustOpen(path())->Get(Table::kRuns, "1").ok());
  EXPECT_EQ(ReadAll(path() + "/FORMAT"), "troupe-metadata 2\n");
}

TEST_F(StoreRecovery, ACreationThatWasCutShortIsBegunAnew) {
  MustOpen(path());
  for (const char* gone : {"FORMAT", "db/MANIFEST-000001", "db/IDENTITY"})
    std::filesystem::remove(path() + "/" + gone);
  EXPECT_TRUE(PutOne(*MustOpen(path()), "new", "v").ok());
  EXPECT_TRUE(MustOpen(path())->Get(Table::kRuns, "new").ok());
  // With a record in it, it is no creation: nothing is removed. The mark alone says so, too.
  std::filesystem::copy(path(), directory_ / "marked", std::filesystem::copy_options::recursive);
  std::filesystem::remove(directory_ / "marked/FORMAT");
  for (const auto& entry : std::filesystem::directory_iterator(directory_ / "marked/db"))
    if (entry.path().extension() == ".sst" || entry.path().extension() == ".log")
      std::filesystem::remove(entry.path());
  EXPECT_FALSE(RocksMetadataStore::Open(directory_ / "marked").ok());
  std::filesystem::remove(path() + "/FORMAT");
  std::filesystem::remove(path() + "/MARK");
  const auto before = FilesOf(path() + "/db");
  EXPECT_TRUE(absl::IsDataLoss(RocksMetadataStore::Open(path()).status()));
  EXPECT_GE(FilesOf(path() + "/db").size(), before.size());
}

TEST_F(StoreRecovery, AFailedSyncIsNotAcknowledgedAndTheNextCommitWorks) {
  {
    const auto store = MustOpen(path());
    ASSERT_TRUE(PutOne(*store, "before", "v").ok());
    failing_syncs = 1;
    const absl::Status failed = PutOne(*store, "during", "v");
    EXPECT_EQ(failing_syncs, 0) << "the commit did not sync";
    EXPECT_FALSE(failed.ok());
    EXPECT_THAT(std::string(failed.message()), HasSubstr("cannot commit to"));
    EXPECT_EQ(CommitMark::Read(path() + "/MARK")->sequence, 1u) << "the mark is ahead of the disk";
    EXPECT_TRUE(store->Get(Table::kRuns, "before").ok());
    ASSERT_TRUE(PutOne(*store, "after", "v").ok());
  }
  const auto store = MustOpen(path());
  EXPECT_TRUE(store->Get(Table::kRuns, "before").ok());
  EXPECT_TRUE(store->Get(Table::kRuns, "after").ok());
}

TEST_F(StoreRecovery, ADiskThatStaysBrokenAcknowledgesNothing) {
  const auto store = MustOpen(path());
  ASSERT_TRUE(PutOne(*store, "before", "v").ok());
  failing_syncs = 1000;
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(PutOne(*store, "during", "v").ok());
  EXPECT_TRUE(store->Get(Table::kRuns, "before").ok());
  failing_syncs = 0;
  EXPECT_TRUE(PutOne(*store, "after", "v").ok());
}

TEST_F(StoreRecovery, ACheckpointIsAStoreOfItsOwn) {
  const auto store = MustOpen(path());
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(PutOne(*store, std::to_string(i), "v").ok());
  ASSERT_TRUE(store->Checkpoint(directory_ / "copy").ok());
  ASSERT_TRUE(PutOne(*store, "later", "v").ok());  // commits go on
  const auto copy = MustOpen(directory_ / "copy");
  EXPECT_EQ(copy->recovery().mark, 10u);
  EXPECT_TRUE(copy->Get(Table::kRuns, "9").ok());
  EXPECT_FALSE(copy->Get(Table::kRuns, "later").ok());
  ASSERT_TRUE(PutOne(*copy, "other", "v").ok());
  EXPECT_FALSE(store->Get(Table::kRuns, "other").ok());
}

}  // namespace
}  // namespace troupe::storage
