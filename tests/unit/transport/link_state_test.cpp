#include "transport/link_state.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <random>
#include <thread>

namespace troupe::transport {
namespace {

constexpr Duration kMilli = std::chrono::milliseconds(1);
constexpr BytesPerSecond kGigabyte{1e9};    // one byte per nanosecond
constexpr Bytes kBlock = Bytes(1'000'000);  // one millisecond

LinkBuckets Links(Duration burst = Duration::zero()) {
  auto links = LinkBuckets::Create(
      {{"h2d", kGigabyte, burst}, {"switch", BytesPerSecond{5e8}, burst}, {"free", {}, burst}});
  EXPECT_TRUE(links.ok()) << links.status();
  return *std::move(links);
}
Time At(Duration since) {
  return Time(std::chrono::hours(1) + since);
}

TEST(LinkBuckets, PassesOneAfterTheOther) {
  LinkBuckets links = Links();
  EXPECT_EQ(links.Reserve(0, kBlock, At({})), kMilli);
  EXPECT_EQ(links.Reserve(0, kBlock, At({})), 2 * kMilli);
  EXPECT_EQ(links.Reserve(0, kBlock, At(kMilli)), 2 * kMilli);
  EXPECT_EQ(links.Reserve(0, kBlock, At(10 * kMilli)), kMilli) << "idle time is not saved up";
  EXPECT_EQ(links.Reserve(2, kBlock, At({})), Duration::zero()) << "unlimited";
  EXPECT_EQ(links.passed(0), kBlock * 4);
}

TEST(LinkBuckets, TheTimeOfACopyIsTheLinksOwnAndNeverNegative) {
  const auto links = LinkBuckets::Create(
      {{.name = "a", .bandwidth = kGigabyte, .copy_time = kMilli}, {.name = "b", .bandwidth = kGigabyte}});
  ASSERT_TRUE(links.ok());
  EXPECT_EQ(links->copy_time(0), kMilli);
  EXPECT_EQ(links->copy_time(1), Duration::zero());
  EXPECT_FALSE(LinkBuckets::Create({{.name = "a", .bandwidth = kGigabyte, .copy_time = -kMilli}}).ok());
}

TEST(LinkBuckets, ASleeperThatWakesLateCatchesUpWithinTheBurst) {
  LinkBuckets links = Links(kMilli / 2);
  EXPECT_EQ(links.Reserve(0, kBlock, At({})), kMilli / 2) << "an idle link may send a burst";
  EXPECT_EQ(links.Reserve(0, kBlock, At(kMilli * 3 / 4)), kMilli * 3 / 4)
      << "a quarter of a millisecond late: no time is lost";
  EXPECT_EQ(links.Reserve(0, kBlock, At(kMilli * 5 / 2)), kMilli / 2)
      << "a millisecond late: half of it is lost";
}

TEST(LinkBuckets, SharesEvenlyBetweenUsersThatGoBlockByBlock) {
  LinkBuckets links = Links();
  std::array<Time, 3> ready{At({}), At({}), At({})};
  std::array<int, 3> blocks{};
  for (;;) {
    const auto next = static_cast<std::size_t>(std::min_element(ready.begin(), ready.end()) - ready.begin());
    if (ready[next] >= At(300 * kMilli)) break;
    ready[next] += links.Reserve(0, kBlock, ready[next]);
    ++blocks[next];
  }
  for (const int count : blocks) EXPECT_NEAR(count, 100, 2);
}

TEST(LinkBuckets, TheSlowestOfAPathDecides) {
  LinkBuckets links = Links();
  const std::array<std::size_t, 2> path{0, 1};
  EXPECT_EQ(links.Reserve(path, kBlock, At({})), 2 * kMilli);
  EXPECT_EQ(links.Reserve(0, kBlock, At({})), 2 * kMilli);
}

LinkBuckets Again(const LinkBuckets& links) {
  auto again = LinkBuckets::Open(UniqueFd(dup(links.fd())));
  EXPECT_TRUE(again.ok()) << again.status();
  return *std::move(again);
}

TEST(LinkBuckets, StallsOnOrder) {
  LinkBuckets links = Links();
  LinkBuckets others = Again(links);
  links.Stall(0, At(50 * kMilli));
  EXPECT_TRUE(others.Stalled(0, At({})));
  EXPECT_FALSE(others.Stalled(1, At({})));
  EXPECT_FALSE(others.Stalled(0, At(50 * kMilli)));
  links.Stall(0, Time{});
  EXPECT_FALSE(others.Stalled(0, At({}))) << "the fault is over";
}

TEST(LinkBuckets, StallsOnceSoManyBytesHavePassed) {
  LinkBuckets links = Links();
  LinkBuckets others = Again(links);
  links.StallBeyond(0, kBlock);
  static_cast<void>(others.Reserve(0, kBlock, At({})));
  EXPECT_FALSE(others.Stalled(0, At({})));
  static_cast<void>(others.Reserve(0, Bytes(1), At({})));
  EXPECT_TRUE(others.Stalled(0, At({})));
  EXPECT_FALSE(others.Stalled(1, At({})));
  links.StallBeyond(0, Bytes(0));
  EXPECT_FALSE(others.Stalled(0, At({})));
}

TEST(LinkBuckets, AProcessThatDiesHoldsNothing) {
  LinkBuckets links = Links();
  const pid_t child = fork();
  if (child == 0) {
    auto mine = LinkBuckets::Open(UniqueFd(dup(links.fd())));
    if (!mine.ok()) _exit(1);
    _exit(mine->Reserve(0, kBlock, At({})) == kMilli ? 0 : 2);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(links.Reserve(0, kBlock, At({})), 2 * kMilli);
}

TEST(LinkBuckets, CountsEveryReservationOfConcurrentUsers) {
  LinkBuckets links = Links();
  auto use = [&] {
    for (int i = 0; i < 1000; ++i) static_cast<void>(links.Reserve(0, Bytes(1000), At({})));
  };
  {
    std::jthread first(use);
    std::jthread second(use);
  }
  EXPECT_EQ(links.Reserve(0, Bytes(1000), At({})), 2001 * std::chrono::microseconds(1));
}

TEST(LinkBuckets, ForgivesATimeThatCannotBe) {
  LinkBuckets links = Links();
  static_cast<void>(links.Reserve(0, kBlock, At(std::chrono::hours(1000))));
  EXPECT_EQ(links.Reserve(0, kBlock, At({})), kMilli);
  links.Stall(0, Time::max());
  EXPECT_FALSE(links.Stalled(0, At({})));
}

TEST(LinkBuckets, AUserWithMoreTransfersHasLongerTurns) {
  LinkBuckets mine = Links();
  LinkBuckets other = Again(mine);
  EXPECT_EQ(mine.TurnOf(0, At({})).blocks, 1u) << "a user without a declared transfer asks block by block";
  mine.Want(0, {0, 3}, At({}));
  EXPECT_EQ(mine.TurnOf(0, At({})).blocks, 3u);
  EXPECT_FALSE(mine.TurnOf(0, At({})).contended);
  other.Want(0, {0, 1}, At({}));
  EXPECT_TRUE(mine.TurnOf(0, At({})).contended);
  EXPECT_EQ(other.TurnOf(0, At({})).blocks, 1u);
  EXPECT_FALSE(mine.TurnOf(1, At({})).contended) << "the other user wants another link";
}

// Two users that go block by block, a tenth of a millisecond each; the first one's thread wakes late, the
// second one's never.
double ShareOfALateOne(LinkBuckets& late, LinkBuckets& other, bool both_say_so) {
  constexpr Bytes kTenth(kBlock.count() / 10);
  std::mt19937 random(7);
  std::array<LinkBuckets*, 2> users{&late, &other};
  std::array<Time, 2> ready{At({}), At({})};
  std::array<std::uint64_t, 2> bytes{};
  for (;;) {
    const std::size_t next = ready[1] < ready[0];
    const Time now = ready[next];
    if (now >= At(100 * kMilli)) break;
    if (both_say_so) users[next]->Want(0, {0, 1}, now);
    const Bytes size = std::max(kTenth, users[next]->TurnOf(0, now).missed);
    ready[next] = now + users[next]->Reserve(0, size, now);
    if (next == 0) ready[0] += std::chrono::microseconds(random() % 300);
    bytes[next] += size.count();
  }
  return static_cast<double>(bytes[0]) / static_cast<double>(bytes[0] + bytes[1]);
}

TEST(LinkBuckets, AUserThatWakesLateHasWhatItMissed) {
  LinkBuckets late = Links();
  LinkBuckets other = Again(late);
  EXPECT_LT(ShareOfALateOne(late, other, false), 0.45)
      << "the users do not declare their transfers, so their requests decide";
  LinkBuckets fresh = Links();
  LinkBuckets beside = Again(fresh);
  EXPECT_NEAR(ShareOfALateOne(fresh, beside, true), 0.5, 0.01);
}

TEST(LinkBuckets, NoUserCatchesUpOnWhatItDidNotWant) {
  LinkBuckets mine = Links();
  LinkBuckets other = Again(mine);
  other.Want(0, {0, 1}, At({}));
  static_cast<void>(other.Reserve(0, kBlock * 100, At({})));
  mine.Want(0, {0, 1}, At({}));
  EXPECT_EQ(mine.TurnOf(0, At({})).missed, Bytes(0)) << "the user has only just come";
  static_cast<void>(other.Reserve(0, Bytes(kBlock.count() / 4), At({})));
  EXPECT_EQ(mine.TurnOf(0, At({})).missed, Bytes(kBlock.count() / 4));
  static_cast<void>(other.Reserve(0, kBlock * 10, At({})));
  EXPECT_EQ(mine.TurnOf(0, At({})).missed, kBlock) << "kCatchUp of the link's time";
  EXPECT_EQ(other.TurnOf(0, At({})).missed, Bytes(0));
  mine.Want(0, {0, 0}, At({}));
  mine.Want(0, {0, 1}, At({}));
  EXPECT_EQ(mine.TurnOf(0, At({})).missed, Bytes(0)) << "the user wanted nothing meanwhile";
}

TEST(LinkBuckets, TheLessUrgentHaveNoTurn) {
  LinkBuckets mine = Links();
  LinkBuckets other = Again(mine);
  mine.Want(0, {20, 1}, At({}));
  other.Want(0, {10, 1}, At({}));
  EXPECT_EQ(mine.TurnOf(0, At({})).blocks, 0u);
  EXPECT_EQ(other.TurnOf(0, At({})).blocks, 1u);
  other.Want(0, {10, 0}, At({}));
  EXPECT_EQ(mine.TurnOf(0, At({})).blocks, 1u) << "the other user left";
}

TEST(LinkBuckets, ThoseThatDoNothingAreForgotten) {
  LinkBuckets mine = Links();
  LinkBuckets other = Again(mine);
  other.Want(0, {10, 1}, At({}));
  mine.Want(0, {20, 1}, At(LinkBuckets::kFresh * 3 / 4));
  EXPECT_EQ(mine.TurnOf(0, At(LinkBuckets::kFresh * 3 / 4)).blocks, 0u);
  EXPECT_EQ(mine.TurnOf(0, At(LinkBuckets::kFresh)).blocks, 1u);
  EXPECT_EQ(other.TurnOf(0, At(LinkBuckets::kFresh)).blocks, 1u) << "the other user still wants the link";
  EXPECT_EQ(mine.TurnOf(0, At(LinkBuckets::kFresh)).blocks, 0u);
}

TEST(LinkBuckets, SlotsOfTheDeadAreTaken) {
  LinkBuckets links = Links();
  std::vector<LinkBuckets> crowd;
  for (std::size_t i = 0; i < LinkBuckets::kUsers; ++i) {
    crowd.push_back(Again(links));
    crowd.back().Want(0, {1, 1}, At({}));
  }
  links.Want(0, {2, 2}, At({}));
  EXPECT_EQ(links.TurnOf(0, At({})).blocks, 1u) << "no slot is left, so the user asks block by block";
  links.Want(0, {2, 2}, At(std::chrono::seconds(2)));
  EXPECT_EQ(links.TurnOf(0, At(std::chrono::seconds(2))).blocks, 2u);
}

TEST(LinkBuckets, ALinkMayBeBehindAnother) {
  auto links = LinkBuckets::Create(
      {{"switch", {5e8}, {}}, {"in0", {1e9}, {}, "switch"}, {"in1", {1e9}, {}, "switch"}});
  ASSERT_TRUE(links.ok()) << links.status();
  EXPECT_EQ(links->PathOf(0), (std::vector<std::size_t>{0}));
  EXPECT_EQ(links->PathOf(2), (std::vector<std::size_t>{2, 0}));
  EXPECT_EQ(links->Reserve(links->PathOf(1), kBlock, At({})), 2 * kMilli);
  EXPECT_EQ(links->Reserve(links->PathOf(2), kBlock, At({})), 4 * kMilli);
  EXPECT_TRUE(absl::IsNotFound(LinkBuckets::Create({{"a", kGigabyte, {}, "b"}}).status()));
  EXPECT_FALSE(LinkBuckets::Create({{"a", kGigabyte, {}, "b"}, {"b", kGigabyte}}).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(LinkBuckets::Create({{"a", kGigabyte, {}, "a"}}).status()));
}

TEST(LinkBuckets, RefusesBadConfigurationsAndOtherFiles) {
  EXPECT_TRUE(absl::IsInvalidArgument(LinkBuckets::Create({}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(LinkBuckets::Create({{"", kGigabyte}}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(LinkBuckets::Create({{std::string(32, 'x'), kGigabyte}}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(LinkBuckets::Create({{"a", BytesPerSecond{-1}}}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(
      LinkBuckets::Create(std::vector<LinkConfig>(LinkBuckets::kLinks + 1, {"a", kGigabyte})).status()));
  auto zeros = MemoryFile::Create("zeros", KiB(4));
  EXPECT_TRUE(absl::IsInvalidArgument(LinkBuckets::Open(UniqueFd(dup(zeros->fd()))).status()));
  const LinkBuckets links = Links();
  EXPECT_EQ(*links.Find("switch"), 1U);
  EXPECT_EQ(links.bandwidth(1), BytesPerSecond{5e8});
  const absl::Status missing = links.Find("pcie9").status();
  EXPECT_TRUE(absl::IsNotFound(missing));
  EXPECT_NE(missing.message().find("h2d, switch, free"), std::string::npos);
}

}  // namespace
}  // namespace troupe::transport
