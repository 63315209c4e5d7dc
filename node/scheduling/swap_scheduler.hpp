// SWAP SCHEDULER: decides which request runs on which GPU of this node, where its weights come from and which
// models are evicted for it: one decision gives all three. Pure: no clock, no thread, no I/O; the node
// controller owns it, feeds it every outcome and carries out what it returns.
//
// It is made of parts that own one concept each (node/scheduling/scheduler_parts.hpp).
//
// Use: after any Submit or Apply call Decide(now) and carry out the Decision, in its order; arm one timer at
// its `due` for Expire.
//
//   a request:  waiting -> dispatched -> finished        exactly one Finished per accepted request
//               dispatched -> waiting         NoFit: planned again; its worker died: run again, at most
//                                             `max_attempts` times
//
// Runtimes: a request runs only on a runtime that serves its key (node/runtimes/isolation.hpp). When none
// does, a warm one is assigned, or the coldest idle one is taken away from another key, never while it runs;
// a runtime that others keep busy is held for a request that was passed too often, drains, and is taken. With
// the default, one shared runtime per GPU, none of this happens.
//
// Order: the ordering policy's; the gpu policy says where, or to wait for a busy GPU. A request that cannot
// be placed yet is passed by others at most `max_passed` times, then the next GPU is held for it, so no
// request waits for ever on a node with a living GPU (with early binding: with its own GPU living). A request
// that lost a worker runs alone, so that the guilty one is found and no other suffers.
//
// Models and functions come and go by their numbers (node/names.hpp), and tables keep what is known of them. A
// model has a row in the tables as long as it is adopted, on a GPU, or in a request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "node/scheduling/scheduler_view.hpp"

namespace troupe::node {

class SwapScheduler : public SchedulerView {
 public:
  SwapScheduler(SchedulerLimits limits, SchedulerPolicies policies, CostDefaults costs = {},
                Topology topology = {});

  // GPUs. A GPU is known before its worker is; WorkerReady makes it usable.
  void AddGpu(GpuIndex gpu, Bytes memory) { AddRuntime(gpu, memory, gpu); }
  // Adds one of several runtimes of a device: all that is said of GPUs here is true of each of them. `kind` is that of the
  // device; the kinds of the GPUs have the numbers from 0, with none left out.
  void AddRuntime(GpuIndex gpu, Bytes memory, std::uint32_t device, KindId kind = 0);
  Consequences Apply(const WorkerReady& ready, Time now) { return parts_.workers.Apply(ready, now); }
  Consequences Apply(const WorkerLost& lost, Time now) { return parts_.workers.Apply(lost, now); }
  Consequences Apply(const GpuUnfit& unfit, Time now) { return parts_.workers.Apply(unfit, now); }
  // An adopted worker holds models that a new daemon learns of later: call this before DescribeModel.
  void FoundResident(GpuIndex gpu, const ResidentReport& report, Time now) {
    parts_.workers.FoundResident(gpu, report, now);
  }
  // An orphaned model was evicted: its room is free.
  void OrphanGone(GpuIndex gpu, Bytes bytes) { parts_.tables.gpus.OrphanGone(gpu, bytes); }

  // Models with a host copy at this node; others are bounced (BOUNCE_NOT_ADOPTED). Describing one again,
  // after it was prepared, replaces the sizes (what cannot fit any more ends). `activation`: what a run takes;
  // none: the model is not prepared yet. Forgetting bounces its waiting requests and evicts its copies, those in
  // use when their use ends.
  Consequences DescribeModel(const ModelNumber& model, Bytes weights, std::optional<Bytes> activation);
  Consequences ForgetModel(const ModelNumber& model);
  // A model whose host copy is on disk only, or on its way, keeps its requests waiting: nothing is dispatched
  // for it, and its requests delay no others. A described model is in the region until told otherwise.
  void SetInRegion(const ModelNumber& model, bool in_region);
  // Replaces the parts of this node's GPUs that the function owns. Where models have a GPU for good by policy, it
  // changes nothing.
  void SetOwned(const FunctionNumber& function, std::vector<OwnedGpus::Part> parts);
  [[nodiscard]] bool HasOwners() const { return !parts_.tables.rights.owned.empty(); }
  // What the function owns of the GPU; null: nothing.
  [[nodiscard]] const OwnedGpus::Part* OwnedOn(const FunctionNumber& function, const ModelNumber& model,
                                               std::uint32_t device) const {
    return parts_.tables.rights.owned.PartOn(function, model, device);
  }
  // What a profile says of a model's runs on one kind of GPU; zero: nothing.
  void SetProfiled(const std::string& model, Duration run, KindId kind) {
    parts_.tables.times.costs.SetProfiled(model, run, kind);
  }
  void RestoreCosts(const std::vector<ModelCost>& known, const ByKind<double>& nanos_per_byte) {
    parts_.tables.times.costs.Restore(known, nanos_per_byte);
  }

  // A worker has made the plan for runs of so many rows, which take so much memory: requests may be joined.
  void BatchPrepared(GpuIndex gpu, const ModelNumber& model, std::uint32_t rows, Bytes activation) {
    if (Knows(model))
      parts_.tables.models.batches.Prepared(parts_.tables.models.Find(model), gpu, rows, activation);
  }

  // Functions that keep state on the device. A request that names one runs where the state is; its dispatch
  // says when the state has to be brought. `bytes`: what it takes on a device. Forgetting one bounces its
  // waiting requests.
  void DeclareState(const StateNumber& state, const ModelNumber& model, Bytes bytes, bool sequence = false);
  Consequences ForgetState(const StateNumber& state);
  // Its image is not known yet: its requests wait.
  void HoldState(const StateNumber& state, bool held);
  // Its image is lost: its waiting requests end with `why`, and more are not to come.
  Consequences FailState(const StateNumber& state, const absl::Status& why);
  // The first of its requests, which waits, ends with `why`.
  Finished FailFirst(const StateNumber& state, const absl::Status& why) {
    return parts_.states.EndFirst(state, why);
  }
  // SendAway: the state of a sequence is to leave its GPU, as the states that a dispatch names do. EndLeave: the state
  // has left its GPU (`gone`), or could not be written back and stays there for a while.
  void SendAway(const StateNumber& state) { parts_.states.SendAway(state); }
  void EndLeave(const StateNumber& state, bool gone, Time now) { parts_.states.EndLeave(state, gone, now); }

  // Nothing new enters, what is here finishes.
  void SetDraining(bool draining) { parts_.tables.draining = draining; }

  Submitted Submit(const NodeRequest& request, Time now) { return parts_.requests.Submit(request, now); }
  [[nodiscard]] Decision Decide(Time now);
  [[nodiscard]] Time NextDue() const;  // as the last Decision's `due`
  // The broadcasts that dispatches with kBroadcast have gathered: no GPU joins them after this. To be called
  // when others have had time to join; order what it returns.
  [[nodiscard]] std::vector<Broadcasts::Order> CloseBroadcasts() { return parts_.tables.broadcasts.Send(); }
  // Runtimes that did nothing for `idle` serve no key again: the next Decision says so. NextIdle: when the
  // next one will have been idle for so long.
  void GiveBack(Time now, Duration idle) { parts_.runtimes.GiveBack(now, idle); }
  // An answer's outputs lie in the memory of this worker (1), or have been read (-1).
  void Unread(GpuIndex gpu, std::int32_t change) { parts_.tables.gpus.Unread(gpu, change); }
  Consequences Apply(const EvictDone& done, Time now) { return parts_.outcomes.Apply(done, now); }
  Consequences Apply(const SwapInDone& done, Time now) { return parts_.outcomes.Apply(done, now); }
  Consequences Apply(const RunDone& done, Time now) { return parts_.outcomes.Apply(done, now); }
  // Ends what waited past its expiry; names what is in flight past it once, to be cancelled.
  Consequences Expire(Time now) { return parts_.requests.Expire(now); }
  Cancelled Cancel(const RequestId& id) { return parts_.requests.Cancel(id); }
  // The router is gone: its requests are not answered any more.
  Consequences ForgetRouter(std::uint64_t router) { return parts_.requests.ForgetRouter(router); }
  void Check() const;

 private:
  [[nodiscard]] std::vector<ModelNumber> WaitingForRegion() const;

  std::size_t out_of_region_ = 0;  // models
};

}  // namespace troupe::node
