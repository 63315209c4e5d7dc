// What the network of a simulated cluster is like (sim/network.hpp). Plain data.
#pragma once

#include <cstdint>

#include "base/units.hpp"

namespace troupe::sim {

struct NetworkOptions {
  Duration delay = std::chrono::microseconds(200);  // of a message, one way
  Duration jitter{};                                // up to so much more, drawn for each message
  Duration connection_timeout = std::chrono::seconds(1);
  Duration reconnect = std::chrono::milliseconds(100);  // from a loss to a new connection, at least
  std::uint64_t seed = 1;                               // of the jitter
};

}  // namespace troupe::sim
