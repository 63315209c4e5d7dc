// NODE: one node of the cluster, as a state machine: it hears what happens and returns what is to be done. No
// clock, thread, I/O or callback: time is an argument, and whatever it asks for comes back as an event.
//
// Use: On(Started()) first; then one On for each event, whose effects are carried out in their order before
// the next event; On(Stopping()) last. An event that comes while effects are carried out (a file that was
// written at once) may be told at once.
//
// What it has lost with its process it learns again: the executors' reports say what workers hold, the
// manager which models are to be here, the routers what they wait for.
#pragma once

#include <cstddef>
#include <memory>

#include "node/effects.hpp"
#include "node/events.hpp"
#include "node/settings.hpp"
#include "proto/admin.pb.h"

namespace troupe::node {

struct Parts;

class Node {
 public:
  Node(NodeSettings settings, SchedulerPolicies policies);
  ~Node();

  [[nodiscard]] Effects On(Event event, Time now);

  // What an operator sees, without what only the workers know.
  [[nodiscard]] proto::NodeDescription Describe(Time now) const;
  // What the worker of a runtime says of itself, into such a description.
  void AddWorker(GpuIndex gpu, proto::WorkerDescription worker, proto::NodeDescription& node, Time now);
  // For an order that the caller gives by itself: no other order has this number.
  [[nodiscard]] std::uint64_t NumberOrder();
  // Worker processes, on all GPUs together.
  [[nodiscard]] std::uint32_t runtimes() const;
  // Texts that have a number inside (node/names.hpp): of a node that has forgotten everything, none.
  [[nodiscard]] std::size_t names() const;

 private:
  std::unique_ptr<Parts> parts_;
};

}  // namespace troupe::node
