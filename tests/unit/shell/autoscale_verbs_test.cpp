// The verb autoscale.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/shell/fake_admin_client.hpp"

namespace troupe::shell {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Request = proto::AdminRequest;

proto::AdminReply Scaled() {
  proto::AdminReply reply;
  auto& scaling = *reply.mutable_scaling();
  scaling.mutable_key()->set_name("digits");
  scaling.mutable_key()->set_version("2");
  scaling.set_policy("troupe");
  scaling.set_forecast("holt");
  scaling.set_arrived(80);
  scaling.set_expected(92.5);
  scaling.set_waiting(3);
  scaling.set_wanted(132.1);
  scaling.set_capacity(140);
  scaling.set_basis("by its profile");
  scaling.set_busy(0.57);
  scaling.set_binding("it owns parts of GPUs: \x1b[2Jbinding late costs more");
  auto& place = *scaling.add_places();
  place.set_node("node-1");
  place.set_gpu(1);
  place.set_sms(24);
  place.set_quota(70);
  auto& decision = *scaling.add_decisions();
  decision.set_action("resize");
  decision.set_gpu("node-1/1");
  decision.set_age_ns(4'000'000'000);
  decision.set_reason("92.5 requests/s are expected\x1b[2J");
  return reply;
}

TEST(AutoscaleVerbs, TheStatusSaysWhatIsWantedWhatIsOwnedAndWhy) {
  Harness troupe;
  troupe.cluster.Answer(Request::kShowScaling, Scaled());
  ASSERT_EQ(troupe.Run("autoscale status digits --version 2"), ExitCode::kOk);
  EXPECT_EQ(troupe.cluster.asked.back().show_scaling().key().name(), "digits");
  EXPECT_EQ(troupe.cluster.asked.back().show_scaling().key().version(), "2");
  const auto text = troupe.out();
  EXPECT_THAT(text, HasSubstr("80.0/s came, 92.5/s are expected, 3 wait"));
  EXPECT_THAT(text, HasSubstr("instances for 132.1/s; there are some for 140.0/s, by its profile"));
  EXPECT_THAT(text, HasSubstr("binding    it owns parts of GPUs: "));
  EXPECT_THAT(text, HasSubstr("owns       24 % of the SMs for 70 % of the time on node-1 GPU 1"));
  EXPECT_THAT(text, AllOf(HasSubstr("4 s"), HasSubstr("resize"), HasSubstr("node-1/1")));
  EXPECT_THAT(text, Not(HasSubstr("\x1b[2J"))) << "what others wrote does not drive the terminal";
}

TEST(AutoscaleVerbs, ADryRunAndAFunctionWithoutLoadSaySo) {
  auto scaled = Scaled();
  scaled.mutable_scaling()->set_dry_run(true);
  Harness troupe;
  troupe.cluster.Answer(Request::kShowScaling, scaled);
  ASSERT_EQ(troupe.Run("autoscale status digits"), ExitCode::kOk);
  EXPECT_THAT(troupe.out(), AllOf(HasSubstr("dry run"), HasSubstr("would own  24 %")));
  proto::AdminReply quiet;
  quiet.mutable_scaling()->mutable_key()->set_name("digits");
  Harness other;
  other.cluster.Answer(Request::kShowScaling, quiet);
  ASSERT_EQ(other.Run("autoscale status digits"), ExitCode::kOk);
  EXPECT_THAT(other.out(), AllOf(HasSubstr("no request has come"), HasSubstr("bound late")));
  EXPECT_EQ(other.Run("autoscale status"), ExitCode::kUsage);
}

}  // namespace
}  // namespace troupe::shell
