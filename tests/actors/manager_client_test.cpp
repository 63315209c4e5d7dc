// The cluster manager for threads that are no actors: what an upload holds, and until when.
#include "actors/client/manager_client.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "base/digest.hpp"
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
  // Three chunks. Only the upload holds them.
  ManagerClient::GiveUp Upload(const std::string& manager,
                               std::function<void(std::uint64_t)> progress = nullptr) {
    client_ = std::make_unique<ManagerClient>(world_.system(), world_.directory(), manager);
    auto bytes = std::make_shared<const std::string>(MiB(3).count(), 'm');
    digest_ = Sha256Hex(*bytes);
    bytes_ = bytes;
    return client_->Upload(
        std::move(bytes), [this](const absl::StatusOr<std::string>& answer) { answers_.push_back(answer); },
        std::move(progress));
  }

  World world_{1, 1};
  std::unique_ptr<ManagerClient> client_;
  std::weak_ptr<const std::string> bytes_;
  std::string digest_;
  std::vector<absl::StatusOr<std::string>> answers_;
};

TEST_F(Uploads, AFileArrivesUnderItsDigest) {
  const auto give_up = Upload("manager");
  world_.Run(seconds(1));
  ASSERT_EQ(answers_.size(), 1u);
  ASSERT_TRUE(answers_[0].ok()) << answers_[0].status();
  EXPECT_EQ(*answers_[0], digest_);
  EXPECT_TRUE(bytes_.expired()) << "whoever can give it up holds nothing";
  give_up();
  world_.Run(seconds(1));
  EXPECT_EQ(answers_.size(), 1u) << "it was over";
}

TEST_F(Uploads, OneThatIsGivenUpLetsGoOfItsBytesAtOnce) {
  const auto give_up = Upload("nobody");
  world_.Settle();
  EXPECT_FALSE(bytes_.expired()) << "it waits for a manager";
  give_up();
  world_.Settle();
  EXPECT_TRUE(bytes_.expired());
  ASSERT_EQ(answers_.size(), 1u);
  EXPECT_EQ(answers_[0].status().code(), absl::StatusCode::kCancelled) << answers_[0].status();
  world_.Run(seconds(10));
  EXPECT_EQ(answers_.size(), 1u) << "answered once";
}

TEST_F(Uploads, OneThatIsGivenUpHalfWayEndsThere) {
  ManagerClient::GiveUp give_up;
  std::vector<std::uint64_t> sent;
  give_up = Upload("manager", [&](std::uint64_t count) {
    sent.push_back(count);
    give_up();
  });
  world_.Run(seconds(1));
  EXPECT_EQ(sent, std::vector<std::uint64_t>{MiB(1).count()});
  ASSERT_EQ(answers_.size(), 1u);
  EXPECT_EQ(answers_[0].status().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(bytes_.expired());
}

}  // namespace
}  // namespace troupe::actors
