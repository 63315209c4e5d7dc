#include "actors/node/message_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/digest.hpp"
#include "proto/profile.pb.h"
#include "tests/temporary_directory.hpp"

namespace troupe::actors::message_file_test {
namespace {

using testing::HasSubstr;

using ProfileFile = MessageFile<proto::NodeProfiles>;

class MessageFileTest : public testing::Test {
 protected:
  static proto::NodeProfiles Of(double nanos) {
    proto::NodeProfiles profiles;
    profiles.set_format_version(1);
    profiles.set_nanos_per_byte(nanos);
    profiles.add_models()->set_model("m");
    return profiles;
  }
  [[nodiscard]] std::string path() const { return directory / "profiles"; }

  test::TemporaryDirectory directory;
  std::vector<absl::Status> errors;  // written by the pool's thread: read when the pool is gone
  std::function<void(const absl::Status&)> note = [this](const absl::Status& e) { errors.push_back(e); };
};

// A save that has begun is finished before the pool is gone.
TEST_F(MessageFileTest, TheNewestIsThereAfterwards) {
  {
    WorkPool pool(1);
    ProfileFile file(path(), pool, note, "it is learned anew");
    EXPECT_EQ(file.Load().status().code(), absl::StatusCode::kNotFound);
    std::atomic<bool> done{false};
    std::atomic<int> saved{0};
    for (int i = 1; i <= 100; ++i)
      file.Save(Of(i), [&](const absl::Status& status) { saved += status.ok() ? 1 : 0; });
    ASSERT_TRUE(pool.Post([&] { done = true; }).ok());
    while (!done) std::this_thread::yield();  // one thread: the save before it has ended
    EXPECT_EQ(file.Load()->nanos_per_byte(), 100);
    EXPECT_EQ(file.Load()->models(0).model(), "m");
    EXPECT_EQ(saved, 100) << "each save hears of its end, also when a newer one was written for it";
  }
  EXPECT_TRUE(errors.empty());
}

TEST_F(MessageFileTest, DamageIsTold) {
  WorkPool pool(1);
  ProfileFile file(path(), pool, note, "it is learned anew");
  const std::string digest(64, '0');
  for (const std::string& text : {std::string(), std::string("short"), absl::StrCat(digest, "\n"),
                                  absl::StrCat(digest, "\n\x08\x01")}) {
    std::ofstream(path(), std::ios::binary) << text;
    EXPECT_EQ(file.Load().status().code(), absl::StatusCode::kDataLoss) << text.size();
    EXPECT_THAT(std::string(file.Load().status().message()),
                HasSubstr("'" + path() + "' is damaged; it is learned anew"));
  }
}

TEST_F(MessageFileTest, AnotherMessageUnderItsRightDigestIsDamageToo) {
  WorkPool pool(1);
  ProfileFile file(path(), pool, note, "it is learned anew");
  const std::string bytes = "\xff\xff\xff";
  std::ofstream(path(), std::ios::binary) << Sha256Hex(bytes) << "\n" << bytes;
  EXPECT_EQ(file.Load().status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(MessageFileTest, ADirectoryThatIsNotThereIsAnErrorAndNoMore) {
  {
    WorkPool pool(1);
    ProfileFile file(directory / "none/profiles", pool, note, "it is learned anew");
    file.Save(Of(1), note);
    std::atomic<bool> done{false};
    ASSERT_TRUE(pool.Post([&] { done = true; }).ok());
    while (!done) std::this_thread::yield();
  }
  EXPECT_EQ(errors.size(), 2u) << "the log's, and the save's";
  EXPECT_FALSE(errors.back().ok());
}

}  // namespace
}  // namespace troupe::actors::message_file_test
