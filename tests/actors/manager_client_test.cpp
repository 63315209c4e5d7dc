// The cluster manager as threads that are not actors use it: what an upload holds in memory, and until when.
#include "actors/client/manager_client.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/digest.hpp"
#include "base/status.hpp"
#include "tests/actors/world.hpp"

namespace troupe::actors {
namespace {

using std::chrono::seconds;

class Uploads : public ::testing::Test {
 protected:
  void TearDown() override {
    client_.reset();
    world_.Run(seconds(1));
  }
  // Bytes of three chunks or more, which only the upload holds.
  ManagerClient::GiveUp Upload(const std::string& manager,
                               std::function<void(std::uint64_t)> progress = nullptr, Bytes size = MiB(3),
                               Duration find = ManagerClient::kFindTimeout) {
    client_ = std::make_unique<ManagerClient>(world_.system(), world_.directory(), manager);
    const std::string bytes(size.count(), 'm');
    digest_ = Sha256Hex(bytes);
    auto source = std::make_shared<const StringSource>(bytes);
    bytes_ = source;
    return client_->Upload(
        std::move(source), "tester", find,
        [this](const absl::StatusOr<std::string>& answer) { answers_.push_back(answer); },
        std::move(progress));
  }

  World world_{1, 1};
  std::unique_ptr<ManagerClient> client_;
  std::weak_ptr<const StringSource> bytes_;
  std::string digest_;
  std::vector<absl::StatusOr<std::string>> answers_;
};

TEST_F(Uploads, AFileArrivesUnderItsDigest) {
  const auto give_up = Upload("manager");
  world_.Run(seconds(1));
  ASSERT_EQ(answers_.size(), 1u);
  ASSERT_TRUE(answers_[0].ok()) << answers_[0].status();
  EXPECT_EQ(*answers_[0], digest_);
  EXPECT_TRUE(bytes_.expired()) << "a handle that can only cancel the upload holds its bytes";
  give_up();
  world_.Run(seconds(1));
  EXPECT_EQ(answers_.size(), 1u) << "the upload was over when it was cancelled";
}

TEST_F(Uploads, TheSearchForAManagerIsAsLongAsTheCallerSays) {
  (void)Upload("absent", nullptr, MiB(3), std::chrono::milliseconds(200));
  world_.Run(std::chrono::milliseconds(300));
  ASSERT_EQ(answers_.size(), 1u);
  EXPECT_TRUE(absl::IsUnavailable(answers_[0].status())) << answers_[0].status();
}

TEST_F(Uploads, AnUploadThatIsGivenUpLetsGoOfItsBytesAtOnce) {
  const auto give_up = Upload("absent");
  world_.Settle();
  EXPECT_FALSE(bytes_.expired()) << "the upload waits for a manager";
  give_up();
  world_.Settle();
  EXPECT_TRUE(bytes_.expired());
  ASSERT_EQ(answers_.size(), 1u);
  EXPECT_EQ(answers_[0].status().code(), absl::StatusCode::kCancelled) << answers_[0].status();
  world_.Run(seconds(10));
  EXPECT_EQ(answers_.size(), 1u) << "the upload was answered twice";
}

TEST_F(Uploads, AnUploadThatIsGivenUpHalfWayEndsThere) {
  ManagerClient::GiveUp give_up;
  std::uint64_t there = 0;
  const auto progress = [&](std::uint64_t count) {
    there = count;
    if (count > 0) give_up();
  };
  give_up = Upload("manager", progress, MiB(20));
  world_.Run(seconds(1));
  EXPECT_GT(there, 0u);
  EXPECT_LT(there, MiB(20).count());
  EXPECT_EQ(world_.manager_repository().unfinished(), 0u) << "what had come of it stays";
  ASSERT_EQ(answers_.size(), 1u);
  EXPECT_EQ(answers_[0].status().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(bytes_.expired());
}

// The manager goes down in the middle and comes back: nothing that had arrived is sent again.
TEST_F(Uploads, AnUploadGoesOnWhenTheManagerComesBack) {
  std::vector<std::uint64_t> there;
  (void)Upload(
      "manager",
      [&](std::uint64_t count) {
        there.push_back(count);
        if (there.size() == 2) world_.manager_repository().FailUploads(1);
      },
      MiB(12));
  world_.Run(seconds(2));
  ASSERT_EQ(answers_.size(), 1u);
  EXPECT_TRUE(answers_[0].ok()) << answers_[0].status();
  EXPECT_TRUE(std::ranges::is_sorted(there));
  const auto twice = std::ranges::adjacent_find(there);
  ASSERT_NE(twice, there.end()) << "it asked once more how much had arrived";
  EXPECT_GT(*twice, 0u);
  EXPECT_EQ(there.back(), MiB(12).count());
}

TEST_F(Uploads, AFileThatIsThereIsNotSentAgain) {
  (void)Upload("manager");
  world_.Run(seconds(1));
  std::vector<std::uint64_t> there;
  (void)Upload("manager", [&](std::uint64_t count) { there.push_back(count); });
  world_.Run(seconds(1));
  ASSERT_EQ(answers_.size(), 2u);
  EXPECT_EQ(there, std::vector<std::uint64_t>{MiB(3).count()});
}

TEST_F(Uploads, AnUploadThatNeverComesThroughEnds) {
  world_.manager_repository().FailUploads(100);
  (void)Upload("manager");
  world_.Run(seconds(60));
  ASSERT_EQ(answers_.size(), 1u);
  EXPECT_TRUE(absl::IsUnavailable(answers_[0].status())) << answers_[0].status();
  EXPECT_TRUE(bytes_.expired());
}

TEST_F(Uploads, AFullDiskOfTheManagersIsToldApartFromLoad) {
  const auto model = world_.MakeModel("resnet", MiB(10));
  client_ = std::make_unique<ManagerClient>(world_.system(), world_.directory(), "manager");
  proto::AdminRequest request;
  request.mutable_deploy()->set_name("resnet");
  request.mutable_deploy()->set_onnx_digest(model);
  for (const bool full : {true, false}) {
    const auto failure = absl::ResourceExhaustedError("no room");
    world_.store().FailNext(full ? MarkDiskFull(failure) : failure);
    absl::Status answer;
    client_->Ask(request, seconds(5),
                 [&](const absl::StatusOr<proto::AdminReply>& reply) { answer = reply.status(); });
    world_.Run(seconds(1));
    EXPECT_TRUE(absl::IsResourceExhausted(answer)) << answer;
    EXPECT_EQ(IsDiskFull(answer), full) << answer;
  }
}

// Which version 'the newest' is, and which ones 'all' are, is settled only when the turn of the change has
// come.
TEST_F(Uploads, RemovalsAtOnceRemoveOneVersionEachAndSayWhich) {
  for (int version = 1; version <= 3; ++version) ASSERT_TRUE(world_.Deploy("resnet", MiB(10)).ok());
  client_ = std::make_unique<ManagerClient>(world_.system(), world_.directory(), "manager");
  std::vector<std::string> removed;
  proto::AdminRequest request;
  request.mutable_remove()->mutable_key()->set_name("resnet");
  for (int i = 0; i < 4; ++i) {
    client_->Ask(request, seconds(5), [&](const absl::StatusOr<proto::AdminReply>& reply) {
      removed.push_back(reply.ok() ? reply->functions(0).record().key().version() : "none");
    });
  }
  world_.Run(seconds(1));
  EXPECT_EQ(removed, (std::vector<std::string>{"3", "2", "1", "none"}));
}

TEST_F(Uploads, AFunctionIsUnloadedInAllItsVersionsUnlessOneIsNamed) {
  for (int version = 1; version <= 3; ++version) ASSERT_TRUE(world_.Deploy("resnet", MiB(10)).ok());
  const auto set_loaded = [&](const std::string& version, bool load) {
    proto::AdminRequest request;
    request.mutable_load()->mutable_key()->set_name("resnet");
    request.mutable_load()->mutable_key()->set_version(version);
    request.mutable_load()->set_load(load);
    ASSERT_TRUE(world_.Ask(request).ok());
  };
  const auto loaded = [&] {
    proto::AdminRequest request;
    request.mutable_list_functions();
    std::string all;
    const auto listed = world_.Ask(request);
    for (const auto& function : listed->functions()) all += function.record().loaded() ? '+' : '-';
    return all;
  };
  set_loaded("2", false);
  EXPECT_EQ(loaded(), "+-+");
  set_loaded("", false);
  EXPECT_EQ(loaded(), "---");
  world_.StopManager();
  world_.StartManager();
  world_.Run(seconds(1));
  EXPECT_EQ(loaded(), "---") << "the change was lost in the manager's restart";
  set_loaded("1", true);
  EXPECT_EQ(loaded(), "+--");
  set_loaded("", true);
  EXPECT_EQ(loaded(), "+++");
}

}  // namespace
}  // namespace troupe::actors
