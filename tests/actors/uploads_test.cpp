// Uploads to the stored repository: any thread of the repository's pool may write a part.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "actors/seams/stored_model_repository.hpp"
#include "base/digest.hpp"
#include "storage/fake_model_repository.hpp"
#include "tests/temporary_directory.hpp"
#include "transport/fake_tensor_channel.hpp"

namespace troupe::actors {
namespace {

// Objects whose writers can be held in the middle of a part, and which say whether two threads used one
// writer.
class HeldObjects final : public storage::ModelRepository {
 public:
  absl::StatusOr<std::unique_ptr<storage::ObjectWriter>> Create() override {
    auto writer = objects.Create();
    if (!writer.ok()) return writer.status();
    return std::make_unique<Writer>(*this, *std::move(writer));
  }
  absl::StatusOr<std::unique_ptr<storage::ObjectWriter>> Continue(const std::string& part) override {
    auto writer = objects.Continue(part);
    if (!writer.ok()) return writer.status();
    return std::make_unique<Writer>(*this, *std::move(writer));
  }
  [[nodiscard]] std::vector<storage::PartInfo> Parts() const override { return objects.Parts(); }
  absl::Status RemovePart(const std::string& part) override { return objects.RemovePart(part); }
  absl::StatusOr<storage::ObjectBytes> Open(const std::string& digest) override {
    return objects.Open(digest);
  }
  [[nodiscard]] bool Has(const std::string& digest) const override { return objects.Has(digest); }
  absl::Status Remove(const std::string& digest) override { return objects.Remove(digest); }
  absl::StatusOr<std::vector<storage::ObjectInfo>> Collect(const std::set<std::string>& kept,
                                                           Duration unused_for) override {
    return objects.Collect(kept, unused_for);
  }
  [[nodiscard]] std::vector<storage::ObjectInfo> List() const override { return objects.List(); }
  [[nodiscard]] Bytes UsedBytes() const override { return objects.UsedBytes(); }

  void Hold() { Set(true); }
  void Go() { Set(false); }
  // Waits until `count` writers are held.
  void AwaitHeld(int writers = 1) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiting_ >= writers; });
  }

  storage::FakeModelRepository objects;
  std::atomic<bool> shared = false;

 private:
  class Writer final : public storage::ObjectWriter {
   public:
    Writer(HeldObjects& all, std::unique_ptr<storage::ObjectWriter> writer)
        : all_(all), writer_(std::move(writer)) {}
    absl::Status Append(std::span<const std::byte> bytes) override {
      if (inside_.fetch_add(1) > 0) {
        all_.shared = true;
        all_.Go();  // lets the first writer end, so that the test does not hang
        --inside_;
        return absl::OkStatus();
      }
      all_.Wait();
      const auto status = writer_->Append(bytes);
      --inside_;
      return status;
    }
    [[nodiscard]] Bytes size() const override { return writer_->size(); }
    absl::StatusOr<std::shared_ptr<const storage::AppendedBytes>> Appended() override {
      return writer_->Appended();
    }
    absl::StatusOr<std::string> Commit(const std::string& expected) override {
      return writer_->Commit(expected);
    }

   private:
    HeldObjects& all_;
    std::unique_ptr<storage::ObjectWriter> writer_;
    std::atomic<int> inside_ = 0;
  };

  void Set(bool held) {
    const std::lock_guard lock(mutex_);
    held_ = held;
    changed_.notify_all();
  }
  void Wait() {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return !held_; });
    --waiting_;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool held_ = false;
  int waiting_ = 0;
};

class Uploads : public ::testing::Test {
 protected:
  Uploads() {
    StoredModelRepository::Options options;
    options.work_directory = directory_ / "work";
    options.threads = 2;
    repository_ = std::make_unique<StoredModelRepository>(options, objects_, nullptr, channel_);
  }

  using Size = std::future<absl::StatusOr<std::uint64_t>>;
  Size Send(const std::string& upload, std::uint64_t offset, const std::string& data, bool last = false,
            const std::string& digest = {}) {
    auto promise = std::make_shared<std::promise<absl::StatusOr<std::uint64_t>>>();
    repository_->Receive(upload, offset, data, last, digest, [promise](absl::StatusOr<std::uint64_t> size) {
      promise->set_value(std::move(size));
    });
    return promise->get_future();
  }

  test::TemporaryDirectory directory_;
  HeldObjects objects_;
  transport::FakeTensorChannel channel_{transport::FakeTensorChannel::NewWorld(), MiB(4)};
  std::unique_ptr<StoredModelRepository> repository_;
};

TEST_F(Uploads, APartIsRefusedWhileTheOneBeforeIsBeingWritten) {
  ASSERT_TRUE(Send("u", 0, "one ").get().ok());
  objects_.Hold();
  auto first = Send("u", 4, "two ");
  objects_.AwaitHeld();
  const auto second = Send("u", 4, "two ").get();
  objects_.Go();
  EXPECT_TRUE(absl::IsAborted(second.status())) << second.status();
  EXPECT_FALSE(objects_.shared) << "two threads wrote with one writer";
  EXPECT_EQ(*first.get(), 8u) << "the first upload was disturbed by the second";
  EXPECT_TRUE(Send("u", 8, "three", true, Sha256Hex("one two three")).get().ok());
  EXPECT_TRUE(objects_.Has(Sha256Hex("one two three")));
}

TEST_F(Uploads, AnUploadThatIsBegunAnewLeavesTheOldOneItsWriter) {
  const auto digest = Sha256Hex("one two");
  ASSERT_TRUE(Send("u", 0, "one ").get().ok());
  objects_.Hold();
  auto old = Send("u", 4, "two", true, digest);
  objects_.AwaitHeld();
  auto anew = Send("u", 0, "one ");
  objects_.AwaitHeld(2);
  objects_.Go();
  EXPECT_TRUE(anew.get().ok());
  EXPECT_TRUE(old.get().ok());
  EXPECT_TRUE(objects_.Has(digest));
  EXPECT_TRUE(Send("u", 4, "two", true, digest).get().ok()) << "the end of the old upload ended the new one";
}

TEST_F(Uploads, TwoOfTheSameObjectAreBothKept) {
  const auto digest = Sha256Hex("one two");
  for (const char* upload : {"u", "v"}) ASSERT_TRUE(Send(upload, 0, "one ").get().ok());
  for (const char* upload : {"u", "v"})
    EXPECT_TRUE(Send(upload, 4, "two", true, digest).get().ok()) << upload;
  EXPECT_TRUE(objects_.Has(digest));
}

// It is unknown how much of the part is in the file: the digest covers what was written completely.
TEST_F(Uploads, AfterAnErrorOfTheDiskItBeginsAgain) {
  ASSERT_TRUE(Send("u", 0, "one ").get().ok());
  objects_.objects.SetCapacity(Bytes(5));
  EXPECT_FALSE(Send("u", 4, "two").get().ok());
  objects_.objects.SetCapacity(MiB(1));
  EXPECT_TRUE(absl::IsInvalidArgument(Send("u", 4, "two").get().status()));
  EXPECT_TRUE(Send("u", 0, "one two", true, Sha256Hex("one two")).get().ok());
}

}  // namespace
}  // namespace troupe::actors
