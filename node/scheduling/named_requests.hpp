// NAMED REQUESTS: requests whose router has named a GPU (cluster/requests/gpu_turns.hpp). The node obeys: such a request
// runs on that GPU or leaves this node, and no gpu policy is asked. The line of requests that are dispatched to one GPU is
// its queue. Three things are stronger than a name: a function with state runs where its state is, a function that owns
// parts of GPUs runs on those, and a GPU that is kept for another request drains first.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "node/scheduling/scheduler_tables.hpp"

namespace troupe::node {

struct SchedulerParts;

class NamedRequests {
 public:
  NamedRequests(SchedulerParts& parts, SchedulerTables& tables) : parts_(parts), tables_(tables) {}

  // Dispatches what can be dispatched, in the order of the requests.
  void Decide(Time now);
  // Why the request may not enter, or not stay; OK: it may. FailedPrecondition: at no node; else: not here, or not now.
  [[nodiscard]] absl::Status Refuse(const NodeRequest& request, ModelId model) const;
  // Its worker is gone: what waits for the GPU leaves this node.
  void BounceFrom(std::uint32_t device, const std::string& why, Consequences& effects);

 private:
  // Where the request may go now; nothing: it waits.
  [[nodiscard]] std::optional<GpuIndex> PlaceFor(const RequestEntry& entry) const;

  SchedulerParts& parts_;
  SchedulerTables& tables_;
};

}  // namespace troupe::node
