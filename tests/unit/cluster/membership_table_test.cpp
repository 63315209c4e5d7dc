#include "cluster/membership_table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::cluster::membership_table_test {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

Time At(int ms) {
  return Time(milliseconds(ms));
}

proto::JoinRequest JoinOf(const std::string& name, proto::MemberKind kind = proto::MEMBER_NODE) {
  proto::JoinRequest request;
  request.mutable_member()->set_name(name);
  request.mutable_member()->set_kind(kind);
  return request;
}
proto::Heartbeat Beat(const std::string& name, std::uint64_t epoch, std::uint64_t sequence = 1) {
  proto::Heartbeat heartbeat;
  heartbeat.set_name(name);
  heartbeat.set_epoch(epoch);
  heartbeat.set_sequence(sequence);
  return heartbeat;
}

TEST(MembershipTable, SilenceMakesSuspectThenDead) {
  struct Case {
    int ms;
    std::vector<proto::MemberState> expected;
  };
  // One table over time, and the transitions that each tick gives.
  const Case cases[] = {{0, {proto::MEMBER_ALIVE}},     {300, {}}, {399, {}},
                        {400, {proto::MEMBER_SUSPECT}}, {500, {}}, {799, {}},
                        {800, {proto::MEMBER_DEAD}},    {2000, {}}};
  MembershipTable table;
  ASSERT_TRUE(table.Join(JoinOf("n1"), At(0)).ok());
  for (const Case& c : cases) {
    SCOPED_TRACE(c.ms);
    const auto transitions = table.Tick(At(c.ms));
    ASSERT_EQ(transitions.size(), c.expected.size());
    for (std::size_t i = 0; i < transitions.size(); ++i) EXPECT_EQ(transitions[i].to, c.expected[i]);
  }
  EXPECT_EQ(table.NextDue(), At(0) + table.limits().dead_kept);
}

TEST(MembershipTable, MembersThatAreGoneAreForgottenAfterAWhile) {
  MembershipTable table({.left_kept = milliseconds(5000), .dead_kept = milliseconds(9000)});
  ASSERT_TRUE(table.Join(JoinOf("dies"), At(0)).ok());
  proto::LeaveRequest leave;
  leave.set_name("leaves");
  leave.set_epoch(*table.Join(JoinOf("leaves"), At(0)));
  ASSERT_TRUE(table.Leave(leave, At(100)).ok());
  ASSERT_EQ(table.Tick(At(4999)).back().to, proto::MEMBER_DEAD);
  EXPECT_EQ(table.NextDue(), At(5000));
  const auto version = table.version();
  EXPECT_TRUE(table.Tick(At(5000)).empty());
  EXPECT_EQ(table.Find("leaves"), nullptr);
  ASSERT_NE(table.Find("dies"), nullptr);
  EXPECT_GT(table.version(), version);  // the other members hear of it
  EXPECT_TRUE(table.Tick(At(9000)).empty());
  EXPECT_EQ(table.Find("dies"), nullptr);
  EXPECT_EQ(table.NextDue(), Time::max());
  EXPECT_GT(*table.Join(JoinOf("dies"), At(9001)), leave.epoch()) << "epochs go on";
}

TEST(MembershipTable, AnyMessageOfItsLifeShowsThatAMemberLives) {
  MembershipTable table;
  const std::uint64_t epoch = *table.Join(JoinOf("n1"), At(0));
  (void)table.Tick(At(450));
  ASSERT_EQ(table.Find("n1")->record.state(), proto::MEMBER_SUSPECT);
  ASSERT_TRUE(table.HearOf("n1", epoch, At(450)).ok());
  EXPECT_EQ(table.Find("n1")->record.state(), proto::MEMBER_ALIVE);
  EXPECT_EQ(table.NextDue(), At(850));
  EXPECT_TRUE(absl::IsFailedPrecondition(table.HearOf("n1", epoch + 1, At(500)))) << "of another life";
  EXPECT_TRUE(absl::IsFailedPrecondition(table.HearOf("n2", epoch, At(500)))) << "of no member";
}

TEST(MembershipTable, HeartbeatsKeepAliveAndHealASuspect) {
  MembershipTable table;
  const std::uint64_t epoch = *table.Join(JoinOf("n1"), At(0));
  EXPECT_EQ(table.NextDue(), At(400));
  (void)table.Tick(At(450));
  EXPECT_EQ(table.Find("n1")->record.state(), proto::MEMBER_SUSPECT);
  EXPECT_EQ(table.NextDue(), At(800));
  ASSERT_TRUE(table.Hear(Beat("n1", epoch), At(500)).ok());
  const auto transitions = table.Tick(At(500));
  ASSERT_EQ(transitions.size(), 1u);
  EXPECT_EQ(transitions[0].to, proto::MEMBER_ALIVE);
  EXPECT_EQ(table.NextDue(), At(900));
}

TEST(MembershipTable, AReturningMemberGetsANewEpochAndTheOldOneIsRefused) {
  MembershipTable table;
  table.SetEpochFloor(41);
  const std::uint64_t first = *table.Join(JoinOf("n1"), At(0));
  EXPECT_EQ(first, 42u);
  (void)table.Tick(At(0));
  const std::uint64_t second = *table.Join(JoinOf("n1"), At(100));  // restarted before its end was noticed
  EXPECT_GT(second, first);
  const auto transitions = table.Tick(At(100));
  ASSERT_EQ(transitions.size(), 2u);
  EXPECT_EQ(transitions[0].to, proto::MEMBER_DEAD);
  EXPECT_EQ(transitions[0].epoch, first);
  EXPECT_EQ(transitions[1].to, proto::MEMBER_ALIVE);
  EXPECT_EQ(transitions[1].epoch, second);
  const absl::Status stale = table.Hear(Beat("n1", first), At(110));
  EXPECT_EQ(stale.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(stale.message()), HasSubstr("join again"));
  table.ConnectionLost("n1", first, At(120));  // the connection of its old life
  EXPECT_EQ(table.Find("n1")->record.state(), proto::MEMBER_ALIVE);
  table.ConnectionLost("n1", second, At(120));
  EXPECT_EQ(table.Find("n1")->record.state(), proto::MEMBER_DEAD);
  EXPECT_FALSE(table.Hear(Beat("n1", second), At(130)).ok());
}

proto::JoinRequest JoinAt(const std::string& address) {
  auto join = JoinOf("n1");
  join.mutable_member()->set_address(address);
  join.mutable_member()->set_host("host");
  return join;
}

TEST(MembershipTable, AnotherDaemonsNameIsNotTakenWhileThatLives) {
  MembershipTable table;
  const auto first = *table.Join(JoinAt("a:1"), At(0), "one");
  for (int ms = 100; ms <= 3000; ms += 100) {
    ASSERT_TRUE(table.Hear(Beat("n1", first, static_cast<std::uint64_t>(ms)), At(ms)).ok());
    const auto refused = table.Join(JoinAt("b:2"), At(ms + 50), "other").status();
    ASSERT_EQ(refused.code(), absl::StatusCode::kAlreadyExists) << refused;
    EXPECT_EQ(refused.message(),
              "another daemon at a:1 is already called 'n1'; give one of them another --name");
  }
  EXPECT_EQ(table.Find("n1")->record.epoch(), first) << "a refused join uses up no epoch";
  // The member that has the name may lose its manager and join again.
  const auto again = table.Join(JoinAt("a:1"), At(3100), "one");
  EXPECT_TRUE(again.ok()) << again.status();
}

TEST(MembershipTable, ADaemonThatWasStartedAgainHasItsNameAtOnceOrWhenTheOneBeforeIsSilent) {
  struct Case {
    const char* what;
    const char* address;
    const char* host;
    bool connection_lost;
    int ms;  // after the member was heard last
    bool good;
  };
  for (const auto& c : {Case{"where the one before listened", "a:1", "host", false, 10, true},
                        Case{"the same address on another host", "a:1", "other", false, 10, false},
                        Case{"its connection went down", "b:2", "host", true, 10, true},
                        Case{"cut off, at once", "b:2", "host", false, 399, false},
                        Case{"cut off, suspected", "b:2", "host", false, 400, true}}) {
    SCOPED_TRACE(c.what);
    MembershipTable table;
    const auto first = *table.Join(JoinAt("a:1"), At(0), "one");
    if (c.connection_lost) table.ConnectionLost("n1", first, At(5));
    auto join = JoinAt(c.address);
    join.mutable_member()->set_host(c.host);
    EXPECT_EQ(table.Join(join, At(c.ms), "other").ok(), c.good);
  }
}

TEST(MembershipTable, DrainAndLeave) {
  MembershipTable table;
  const std::uint64_t epoch = *table.Join(JoinOf("n1"), At(0));
  ASSERT_TRUE(table.Join(JoinOf("g1", proto::MEMBER_GATEWAY), At(0)).ok());
  EXPECT_EQ(table.SetDraining("absent", true).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(table.SetDraining("g1", true).code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(table.SetDraining("n1", true).ok());
  EXPECT_EQ(table.Find("n1")->record.state(), proto::MEMBER_DRAINING);
  ASSERT_TRUE(table.Hear(Beat("n1", epoch), At(300)).ok());
  EXPECT_EQ(table.Find("n1")->record.state(), proto::MEMBER_DRAINING);
  ASSERT_TRUE(table.SetDraining("n1", false).ok());
  EXPECT_EQ(table.Find("n1")->record.state(), proto::MEMBER_ALIVE);
  proto::LeaveRequest leave;
  leave.set_name("n1");
  leave.set_epoch(epoch);
  ASSERT_TRUE(table.Leave(leave, At(400)).ok());
  EXPECT_EQ(table.Find("n1")->record.state(), proto::MEMBER_LEFT);
  EXPECT_EQ(table.SetDraining("n1", true).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(MembershipTable, WhatWeStoodStillForIsNotSilence) {
  MembershipTable table;
  ASSERT_TRUE(table.Join(JoinOf("n1"), At(0)).ok());
  static_cast<void>(table.Tick(At(0)));
  table.Excuse(std::chrono::milliseconds(700), At(1000));
  EXPECT_TRUE(table.Tick(At(1000)).empty()) << "only 300 ms of the silence are the member's own";
  ASSERT_EQ(table.Tick(At(1100)).size(), 1u) << "suspect";
  table.Excuse(std::chrono::seconds(10), At(1200));
  EXPECT_EQ(table.Find("n1")->last_heard, At(1200)) << "a member is not heard in the future";
}

TEST(MembershipTable, ADrainingMemberDiesOfSilenceToo) {
  MembershipTable table;
  ASSERT_TRUE(table.Join(JoinOf("n1"), At(0)).ok());
  ASSERT_TRUE(table.SetDraining("n1", true).ok());
  EXPECT_EQ(table.NextDue(), At(800));
  (void)table.Tick(At(800));
  EXPECT_EQ(table.Find("n1")->record.state(), proto::MEMBER_DEAD);
}

TEST(MembershipTable, BadJoins) {
  MembershipTable table({.max_members = 1});
  for (const auto& name : {std::string(), std::string("a b"), std::string("a\n"), std::string(129, 'n')})
    EXPECT_EQ(table.Join(JoinOf(name), At(0)).status().code(), absl::StatusCode::kInvalidArgument) << name;
  EXPECT_EQ(table.Join(JoinOf("x", proto::MEMBER_UNSPECIFIED), At(0)).status().code(),
            absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(table.Join(JoinOf("x"), At(0)).ok());
  EXPECT_EQ(table.Join(JoinOf("y"), At(0)).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(table.Join(JoinOf("x"), At(0)).ok());
  EXPECT_FALSE(table.CheckEpoch("z", 1).ok());
}

TEST(MembershipTable, EventsOfAHeartbeatAreTakenOnceAndOnlyOfItsMember) {
  MembershipTable table;
  const std::uint64_t epoch = *table.Join(JoinOf("n1"), At(0));
  auto beat = Beat("n1", epoch);
  for (const std::uint64_t sequence : {7, 8}) {
    auto& event = *beat.add_events();
    event.set_sequence(sequence);
    event.set_member("another member");
    event.set_message(std::to_string(sequence));
  }
  const auto taken = table.TakeEvents(beat);
  ASSERT_EQ(taken.size(), 2u);
  EXPECT_EQ(taken[0].message() + taken[1].message(), "78");
  EXPECT_EQ(taken[0].member(), "n1");
  // The reply was lost, so the member reports its events again, and one more.
  beat.add_events()->set_sequence(9);
  ASSERT_EQ(table.TakeEvents(beat).size(), 1u);
  EXPECT_TRUE(table.TakeEvents(beat).empty());
  // Events of an earlier life are ignored; the next life may count from any number.
  const std::uint64_t next = *table.Join(JoinOf("n1"), At(10));
  beat.mutable_events(0)->set_sequence(20);
  EXPECT_TRUE(table.TakeEvents(beat).empty());
  auto first = Beat("n1", next);
  first.add_events()->set_sequence(1);
  EXPECT_EQ(table.TakeEvents(first).size(), 1u);
}

}  // namespace
}  // namespace troupe::cluster::membership_table_test
