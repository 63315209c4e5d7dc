#include "cluster/event_log.hpp"

#include <gtest/gtest.h>

namespace troupe::cluster::event_log_test {
namespace {

proto::Event EventOf(const std::string& message, const std::string& kind = "") {
  proto::Event event;
  event.set_kind(kind);
  event.set_message(message);
  return event;
}

TEST(EventLog, KeepsTheNewestAndNumbersWithoutGaps) {
  EventLog log(3);
  EXPECT_TRUE(log.After(0, 0).empty());
  for (int i = 1; i <= 5; ++i) EXPECT_EQ(log.Add(EventOf(std::to_string(i))), static_cast<std::uint64_t>(i));
  EXPECT_EQ(log.size(), 3u);
  struct Case {
    std::uint64_t after;
    std::size_t limit;
    std::vector<std::uint64_t> expected;
  };
  const Case cases[] = {{0, 0, {3, 4, 5}}, {0, 2, {4, 5}}, {3, 0, {4, 5}}, {3, 1, {4}},
                        {5, 0, {}},        {9, 4, {}},     {1, 2, {3, 4}}};
  for (const Case& c : cases) {
    const auto events = log.After(c.after, c.limit);
    ASSERT_EQ(events.size(), c.expected.size()) << c.after << " " << c.limit;
    for (std::size_t i = 0; i < events.size(); ++i) EXPECT_EQ(events[i].sequence(), c.expected[i]);
  }
}

TEST(EventLog, WhatHappensAllTheTimeDoesNotPushOutWhatIsRare) {
  EventLog log(10);
  log.Add(EventOf("", "worker-down"));
  for (int i = 0; i < 1000; ++i) log.Add(EventOf("", kSwapEvent));
  log.Add(EventOf("", "worker-ready"));
  for (int i = 0; i < 1000; ++i) log.Add(EventOf("", kSwapEvent));
  const auto events = log.After(0, 0);
  ASSERT_EQ(events.size(), 10u);
  EXPECT_EQ(events[0].sequence(), 1u);
  EXPECT_EQ(events[1].sequence(), 1002u);
  for (std::size_t i = 2; i < 10; ++i) EXPECT_EQ(events[i].sequence(), 1993 + i) << "the newest events stay";
  EXPECT_EQ(log.After(1, 1)[0].sequence(), 1002u);
  EXPECT_EQ(log.After(0, 9)[0].sequence(), 1002u);
  // Two frequent kinds do not push the rare one out either, nor does a kind for each event.
  for (int i = 0; i < 1000; ++i) log.Add(EventOf("", i % 2 == 0 ? kSwapEvent : "model-loaded"));
  EXPECT_EQ(log.After(0, 0)[0].sequence(), 1u);
  for (int i = 0; i < 100; ++i) log.Add(EventOf("", std::to_string(i)));
  EXPECT_EQ(log.size(), 10u);
}

TEST(EventLog, LongTextsAreCutBetweenCharacters) {
  EventLog log;
  std::string text(EventLog::kMaxText - 1, 'a');
  text += "\xc3\xa4\xc3\xa4";
  log.Add(EventOf(text));
  EXPECT_EQ(log.After(0, 0)[0].message(), std::string(EventLog::kMaxText - 1, 'a'));
}

}  // namespace
}  // namespace troupe::cluster::event_log_test
