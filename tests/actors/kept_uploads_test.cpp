// Uploads that go on: after a broken part, after a restart, and until a limit says no.
#include "actors/seams/kept_uploads.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/digest.hpp"
#include "base/wire_status.hpp"
#include "storage/disk_model_repository.hpp"
#include "storage/fake_model_repository.hpp"
#include "tests/temporary_directory.hpp"

namespace troupe::actors {
namespace {

using testing::HasSubstr;

class KeptUploadsTest : public ::testing::Test {
 protected:
  KeptUploadsTest() { Restart(); }

  void Restart(KeptUploads::Limits limits = {}) {
    uploads_ = std::make_unique<KeptUploads>(objects_, limits);
  }

  static proto::UploadChunk Chunk(proto::UploadChunk::Wish wish, const std::string& whole,
                                  const std::string& client = "a") {
    proto::UploadChunk chunk;
    chunk.set_wish(wish);
    chunk.set_digest(Sha256Hex(whole));
    chunk.set_client(client);
    return chunk;
  }
  proto::UploadReply Ask(const std::string& whole, const std::string& client = "a") {
    return uploads_->Handle(Chunk(proto::UploadChunk::ASK, whole, client));
  }
  proto::UploadReply Drop(const std::string& whole, const std::string& client = "a") {
    return uploads_->Handle(Chunk(proto::UploadChunk::DROP, whole, client));
  }
  proto::UploadReply Send(const std::string& whole, std::uint64_t offset, const std::string& data,
                          bool last = false, const std::string& client = "a") {
    auto chunk = Chunk(proto::UploadChunk::APPEND, whole, client);
    chunk.set_offset(offset);
    chunk.set_data(data);
    chunk.set_last(last);
    return uploads_->Handle(chunk);
  }

  storage::FakeModelRepository objects_;
  std::unique_ptr<KeptUploads> uploads_;
};

TEST_F(KeptUploadsTest, AnUploadGoesOnWhereItIs) {
  EXPECT_TRUE(absl::IsNotFound(StatusIn(Ask("one two three"))));
  EXPECT_EQ(Send("one two three", 0, "one ").received(), 4u);
  EXPECT_EQ(Ask("one two three").received(), 4u);
  EXPECT_FALSE(Ask("one two three").complete());
  Restart();
  EXPECT_EQ(Ask("one two three").received(), 4u) << "a restart lost what had come";
  EXPECT_EQ(Send("one two three", 4, "two ").received(), 8u);
  const auto last = Send("one two three", 8, "three", true);
  EXPECT_TRUE(last.complete()) << last.message();
  EXPECT_TRUE(objects_.Has(Sha256Hex("one two three")));
  EXPECT_TRUE(objects_.Parts().empty());
  EXPECT_TRUE(Ask("one two three").complete());
  EXPECT_EQ(Ask("one two three").received(), 13u);
  EXPECT_TRUE(Ask("one two three", "b").complete()) << "the same file of another client is there, too";
}

TEST_F(KeptUploadsTest, AFileThatIsWholeIsNotDropped) {
  ASSERT_TRUE(Send("whole", 0, "whole", true).complete());
  const auto kept = Drop("whole");
  EXPECT_EQ(kept.code(), 0);
  EXPECT_TRUE(kept.complete());
  EXPECT_EQ(kept.received(), 5u) << "the answer says what is there";
  EXPECT_EQ(Drop("nothing").received(), 0u);
  EXPECT_TRUE(objects_.Has(Sha256Hex("whole")));
}

TEST_F(KeptUploadsTest, AnotherOffsetIsRefusedAndTellsTheRightOne) {
  ASSERT_EQ(Send("whole", 0, "who").code(), 0);
  for (const std::uint64_t offset : {0u, 2u, 4u, 5u}) {
    const auto wrong = Send("whole", offset, "le", true);
    EXPECT_TRUE(absl::IsOutOfRange(StatusIn(wrong))) << offset;
    EXPECT_EQ(wrong.received(), 3u) << offset;
    EXPECT_THAT(wrong.message(), HasSubstr("go on at byte 3"));
  }
  EXPECT_TRUE(absl::IsOutOfRange(StatusIn(Send("other", 1, "x"))));
  EXPECT_TRUE(Send("whole", 3, "le", true).complete());
}

TEST_F(KeptUploadsTest, BytesOfAnotherDigestAreDropped) {
  ASSERT_EQ(Send("whole", 0, "who").code(), 0);
  const auto wrong = Send("whole", 3, "se", true);
  EXPECT_TRUE(absl::IsDataLoss(StatusIn(wrong))) << wrong.message();
  EXPECT_EQ(wrong.received(), 0u);
  EXPECT_FALSE(wrong.complete());
  EXPECT_TRUE(absl::IsNotFound(StatusIn(Ask("whole")))) << "it begins again";
  EXPECT_TRUE(Send("whole", 0, "whole", true).complete());
  auto chunk = Chunk(proto::UploadChunk::APPEND, "x");
  chunk.set_digest("../../x");
  EXPECT_TRUE(absl::IsInvalidArgument(StatusIn(uploads_->Handle(chunk))));
}

TEST_F(KeptUploadsTest, EachClientHasItsOwnUpload) {
  ASSERT_EQ(Send("whole", 0, "who").code(), 0);
  EXPECT_TRUE(absl::IsNotFound(StatusIn(Ask("whole", "b"))));
  EXPECT_EQ(Drop("whole", "b").code(), 0);
  EXPECT_EQ(Ask("whole").received(), 3u);
  EXPECT_EQ(Drop("whole").code(), 0);
  EXPECT_TRUE(absl::IsNotFound(StatusIn(Ask("whole"))));
  EXPECT_TRUE(objects_.Parts().empty());
}

TEST_F(KeptUploadsTest, AFullDiskKeepsWhatHadCome) {
  ASSERT_EQ(Send("one two", 0, "one ").code(), 0);
  objects_.SetCapacity(Bytes(5));
  const auto full = Send("one two", 4, "two", true);
  EXPECT_TRUE(IsDiskFull(StatusIn(full))) << full.message();
  EXPECT_EQ(full.received(), 4u);
  objects_.SetCapacity(MiB(1));
  EXPECT_TRUE(Send("one two", 4, "two", true).complete());
}

TEST_F(KeptUploadsTest, AClientHasSoManyUploadsAndBytes) {
  Restart({.of_client = 2, .bytes_of_client = Bytes(10), .all = 3});
  ASSERT_EQ(Send("1", 0, "12345").code(), 0);
  ASSERT_EQ(Send("2", 0, "123").code(), 0);
  const auto third = Send("3", 0, "x");
  EXPECT_TRUE(absl::IsResourceExhausted(StatusIn(third)));
  EXPECT_THAT(third.message(), HasSubstr("has 2 unfinished uploads"));
  const auto bytes = Send("2", 3, "456");
  EXPECT_TRUE(absl::IsResourceExhausted(StatusIn(bytes)));
  EXPECT_THAT(bytes.message(), HasSubstr("11 B"));
  EXPECT_EQ(bytes.received(), 3u);
  Restart({.of_client = 2, .bytes_of_client = Bytes(10), .all = 3});
  EXPECT_TRUE(absl::IsResourceExhausted(StatusIn(Send("3", 0, "x"))))
      << "a restart forgot whose the uploads are";
  EXPECT_EQ(Drop("1").code(), 0);
  EXPECT_EQ(Send("3", 0, "x").code(), 0);
  EXPECT_EQ(Send("4", 0, "1234567890", false, "b").code(), 0) << "another client has room of its own";
  ASSERT_EQ(Send("2", 3, "4").code(), 0);
  EXPECT_EQ(Send("5", 0, "x", false, "c").code(), 0);
  EXPECT_TRUE(absl::IsNotFound(StatusIn(Ask("3")))) << "the stalest of too many makes room";
  EXPECT_EQ(Ask("2").received(), 4u);
}

TEST_F(KeptUploadsTest, WhatIsIdleForTooLongIsDropped) {
  ASSERT_EQ(Send("whole", 0, "who").code(), 0);
  uploads_->Expire();
  EXPECT_EQ(Ask("whole").received(), 3u);
  Restart({.idle = Duration::zero()});
  uploads_->Expire();
  EXPECT_TRUE(absl::IsNotFound(StatusIn(Ask("whole"))));
  EXPECT_TRUE(objects_.Parts().empty());
}

TEST_F(KeptUploadsTest, FilesThatWereClosedAreOpenedAgain) {
  Restart({.open = 1});
  for (std::uint64_t i = 0; i < 4; ++i)
    for (const std::string whole : {"aaaa", "bbbb", "cccc"})
      ASSERT_EQ(Send(whole, i, whole.substr(0, 1), i == 3).code(), 0) << whole << i;
  for (const std::string whole : {"aaaa", "bbbb", "cccc"}) EXPECT_TRUE(objects_.Has(Sha256Hex(whole)));
}

// The bytes that a power failure took are asked for again.
TEST(KeptUploadsOnDisk, AFileThatLostItsEndGoesOnThere) {
  test::TemporaryDirectory directory;
  const std::string whole = "one two three";
  proto::UploadChunk chunk;
  chunk.set_digest(Sha256Hex(whole));
  chunk.set_data("one two ");
  {
    const auto objects = storage::DiskModelRepository::At(directory.path());
    KeptUploads uploads(**objects, {});
    ASSERT_EQ(uploads.Handle(chunk).received(), 8u);
  }
  for (const auto& part : std::filesystem::directory_iterator(directory / "parts"))
    std::filesystem::resize_file(part.path(), 4);
  const auto objects = storage::DiskModelRepository::At(directory.path());
  KeptUploads uploads(**objects, {});
  chunk.set_offset(8);
  chunk.set_data("three");
  chunk.set_last(true);
  EXPECT_EQ(uploads.Handle(chunk).received(), 4u);
  chunk.set_offset(4);
  chunk.set_data("two three");
  EXPECT_TRUE(uploads.Handle(chunk).complete());
}

}  // namespace
}  // namespace troupe::actors
