// What a member and an executor keep that is no actor's: by itself, without time or messages.
#include <gtest/gtest.h>

#include "actors/member/catch_up.hpp"
#include "actors/member/missing_notice.hpp"
#include "actors/node/worker_life.hpp"

namespace troupe::actors {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

constexpr Time kNow{seconds(1000)};

TEST(MissingNotice, IsGivenEverMoreRarelyUntilTheMemberHasJoined) {
  MissingNotice notice;
  EXPECT_TRUE(notice.Begin(kNow));
  EXPECT_FALSE(notice.Begin(kNow + seconds(5))) << "it is missing already";
  EXPECT_EQ(notice.pause(), seconds(1));
  const auto number = notice.number();
  EXPECT_TRUE(notice.IsDue(number));
  EXPECT_NE(notice.Tell(kNow + seconds(1), "host:1", false).find("no cluster manager at host:1 since 1"),
            std::string::npos);
  EXPECT_EQ(notice.pause(), seconds(2));
  for (int i = 0; i < 10; ++i) (void)notice.Tell(kNow + seconds(9), "host:1", true);
  EXPECT_EQ(notice.pause(), minutes(1));
  notice.Joined();
  EXPECT_FALSE(notice.IsDue(number));
  EXPECT_TRUE(notice.Begin(kNow + minutes(5)));
  EXPECT_FALSE(notice.IsDue(number)) << "a wait of an earlier time is over";
  EXPECT_EQ(notice.pause(), seconds(1));
}

TEST(MissingNotice, ARefusalIsSaidOnceAndStandsForTheNotice) {
  MissingNotice notice;
  EXPECT_TRUE(notice.Begin(kNow));
  EXPECT_TRUE(notice.Refused("another cluster"));
  EXPECT_FALSE(notice.Refused("another cluster"));
  EXPECT_EQ(notice.Tell(kNow, "host:1", true), "");
  EXPECT_NE(notice.Tell(kNow, "host:1", false), "") << "the manager that refused has gone";
  EXPECT_TRUE(notice.Refused("another name"));
  notice.Joined();
  EXPECT_TRUE(notice.Refused("another name"));
}

TEST(CatchUpState, TheSubjectIsRemindedABeatLaterOfWhatWasTold) {
  CatchUpState state;
  EXPECT_FALSE(state.Joined(5));
  EXPECT_FALSE(state.Told(5));
  EXPECT_FALSE(state.Told(7)) << "it may be on its way";
  EXPECT_EQ(state.Told(7), 7u);
  EXPECT_FALSE(state.Told(7)) << "it was reminded";
  // After it has asked, it is reminded once more: something may be missing still.
  EXPECT_TRUE(state.Missed(true));
  state.Asked();
  EXPECT_EQ(state.Told(7), 7u);
}

TEST(CatchUpState, TheManagerIsAskedOnceAtATimeAndAfterAJoin) {
  CatchUpState state;
  EXPECT_FALSE(state.Missed(false)) << "not before the member has joined";
  EXPECT_TRUE(state.Joined(3));
  EXPECT_EQ(state.told(), 3u);
  EXPECT_TRUE(state.Missed(true));
  EXPECT_FALSE(state.Missed(true));
  EXPECT_FALSE(state.Joined(4)) << "the answer to a join says everything";
  EXPECT_TRUE(state.Missed(true));
}

TEST(EventsHeard, ABeatThatIsLostBringsNothing) {
  EventsHeard events;
  EXPECT_TRUE(events.MayTell());
  events.Telling();
  EXPECT_FALSE(events.MayTell());
  events.Told(9, false);
  EXPECT_TRUE(events.MayTell());
  EXPECT_EQ(events.heard(), 0u);
  events.Telling();
  events.Told(9, true);
  EXPECT_EQ(events.heard(), 9u);
  events.Told(4, true);
  EXPECT_EQ(events.heard(), 9u);
}

TEST(WorkerLife, EachWorkerThatIsStartedIsAnotherIncarnation) {
  WorkerLife life(3);
  life.Adopting();
  EXPECT_EQ(life.incarnation(), 1u) << "a worker from before";
  life.Starting();
  life.Adopting();
  EXPECT_EQ(life.incarnation(), 2u);
  const auto report = life.Report(proto::ExecutorReport::STARTING, "it died", 4, kNow);
  EXPECT_EQ(report.gpu(), 3u);
  EXPECT_EQ(report.incarnation(), 2u);
  EXPECT_EQ(report.restarts(), 4u);
  EXPECT_EQ(report.reason(), "it died");
}

TEST(WorkerLife, AKeyIsThatOfTheWorkerThatIsStartedForIt) {
  WorkerLife life(0);
  life.Starting();
  life.Assign("alice", true, kNow);
  EXPECT_EQ(life.incarnation(), 1u) << "the new worker will be another one";
  life.Starting();
  EXPECT_EQ(life.serves(), "alice");
  EXPECT_EQ(life.Report(proto::ExecutorReport::STARTING, "", 0, kNow).worker().isolation_key(), "alice");
  life.Starting();  // for another reason
  EXPECT_EQ(life.serves(), "");
  life.Assign("bob", false, kNow);
  EXPECT_EQ(life.incarnation(), 4u) << "the same worker, connected anew";
  EXPECT_EQ(life.serves(), "bob");
}

TEST(WorkerLife, TheTimeWithoutAWorkerIsToldWithTheNextOne) {
  WorkerLife life(0);
  proto::WorkerDescription worker;
  worker.set_pid(17);
  life.Ready(worker);
  const auto first = life.Report(proto::ExecutorReport::READY, "", 0, kNow);
  EXPECT_EQ(first.worker().pid(), 17);
  EXPECT_EQ(first.down_ns(), 0);
  (void)life.Report(proto::ExecutorReport::DOWN, "", 0, kNow + seconds(1));
  EXPECT_EQ(life.Report(proto::ExecutorReport::READY, "", 1, kNow + seconds(3)).down_ns(),
            Duration(seconds(2)).count());
  EXPECT_EQ(life.Report(proto::ExecutorReport::READY, "", 1, kNow + seconds(9)).down_ns(), 0);
  life.Assign("alice", false, kNow + seconds(10));
  EXPECT_EQ(life.Report(proto::ExecutorReport::READY, "", 1, kNow + seconds(11)).down_ns(),
            Duration(seconds(1)).count());
}

}  // namespace
}  // namespace troupe::actors
