// What functions use, from the workers to the manager's store: each run counts once, whichever process dies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/actors/world.hpp"

namespace troupe::actors::usage_test {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Contains;
using testing::Pair;

class Usage : public testing::Test {
 protected:
  Usage() : world_(1, 1, {}, {}, GiB(2), [this](NodeOptions& options) { Meter(options); }) {
    auto& worker = Worker();
    worker.meters = meters_;
    worker.life.page = meters_->NewPage();  // of the worker that is up already
    EXPECT_TRUE(world_
                    .Deploy("resnet", MiB(50), milliseconds(100), {"x"}, {},
                            [](proto::DeployRequest& deploy) { deploy.set_tenant("acme"); })
                    .ok());
    world_.Run(seconds(1));
  }

  void Meter(NodeOptions& options) {
    options.usage.set_ledger("ledger");
    options.usage_is_new = true;
    options.metering.read = [this](const std::function<void(absl::StatusOr<MeterAccess::Pages>)>& done) {
      std::set<std::string> open;
      for (const auto& worker : world_.node("node-1").workers) open.insert(worker->life.page);
      done(meters_->Read(open));
    };
    options.metering.drop = [this](const std::string& page) { meters_->Drop(page); };
    options.metering.save = [this](proto::NodeUsage usage, const std::function<void(absl::Status)>& done) {
      if (full_) return done(absl::ResourceExhaustedError("the disk is full"));
      disk_ = std::move(usage);
      done(absl::OkStatus());
    };
    options.metering.unix_now = [this] { return (world_.Now() + clock_ahead_).time_since_epoch().count(); };
  }
  [[nodiscard]] FakeWorkerControl& Worker() { return *world_.node("node-1").workers.at(0); }

  void Ask(std::uint64_t requests) {
    for (std::uint64_t i = 0; i < requests; ++i) world_.Infer("resnet", ++asked_);
    world_.Run(seconds(2));
    ASSERT_EQ(world_.answers.size(), asked_);
    for (const auto& answer : world_.answers) EXPECT_EQ(answer.reply.code(), 0) << answer.reply.message();
  }
  void RestartDaemon() {
    world_.KillNode("node-1");
    world_.Run(milliseconds(100));
    world_.AdjustNode("node-1", [this](sim::World::NodePlan& plan) {
      plan.options.usage = disk_;
      plan.options.usage_is_new = false;
      plan.meters = meters_;
    });
    world_.RestartNode("node-1", sim::World::Kept::kWorkers);
    world_.Run(seconds(2));
  }
  void RestartManager() {
    world_.StopManager();
    world_.Run(seconds(2));
    world_.StartManager();
    world_.Run(seconds(2));
  }
  proto::UsageAmount Stored() {
    world_.Run(seconds(4));
    proto::AdminRequest request;
    request.mutable_list_usage()->set_by(proto::ListUsage::FUNCTION);
    request.mutable_list_usage()->set_first_day(-10);  // a clock may be behind the beginning of time
    request.mutable_list_usage()->set_last_day(10);
    const auto reply = world_.Ask(request);
    EXPECT_TRUE(reply.ok()) << reply.status();
    if (!reply.ok() || reply->usage_size() != 1) return {};
    return reply->usage(0);
  }

  const std::shared_ptr<FakeMeters> meters_ = std::make_shared<FakeMeters>();
  proto::NodeUsage disk_;
  bool full_ = false;
  Duration clock_ahead_{};
  std::uint64_t asked_ = 0;
  World world_;
};

TEST_F(Usage, RunsAreChargedToTheirTenantAndFunction) {
  Ask(3);
  const auto amount = Stored();
  EXPECT_EQ(amount.tenant(), "acme");
  EXPECT_EQ(amount.function(), "resnet");
  EXPECT_EQ(amount.runs(), 3u);
  EXPECT_EQ(amount.gpu_ns(), 3u * 10'000'000u);
  EXPECT_EQ(amount.bytes_moved(), MiB(50).count());
  EXPECT_GT(amount.host_kib_ms(), 0u);
}

TEST_F(Usage, EachRunCountsOnceWhicheverProcessDies) {
  Ask(3);
  Worker().kill();
  world_.Run(seconds(2));
  Ask(3);
  RestartDaemon();
  Ask(3);
  RestartManager();
  Ask(3);
  RestartDaemon();
  RestartManager();
  const auto amount = Stored();
  EXPECT_EQ(amount.runs(), asked_);
  EXPECT_EQ(amount.gpu_ns(), asked_ * 10'000'000u);
  EXPECT_EQ(amount.bytes_moved(), meters_->counted().at("acme/resnet").bytes_moved());
  EXPECT_EQ(meters_->pages().size(), 1u) << "pages of workers that have ended go";
}

TEST_F(Usage, WhatIsCountedWhileTheManagerIsAwayIsStoredWhenItIsBack) {
  Ask(2);
  world_.StopManager();
  Ask(4);
  world_.StartManager();
  EXPECT_EQ(Stored().runs(), asked_);
}

TEST_F(Usage, AFullDiskAtTheNodeLosesNoRunAndServes) {
  full_ = true;
  Ask(4);
  EXPECT_EQ(Stored().runs(), 0u);
  EXPECT_THAT(world_.events, Contains(Pair("usage-not-saved", testing::_)));
  full_ = false;
  EXPECT_EQ(Stored().runs(), asked_);
}

TEST_F(Usage, AClockThatIsAnHourOffIsSaidAndChangesNoSum) {
  Ask(2);
  clock_ahead_ = hours(1);
  Ask(2);
  clock_ahead_ = -hours(1);
  Ask(2);
  EXPECT_EQ(Stored().runs(), asked_);
  proto::AdminRequest request;
  request.mutable_list_events()->set_limit(1000);
  const auto reply = world_.Ask(request);
  ASSERT_TRUE(reply.ok());
  std::vector<std::string> kinds;
  for (const auto& event : reply->events()) kinds.push_back(event.kind());
  EXPECT_THAT(kinds, Contains("clock-off"));
}

TEST_F(Usage, WhatARemovedFunctionUsedIsKept) {
  Ask(2);
  proto::AdminRequest remove;
  remove.mutable_remove()->mutable_key()->set_name("resnet");
  ASSERT_TRUE(world_.Ask(remove).ok());
  RestartManager();
  EXPECT_EQ(Stored().runs(), asked_);
}

}  // namespace
}  // namespace troupe::actors::usage_test
