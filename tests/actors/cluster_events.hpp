// What the cluster's log of events says to the tests of the actors.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sim/world.hpp"

namespace troupe::actors {

// The events of one kind, in the cluster's order.
inline std::vector<proto::Event> EventsOfKind(sim::World& world, const std::string& kind) {
  proto::AdminRequest request;
  request.mutable_list_events();
  const auto reply = world.Ask(request);
  EXPECT_TRUE(reply.ok()) << reply.status();
  std::vector<proto::Event> events;
  for (const auto& event : reply->events())
    if (event.kind() == kind) events.push_back(event);
  return events;
}

inline std::vector<std::string> MessagesOfKind(sim::World& world, const std::string& kind) {
  std::vector<std::string> messages;
  for (const auto& event : EventsOfKind(world, kind)) messages.push_back(event.message());
  return messages;
}

}  // namespace troupe::actors
