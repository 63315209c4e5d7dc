// What the swap scheduler knows of each request, model and function. Plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "node/names.hpp"
#include "node/request.hpp"
#include "node/scheduling/arrival_forecast.hpp"
#include "node/scheduling/gpu.hpp"
#include "node/scheduling/model_demand.hpp"
#include "node/scheduling/policies/eviction_policy.hpp"
#include "node/state/function_states.hpp"
#include "scheduling/cost_model.hpp"
#include "scheduling/ordering_policy.hpp"

namespace troupe::node {

// What every look at it reads comes first.
struct RequestEntry {
  ModelId model = kNoModel;  // of request.model
  OrderingKey key{};
  Time arrival{};
  Time latest = Time::max();  // when it has to begin to be in time, where late ones yield
  GpuIndex gpu = kNoGpu;      // where it was dispatched to; kNoGpu: it waits
  GpuIndex hold = kNoGpu;     // the GPU that is kept for it while it waits
  std::uint32_t attempts = 0;
  std::uint32_t replans = 0;
  std::uint32_t passed = 0;
  bool suspect = false;  // its last worker died: runs alone
  bool pinned = false;   // its model is still on that GPU
  bool hit = false;
  bool cancelled = false;  // in flight, and its answer is not wanted any more
  bool expired = false;    // in flight, and too late
  bool alone = false;      // nothing was in flight on its GPU when it was dispatched
  bool host_only = false;  // a copy from another GPU has failed
  bool brings_state = false;
  bool books_state = false;        // and its GPU had no room for it before
  bool whole = false;              // by layer it found no room
  bool apart = false;              // a batch that it was in failed: it has a run of its own
  RequestEntry* leader = nullptr;  // on a GPU: the request whose run answers this one, too; null: its own
  Time company_until =
      Time::min();                  // it waits for company until then; Time::min(): its turn has not come yet
  Time asked_before = Time::min();  // when its model was asked for before it
  SwapSource source = SwapSource::kResident;
  RunClaim claim{};  // of its GPU, since its dispatch
  Duration queued{};
  NodeRequest request{};
};

// One entry for each model that the node has adopted, that workers still have, or that requests
// still run. The fields that every look at a request reads come first, up to whether the key is empty: one line of the
// cache.
struct alignas(64) ModelEntry {
  Bytes weights{};
  Bytes activation{};
  RunningEstimate load{};    // from the host, on GPUs of the first kind
  CostModel::Id cost = 0;    // what its digest costs
  GpuIndex parked = kNoGpu;  // whose next outcome its requests wait for (WaitingQueue)
  bool adopted = false;
  bool in_region = true;
  bool may_want_copy = false;
  bool prepared = false;  // what its runs take is known
  std::uint32_t requests = 0;
  std::string key{};              // whose copy it is
  Time asked = Time::min();       // last
  RunningEstimate gap{};          // between its requests
  RunningEstimate patience{};     // how long requests with a deadline have until it
  Time kept_until = Time::min();  // for a request that is foreseen
  RecentRate asks{};              // its requests, where models are prefetched
  ArrivalForecast forecast{};
  Time bring_from = Time::max();    // for the same; Time::max(): it need not come, or is there
  ByKind<RunningEstimate> loads{};  // from the host, on GPUs of the other kinds
};

struct FunctionEntry {
  std::uint32_t requests = 0;    // of this node
  std::uint32_t dispatched = 0;  // of them
  GpuIndex gpu = kNoGpu;         // of the latest dispatch
};

// A request as a decision looks at it from GPU after GPU.
struct RequestLook {
  const RequestEntry& entry;
  const ModelEntry& model;
  const FunctionStates::State* state;  // null: it has none
  Bytes whole;                         // what it needs of an empty GPU
  Duration load;                       // shortest estimated time to bring the model from the host
};

// A model that may go for another one.
struct Victim {
  EvictionRank rank{};
  ModelId model = kNoModel;
  Bytes bytes{};
};

// A prefetch.
struct PrefetchPlan {
  GpuIndex gpu = kNoGpu;
  std::vector<ModelId> victims{};
  double loss = 0;  // seconds a second
};

// What NoFit taught about one model on one GPU, until its worker is replaced.
struct FitHint {
  Bytes extra{};            // room to make beyond the estimate
  bool impossible = false;  // it did not fit into the empty GPU
};

}  // namespace troupe::node
