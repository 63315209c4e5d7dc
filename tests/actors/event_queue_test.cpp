#include "actors/core/event_queue.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace troupe::actors {
namespace {

// Each event has two effects, named after it.
struct Doubler {
  std::vector<std::string> On(const std::string& event, int now) {
    return {event + "1@" + std::to_string(now), event + "2@" + std::to_string(now)};
  }
};

TEST(EventQueue, WhatAnEffectLeadsToComesBehindTheOtherEffects) {
  EventQueue<Doubler, std::string> queue;
  std::vector<std::string> carried;
  int now = 0;
  const auto clock = [&now] { return ++now; };
  const auto carry_out = [&](auto& self, const std::string& effect) -> void {
    carried.push_back(effect);
    const auto next = [&](const std::string& each) { self(self, each); };
    if (effect == "a1@1") queue.On("b", next, clock);
    if (effect == "b1@2") queue.On("c", next, clock);
  };
  queue.On(
      "a", [&](const std::string& effect) { carry_out(carry_out, effect); }, clock);
  EXPECT_THAT(carried, testing::ElementsAre("a1@1", "a2@1", "b1@2", "b2@2", "c1@3", "c2@3"));
  queue.On(
      "d", [&](const std::string& effect) { carry_out(carry_out, effect); }, clock);
  EXPECT_EQ(carried.back(), "d2@4") << "it goes on with later events";
}

}  // namespace
}  // namespace troupe::actors
