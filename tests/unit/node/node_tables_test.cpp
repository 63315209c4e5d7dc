// The small tables that the parts of a node keep.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/random.hpp"
#include "node/event_journal.hpp"
#include "node/models/lost_models.hpp"
#include "node/models/peer_copy_table.hpp"
#include "node/models/prepare_queue.hpp"
#include "node/models/swap_log.hpp"
#include "node/requests/served_models.hpp"
#include "node/requests/unread_outputs.hpp"
#include "node/state/state_rooms.hpp"
#include "tests/unit/node/numbered.hpp"

namespace troupe::node::tables_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(EventJournal, TheOldestGoAndTheirPlaceIsToldOf) {
  EventJournal journal(4);
  for (int i = 1; i <= 6; ++i) journal.Note("kind", std::to_string(i), Time(seconds(i)));
  const auto events = journal.After(1, Time(seconds(10)));
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(events[0].kind(), "events-lost");
  EXPECT_EQ(events[0].sequence(), 2u);
  EXPECT_THAT(events[0].message(), testing::HasSubstr("the 1 before"));
  EXPECT_EQ(events[1].message(), "3");
  EXPECT_EQ(events[1].sequence(), 3u);
  EXPECT_EQ(Duration(events[1].age_ns()), seconds(7));
  EXPECT_EQ(journal.After(2, Time(seconds(10))).size(), 4u) << "no event is missing";
  EXPECT_EQ(journal.After(5, Time(seconds(10))).size(), 1u);
  EXPECT_TRUE(journal.After(6, Time(seconds(10))).empty());
  EventJournal large;
  for (int i = 1; i <= 100; ++i) large.Note("kind", std::to_string(i), Time(seconds(i)));
  EXPECT_EQ(large.After(0, Time(seconds(200))).size(), EventJournal::kMostAtOnce);
  EXPECT_EQ(large.After(32, Time(seconds(200))).front().message(), "33");
}

TEST(EventJournal, SwapsNeverPushOutWhatIsRareAndGapsAreToldWhereTheyAre) {
  EventJournal journal(4);
  const Time now(seconds(10));
  journal.Note("worker-down", "1", now);
  for (int i = 2; i <= 5; ++i) journal.Note("swap", std::to_string(i), now);
  journal.Note("worker-ready", "6", now);
  journal.Note("swap", "7", now);
  std::vector<std::string> told;
  for (const auto& event : journal.After(0, now)) told.push_back(event.kind() + " " + event.message());
  EXPECT_EQ(told,
            (std::vector<std::string>{"worker-down 1", "events-lost the 3 before this one could not be told",
                                      "swap 5", "worker-ready 6", "swap 7"}));
  EXPECT_EQ(journal.After(1, now).size(), 4u);
  EXPECT_EQ(journal.After(4, now).size(), 3u) << "no event is missing";
}

TEST(SwapLog, CountsAndKeepsTheLatest) {
  SwapLog log;
  for (int i = 0; i < 40; ++i) {
    log.Swapped(0, {.model = absl::StrCat("f", i),
                    .bytes = MiB(1),
                    .took = milliseconds(i),
                    .ended = Time(seconds(i)),
                    .status = i % 10 == 9 ? absl::UnavailableError("gone") : absl::OkStatus()});
  }
  log.Dispatched(ModelWas::kDisk);
  log.Evicted(EvictedAs::kLight);
  const auto latest = log.Latest(0, Time(seconds(40)));
  ASSERT_EQ(latest.size(), SwapLog::kLatest);
  EXPECT_EQ(latest[0].digest(), "f39");
  EXPECT_EQ(latest[0].code(), static_cast<int>(absl::StatusCode::kUnavailable));
  EXPECT_EQ(latest[0].age_ns(), Duration(seconds(1)).count());
  EXPECT_TRUE(log.Latest(1, Time()).empty());
  proto::SwapStatistics statistics;
  log.AddTo(statistics);
  EXPECT_EQ(statistics.swaps(), 36u);
  EXPECT_EQ(statistics.failed(), 4u);
  EXPECT_EQ(statistics.bytes(), MiB(36).count());
  EXPECT_EQ(statistics.seconds_le(2), 6u) << "0 to 5 ms";
  EXPECT_EQ(statistics.sources(4).requests(), 1u);
  EXPECT_EQ(statistics.evictions(0).reason(), "light");
}

TEST(PrepareQueue, OneAtATimeAndThoseThatADeploymentWaitsForFirst) {
  PrepareQueue queue;
  const auto next = [&]() -> std::string {
    const auto plan = queue.Next();
    if (!plan) return "";
    return plan->rows == 1 ? plan->copy.text() : absl::StrCat(plan->copy.text(), ", ", plan->rows, " rows");
  };
  queue.Push(ModelNamed("a"), false);
  queue.Push(ModelNamed("b"), false);
  EXPECT_EQ(next(), "a");
  queue.PushBatch(ModelNamed("a"), 2);
  queue.PushBatch(ModelNamed("a"), 2);
  queue.Push(ModelNamed("adopted"), true);
  queue.Push(ModelNamed("b"), false);
  EXPECT_EQ(next(), "") << "one plan is being prepared";
  queue.Done();
  EXPECT_EQ(next(), "adopted");
  queue.Done();
  EXPECT_EQ(next(), "b");
  queue.Done();
  EXPECT_EQ(next(), "a, 2 rows") << "plans for batches go last";
  queue.Done();
  EXPECT_EQ(next(), "");
  queue.Push(ModelNamed("later"), true);
  queue.PushBatch(ModelNamed("later"), 2);
  EXPECT_THAT(queue.Clear(), testing::ElementsAre("later"));
  EXPECT_EQ(next(), "");
}

TEST(ServedModels, ARouterIsToldWhatCameAndWentOrEverything) {
  // The names after '=' are all models, those after '+' came, those after '-' went.
  const auto text = [](const std::optional<proto::ModelList>& list) -> std::string {
    if (!list) return "as before";
    return absl::StrCat(list->added() ? "+" : "=", absl::StrJoin(list->digests(), ","),
                        list->removed().empty() ? "" : "-", absl::StrJoin(list->removed(), ","));
  };
  ServedModels models;
  EXPECT_EQ(text(models.Since(0)), "=") << "there are no models";
  const auto empty = models.revision();
  EXPECT_EQ(text(models.Since(empty)), "as before");
  models.Add(ModelNamed("b"));
  models.Add(ModelNamed("a"));
  models.Add(ModelNamed("a@function/f"));  // another copy of model a
  EXPECT_EQ(text(models.Since(0)), "=a,b");
  EXPECT_EQ(text(models.Since(empty)), "+a,b");
  const auto two = models.revision();
  models.Add(ModelNamed("c"));
  EXPECT_EQ(text(models.Since(two)), "+c");
  models.Remove(ModelNamed("a"));
  EXPECT_EQ(text(models.Since(two)), "+c") << "the other copy is still there";
  models.Remove(ModelNamed("a@function/f"));
  EXPECT_EQ(text(models.Since(two)), "+c-a");
  models.Remove(ModelNamed("c"));
  EXPECT_EQ(text(models.Since(two)), "+-a,c") << "a router may know either";
  models.Add(ModelNamed("a"));
  EXPECT_EQ(text(models.Since(two)), "+a-c") << "each model is told once, as it is now";
  EXPECT_EQ(text(models.Since(0)), "=a,b");
  for (int i = 0; i < 2000; ++i) models.Add(ModelNamed(absl::StrCat("m", i)));
  EXPECT_EQ(models.Since(two)->digests_size(), 2002)
      << "changes from too long ago are told with the whole list";
  EXPECT_FALSE(models.Since(two)->added());
  EXPECT_EQ(models.Since(models.revision() - 5)->digests_size(), 5);
}

TEST(ServedModels, ARouterThatIsToldNowAndThenKnowsAllModels) {
  Random random(1);
  ServedModels models;
  std::set<std::string> there, known;
  std::uint64_t told = 0;
  std::size_t deltas = 0;
  for (int step = 0; step < 2000; ++step) {
    const auto name = absl::StrCat("m", random.Below(20));
    if (there.insert(name).second) {
      models.Add(ModelNamed(name));
    } else {
      there.erase(name);
      models.Remove(ModelNamed(name));
    }
    if (random.Below(5) != 0) continue;
    const auto list = models.Since(std::exchange(told, models.revision()));
    ASSERT_TRUE(list.has_value());
    if (!list->added()) known.clear();
    deltas += list->added() ? 1 : 0;
    known.insert(list->digests().begin(), list->digests().end());
    for (const auto& digest : list->removed()) known.erase(digest);
    ASSERT_EQ(known, there) << "step " << step;
  }
  EXPECT_GT(deltas, 100u);
}

TEST(StateRooms, RoomIsTakenOnceAndGivenBack) {
  StateRooms rooms(Bytes(100));
  EXPECT_TRUE(rooms.Reserve(StateNamed("f/1@5"), Bytes(60)).ok());
  EXPECT_TRUE(rooms.Reserve(StateNamed("f/1@5"), Bytes(60)).ok());
  EXPECT_EQ(rooms.reserved(), Bytes(60));
  EXPECT_TRUE(absl::IsResourceExhausted(rooms.Reserve(StateNamed("g/1@5"), Bytes(60))));
  EXPECT_TRUE(absl::IsFailedPrecondition(rooms.Reserve(StateNamed("h/1@5"), Bytes(101))));
  rooms.Free(StateNamed("f/1@5"));
  EXPECT_TRUE(rooms.Reserve(StateNamed("g/1@5"), Bytes(60)).ok());
}

TEST(PeerCopyTable, WhatWaitsGoesOnWithTheAnswerAndAPinIsReleasedOnce) {
  PeerCopyTable copies;
  const auto first = copies.Ask(1, 0, ModelNamed("m"));
  EXPECT_TRUE(copies.Await(0, ModelNamed("m"), {{.model = ModelNamed("m")}, 7}));
  EXPECT_FALSE(copies.Await(0, ModelNamed("other"), {}));
  const auto waiting = copies.Answered(first, 5);
  ASSERT_TRUE(waiting.has_value());
  ASSERT_EQ(waiting->size(), 1u);
  EXPECT_EQ(waiting->front().serial, 7u);
  EXPECT_FALSE(copies.Await(0, ModelNamed("m"), {})) << "the copy is no longer waited for";
  const auto ended = copies.End(first);
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->pin, 5u);
  EXPECT_FALSE(copies.End(first).has_value());
  EXPECT_EQ(copies.size(), 0u);
}

TEST(PeerCopyTable, ALostDestinationReleasesWhatIsPinnedForItAndNoMore) {
  PeerCopyTable copies;
  const auto pinned = copies.Ask(1, 0, ModelNamed("a"));
  const auto asked = copies.Ask(1, 0, ModelNamed("b"));
  const auto other = copies.Ask(1, 2, ModelNamed("a"));
  copies.Answered(pinned, 5);
  copies.Answered(other, 6);
  const auto lost = copies.DestinationLost(0);
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_EQ(lost[0].pin, 5u);
  EXPECT_FALSE(copies.Answered(asked, 8).has_value()) << "the source has to be released at once";
  EXPECT_EQ(copies.End(other)->pin, 6u);
}

TEST(LostModels, TheHottestComesFirstAndEachOnce) {
  LostModels lost;
  lost.Add({ModelNamed("cold"), MiB(1), 1, Time(seconds(9))});
  lost.Add({ModelNamed("hot"), MiB(1), 5, Time(seconds(1))});
  lost.Add({ModelNamed("late"), MiB(1), 1, Time(seconds(10))});
  lost.Add({ModelNamed("hot"), MiB(2), 4, Time(seconds(1))});
  EXPECT_EQ(lost.hottest().bytes, MiB(2));
  EXPECT_EQ(lost.Take().copy, "hot");
  EXPECT_EQ(lost.Take().copy, "late");
  EXPECT_EQ(lost.Take().copy, "cold");
  EXPECT_TRUE(lost.empty());
}

TEST(UnreadOutputs, ARouterTakesItsOwnAndALostWorkerTakesAll) {
  UnreadOutputs unread;
  unread.Add({1, 1}, {.gpu = 0, .slices = {}});
  unread.Add({1, 2}, {.gpu = 1, .slices = {}});
  unread.Add({2, 1}, {.gpu = 1, .slices = {}});
  EXPECT_EQ(unread.Take({1, 1})->gpu, 0u);
  EXPECT_FALSE(unread.Take({1, 1}).has_value());
  EXPECT_EQ(unread.TakeOfRouter(1).size(), 1u);
  unread.ForgetGpu(1);
  EXPECT_FALSE(unread.Take({2, 1}).has_value());
}

}  // namespace
}  // namespace troupe::node::tables_test
