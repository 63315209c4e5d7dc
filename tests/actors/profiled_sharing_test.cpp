// Profiles in a whole cluster under virtual time: functions that leave settings to them follow, with no request dropped,
// and routers order requests by how long the profiles say that their runs take.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "tests/actors/cluster_events.hpp"
#include "tests/actors/world.hpp"

namespace troupe::actors::profiled_sharing_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class ProfiledSharing : public ::testing::Test {
 protected:
  explicit ProfiledSharing(std::vector<std::string> kinds = {"virtual"})
      : world_(1, kinds.size(), {}, {}, GiB(2), [&](NodeOptions& options) {
          for (std::size_t gpu = 0; gpu < kinds.size(); ++gpu) options.gpus[gpu].kind = kinds[gpu];
        }) {
    EXPECT_TRUE(world_
                    .Deploy("f", MiB(10), milliseconds(100), {"x"}, {},
                            [](auto& deploy) { deploy.mutable_sharing()->add_automatic("sm_partition"); })
                    .ok());
    world_.Run(seconds(3));
  }

  // A model that saturates at this share; a run takes so long there.
  void Import(const std::string& function, std::uint32_t saturation, Duration run,
              const std::string& kind = "virtual") {
    proto::AdminRequest request;
    auto& wish = *request.mutable_import_profile();
    wish.mutable_key()->set_name(function);
    wish.mutable_profile()->set_gpu_kind(kind);
    for (const std::uint32_t share : {12, 24, 50, 100}) {
      auto& row = *wish.mutable_profile()->add_rows();
      const auto slower = static_cast<double>(saturation) / std::min(share, saturation);
      row.set_sm_partition(share);
      row.set_quota_limit(100);
      row.set_batch(1);
      row.set_run_ns(static_cast<std::int64_t>(static_cast<double>(run.count()) * slower));
      row.set_throughput(1e9 / static_cast<double>(row.run_ns()));
    }
    const auto reply = world_.Ask(request);
    ASSERT_TRUE(reply.ok()) << reply.status();
    world_.Run(seconds(1));
  }
  absl::Status RemoveProfile() {
    proto::AdminRequest request;
    request.mutable_remove_profile()->mutable_key()->set_name("f");
    const auto status = world_.Ask(request).status();
    world_.Run(seconds(1));
    return status;
  }
  proto::AppliedSetting Share() {
    proto::AdminRequest request;
    request.mutable_show_function()->mutable_key()->set_name("f");
    const auto reply = world_.Ask(request);
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply.ok() ? reply->functions(0).sharing(0) : proto::AppliedSetting();
  }
  std::uint64_t Send(const std::string& function = "f") {
    world_.Infer(function, ++calls_);
    return calls_;
  }

  World world_;
  std::uint64_t calls_ = 0;
};

TEST_F(ProfiledSharing, AFunctionFollowsItsProfileWhileRequestsFlow) {
  Send();
  world_.ExpectAnswers();
  EXPECT_THAT(world_.TakeShares(), ElementsAre(0)) << "all SMs";
  EXPECT_THAT(Share().reason(), HasSubstr("auto: no profile of its model in fp32 on 'virtual'"));
  const auto starts = world_.WorkerStarts();
  for (int i = 0; i < 200; ++i) Send();
  Import("f", 50, milliseconds(10));
  world_.ExpectAnswers();
  world_.TakeShares();
  Send();
  world_.ExpectAnswers();
  EXPECT_THAT(world_.TakeShares(), ElementsAre(50));
  EXPECT_EQ(Share().source(), proto::AppliedSetting::PROFILED);
  Import("f", 24, milliseconds(10));
  Send();
  world_.ExpectAnswers();
  EXPECT_THAT(world_.TakeShares(), ElementsAre(24));
  ASSERT_TRUE(RemoveProfile().ok());
  Send();
  world_.ExpectAnswers();
  EXPECT_THAT(world_.TakeShares(), ElementsAre(0));
  EXPECT_EQ(world_.WorkerStarts(), starts) << "no worker was started again";
  EXPECT_THAT(MessagesOfKind(world_, "function-updated"),
              ElementsAre("function 'f' version 1: sm_partition auto (50%)",
                          "function 'f' version 1: sm_partition auto (24%)",
                          "function 'f' version 1: sm_partition auto"));
}

TEST_F(ProfiledSharing, AProfileOfAnotherKindIsNotUsed) {
  Import("f", 50, milliseconds(10), "NVIDIA H100 PCIe");
  EXPECT_EQ(Share().source(), proto::AppliedSetting::DEFAULT);
  EXPECT_THAT(Share().reason(), HasSubstr("on 'virtual', but on 'NVIDIA H100 PCIe'"));
  EXPECT_THAT(MessagesOfKind(world_, "function-updated"), IsEmpty());
}

TEST_F(ProfiledSharing, TheValuesOutliveTheManager) {
  Import("f", 50, milliseconds(10));
  world_.StopManager();
  Send();
  world_.ExpectAnswers();
  EXPECT_THAT(world_.TakeShares(), ElementsAre(50));
  world_.StartManager();
  world_.Run(seconds(5));
  Send();
  world_.ExpectAnswers();
  EXPECT_THAT(world_.TakeShares(), ElementsAre(50));
  EXPECT_EQ(Share().source(), proto::AppliedSetting::PROFILED);
  ASSERT_TRUE(RemoveProfile().ok());
  Send();
  world_.ExpectAnswers();
  EXPECT_THAT(world_.TakeShares(), ElementsAre(0));
}

// --- routers ---

// The node has as many patient requests as it takes, and two wait at the router: one of "urgent", and one of "later", which goes
// first when "urgent" cannot be in time. The node has two kinds of GPU, so that it does not read profiles itself.
class RoutersOrder : public ProfiledSharing {
 protected:
  RoutersOrder() : ProfiledSharing({"a", "b"}) {
    EXPECT_TRUE(world_.Deploy("urgent", MiB(10), seconds(1)).ok());
    EXPECT_TRUE(world_.Deploy("later", MiB(10), seconds(2)).ok());
    EXPECT_TRUE(world_.Deploy("patient", MiB(10), seconds(9)).ok());
    for (const char* name : {"urgent", "later", "patient"}) Send(name);
    world_.ExpectAnswers();
  }
  static constexpr std::uint64_t kPlaces = 16;  // of the node, for its two GPUs
  bool UrgentIsFirst() {
    for (std::uint64_t i = 0; i < kPlaces; ++i) Send("patient");
    const auto urgent = Send("urgent");
    const auto later = Send("later");
    world_.ExpectAnswers();
    const auto at = [&](std::uint64_t call) {
      return std::ranges::find(world_.answers, call, &World::Answered::call);
    };
    return at(urgent) < at(later);
  }
};

TEST_F(RoutersOrder, WithoutAProfileWhatWasLearnedCounts) {
  EXPECT_TRUE(UrgentIsFirst());
}

TEST_F(RoutersOrder, ByItsProfileARequestIsTooLate) {
  for (const char* kind : {"a", "b"}) Import("urgent", 50, milliseconds(1100), kind);
  const auto view = world_.view()->Get();
  EXPECT_EQ(view->RunOf(view->functions().VersionsOf("urgent")->at(1), 1).shortest, milliseconds(1100));
  EXPECT_FALSE(UrgentIsFirst());
}

}  // namespace
}  // namespace troupe::actors::profiled_sharing_test
