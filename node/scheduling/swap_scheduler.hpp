// SWAP SCHEDULER: decides which request runs on which GPU of this node, where its weights come from and which
// models go for it: one decision gives all three. Pure: no clock, no thread, no I/O; the node controller owns
// it, feeds it every outcome and carries out what it returns.
//
// Use: after any Submit or Apply call Decide(now) and carry out the Decision, in its order; arm one timer at
// its `due` for Expire.
//
//   a request:  waiting -> dispatched -> finished        exactly one Finished per accepted request
//               dispatched -> waiting  (NoFit: planned again; its worker died: run again, at most
//               `max_attempts`)
//
// Runtimes: a request runs only on a runtime that serves its key (node/runtimes/isolation.hpp). When none
// does, a warm one is assigned, or the coldest idle one is taken away from another key, never one that runs;
// one that others keep busy is held for a request that was passed too often, drains, and is taken. With the
// default, one shared runtime per GPU, none of this happens.
//
// Order: the ordering policy's; the gpu policy says where, or to wait for a busy GPU. What cannot be placed
// yet is passed by others at most `max_passed` times, then the next GPU is held for it, so nothing waits for
// ever on a node with a living GPU (with early binding: with its own GPU living). A request that lost a
// worker runs alone, so that the guilty one is found and no other suffers.
//
// Models and functions come and go by name; in here they are numbers (node/scheduling/names.hpp), and what is
// known of them lies in tables. A number is a name's as long as its model is adopted, on a GPU, or asked for.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/container/node_hash_map.h"
#include "base/random.hpp"
#include "base/slo_order.hpp"
#include "node/requests/run_limit.hpp"
#include "node/runtimes/isolation.hpp"
#include "node/scheduling/copies_ahead.hpp"
#include "node/scheduling/gpu_chooser.hpp"
#include "node/scheduling/locality_queue.hpp"
#include "node/scheduling/scheduler_tables.hpp"
#include "node/scheduling/victim_planner.hpp"

namespace troupe::node {

class SwapScheduler {
 public:
  SwapScheduler(SchedulerLimits limits, SchedulerPolicies policies, CostDefaults costs = {},
                Topology topology = {});
  SwapScheduler(const SwapScheduler&) = delete;  // its parts look at its tables
  SwapScheduler& operator=(const SwapScheduler&) = delete;

  // GPUs. A GPU is known before its worker is; WorkerReady makes it usable.
  void AddGpu(GpuIndex gpu, Bytes memory) { AddRuntime(gpu, memory, gpu); }
  // One of several on a device: what is told of GPUs here is true of each of them.
  void AddRuntime(GpuIndex gpu, Bytes memory, std::uint32_t device);
  Consequences Apply(const WorkerReady& ready, Time now);
  Consequences Apply(const WorkerLost& lost, Time now);
  Consequences Apply(const GpuUnfit& unfit, Time now);
  // An adopted worker holds models that a new daemon learns of later: call this before DescribeModel.
  void FoundResident(GpuIndex gpu, const ResidentReport& report, Time now);
  // One that nobody learned of was evicted: its room is the others'.
  void StrangerGone(GpuIndex gpu, Bytes bytes) { tables_.gpus.StrangerGone(gpu, bytes); }

  // Models with a host copy at this node; others are bounced (BOUNCE_NOT_ADOPTED). Describing one again,
  // after it was prepared, replaces the sizes (what cannot fit any more ends). Forgetting bounces its waiting
  // requests and evicts its copies, those in use when their use ends.
  Consequences DescribeModel(const std::string& model, Bytes weights, Bytes activation);
  Consequences ForgetModel(const std::string& model);
  // A model whose host copy is on disk only, or on its way, keeps its requests waiting: nothing is dispatched
  // for it, and its requests hold up nobody. A described model is in the region until told otherwise.
  void SetInRegion(const std::string& model, bool in_region);
  [[nodiscard]] bool Waits(const std::string& model) const { return WaitingFor(model) > 0; }
  [[nodiscard]] std::size_t WaitingFor(const std::string& model) const {
    return tables_.WaitingFor(tables_.Find(model));
  }

  // Functions that keep state on the device (swap_states.cpp). A request that names one runs where the state
  // is; its dispatch says when the state has to be brought. `bytes`: what it takes on a device. Forgetting
  // one bounces its waiting requests.
  void DeclareState(const std::string& state, const std::string& model, Bytes bytes);
  Consequences ForgetState(const std::string& state);
  // Its image is not known yet: its requests wait.
  void HoldState(const std::string& state, bool held);
  // Its image is lost: its waiting requests end with `why`, and more are not to come.
  Consequences FailState(const std::string& state, const absl::Status& why);
  [[nodiscard]] const FunctionStates& states() const { return tables_.states; }
  // Of the functions of one model; empty for most.
  [[nodiscard]] const std::vector<std::string>& StatesOf(const std::string& model) const {
    return tables_.states.Of(tables_.Find(model));
  }

  void SetDraining(bool draining) {
    tables_.draining = draining;
  }  // nothing new enters, what is here finishes
  [[nodiscard]] bool draining() const { return tables_.draining; }

  Submitted Submit(const NodeRequest& request, Time now);
  [[nodiscard]] Decision Decide(Time now);
  // The broadcasts that dispatches with kBroadcast have gathered: no GPU joins them after this. To be called
  // when others have had time to join; order what it returns.
  [[nodiscard]] std::vector<Broadcasts::Order> CloseBroadcasts() { return tables_.broadcasts.Send(); }
  // Runtimes that did nothing for `idle` serve no key again: the next Decision says so. NextIdle: when the
  // next one will have been idle for so long.
  void GiveBack(Time now, Duration idle);
  [[nodiscard]] Time NextIdle(Duration idle) const;
  // An answer's outputs lie in the memory of this worker (1), or have been read (-1).
  void Unread(GpuIndex gpu, std::int32_t change) { tables_.gpus.Unread(gpu, change); }
  Consequences Apply(const EvictDone& done, Time now);
  Consequences Apply(const SwapInDone& done, Time now);
  Consequences Apply(const RunDone& done, Time now);
  // Ends what waited past its expiry; names what is in flight past it once, to be cancelled.
  Consequences Expire(Time now);
  [[nodiscard]] Time NextDue() const;  // as the last Decision's `due`
  Cancelled Cancel(const RequestId& id);
  // The router is gone: nobody waits for its requests.
  Consequences ForgetRouter(std::uint64_t router);

  // What was learned of the models, to be kept (node/models/profiles.hpp) and read again at the next start. A
  // model that was forgotten keeps its profile.
  [[nodiscard]] const CostModel& costs() const { return tables_.costs; }
  // Of a model by its name here; nothing of one that is not known.
  [[nodiscard]] KnownRuns RunsOf(const std::string& model) const;
  void RestoreCosts(const std::vector<ModelCost>& known, double nanos_per_byte) {
    tables_.costs.Restore(known, nanos_per_byte);
  }
  // Of adopted models, by copy, or by digest: then of some copy. No others are heavy, or weigh anything.
  [[nodiscard]] bool Heavy(const std::string& model) const;
  [[nodiscard]] Bytes WeightsOf(const std::string& model) const;

  [[nodiscard]] const GpuTable& gpus() const { return tables_.gpus; }
  // What the table has by number, by name and in the order of names (scheduler_view.cpp). A resident is read
  // at once: the next event may move it.
  [[nodiscard]] const Resident* FindResident(GpuIndex gpu, const std::string& model) const;
  [[nodiscard]] std::uint32_t HolderCount(const std::string& model) const;
  [[nodiscard]] std::vector<std::pair<std::string, const Resident*>> ResidentsOf(GpuIndex gpu) const;
  [[nodiscard]] std::vector<std::string> EvictingOn(GpuIndex gpu) const;
  [[nodiscard]] std::vector<std::string> ResidentModels() const;  // on some GPU, resident or running
  // How functions stand by their SLO; null unless the ordering policy ranks them.
  [[nodiscard]] const SloOrder* slo_order() const { return slo_ ? &*slo_ : nullptr; }
  [[nodiscard]] const SchedulerCounts& counts() const { return counts_; }
  [[nodiscard]] std::size_t waiting() const { return tables_.queue.size(); }
  [[nodiscard]] std::size_t in_flight() const { return requests_.size() - tables_.queue.size(); }
  [[nodiscard]] bool idle() const { return requests_.empty(); }
  [[nodiscard]] std::size_t trials() const { return trials_; }  // of those that wait or are in flight
  [[nodiscard]] bool Knows(const std::string& model) const {
    return tables_.Adopted(tables_.Find(model)) != nullptr;
  }
  // Models that have a number here.
  [[nodiscard]] std::size_t names() const { return tables_.names.size(); }
  void Check() const;

 private:
  using Entry = RequestEntry;
  using Model = ModelEntry;
  using Look = RequestLook;

  // swap_decision.cpp: whose turn it is, and what is booked for a dispatch.
  void DecideByRequest(Time now);
  void DecideInOrder(bool hits_only, Time now);
  [[nodiscard]] std::vector<std::string> WaitingForRegion() const;
  void StayWaiting(Entry& entry, const GpuChoice& choice, Time now);
  [[nodiscard]] bool MustTakeTurns(const Entry& entry) const;
  void Reorder(Time now);
  [[nodiscard]] Entry* FirstBefore(const OrderingKey& key);
  void NotePassed(std::span<Entry* const> passed);
  Dispatch MakeDispatch(Entry& entry, GpuChoice choice, Time now);
  void Place(const Look& look, Entry& entry, GpuChoice& choice, const std::vector<ModelId>& victims,
             Time now);
  void Load(const Look& look, Entry& entry, GpuChoice& choice, Time now);
  void PassThrough(Entry& entry, GpuIndex gpu, Time now);
  void Bring(ModelId model, const AheadPlan& plan, Time begin_by, Time now);
  void Evict(GpuIndex gpu, ModelId model);
  [[nodiscard]] Time BeginBy(const Entry& entry) const;
  [[nodiscard]] Dispatch Order(const Entry& entry, const GpuChoice& choice,
                               const std::vector<ModelId>& victims) const;

  // locality_decision.cpp: by GPU, where the gpu policy wants it (locality_).
  [[nodiscard]] std::vector<GpuIndex> IdleGpus() const;
  [[nodiscard]] bool MayStart(const Entry& entry);
  [[nodiscard]] GpuIndex PlaceByLocality(const Entry& entry, GpuIndex index, Time now) const;
  [[nodiscard]] std::optional<OrderingKey> FirstHit(const Gpu& gpu);
  void DecideByLocality(Time now);

  // binding_decision.cpp: models and the GPUs that are theirs.
  [[nodiscard]] bool FitsOn(ModelId model, std::uint32_t device) const;
  void BindHome(ModelId model);
  [[nodiscard]] bool KeepRoom(ModelId model, Time now, std::vector<Eviction>& evictions);
  [[nodiscard]] FunctionBinding::Devices DevicesFor(ModelId model) const;
  [[nodiscard]] absl::Status NoRoomKept(const std::string& function, const Model& model) const;

  // runtime_decision.cpp: runtimes, whom they serve, and for whom they are kept.
  [[nodiscard]] bool KeyWaits(const std::string& key) const;
  [[nodiscard]] bool Settled(Time since, Time now);
  [[nodiscard]] bool MayTake(const Entry& entry, const Gpu& gpu, Time now);
  void SeekRuntime(Entry& entry, const GpuChoice& choice, Time now);
  void Assign(GpuIndex index, const node::Serves& serves);
  [[nodiscard]] bool ClearStates(GpuIndex index);
  [[nodiscard]] bool AtHome(const Gpu& gpu) const;
  [[nodiscard]] bool MayHold(const Entry& entry, const Gpu& gpu) const;
  void HoldFor(Entry& entry);
  void Release(Entry& entry);
  void LeaveUselessHold(Entry& entry);

  // waiting_heads.cpp: the queue, and what of it the next decision looks at.
  void Enqueue(Entry& entry);
  void Dequeue(const Entry& entry);
  void Activate(ModelId model);
  void ActivateAll();
  void ActivateResidents(const Gpu& gpu);
  void Park(ModelId model, GpuIndex gpu);
  void Wake(GpuIndex gpu);
  void CheckHeads() const;
  void Rekey(Entry& entry, const OrderingKey& key);
  void YieldLate(Time now);
  void GiveTurn(const Entry& gone);

  // swap_states.cpp: functions that keep state on the device.
  void EndLine(const std::string& state, FinishKind kind, const absl::Status& why, proto::BounceReason bounce,
               Consequences& effects);
  [[nodiscard]] Entry* NextOf(ModelId model);
  void PlaceState(Entry& entry, GpuIndex gpu);
  void EndTurn(const Entry& entry);
  void NoteState(const Entry& entry, const RunDone& done);
  void CheckStates() const;

  // scheduler_view.cpp: numbers and names.
  ModelId Intern(const std::string& model);
  FunctionId EnterFunction(const std::string& function);
  void LeaveNode(const Entry& entry);
  void ForgetNames();
  [[nodiscard]] const Model* FindCopy(const std::string& model) const;
  void CheckNames() const;

  // swap_scheduler.cpp, swap_outcomes.cpp: how requests come in and end.
  [[nodiscard]] Finished Refuse(const NodeRequest& request, Time now) const;
  void Count(FinishKind kind);
  Finished End(Entry& entry, FinishKind kind, absl::Status status,
               proto::BounceReason bounce = proto::BOUNCE_UNSPECIFIED);
  void EndRun(Entry& entry, const absl::Status& status, Consequences& effects, Time now);
  void CountForSlo(const Entry& entry, const absl::Status& status, Time now);
  void ObserveRun(const Entry& entry, const RunDone& done);
  bool EndAbandoned(Entry& entry, Consequences& effects);
  void Requeue(Entry& entry, Consequences& effects);
  void LeaveGpu(Entry& entry, Time now);
  void LeaveFunction(const Entry& entry);
  void ObserveLoad(const SwapInDone& done, ModelId model);
  void LoadFailed(GpuIndex gpu, ModelId model, Time now);
  void EvictForgotten(GpuIndex gpu, ModelId model, Consequences& effects);
  void Replan(Entry& entry, const RunDone& done, bool alone, Consequences& effects);
  void EndTooLarge(Entry& entry, const RunDone& done, Consequences& effects);
  void LearnNoFit(const Entry& entry, const RunDone& done, bool alone);
  Consequences LoseGpu(GpuIndex gpu, WorkerState state, const std::string& why);
  void EndUnplaceable(Consequences& effects);
  [[nodiscard]] absl::Status CannotFit(const std::string& function, const Model& model) const;

  SchedulerTables tables_;
  const VictimPlanner victims_{tables_};
  const GpuChooser chooser_{tables_, victims_};
  CopiesAhead copies_{tables_, chooser_, victims_};
  Random random_;
  std::optional<SloOrder> slo_;
  absl::node_hash_map<RequestId, Entry> requests_;
  absl::btree_set<std::pair<Time, RequestId>> expiries_;
  Names functions_;                           // those with requests here
  std::vector<FunctionEntry> serving_;        // by number of the function
  std::vector<ModelId> passing_;              // models with a number that are not adopted
  std::vector<std::vector<ModelId>> parked_;  // by GPU; also such as were looked up again since
  // With decisions by GPU: the same requests in their order, and what was given to each GPU.
  std::unique_ptr<LocalityQueue> locality_;
  absl::btree_map<OrderingKey, Entry*> waiting_;
  std::vector<std::uint64_t> dispatched_to_;  // by GPU
  Decision decision_;                         // what was decided and not returned yet
  Time look_again_ = Time::max();             // what was left for later may be decided then
  std::uint64_t next_sequence_ = 0;
  std::size_t out_of_region_ = 0;  // models
  std::size_t trials_ = 0;         // of requests_
  SchedulerCounts counts_;
};

}  // namespace troupe::node
