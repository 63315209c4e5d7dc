// CLUSTER: what the manager of a cluster decides, as a state machine: it hears what happens and returns what
// is to be done. It has no clock, thread, I/O or callback: time is an argument, and the answer to each thing that
// it asks for comes back as an event.
//
// Use: On(Started()) first; then one On for each event, whose effects are carried out in their order before
// the next event. An event that comes while effects are carried out may be told at once.
//
// A change is answered after it is durable, never before: an Answer comes behind the Committed of its Commit.
// After a restart the catalogue is read from the store, and members join again.
#pragma once

#include <memory>

#include "cluster/effects.hpp"
#include "cluster/events.hpp"
#include "cluster/records/catalogue.hpp"
#include "cluster/settings.hpp"

namespace troupe::cluster {

struct Parts;

class Cluster {
 public:
  Cluster(ClusterSettings settings, Catalogue catalogue);
  ~Cluster();

  // `unix_now`: nanoseconds since 1970, for records that people read.
  [[nodiscard]] Effects On(Event event, Time now, std::int64_t unix_now);

  [[nodiscard]] const Catalogue& catalogue() const;

 private:
  std::unique_ptr<Parts> parts_;
};

}  // namespace troupe::cluster
