// What goes into the node's decisions and what comes out: requests, orders to executors, and their outcomes.
// Plain data.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "base/units.hpp"
#include "node/names.hpp"
#include "proto/request.pb.h"

namespace troupe::node {

struct RequestId {
  std::uint64_t router = 0;
  std::uint64_t sequence = 0;
  auto operator<=>(const RequestId&) const = default;
  template <class Hash>
  friend Hash AbslHashValue(Hash hash, const RequestId& id) {
    return Hash::combine(std::move(hash), id.router, id.sequence);
  }
};

using GpuIndex = std::uint32_t;
inline constexpr GpuIndex kNoGpu = ~GpuIndex{0};

// Which requests may be answered by one run: those with the same `kind` of one function.
struct BatchTerms {
  std::string kind{};      // the function's version and precision; "": the request has a run of its own
  std::uint32_t rows = 1;  // its leading dimension
  std::uint32_t most = 1;  // rows of the run
  Bytes inlined{};         // of its inputs, that lie in the order to the worker
};

// What the profiles of a function say of such a run, by the kind of the GPU; zero, or absent: nothing.
using ProfiledRuns = absl::InlinedVector<Duration, 2>;

// A request as the scheduler sees it; its tensors stay with their owner.
struct NodeRequest {
  RequestId id{};
  FunctionNumber function{};
  ModelNumber model{};  // its copy for the key of this request (node/runtimes/isolation.hpp)
  std::uint32_t priority = 0;
  Time deadline = Time::max();  // target: only orders
  Time expiry = Time::max();    // timeout: drops
  double percentile = 0;        // of the function's SLO; 0: the default
  bool trial = false;         // of the node itself, to learn what its model costs: not counted among requests
  StateNumber state{};        // the device state that its run reads and advances; none: it has no state
  bool begins_state = false;  // with zeros, whatever is there
  std::uint32_t sm_percent = 100;  // of a GPU's SMs that its run takes
  // Runs of its function that one GPU is given at a time, at most; 0: as many as it has places for.
  std::uint32_t most_on_gpu = 0;
  Bytes gpu_mem{};  // of one GPU that its function may take, with the weights; zero: no limit
  // Its function has a quota: those runs have places of their own, which no other function fills.
  bool own_places = false;
  BatchTerms batch{};
  // A trial of a profile runs on this GPU alone, and its times say nothing of other runs. kNoGpu: none.
  std::uint32_t profiled_on = kNoGpu;
  ProfiledRuns profiled_runs{};
  // The device that its router names: it runs there or, when that has no worker, not at this node. kNoGpu: none.
  std::uint32_t named = kNoGpu;
};

// Where the weights of a dispatched request come from: they are there (or on their way already), or they are
// copied from the host region, or from another GPU of the node; or they only pass through the GPU from the
// host region while the run reads them, layer by layer, and the model is not there before or after. Or they
// come from another GPU as that one gets them from the host (node/scheduling/broadcasts.hpp).
enum class SwapSource { kResident, kHost, kPeer, kLayers, kBroadcast };

// One decision: GPU, source and victims together. The node sends the worker, in this order: an eviction per
// victim, the swap-in unless the model is there or passes through, the run. Dispatches of one GPU are carried
// out in the order in which they were decided. Reported back: EvictDone per victim, SwapInDone when there was
// a swap-in, and exactly one RunDone per dispatch, last (also when the swap-in failed and no run was
// ordered). The model stays on the GPU that it is copied from until SwapInDone, unless that GPU's worker
// dies.
struct Dispatch {
  RequestId request{};
  std::vector<RequestId> members{};  // further requests that its run answers: RunDone tells of all of them
  ModelNumber model{};
  GpuIndex gpu = 0;
  SwapSource source = SwapSource::kResident;
  GpuIndex peer = kNoGpu;  // with kPeer, kBroadcast: the GPU that it comes from
  std::vector<ModelNumber> victims{};
  std::vector<StateNumber> leaving{};  // states of other sequences of the model, that make room for its own
  std::uint32_t attempt = 1;           // 1: the first worker that is given this request
  Duration queued{};                   // time it waited at this node
  Time deadline = Time::max();         // when its run has to begin: orders what shares a link, and runs
  Time expiry = Time::max();           // for RunOrder.timeout_ns
  StateNumber state{};                 // of the request
  bool ahead = false;                  // a prefetch: there is none, and no run; it yields on the link
  bool bring_state = false;  // it goes to the worker before the run, with the swap-in if there is one
};

struct EvictDone {
  GpuIndex gpu = 0;
  ModelNumber model{};
  absl::Status status{};  // not OK: the model is still there
};
struct SwapInDone {
  GpuIndex gpu = 0;
  ModelNumber model{};
  absl::Status status{};
  Bytes device_bytes{};  // what the weights take on the device; zero: as estimated
  Duration took{};
};
enum class RunEnd {
  kRan,          // the worker answered: `status` is the result
  kNoFit,        // the swap-in or the run found no room: planned again
  kNotResident,  // the run was refused since the model is not on the device, or its copy from another GPU
                 // failed: planned again
  kNoState,  // the run was refused since the state of its function is not on the device, which may have the model: planned
  // again
  kNotOrdered,  // its model was taken off the node before its orders were given, or what was to make room for it
                // stays: planned again, and what the device has of the model is still there
};
struct RunDone {
  GpuIndex gpu = 0;
  RequestId request{};
  RunEnd end = RunEnd::kRan;
  absl::Status status{};
  Duration took{};  // copies and compute
  // Some weights came while it ran, so that `took` is not the time of a resident run.
  bool waited_for_weights = false;
  bool brought_state = false;  // the state that its dispatch was to bring has come
  bool spoiled_state = false;  // what the GPU has now is not the state: it is brought with the next run
  Duration computed{};         // its time on the device, when no weights came meanwhile; zero: not known
  bool cut = false;            // at its run limit
  Duration pause{};            // until its function has time on the GPU again; zero: it has
  Duration since_swap{};       // from the begin of its own swap-in to its end; zero: it had none
  Bytes free{};                // of NoFit
  Bytes largest{};             // of NoFit
};
struct ResidentReport {
  ModelNumber model{};
  Bytes bytes{};
};
struct WorkerReady {  // new or adopted
  GpuIndex gpu = 0;
  Bytes memory{};
  Bytes free{};
  std::vector<ResidentReport> resident{};
  bool peer_copies = false;   // it can copy models from other GPUs
  bool assigned = true;       // false: it serves no key yet
  std::string key{};          // whom it serves
  Bytes strange{};            // of models that it has, and this node does not know
  bool broadcasts = false;    // it can send models to other GPUs as they come, and get them so
  bool found_states = false;  // what it has may be newer states of functions than this node has read
};
struct WorkerLost {  // died, or hung and about to be killed
  GpuIndex gpu = 0;
  std::string why{};
};
// An order to make a runtime serve another key: its worker is told the key, or, when it has served before,
// replaced by a new one. Reported back: WorkerReady, or WorkerLost when that has failed.
struct Assignment {
  GpuIndex gpu = 0;
  bool assigned = true;  // false: no key, the runtime is given back
  std::string key{};
  bool fresh = false;  // its worker has served before
  std::string from{};  // whom
};
struct GpuUnfit {  // no worker will come: a device error that a restart does not clear
  GpuIndex gpu = 0;
  std::string why{};
};

// How a request left the node. Exactly one per accepted request.
enum class FinishKind { kServed, kFailed, kExpired, kCancelled, kBounced };
struct Finished {
  RequestId id{};
  FinishKind kind = FinishKind::kServed;
  absl::Status status{};
  proto::BounceReason bounce = proto::BOUNCE_UNSPECIFIED;  // with kBounced
  std::uint32_t attempts = 0;
  GpuIndex gpu = kNoGpu;
  bool hit = false;   // the model was on the GPU when the request was dispatched
  Duration queued{};  // until its last dispatch
};
struct InFlight {
  RequestId request{};
  GpuIndex gpu = 0;
};
struct Eviction {
  GpuIndex gpu = 0;
  ModelNumber model{};
};

// What an event of the scheduler leads to, besides the next decision.
struct Consequences {
  std::vector<Finished> finished{};  // answer these
  // Requests that were cancelled, for the worker; a RunDone still ends them.
  std::vector<InFlight> cancel{};
  std::vector<Eviction> evictions{};  // order these; each is reported by an EvictDone

  // What more events led to, before anything was decided anew.
  void Add(Consequences more) {
    std::ranges::move(more.finished, std::back_inserter(finished));
    std::ranges::move(more.cancel, std::back_inserter(cancel));
    std::ranges::move(more.evictions, std::back_inserter(evictions));
  }
};

// Everything that one step of the scheduler decided, in the order in which it has to be carried out.
struct Decision {
  std::vector<Dispatch> dispatches{};  // requests, on their way to GPUs
  std::vector<Dispatch> prefetches{};  // models ahead of requests; each is reported by its SwapInDone alone
  std::vector<Eviction> departures{};  // models that leave a runtime, with their states, before it is taken
  std::vector<Assignment> assignments{};  // runtimes that are to serve another key
  // Models that requests wait for and that are not in the host region, the most urgent first.
  std::vector<ModelNumber> wanted{};
  Time due = Time::max();  // when to decide again, and to expire, if nothing happens before
};

}  // namespace troupe::node
