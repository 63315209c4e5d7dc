// The verbs top and events, and what interrupts them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "proto/cluster.pb.h"
#include "proto/event_kinds.hpp"
#include "proto/local.pb.h"
#include "tests/unit/shell/fake_admin_client.hpp"

namespace troupe::shell {
namespace {

using testing::HasSubstr;
using Request = proto::AdminRequest;

proto::AdminReply EventReply(std::uint64_t first, int count) {
  proto::AdminReply reply;
  for (int i = 0; i < count; ++i) {
    auto& event = *reply.add_events();
    event.set_sequence(first + static_cast<std::uint64_t>(i));
    event.set_unix_ns(1);
    event.set_kind("worker-down");
    event.set_message("event " + std::to_string(event.sequence()));
  }
  return reply;
}

TEST(WatchVerbs, EventsAsksForTheNewest) {
  Harness troupe;
  troupe.cluster.Answer(Request::kListEvents, EventReply(5, 2));
  EXPECT_EQ(troupe.Run("events --limit 2 --kind all"), ExitCode::kOk);
  EXPECT_EQ(troupe.cluster.asked.back().list_events().limit(), 2U);
  EXPECT_EQ(troupe.cluster.asked.back().list_events().after(), 0U);
  EXPECT_THAT(troupe.out(), HasSubstr("worker-down  event 5\n"));
}

TEST(WatchVerbs, EventsShowsSwapsWhenTheyAreAskedFor) {
  Harness troupe;
  auto reply = EventReply(5, 30);
  for (int i = 3; i < 30; ++i) reply.mutable_events(i)->set_kind("swap");
  troupe.cluster.Answer(Request::kListEvents, reply);
  const auto shown = [&](const std::string& options) {
    EXPECT_EQ(troupe.Run("events " + options), ExitCode::kOk);
    const auto text = troupe.out();
    return std::pair(std::count(text.begin(), text.end(), '\n'), text);
  };
  EXPECT_EQ(shown("").first, 3);
  EXPECT_THAT(shown("").second, HasSubstr("event 7\n"));
  EXPECT_THAT(shown("--limit 1").second,
              testing::AllOf(HasSubstr("event 7\n"), testing::Not(HasSubstr("event 6"))));
  EXPECT_EQ(shown("--kind swap").first, 20);
  EXPECT_THAT(shown("--kind swap --limit 1").second, HasSubstr("event 34\n"));
  EXPECT_EQ(shown("--kind all --limit 0").first, 31);
  EXPECT_THAT(shown("--limit 0").second, testing::StartsWith("4 older events are not kept any more\n"));
  EXPECT_EQ(shown("--kind gpu-killed").second, "no events\n");
}

TEST(WatchVerbs, EventsOfAnUnknownKindAreRefused) {
  Harness troupe;
  EXPECT_EQ(troupe.Run("events --kind worker-donw --follow"), ExitCode::kUsage);
  EXPECT_THAT(troupe.err(),
              HasSubstr("no events of kind 'worker-donw'; did you mean 'worker-down'?; the kinds "
                        "are all, adoption-failed, "));
  EXPECT_TRUE(troupe.cluster.asked.empty());
}

TEST(WatchVerbs, EveryStateThatIsToldOfIsAKindOfEvents) {
  const auto check = [](const std::string& whose, const google::protobuf::EnumDescriptor& states,
                        const std::string& prefix) {
    for (int i = 0; i < states.value_count(); ++i) {
      const auto name = absl::AsciiStrToLower(states.value(i)->name().substr(prefix.size()));
      EXPECT_TRUE(name == "starting" || proto::IsEventKind(whose + name)) << whose << name;
    }
  };
  check("worker-", *proto::ExecutorReport::State_descriptor(), "");
  check("member-", *proto::MemberState_descriptor(), "MEMBER_");
  EXPECT_TRUE(std::is_sorted(proto::kEventKinds.begin(), proto::kEventKinds.end()));
}

TEST(WatchVerbs, FollowGoesOnAfterTheLastOne) {
  Harness troupe;
  troupe.cluster.Answer(Request::kListEvents, EventReply(5, 2));
  troupe.cluster.Answer(Request::kListEvents, EventReply(7, 1));
  troupe.cluster.Answer(Request::kListEvents, EventReply(8, 0));
  troupe.console.wakes = {Console::Wake::kTimeout, Console::Wake::kTimeout};
  EXPECT_EQ(troupe.Run("events --follow --json"), ExitCode::kOk);
  ASSERT_EQ(troupe.cluster.asked.size(), 3U);
  EXPECT_EQ(troupe.cluster.asked[1].list_events().after(), 6U);
  EXPECT_EQ(troupe.cluster.asked[2].list_events().after(), 7U);
  const auto text = troupe.out();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3) << "one event per line";
}

TEST(WatchVerbs, TopDrawsUntilItIsLeftAndGivesTheScreenBack) {
  Harness troupe;
  troupe.cluster.Answer(Request::kClusterStatus, MakeStatusReply());
  troupe.cluster.Answer(Request::kListGpus, MakeGpuReply());
  troupe.console.terminal = true;
  troupe.console.wakes = {Console::Wake::kTimeout, Console::Wake::kQuit};
  EXPECT_EQ(troupe.Run("top"), ExitCode::kOk);
  EXPECT_EQ(troupe.cluster.asked.size(), 6U);
  EXPECT_EQ(troupe.console.screens, 0);
  EXPECT_THAT(troupe.out(), HasSubstr("node-a/0"));
  EXPECT_THAT(troupe.out(), HasSubstr("\x1b[H"));
}

TEST(WatchVerbs, TopIntoAPipeIsPlainAndCounted) {
  Harness troupe;
  troupe.cluster.Answer(Request::kClusterStatus, MakeStatusReply());
  troupe.console.wakes = {Console::Wake::kTimeout};
  EXPECT_EQ(troupe.Run("top --count 2 --every 5s"), ExitCode::kOk);
  EXPECT_EQ(troupe.console.now.time_since_epoch(), std::chrono::seconds(5));
  EXPECT_THAT(troupe.out(), testing::Not(HasSubstr("\x1b")));
  EXPECT_EQ(troupe.Run("top --count 1 --json"), ExitCode::kOk);
  EXPECT_THAT(troupe.out(), HasSubstr("\"cluster\": \"c0ffee\""));
}

TEST(WatchVerbs, TopOutlivesAManagerThatIsAwayButNotOneThatNeverWas) {
  Harness troupe;
  troupe.console.terminal = true;
  troupe.cluster.Answer(Request::kClusterStatus, MakeStatusReply());
  troupe.cluster.Answer(Request::kClusterStatus, absl::UnavailableError("away"));
  troupe.console.wakes = {Console::Wake::kTimeout, Console::Wake::kQuit};
  EXPECT_EQ(troupe.Run("top"), ExitCode::kOk);
  EXPECT_THAT(troupe.out(), HasSubstr("no answer: away"));
  EXPECT_EQ(troupe.Run("top"), ExitCode::kUnreachable);
  EXPECT_EQ(troupe.console.screens, 0);
}

}  // namespace
}  // namespace troupe::shell
