// Backups, restores, and what a check finds: files that are whole, cut short, damaged, or of another store.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/digest.hpp"
#include "proto/cluster.pb.h"
#include "proto/function.pb.h"
#include "storage/backup.hpp"
#include "storage/disk_model_repository.hpp"
#include "storage/store_check.hpp"
#include "tests/unit/storage/stores.hpp"

namespace troupe::storage {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// A manager's data directory with one function and its two objects.
class StoreFiles : public testing::Test {
 protected:
  void SetUp() override { Make(data(), "cluster-one"); }

  void Make(const std::string& at, const std::string& cluster) {
    auto models = DiskModelRepository::At(at + "/models");
    ASSERT_TRUE(models.ok()) << models.status();
    proto::FunctionRecord function;
    function.mutable_key()->set_name("double");
    function.mutable_key()->set_version("1");
    function.set_model_digest(Put(**models, "the model"));
    function.set_weights_digest(Put(**models, std::string(100000, 'w')));
    const auto store = MustOpen(at + "/metadata");
    Batch batch;
    batch.Put(Table::kSettings, "cluster", cluster);
    batch.Put(Table::kSettings, "epoch", "7");
    proto::PlacementRecord home;
    home.add_nodes("n1");
    home.add_in_step("n2");
    home.set_term(3);
    batch.Put(Table::kSettings, "state-home/digest", home);
    home.set_home_is_empty(true);
    batch.Put(Table::kSettings, "state-home/empty", home);
    batch.Put(Table::kSettings, "term/last", "9");
    batch.Put(Table::kFunctions, "double/1", function);
    ASSERT_TRUE(CommitAndWait(*store, std::move(batch)).ok());
  }
  static std::string Put(ModelRepository& models, const std::string& bytes) {
    auto writer = models.Create();
    EXPECT_TRUE((*writer)->Append(std::as_bytes(std::span(bytes))).ok());
    return (*writer)->Commit("").value_or("");
  }
  absl::StatusOr<BackupReport> BackUp(const std::string& to) {
    const auto store = MustOpen(data() + "/metadata");
    return MakeBackup(*store, data(), to);
  }
  [[nodiscard]] std::string data() const { return directory_ / "data"; }
  [[nodiscard]] std::string backup() const { return directory_ / "backup"; }
  [[nodiscard]] std::string Model() const {
    return absl::StrCat("/models/objects/", Sha256Hex("the model").substr(0, 2), "/", Sha256Hex("the model"));
  }
  static void Spoil(const std::string& file) {
    std::string bytes = ReadAll(file);
    ASSERT_FALSE(bytes.empty()) << file;
    bytes[bytes.size() / 2] ^= 1;
    std::filesystem::permissions(file, std::filesystem::perms::owner_all);
    WriteFile(file, bytes);
  }
  void ExpectRefused(absl::StatusCode code, const std::string& because, const std::string& from) {
    const auto before = FilesOf(data() + "/metadata");
    const auto status = RestoreBackup(from, data(), false).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(because));
    EXPECT_EQ(FilesOf(data() + "/metadata"), before) << "a restore that is refused replaces nothing";
  }

  TemporaryDirectory directory_;
};

TEST_F(StoreFiles, ABackupComesBackAsItWas) {
  const auto report = BackUp(backup());
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->list.cluster, "cluster-one");
  EXPECT_EQ(report->list.sequence, 6u);
  EXPECT_THAT(report->Line(backup()), HasSubstr("backup of cluster cluster-one, changes up to number 6: "));
  // Later changes are not in the backup.
  ASSERT_TRUE(PutOne(*MustOpen(data() + "/metadata"), "later", "v").ok());
  std::filesystem::remove(data() + Model());

  const auto restored = RestoreBackup(backup(), data(), false);
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_EQ(restored->models_copied, 1u);
  EXPECT_EQ(restored->models_there, 1u);
  EXPECT_EQ(restored->replaced, data() + "/metadata.replaced-1");
  EXPECT_THAT(restored->Line(data()),
              HasSubstr("1 models copied, 1 were there; what was there before is in "));
  {
    const auto store = MustOpen(data() + "/metadata");
    EXPECT_TRUE(store->Get(Table::kFunctions, "double/1").ok());
    EXPECT_FALSE(store->Get(Table::kRuns, "later").ok());
    EXPECT_EQ(*store->Get(Table::kSettings, "epoch"), "1000000000000007") << "no epoch is given twice";
    proto::PlacementRecord home;
    ASSERT_TRUE(home.ParseFromString(*store->Get(Table::kSettings, "state-home/digest")));
    EXPECT_EQ(home.nodes(0), "n1");
    EXPECT_EQ(home.term(), 1'000'000'000'000'003u) << "the nodes may know later homes than this one";
    EXPECT_THAT(home.in_step(), IsEmpty()) << "nodes that were in step then need not be now";
    ASSERT_TRUE(home.ParseFromString(*store->Get(Table::kSettings, "state-home/empty")));
    EXPECT_THAT(home.in_step(), ElementsAre("n2")) << "the home has nothing";
    EXPECT_EQ(*store->Get(Table::kSettings, "term/last"), "1000000000000009");
  }
  EXPECT_EQ(ReadAll(data() + Model()), "the model");
  EXPECT_THAT(CheckStore(data())->problems, IsEmpty());
  // The store that was replaced is whole, too.
  EXPECT_TRUE(MustOpen(restored->replaced)->Get(Table::kRuns, "later").ok());
  EXPECT_EQ(RestoreBackup(backup(), data(), false)->replaced, data() + "/metadata.replaced-2");
}

TEST_F(StoreFiles, ARestoreIntoAnEmptyDirectoryAndOverADamagedStore) {
  ASSERT_TRUE(BackUp(backup()).ok());
  const auto fresh = RestoreBackup(backup(), directory_ / "fresh", false);
  ASSERT_TRUE(fresh.ok()) << fresh.status();
  EXPECT_EQ(fresh->replaced, "");
  EXPECT_THAT(CheckStore(directory_ / "fresh")->problems, IsEmpty());
  EXPECT_TRUE(DiskModelRepository::At(directory_ / "fresh/models").ok());

  std::filesystem::remove(data() + "/metadata/MARK");
  std::filesystem::remove(data() + "/metadata/db/CURRENT");
  ASSERT_TRUE(absl::IsDataLoss(RocksMetadataStore::Open(data() + "/metadata").status()));
  ASSERT_TRUE(RestoreBackup(backup(), data(), false).ok());
  EXPECT_TRUE(MustOpen(data() + "/metadata")->Get(Table::kFunctions, "double/1").ok());
}

TEST_F(StoreFiles, CommitsGoOnDuringABackup) {
  const auto store = MustOpen(data() + "/metadata");
  ASSERT_TRUE(MakeBackup(*store, data(), backup()).ok());
  ASSERT_TRUE(PutOne(*store, "later", "v").ok());
  EXPECT_TRUE(store->Get(Table::kRuns, "later").ok());
  EXPECT_THAT(CheckStore(backup())->problems, IsEmpty());
}

TEST_F(StoreFiles, AnIncompleteBackupIsRefused) {
  std::filesystem::create_directory(backup());
  EXPECT_TRUE(absl::IsAlreadyExists(BackUp(backup()).status()));
  std::filesystem::remove(backup());
  // A backup was cut short by a crash: its files are not used, and do not prevent the next backup.
  std::filesystem::create_directories(backup() + ".partial/metadata/db");
  ExpectRefused(absl::StatusCode::kFailedPrecondition, "has no file BACKUP", backup() + ".partial");
  ASSERT_TRUE(BackUp(backup()).ok());
  EXPECT_FALSE(std::filesystem::exists(backup() + ".partial"));
  std::filesystem::remove(backup() + "/BACKUP");
  ExpectRefused(absl::StatusCode::kFailedPrecondition, "it is not a backup, or it was cut short", backup());
  ExpectRefused(absl::StatusCode::kFailedPrecondition, "has no file BACKUP", directory_ / "nowhere");
}

TEST_F(StoreFiles, EveryFileOfABackupIsComparedWithItsList) {
  ASSERT_TRUE(BackUp(backup()).ok());
  const std::string whole = directory_ / "whole";
  CopyStore(backup(), whole);
  const auto list = ReadBackupList(backup());
  ASSERT_TRUE(list.ok());
  EXPECT_GE(list->files.size(), 6u);
  int tables = 0;
  for (const auto& file : list->files) {
    // One table file stands for all of them.
    if (file.size == Bytes(0) || (file.path.ends_with(".sst") && ++tables > 1)) continue;
    SCOPED_TRACE(file.path);
    CopyStore(whole, backup());
    std::filesystem::remove_all(data() +
                                "/models/objects");  // else the objects that are there are good enough
    Spoil(backup() + "/" + file.path);
    ExpectRefused(absl::StatusCode::kDataLoss, "does not have the digest that its list says", backup());
    EXPECT_THAT(CheckStore(backup())->problems, testing::Not(IsEmpty()));
    CopyStore(whole, backup());
    std::filesystem::remove(backup() + "/" + file.path);
    ExpectRefused(absl::StatusCode::kNotFound, "", backup());
  }
}

TEST_F(StoreFiles, AListThatIsDamagedNewerOrLeadsOutside) {
  ASSERT_TRUE(BackUp(backup()).ok());
  const std::string list = ReadAll(backup() + "/BACKUP");
  for (std::size_t at = 0; at < list.size(); at += 7) {
    std::string damaged = list;
    damaged[at] = damaged[at] == 'a' ? 'b' : 'a';
    if (damaged == list) continue;
    WriteFile(backup() + "/BACKUP", damaged);
    EXPECT_FALSE(ReadBackupList(backup()).ok()) << at;
  }
  WriteFile(backup() + "/BACKUP", "");
  ExpectRefused(absl::StatusCode::kDataLoss, "is empty", backup());
  WriteFile(backup() + "/BACKUP", "troupe-backup 9\n");
  ExpectRefused(absl::StatusCode::kFailedPrecondition, "has format 9, this build reads up to 1", backup());
  for (const char* path : {"../data/x", "/etc/passwd", "metadata/../../x", ""}) {
    BackupList hostile;
    hostile.files.push_back({path, Sha256Hex(""), Bytes(0)});
    ASSERT_TRUE(WriteBackupList(backup(), hostile).ok());
    ExpectRefused(absl::StatusCode::kInvalidArgument, "names a file outside of it", backup());
  }
}

TEST_F(StoreFiles, AnotherClustersBackupIsRefusedUnlessToldOtherwise) {
  ASSERT_TRUE(BackUp(backup()).ok());
  std::filesystem::remove_all(data());
  Make(data(), "cluster-two");
  ExpectRefused(absl::StatusCode::kFailedPrecondition,
                "belongs to cluster cluster-two, and the backup " + backup() + " to cluster cluster-one",
                backup());
  ASSERT_TRUE(RestoreBackup(backup(), data(), true).ok());
  EXPECT_EQ(ClusterOf(data() + "/metadata"), "cluster-one");
}

TEST_F(StoreFiles, AStoreThatIsOpenIsNeitherCheckedNorReplaced) {
  ASSERT_TRUE(BackUp(backup()).ok());
  const auto store = MustOpen(data() + "/metadata");
  for (const absl::Status& status :
       {RestoreBackup(backup(), data(), false).status(), CheckStore(data()).status(),
        DumpStore(data(), {}, "", [](const std::string&) {})}) {
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("is locked by pid"));
  }
  EXPECT_TRUE(store->Get(Table::kFunctions, "double/1").ok());
}

TEST_F(StoreFiles, ABackupThatIsNotFinishedIsNotCalledDamaged) {
  ASSERT_TRUE(BackUp(backup()).ok());
  std::filesystem::rename(backup(), backup() + ".partial");
  EXPECT_TRUE(CheckStore(backup() + ".partial").ok())
      << "the list of the backup is written, so the backup is whole";
  std::filesystem::remove(backup() + ".partial/BACKUP");
  const auto before = FilesOf(backup() + ".partial");
  for (const auto* slash : {"", "/"}) {
    const auto status = CheckStore(backup() + ".partial" + slash).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("not finished"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("wait for " + backup() + ","));
  }
  EXPECT_EQ(FilesOf(backup() + ".partial"), before) << "a backup that is being written is not disturbed";
  std::filesystem::rename(backup() + ".partial", backup());
  EXPECT_THAT(std::string(CheckStore(backup()).status().message()), HasSubstr("has no file BACKUP"));
}

TEST_F(StoreFiles, ACheckNamesWhatIsDamagedAndChangesNothing) {
  auto report = CheckStore(data());
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(report->problems, IsEmpty());
  EXPECT_EQ(report->models, 2u);
  EXPECT_EQ(report->records[Table::kFunctions], 1u);
  EXPECT_EQ(report->records[Table::kSettings], 5u);
  Spoil(data() + Model());
  const auto before = FilesOf(data());
  report = CheckStore(data());
  EXPECT_THAT(report->problems,
              ElementsAre(HasSubstr("is damaged: its bytes have digest"),
                          HasSubstr("function 'double' needs object " + Sha256Hex("the model"))));
  EXPECT_EQ(FilesOf(data()), before);
  // A damaged model is left out of a backup, which says so and is whole otherwise.
  const auto made = BackUp(backup());
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_THAT(made->left_out, ElementsAre(Sha256Hex("the model")));
  EXPECT_THAT(made->Line(backup()), HasSubstr("1 damaged models were left out"));
}

TEST_F(StoreFiles, ACheckSeesDamageInLogsTablesAndRecords) {
  CopyStore(data(), directory_ / "whole");
  Spoil(FindFile(data() + "/metadata/db", ".log"));
  EXPECT_THAT(CheckStore(data())->problems, testing::Contains(HasSubstr("troupe store restore")));
  CopyStore(directory_ / "whole", data());
  MustOpen(data() + "/metadata");  // writes the log out
  Spoil(FindFile(data() + "/metadata/db", ".sst"));
  EXPECT_THAT(CheckStore(data())->problems, testing::Not(IsEmpty()));
  CopyStore(directory_ / "whole", data());
  ASSERT_TRUE(PutOne(*MustOpen(data() + "/metadata"), "odd/1", "\xff\xff\xff", Table::kFunctions).ok());
  EXPECT_THAT(CheckStore(data())->problems, ElementsAre(HasSubstr("'odd/1' of table functions is no")));
  WriteFile(data() + "/metadata/FORMAT", "troupe-metadata 9\n");
  EXPECT_TRUE(absl::IsFailedPrecondition(CheckStore(data()).status()));
  EXPECT_TRUE(absl::IsNotFound(CheckStore(directory_ / "nowhere").status()));
}

TEST_F(StoreFiles, ADumpIsJsonPerRecord) {
  std::vector<std::string> lines;
  const auto keep = [&](const std::string& line) { lines.push_back(line); };
  ASSERT_TRUE(DumpStore(data(), {}, "", keep).ok());
  EXPECT_THAT(lines, SizeIs(6));
  EXPECT_EQ(lines[0], R"({"table":"settings","key":"cluster","value":"cluster-one"})");
  EXPECT_THAT(lines[5],
              HasSubstr(R"({"table":"functions","key":"double/1","value":{"key":{"name":"double")"));
  lines.clear();
  ASSERT_TRUE(DumpStore(data(), Table::kSettings, "ep", keep).ok());
  EXPECT_THAT(lines, ElementsAre(R"({"table":"settings","key":"epoch","value":"7"})"));
  EXPECT_EQ(*FindTable("steps"), Table::kSteps);
  EXPECT_THAT(std::string(FindTable("stepz").status().message()), HasSubstr("settings, functions"));
}

}  // namespace
}  // namespace troupe::storage
