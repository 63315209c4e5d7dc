// What only the repository on disk has: restarts, crashes, a lock, a full disk.
#include "storage/disk_model_repository.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>

#include "base/digest.hpp"
#include "base/status.hpp"
#include "storage/fake_model_repository.hpp"
#include "tests/unit/storage/child_test.hpp"
#include "tests/unit/storage/files.hpp"
#include "tests/unit/storage/small_file_system.hpp"

namespace troupe::storage {
namespace {

std::unique_ptr<DiskModelRepository> MustOpenRepository(const std::string& directory) {
  auto repository = DiskModelRepository::At(directory);
  EXPECT_TRUE(repository.ok()) << repository.status();
  return repository.ok() ? *std::move(repository) : nullptr;
}

absl::StatusOr<std::string> PutText(ModelRepository& repository, const std::string& text) {
  return repository.Put(std::as_bytes(std::span(text)));
}

std::size_t FilesIn(const std::string& directory) {
  return static_cast<std::size_t>(
      std::distance(std::filesystem::directory_iterator(directory), std::filesystem::directory_iterator()));
}

TEST(DiskModelRepository, KeepsObjectsOverARestartAndForgetsHalfWrittenOnes) {
  TemporaryDirectory directory;
  ASSERT_TRUE(PutText(*MustOpenRepository(directory.path()), "kept").ok());
  WriteFile(directory / "tmp/17", "half of an object");
  WriteFile(directory / "objects/stray file", "ignored");
  const auto repository = MustOpenRepository(directory.path());
  EXPECT_EQ(repository->List().size(), 1u);
  EXPECT_EQ(repository->UsedBytes(), Bytes(4));
  EXPECT_EQ(FilesIn(directory / "tmp"), 0u);
  EXPECT_TRUE(repository->Open(Sha256Hex("kept")).ok());
}

TEST(DiskModelRepository, APartOutlivesTheProcessAndTellsHowLongItWasIdle) {
  TemporaryDirectory directory;
  {
    const auto repository = MustOpenRepository(directory.path());
    const std::string text = "half of ";
    ASSERT_TRUE((*repository->Continue("p"))->Append(std::as_bytes(std::span(text))).ok());
  }
  const auto path = directory / "parts/p";
  std::filesystem::last_write_time(path, std::filesystem::last_write_time(path) - std::chrono::hours(2));
  WriteFile(directory / "parts/Stray File", "ignored");
  std::filesystem::create_symlink(directory / "FORMAT", directory / "parts/link");
  const auto repository = MustOpenRepository(directory.path());
  EXPECT_FALSE(repository->Continue("link").ok()) << "a symbolic link was followed";
  std::filesystem::remove(directory / "parts/link");
  ASSERT_EQ(repository->Parts().size(), 1u);
  EXPECT_GE(repository->Parts()[0].idle, std::chrono::hours(2));
  EXPECT_EQ(repository->Parts()[0].size, Bytes(8));
  auto writer = *repository->Continue("p");
  const std::string text = "an object";
  ASSERT_TRUE(writer->Append(std::as_bytes(std::span(text))).ok());
  EXPECT_LT(repository->Parts()[0].idle, std::chrono::hours(2));
  const std::string digest = *writer->Commit(Sha256Hex("half of an object"));
  EXPECT_EQ(
      std::filesystem::status(directory / ("objects/" + digest.substr(0, 2) + "/" + digest)).permissions(),
      std::filesystem::perms::owner_read);
}

TEST(DiskModelRepository, LeavesNoTemporaryFiles) {
  TemporaryDirectory directory;
  const auto repository = MustOpenRepository(directory.path());
  ASSERT_TRUE(PutText(*repository, "x").ok());
  const std::string text = "y";
  EXPECT_FALSE(repository->Put(std::as_bytes(std::span(text)), Sha256Hex("z")).ok());
  { auto abandoned = *repository->Create(); }
  EXPECT_EQ(FilesIn(directory / "tmp"), 0u);
}

TEST(DiskModelRepository, ReadersShareOneMapping) {
  TemporaryDirectory directory;
  const auto repository = MustOpenRepository(directory.path());
  const std::string digest = *PutText(*repository, "shared");
  const auto first = repository->Open(digest);
  const auto second = repository->Open(digest);
  EXPECT_EQ(first->bytes.data(), second->bytes.data());
}

TEST(DiskModelRepository, DamagedObjectsGoToTheQuarantine) {
  TemporaryDirectory directory;
  const std::string digest = *PutText(*MustOpenRepository(directory.path()), "precious");
  const std::string path = directory / ("objects/" + digest.substr(0, 2) + "/" + digest);
  for (const char* bytes : {"precioux", "preciou", ""}) {
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    WriteFile(path, bytes);
    const auto repository = MustOpenRepository(directory.path());
    EXPECT_TRUE(absl::IsDataLoss(repository->Open(digest).status()));
    EXPECT_FALSE(std::filesystem::exists(path));
    EXPECT_EQ(ReadAll(directory / ("quarantine/" + digest)), bytes);
    ASSERT_TRUE(PutText(*repository, "precious").ok());
  }
  const auto repository = MustOpenRepository(directory.path());
  std::filesystem::remove(path);  // vanished altogether
  EXPECT_TRUE(absl::IsNotFound(repository->Open(digest).status()));
  EXPECT_FALSE(repository->Has(digest)) << "the object has to be fetched again";
}

// The object was verified before: a later change of its file is found all the same.
TEST(DiskModelRepository, AnObjectThatChangesOnDiskLaterGoesToTheQuarantine) {
  TemporaryDirectory directory;
  const auto repository = MustOpenRepository(directory.path());
  const std::string digest = *PutText(*repository, "weights of a model");
  const auto path = directory / ("objects/" + digest.substr(0, 2) + "/" + digest);
  { ASSERT_TRUE(repository->Open(digest).ok()); }
  std::filesystem::permissions(path, std::filesystem::perms::owner_write, std::filesystem::perm_options::add);
  std::filesystem::last_write_time(path, std::filesystem::last_write_time(path) - std::chrono::hours(1));
  { ASSERT_TRUE(repository->Open(digest).ok()) << "the file was touched, and its bytes are whole"; }
  WriteFile(path, "weights of a modem");
  const auto damaged = repository->Open(digest);
  EXPECT_TRUE(absl::IsDataLoss(damaged.status())) << damaged.status();
  EXPECT_FALSE(repository->Has(digest));
  EXPECT_EQ(FilesIn(directory / "quarantine"), 1u);
  ASSERT_TRUE(PutText(*repository, "weights of a model").ok());
  EXPECT_TRUE(repository->Open(digest).ok());
}

TEST(DiskModelRepository, IsLockedAndKnowsItsFormat) {
  TemporaryDirectory directory;
  {
    const auto repository = MustOpenRepository(directory.path());
    const absl::Status locked = DiskModelRepository::At(directory.path()).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(locked));
    EXPECT_THAT(std::string(locked.message()),
                testing::HasSubstr("is locked by pid " + std::to_string(::getpid())));
  }
  EXPECT_EQ(ReadAll(directory / "FORMAT"), "troupe-objects 1\n");
  WriteFile(directory / "FORMAT", "troupe-objects 2\n");
  EXPECT_TRUE(absl::IsFailedPrecondition(DiskModelRepository::At(directory.path()).status()));
}

TEST(DiskModelRepositoryChild, DISABLED_FillTheDisk) {
  const std::string path = std::getenv(kChildDirectory);
  const auto repository = MustOpenRepository(path + "/models");
  ASSERT_TRUE(PutText(*repository, "before").ok());
  const absl::Status full = PutText(*repository, std::string(16 << 20, 'x')).status();
  EXPECT_TRUE(absl::IsResourceExhausted(full) && IsDiskFull(full)) << full;
  EXPECT_EQ(FilesIn(path + "/models/tmp"), 0u);
  EXPECT_EQ(repository->List().size(), 1u);
  EXPECT_TRUE(PutText(*repository, std::string(1 << 20, 'y')).ok());  // the space is back at once
  EXPECT_TRUE(repository->Open(Sha256Hex("before")).ok());
}

TEST(DiskModelRepository, AFullDiskKeepsNothingHalf) {
  TemporaryDirectory directory;
  const int result =
      RunInSmallFileSystem("DiskModelRepositoryChild.DISABLED_FillTheDisk", directory.path(), "8m");
  if (result == 77) GTEST_SKIP() << "needs the right to mount a tmpfs";
  EXPECT_EQ(result, 0);
}

TEST(DiskModelRepositoryChild, DISABLED_PutForever) {
  const auto repository = MustOpenRepository(std::string(std::getenv(kChildDirectory)));
  for (char i = 0;; ++i) {
    if (!PutText(*repository, std::string(100000, i)).ok()) _exit(3);
    if (::write(kAcknowledgements, &i, 1) != 1) _exit(4);
  }
}

TEST(DiskModelRepository, NothingAcknowledgedIsLostByKillNine) {
  TemporaryDirectory directory;
  const std::string acknowledged =
      RunUntilKilled("DiskModelRepositoryChild.DISABLED_PutForever", directory.path(), 40);
  EXPECT_GE(acknowledged.size(), 40u);
  const auto repository = MustOpenRepository(directory.path());
  for (const char each : acknowledged) {
    EXPECT_TRUE(repository->Open(Sha256Hex(std::string(100000, each))).ok()) << static_cast<int>(each);
  }
}

TEST(FakeModelRepository, ItsDiskCanBeFull) {
  FakeModelRepository repository;
  repository.SetCapacity(Bytes(10));
  ASSERT_TRUE(PutText(repository, "12345").ok());
  EXPECT_TRUE(IsDiskFull(PutText(repository, "123456").status()));
  EXPECT_TRUE(PutText(repository, "abcde").ok());
  ASSERT_TRUE(repository.Remove(Sha256Hex("12345")).ok());
  EXPECT_TRUE(PutText(repository, "vwxyz").ok());
  EXPECT_EQ(repository.UsedBytes(), Bytes(10));
}

}  // namespace
}  // namespace troupe::storage
