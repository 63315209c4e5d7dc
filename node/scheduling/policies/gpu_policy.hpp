// The `gpu` slot: on which GPU of the node a request runs, or whether it had better wait for a busy one, and
// whether its weights come from the host or from another GPU.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/policy.hpp"
#include "base/units.hpp"
#include "node/request.hpp"
#include "node/scheduling/locality_queue.hpp"
#include "node/scheduling/policies/eviction_policy.hpp"

namespace troupe::node {

// What is on its way from the host over the switch that a GPU is behind, for itself or for its neighbours.
enum class SwitchLoad { kNone, kLight, kHeavy };

// One GPU with a living worker, as seen by one request.
struct GpuOption {
  GpuIndex gpu = 0;
  bool has_model = false;  // resident, running or being loaded
  bool has_slot = false;   // its pipeline takes another request, and it is not held for another request
  bool fits = false;       // the model is there, or room can be made for it now
  std::uint32_t in_flight = 0;
  Bytes free{};         // without any eviction
  bool evicts = false;  // others have to go for the model
  // The victim that the eviction policy would let go last. It is looked for only where the policy weighs victims.
  EvictionRank victim = kNothingGoes;
  Duration backlog{};  // estimated time until what was dispatched is done
  Duration slower{};   // by how much the run takes longer than on the fastest kind of GPU of the node
  Duration load{};     // estimated time to bring the model from the host; zero when it is there
  Duration before{};   // what is on its way from the host already: to the GPU itself
  Duration beside{};   // and to others behind its switch
  SwitchLoad switch_load = SwitchLoad::kNone;
  // Of the GPUs that have the model, the one with the fastest link to this GPU; kNoGpu: none.
  GpuIndex peer = kNoGpu;
  Duration peer_load{};  // estimated time to bring the model from there
};

// The GPUs, and what else a choice may depend on.
struct GpuView {
  std::span<const GpuOption> options{};
  Duration load{};            // estimated time to bring the model from the host
  Duration queued{};          // what waits behind this request takes of the GPUs that have its model
  double link_pressure = 0;   // share of the time that the links from the host are busy; above 1: overloaded
  bool peer_links = false;    // models may come from another GPU
  bool loads_occupy = false;  // nothing runs on a GPU while a model comes
  std::uint32_t concurrency = 1;  // runs that compute on one GPU at a time; beyond them a request swaps ahead
  GpuIndex home = kNoGpu;         // of the model, with early binding; kNoGpu: no GPU can hold it
  std::uint64_t draw = 0;         // random bits, new for each choice
  // What is left until the request's deadline when a run on the fastest kind is taken off; Duration::max(): it
  // has none, or all GPUs are of one kind.
  Duration spare = Duration::max();
  // Share of the GPUs' time that requests take which are in time on some kinds only.
  double fast_wanted = 0;
};

enum class GpuVerdict {
  kRun,      // on `gpu`, now
  kWait,     // for `gpu`: it is busy, and still sooner than loading elsewhere
  kBlocked,  // no GPU takes it now
};
struct GpuChoice {
  GpuVerdict verdict = GpuVerdict::kBlocked;
  GpuIndex gpu = kNoGpu;
  GpuIndex peer =
      kNoGpu;  // with kRun, where the model is not: the GPU that it is copied from; kNoGpu: the host
  // With kWait: for that GPU even if another one were idle, so nothing that others do changes it.
  bool firm = false;
};

// What may be given to a GPU beyond what it runs.
enum class GpuQueues {
  kSwapAhead,  // as the limits say
  kNone,       // nothing: a request goes to an idle GPU
};

// What a node knows of the kinds of its GPUs.
enum class KindRule {
  kAware,  // times are learned and judged by kind
  kBlind,  // all GPUs are taken to be alike
};

// `choose` is pure. kRun only names a GPU with has_slot and fits, and as `peer` only that option's own; kWait
// only one with has_model. `early_binding`: each model has one GPU of the node, its home.
struct GpuPolicy {
  GpuChoice (*choose)(const GpuView&) = nullptr;
  bool early_binding = false;
  GpuQueues queues = GpuQueues::kSwapAhead;
  bool hits_first = false;  // where loads occupy their GPUs, requests whose model is there pass those without
  // Beneath runs: what waits for its model on a GPU takes no place from what could compute there, and what
  // could compute goes first.
  bool places_for_hits = false;
  KindRule kinds = KindRule::kAware;
  bool weighs_victims = false;  // the memory of all GPUs is one pool: what goes is a reason to choose a GPU
  // Decisions by GPU, as 003 has them; `choose` is for runtimes that serve one key each.
  std::optional<LocalityRules> locality{};
};

// `resident-first`: the GPU with the earliest estimated end, residents before loads: an idle GPU
//   that has the model; else a busy one that has it and is done before another could have loaded it (wait for
//   it when its pipeline is full); else the emptiest GPU, most free memory first. A model that many wait for
//   gets a copy more. Where loads occupy their GPUs a copy that fits beside the others is made sooner, for
//   those to come, and one that pushes others out later.
// `least-cost` (default): where the request ends first, when what it takes from others is counted too: a load
//   from the host keeps the link from those behind it, the longer the busier the links are, and what it
//   evicts comes again over the same link. So copies are made while links are idle, and none when they are
//   scarce; between GPUs they cost the host nothing. Where loads occupy their GPUs it is `resident-first`.
//   Where kinds of GPUs differ its own run counts as it takes on each. A GPU on which a run alone would make
//   the request late is left out as long as there is one on which it would not. While some requests are in
//   time on fast GPUs only, those that have time to spare, or are late, go to slower ones.
// `least-cost-kind-blind`: the same, all GPUs taken to be alike, for comparison.
// `most-free`: the GPU with the least in flight, then the most free memory; residency only breaks ties.
// `interference-aware`: Torpor's Algorithm 1 (002, 5.3), over the GPUs that are idle, or when none is, over
//   those that swap ahead: one that has the model; else a copy over the fastest peer link from one that has
//   it; else from the host, to a GPU whose switch is free, or else used by light models only, or else to any.
//   The memory of all GPUs is one pool (5.4): among GPUs that this does not tell apart it is the one whose
//   victims the eviction policy would let go first.
//   Where no link reaches from a holder (the paper's machine has links between all) it is judged as
//   `resident-first` does: the busy holder, if that is sooner than a load from the host.
// `random`: one that has the model, else any idle one by lot, from the host (Torpor-Random, 002, 7.3).
// `bound`: early binding: the model's home, or wait for it.
// `first-idle`: whichever GPU is idle, whether it has the model or not (003's baseline).
// `lalb`, `lalb-o3`, `lalb-o3=LIMIT`: locality-aware load balancing (003): by GPU, each with a queue of its
//   own; others pass a request at most once, 25 or LIMIT times. `lalb-o3-printed`: the same, scanning the
//   queue.
[[nodiscard]] std::span<const PolicyEntry<GpuPolicy>> GpuPolicies();
[[nodiscard]] absl::StatusOr<GpuPolicy> FindGpuPolicy(std::string_view name);

}  // namespace troupe::node
