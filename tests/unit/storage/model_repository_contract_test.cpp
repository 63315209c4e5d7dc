// What every ModelRepository promises; the tests run on each of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <thread>

#include "base/digest.hpp"
#include "base/status.hpp"
#include "storage/disk_model_repository.hpp"
#include "storage/fake_model_repository.hpp"
#include "storage/model_objects.hpp"
#include "tests/unit/storage/files.hpp"

namespace troupe::storage {
namespace {

std::span<const std::byte> AsBytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}
std::string AsText(const ObjectBytes& object) {
  return {reinterpret_cast<const char*>(object.bytes.data()), object.bytes.size()};
}

struct RepositoryKind {
  const char* name;
  std::function<std::unique_ptr<ModelRepository>(const std::string& directory)> make;
  // Changes the bytes of an object behind the repository's back.
  std::function<void(ModelRepository&, const std::string& directory, const std::string& digest)> damage;
};

class ModelRepositoryContract : public testing::TestWithParam<RepositoryKind> {
 protected:
  TemporaryDirectory directory_, beside_;
  std::unique_ptr<ModelRepository> repository_ = GetParam().make(directory_.path());

  // A file beside the repository, by its path.
  std::string FileBeside(const std::string& name, const std::string& text) {
    const auto path = beside_ / name;
    WriteFile(path, text);
    return path;
  }
  // The next Open finds other bytes than were put.
  void Damage(const std::string& digest) {
    GetParam().damage(*repository_, directory_.path(), digest);
    if (std::string(GetParam().name) != "Disk") return;
    // An object is verified once in a process: a new process verifies it again.
    repository_.reset();
    repository_ = GetParam().make(directory_.path());
  }
  std::string MustPut(const std::string& text) {
    auto digest = repository_->Put(AsBytes(text));
    EXPECT_TRUE(digest.ok()) << digest.status();
    return digest.value_or("");
  }
};

TEST_P(ModelRepositoryContract, WhatWasAppendedIsReadByOthersAlsoAfterItsEnd) {
  auto writer = repository_->Create();
  ASSERT_TRUE(writer.ok()) << writer.status();
  const auto appended = (*writer)->Appended();
  ASSERT_TRUE(appended.ok()) << appended.status();
  EXPECT_TRUE(absl::IsOutOfRange((*appended)->Read(Bytes(0), Bytes(1)).status()));
  ASSERT_TRUE((*writer)->Append(AsBytes("some bytes")).ok());
  EXPECT_EQ((*appended)->Read(Bytes(5), Bytes(5)).value(), "bytes");
  EXPECT_TRUE(absl::IsOutOfRange((*appended)->Read(Bytes(5), Bytes(6)).status()));
  ASSERT_TRUE((*writer)->Commit("").ok());
  EXPECT_EQ((*appended)->Read(Bytes(0), Bytes(4)).value(), "some");
  EXPECT_FALSE((*writer)->Appended().ok()) << "it was committed";
}

TEST_P(ModelRepositoryContract, AnObjectIsFoundUnderTheDigestOfItsBytes) {
  for (const std::string& text : {std::string("weights"), std::string(), std::string(3 << 20, 'w')}) {
    const std::string digest = MustPut(text);
    EXPECT_EQ(digest, Sha256Hex(text));
    EXPECT_TRUE(repository_->Has(digest));
    const auto object = repository_->Open(digest);
    ASSERT_TRUE(object.ok()) << object.status();
    EXPECT_EQ(AsText(*object), text);
  }
  EXPECT_EQ(repository_->UsedBytes(), Bytes(7 + (3 << 20)));
}

TEST_P(ModelRepositoryContract, WhatIsNotKeptIsCollectedUnlessItWasUsedLately) {
  const std::string kept = MustPut("kept"), idle = MustPut("idle"), late = MustPut("asked for");
  const auto digests = [](const std::vector<ObjectInfo>& objects) {
    std::vector<std::string> out;
    for (const auto& object : objects) out.push_back(object.digest);
    return out;
  };
  const auto none = repository_->Collect({kept}, std::chrono::hours(1));
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_THAT(*none, testing::IsEmpty()) << "every object was put a moment ago";
  const auto opened = repository_->Open(idle);
  ASSERT_TRUE(opened.ok());
  const auto removed = repository_->Collect({kept, late}, Duration::zero());
  ASSERT_TRUE(removed.ok()) << removed.status();
  EXPECT_THAT(digests(*removed), testing::ElementsAre(idle));
  EXPECT_EQ(AsText(*opened), "idle") << "a reader keeps its bytes";
  EXPECT_FALSE(repository_->Has(idle));
  EXPECT_TRUE(absl::IsNotFound(repository_->Open(idle).status()));
  EXPECT_TRUE(repository_->Open(kept).ok());
  EXPECT_TRUE(repository_->Open(late).ok());
  EXPECT_EQ(repository_->UsedBytes(), Bytes(4 + 9));
  EXPECT_EQ(MustPut("idle"), idle) << "the object may come again";
  EXPECT_TRUE(repository_->Open(idle).ok());
}

TEST_P(ModelRepositoryContract, PiecesMakeOneObject) {
  auto writer = *repository_->Create();
  for (const char* piece : {"one ", "", "object"}) ASSERT_TRUE(writer->Append(AsBytes(piece)).ok());
  EXPECT_FALSE(repository_->Has(Sha256Hex("one object")));
  EXPECT_EQ(*writer->Commit(Sha256Hex("one object")), Sha256Hex("one object"));
  EXPECT_TRUE(repository_->Has(Sha256Hex("one object")));
  EXPECT_TRUE(absl::IsFailedPrecondition(writer->Commit("").status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(writer->Append(AsBytes("more"))));
}

TEST_P(ModelRepositoryContract, AnotherDigestThanExpectedKeepsNothing) {
  const absl::Status status = repository_->Put(AsBytes("bytes"), Sha256Hex("other")).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_TRUE(repository_->List().empty());
  EXPECT_EQ(repository_->UsedBytes(), Bytes(0));
}

TEST_P(ModelRepositoryContract, AnAbandonedWriterLeavesNothing) {
  {
    auto writer = *repository_->Create();
    ASSERT_TRUE(writer->Append(AsBytes("half")).ok());
  }
  EXPECT_TRUE(repository_->List().empty());
  EXPECT_EQ(repository_->UsedBytes(), Bytes(0));
}

TEST_P(ModelRepositoryContract, APartGoesOnWhereItsLastWriterWas) {
  for (const char* piece : {"one ", "two ", "three"}) {
    auto writer = *repository_->Continue("a-part");
    ASSERT_TRUE(writer->Append(AsBytes(piece)).ok());
  }
  EXPECT_TRUE(repository_->List().empty()) << "a part is no object";
  ASSERT_EQ(repository_->Parts().size(), 1u);
  EXPECT_EQ(repository_->Parts()[0].name, "a-part");
  EXPECT_EQ(repository_->Parts()[0].size, Bytes(13));
  auto last = *repository_->Continue("a-part");
  EXPECT_EQ(last->size(), Bytes(13));
  EXPECT_EQ(*last->Commit(Sha256Hex("one two three")), Sha256Hex("one two three"));
  EXPECT_TRUE(repository_->Parts().empty());
  EXPECT_EQ(AsText(*repository_->Open(Sha256Hex("one two three"))), "one two three");
  EXPECT_EQ(repository_->UsedBytes(), Bytes(13));
}

TEST_P(ModelRepositoryContract, APartOfAnotherDigestOrARemovedOneIsGone) {
  for (const char* part : {"p", "q"}) ASSERT_TRUE((*repository_->Continue(part))->Append(AsBytes("x")).ok());
  EXPECT_TRUE(absl::IsInvalidArgument((*repository_->Continue("p"))->Commit(Sha256Hex("y")).status()));
  ASSERT_EQ(repository_->Parts().size(), 1u);
  EXPECT_EQ(repository_->Parts()[0].name, "q");
  EXPECT_TRUE(repository_->RemovePart("q").ok());
  EXPECT_TRUE(repository_->RemovePart("q").ok()) << "there is none";
  EXPECT_TRUE(repository_->Parts().empty());
  EXPECT_EQ((*repository_->Continue("q"))->size(), Bytes(0));
  EXPECT_TRUE(repository_->List().empty());
  EXPECT_EQ(repository_->UsedBytes(), Bytes(0));
}

TEST_P(ModelRepositoryContract, ANameOfAPartNeverLeadsElsewhere) {
  for (const std::string& bad : {std::string(), std::string("../objects"), std::string("a/b"),
                                 std::string("."), std::string("A"), std::string(129, 'a')}) {
    EXPECT_TRUE(absl::IsInvalidArgument(repository_->Continue(bad).status())) << bad;
    EXPECT_TRUE(absl::IsInvalidArgument(repository_->RemovePart(bad))) << bad;
  }
}

TEST_P(ModelRepositoryContract, PuttingTwiceIsOneObject) {
  EXPECT_EQ(MustPut("same"), MustPut("same"));
  EXPECT_EQ(repository_->List().size(), 1u);
  EXPECT_EQ(repository_->UsedBytes(), Bytes(4));
}

TEST_P(ModelRepositoryContract, FilesArePutInChunks) {
  WriteFile(directory_ / "file", std::string((2 << 20) + 17, 'f'));
  const auto digest = repository_->PutFile(directory_ / "file");
  ASSERT_TRUE(digest.ok()) << digest.status();
  EXPECT_EQ(repository_->Open(*digest)->bytes.size(), (2u << 20) + 17);
  EXPECT_TRUE(absl::IsNotFound(repository_->PutFile(directory_ / "no file").status()));
}

TEST_P(ModelRepositoryContract, OpenBytesOutliveRemoval) {
  const std::string digest = MustPut("kept by its reader");
  const auto object = repository_->Open(digest);
  ASSERT_TRUE(repository_->Remove(digest).ok());
  EXPECT_FALSE(repository_->Has(digest));
  EXPECT_EQ(AsText(*object), "kept by its reader");
  EXPECT_TRUE(absl::IsNotFound(repository_->Open(digest).status()));
  EXPECT_TRUE(absl::IsNotFound(repository_->Remove(digest)));
  EXPECT_EQ(repository_->UsedBytes(), Bytes(0));
}

TEST_P(ModelRepositoryContract, WhatIsNoDigestNeverBecomesAPath) {
  for (const std::string& bad : {std::string(), std::string("../../etc/passwd"), std::string(64, 'g'),
                                 std::string(64, 'A'), std::string(63, 'a'), std::string(65, 'a')}) {
    EXPECT_TRUE(absl::IsInvalidArgument(repository_->Open(bad).status())) << bad;
    EXPECT_TRUE(absl::IsInvalidArgument(repository_->Remove(bad))) << bad;
    EXPECT_FALSE(repository_->Has(bad));
  }
}

TEST_P(ModelRepositoryContract, ListsByDigestWithSizes) {
  for (const char* text : {"a", "bb", "ccc"}) MustPut(text);
  const std::vector<ObjectInfo> all = repository_->List();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end(), [](auto& x, auto& y) { return x.digest < y.digest; }));
  for (const ObjectInfo& each : all) {
    EXPECT_EQ(each.size, Bytes(repository_->Open(each.digest)->bytes.size()));
  }
}

TEST_P(ModelRepositoryContract, DamageIsReportedOnceNeverServedAndMendedByPuttingAgain) {
  const std::string digest = MustPut("precious");
  MustPut("neighbour");
  Damage(digest);
  const absl::Status status = repository_->Open(digest).status();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr(digest));
  EXPECT_TRUE(absl::IsNotFound(repository_->Open(digest).status()));
  EXPECT_FALSE(repository_->Has(digest));
  EXPECT_TRUE(repository_->Open(Sha256Hex("neighbour")).ok());
  EXPECT_EQ(MustPut("precious"), digest);
  EXPECT_EQ(AsText(*repository_->Open(digest)), "precious");
}

TEST_P(ModelRepositoryContract, ThreadsPutOpenAndRemoveAtOnce) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        const std::string shared = "object " + std::to_string(i % 4);
        const auto digest = repository_->Put(AsBytes(shared));
        EXPECT_TRUE(digest.ok()) << digest.status();
        if (t == 0) (void)repository_->Remove(Sha256Hex(shared));
        const auto object = repository_->Open(Sha256Hex(shared));
        EXPECT_TRUE(!object.ok() || AsText(*object) == shared);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const ObjectInfo& each : repository_->List()) EXPECT_TRUE(repository_->Open(each.digest).ok());
}

TEST_P(ModelRepositoryContract, AFileThatIsTakenIsAnObjectAndNoFileAnyMore) {
  const std::string text(3 << 20, 't');
  const auto path = FileBeside("file", text);
  const auto taken = repository_->Take(path, Sha256Hex(text));
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ(*taken, Sha256Hex(text));
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_EQ(AsText(*repository_->Open(*taken)), text);
  EXPECT_EQ(repository_->UsedBytes(), Bytes(text.size()));
}

TEST_P(ModelRepositoryContract, AFileWithOtherBytesIsNotTaken) {
  const auto path = FileBeside("file", "these bytes");
  EXPECT_TRUE(absl::IsInvalidArgument(repository_->Take(path, Sha256Hex("those bytes")).status()));
  EXPECT_FALSE(std::filesystem::exists(path)) << "it is of no use to anyone";
  EXPECT_TRUE(repository_->List().empty());
  EXPECT_TRUE(absl::IsNotFound(repository_->Take(path, Sha256Hex("these bytes")).status()));
}

TEST_P(ModelRepositoryContract, WhatAnotherNameOfATakenFileChangesIsNotTheObject) {
  const std::string text = "whatever happens";
  const auto path = FileBeside("file", text);
  const auto other = beside_ / "other";
  std::filesystem::create_hard_link(path, other);
  ASSERT_TRUE(repository_->Take(path, Sha256Hex(text)).ok());
  WriteFile(other, "something else!!");
  EXPECT_EQ(AsText(*repository_->Open(Sha256Hex(text))), text);
}

TEST_P(ModelRepositoryContract, AnObjectThatIsLentIsAFileForReading) {
  const auto digest = MustPut("an object");
  const auto path = beside_ / "lent";
  ASSERT_TRUE(repository_->Lend(digest, path).ok());
  std::ifstream file(path);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "an object");
  EXPECT_EQ(std::filesystem::status(path).permissions(), std::filesystem::perms::owner_read);
  EXPECT_FALSE(repository_->Lend(digest, path).ok()) << "there is a file of that name already";
  std::filesystem::remove(path);
  EXPECT_EQ(AsText(*repository_->Open(digest)), "an object");
  EXPECT_TRUE(absl::IsNotFound(repository_->Lend(Sha256Hex("another one"), path)));
}

TEST_P(ModelRepositoryContract, AnObjectOfOtherBytesIsNotLent) {
  const auto digest = MustPut("these bytes");
  Damage(digest);
  EXPECT_TRUE(absl::IsDataLoss(repository_->Lend(digest, beside_ / "lent")));
  EXPECT_FALSE(std::filesystem::exists(beside_ / "lent"));
}

TEST_P(ModelRepositoryContract, AModelIsTwoObjectsThatAgree) {
  const std::string weights(1000, 'w');
  proto::Model model;
  model.set_name("m");
  model.set_weights_bytes(weights.size());
  model.set_weights_digest(Sha256Hex(weights));
  const auto digest = PutModel(*repository_, model, FileBeside("weights", weights));
  ASSERT_TRUE(digest.ok()) << digest.status();
  const auto objects = OpenModel(*repository_, *digest);
  ASSERT_TRUE(objects.ok()) << objects.status();
  EXPECT_EQ(objects->model.name(), "m");
  EXPECT_EQ(AsText(objects->weights), weights);

  model.set_weights_bytes(999);
  EXPECT_TRUE(
      absl::IsInvalidArgument(PutModel(*repository_, model, FileBeside("weights", weights)).status()));
  model.set_weights_bytes(1000);
  model.set_weights_digest("nonsense");
  EXPECT_TRUE(
      absl::IsInvalidArgument(PutModel(*repository_, model, FileBeside("weights", weights)).status()));
  EXPECT_TRUE(absl::IsDataLoss(OpenModel(*repository_, MustPut("\xff\xff not a model")).status()));
  EXPECT_TRUE(absl::IsDataLoss(OpenModel(*repository_, MustPut("")).status()));

  ASSERT_TRUE(RemoveModel(*repository_, *digest, true).ok());
  EXPECT_TRUE(repository_->Has(Sha256Hex(weights)));
  EXPECT_TRUE(absl::IsNotFound(OpenModel(*repository_, *digest).status()));
}

std::string PathOf(const std::string& directory, const std::string& digest) {
  return directory + "/objects/" + digest.substr(0, 2) + "/" + digest;
}

std::unique_ptr<ModelRepository> MakeDisk(const std::string& directory) {
  auto repository = DiskModelRepository::At(directory);
  EXPECT_TRUE(repository.ok()) << repository.status();
  return repository.ok() ? *std::move(repository) : nullptr;
}

void DamageOnDisk(ModelRepository&, const std::string& directory, const std::string& digest) {
  const std::string path = PathOf(directory, digest);
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  std::string bytes = ReadAll(path);
  bytes[0] ^= 1;
  WriteFile(path, bytes);
}

INSTANTIATE_TEST_SUITE_P(Repositories, ModelRepositoryContract,
                         testing::Values(RepositoryKind{"Disk", MakeDisk, DamageOnDisk},
                                         RepositoryKind{
                                             "Fake",
                                             [](const std::string&) -> std::unique_ptr<ModelRepository> {
                                               return std::make_unique<FakeModelRepository>();
                                             },
                                             [](ModelRepository& repository, const std::string&,
                                                const std::string& digest) {
                                               static_cast<FakeModelRepository&>(repository).Damage(digest);
                                             }}),
                         [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace troupe::storage
