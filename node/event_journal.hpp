// EVENT JOURNAL: what a node has to tell the cluster, `capacity` events of it, until the manager has heard
// them. When it is full, the oldest event of the most frequent kind goes (cluster::EventLog), and an
// "events-lost" event says how many are missing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "cluster/event_log.hpp"
#include "proto/cluster.pb.h"

namespace troupe::node {

class EventJournal {
 public:
  explicit EventJournal(std::size_t capacity = 256) : log_(capacity) {}

  void Note(const std::string& kind, const std::string& message, Time now);
  // The oldest behind number `heard`, at most kMostAtOnce, each with its age.
  [[nodiscard]] std::vector<proto::Event> After(std::uint64_t heard, Time now) const;

  static constexpr std::size_t kMostAtOnce = 32;

 private:
  cluster::EventLog log_;  // unix_ns holds the time of the actors' clock
};

}  // namespace troupe::node
