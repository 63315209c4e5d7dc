// PARTS: what a node is made of. Each part owns one concept and its tables, and reaches the others through
// their public functions. Private to node/: node::Node (node.hpp) is what others see.
#pragma once

#include <utility>

#include "node/gpu_kinds.hpp"
#include "node/membership.hpp"
#include "node/models/broadcast_rounds.hpp"
#include "node/models/evictions.hpp"
#include "node/models/host_copies.hpp"
#include "node/models/kept_profiles.hpp"
#include "node/models/models.hpp"
#include "node/models/orphans.hpp"
#include "node/models/peer_copies.hpp"
#include "node/models/preparation.hpp"
#include "node/models/refill.hpp"
#include "node/models/remembered.hpp"
#include "node/models/swaps.hpp"
#include "node/models/trials.hpp"
#include "node/names.hpp"
#include "node/outbox.hpp"
#include "node/profiling/model_profiles.hpp"
#include "node/profiling/profile_trials.hpp"
#include "node/requests/requests.hpp"
#include "node/requests/routers.hpp"
#include "node/runtimes/orders.hpp"
#include "node/runtimes/runtimes.hpp"
#include "node/scheduling/decisions.hpp"
#include "node/scheduling/dispatches.hpp"
#include "node/scheduling/swap_scheduler.hpp"
#include "node/settings.hpp"
#include "node/state/handovers.hpp"
#include "node/state/replica_images.hpp"
#include "node/state/replication.hpp"
#include "node/state/sequences.hpp"
#include "node/state/states.hpp"
#include "node/state/write_backs.hpp"
#include "node/tensors/kept_tensors.hpp"
#include "node/tensors/tensor_copies.hpp"
#include "node/usage/metering.hpp"
#include "node/view.hpp"

namespace troupe::node {

struct Parts {
  Parts(NodeSettings given, SchedulerPolicies policies)
      : settings(std::move(given)),
        kinds(settings.gpus, policies.gpu.kinds),
        scheduler(settings.scheduler, policies, settings.costs, settings.topology) {}
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;

  // Tells an event to all parts that it concerns, in the order that they need: a part that looks something up at the
  // scheduler hears it before the scheduler does.
  void Hear(const RuntimeLost& event);
  void Hear(const RuntimeReassigned& event);
  void Hear(const RouterLost& event);
  void Hear(const Joined& event);

  const NodeSettings settings;
  GpuKinds kinds;
  Names names;  // numbers of all that the other parts hold
  Outbox out;
  SwapScheduler scheduler;

  Membership membership{*this};
  // requests/
  Requests requests{*this};
  Routers routers{*this};
  // scheduling/
  Decisions decisions{*this};
  Dispatches dispatches{*this};
  // runtimes/
  Orders orders{*this};
  Runtimes runtimes{*this};
  // models/
  Models models{*this};
  HostCopies copies{*this, settings.copies};
  Preparation preparation{*this, runtimes.size()};
  Swaps swaps{*this};
  Evictions evictions{*this};
  PeerCopies peer_copies{*this};
  BroadcastRounds broadcasts{*this};
  Trials trials{*this};
  Refill refill{*this, runtimes.size()};
  Orphans orphans{*this, runtimes.size()};
  Remembered remembered{*this};
  KeptProfiles profiles{*this};
  // profiling/
  ModelProfiles model_profiles{*this};
  ProfileTrials profile_trials{*this};
  // state/
  States states{*this, runtimes.size(), settings.state_memory};
  Sequences sequences{*this};
  WriteBacks write_backs{*this};
  Handovers handovers{*this};
  Replication replication{*this};
  ReplicaImages replica_images{*this};
  // tensors/
  KeptTensors kept_tensors{*this};
  TensorCopies tensor_copies{*this};
  // usage/
  Metering metering{*this, settings};

  View view{*this, runtimes.size()};
};

}  // namespace troupe::node
