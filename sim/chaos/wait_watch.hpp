// WAIT WATCH: whether a request waits for an event that does not come. When nothing has happened at a node's workers for a
// while and nothing is under way there, nor is the node to decide soon, the watch has it decide once more. A node that decides
// after each event, and when its last decision said, gives no run and no runtime then: it would have done so before.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "sim/chaos/chaos_cluster.hpp"

namespace troupe::sim {

class WaitWatch {
 public:
  explicit WaitWatch(ChaosCluster& cluster) : cluster_(cluster) {}

  // Looks from now on, again and again.
  void Begin();
  // A line for each request, at most, that waited for nothing.
  [[nodiscard]] const std::vector<std::string>& broken() const { return broken_; }
  // The error on purpose: from now on nodes do not hear when the next decision that they wanted is due.
  void ForgetWakeups();

 private:
  // Of each worker: its starts, the runs that it was given, whom it serves.
  using Seen = std::vector<std::tuple<std::uint64_t, std::uint64_t, std::string>>;
  [[nodiscard]] bool Quiet(const std::string& node);
  [[nodiscard]] Seen Look(const std::string& node);
  void Watch();
  void Try(const std::string& node);
  [[nodiscard]] bool DecidesSoon(const std::string& node);
  void DropWakeups();
  // Calls visit(actor, due, tick) with each timer of an actor.
  template <class Visit>
  void ForEachWakeup(const Visit& visit);

  ChaosCluster& cluster_;
  std::map<std::string, Seen> quiet_;  // the nodes that were quiet at the last look, and what was seen there
  std::vector<std::string> broken_;
};

}  // namespace troupe::sim
