// GPU TABLE: THE view of this node's GPUs: what is resident where, what is promised, and what must not move.
// Owned by the swap scheduler, which is owned by the node controller; one thread. It is the plan, not the
// device: a worker that disagrees says so (NoFit, WorkerReady) and the table is corrected.
//
// A GPU is here a runtime: one worker with memory of its own. Several may stand on one device, whose links
// and places they share; each serves the models of one isolation key, or of none yet:
//
//   a runtime:  warm (no key) -> coming -> assigned -> coming (for another key, or warm again)
//
//   a model on a GPU:  absent -> loading -> resident <-> running -> evicting -> absent
//                      loading -> absent (the swap-in failed);  any -> absent (the worker died)
//
// A model that another GPU is copying from is locked: it stays until that copy ended or its own worker died.
//
// Always true (checked): per GPU, bytes of models that stay (loading, resident, running) + memory promised to
// runs + overhead <= memory; a model with pins or readers is neither evicting nor a victim; as many swaps read
// a model as it has readers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "base/check.hpp"
#include "node/names.hpp"
#include "node/request.hpp"
#include "node/scheduling/gpu.hpp"
#include "node/scheduling/gpu_loads.hpp"
#include "node/scheduling/model_holders.hpp"
#include "node/scheduling/runtime_queries.hpp"

namespace troupe::node {

class GpuTable {
 public:
  GpuTable() = default;
  GpuTable(const GpuTable&) = delete;
  GpuTable& operator=(const GpuTable&) = delete;
  void Add(GpuIndex index, Bytes memory, std::uint32_t device, bool assigned, KindId kind = 0);
  [[nodiscard]] const Gpu& at(GpuIndex index) const {
    TROUPE_CHECK(index < by_index_.size() && by_index_[index] != nullptr, "no such GPU");
    return *by_index_[index];
  }
  [[nodiscard]] const GpuMap& gpus() const { return gpus_; }
  // The same by index; null where there is none.
  [[nodiscard]] absl::Span<const Gpu* const> by_index() const { return {by_index_.data(), by_index_.size()}; }
  [[nodiscard]] const ModelHolders& holders() const { return holders_; }
  // The GPUs on which a model is loading, resident or running, in order.
  [[nodiscard]] const std::vector<GpuIndex>& Holders(ModelId model) const { return holders_.Of(model); }
  // Null: it is not there.
  [[nodiscard]] const Resident* Find(ModelId model, const Gpu& gpu) const {
    return holders_.Has(model, gpu.index) ? gpu.Find(model) : nullptr;
  }
  [[nodiscard]] const GpuLoads& loads() const { return loads_; }
  // Those with a living worker.
  [[nodiscard]] const PlaceOrder& ready() const { return loads_.Ordered(by_index()); }
  // No runtime serves a key, or will.
  [[nodiscard]] bool AllShared() const { return keyed_ == 0; }

  // `resident`: the models that the worker reports, one number for each report.
  void WorkerUp(const WorkerReady& ready, absl::Span<const ModelId> resident, Time now);
  void WorkerGone(GpuIndex index, WorkerState state);
  // Its worker is about to serve `key` (nothing: none, so that no request waits for it); until it is ready again the runtime
  // is absent.
  void BeginAssign(GpuIndex index, std::optional<std::string> key);
  void Unread(GpuIndex index, std::int32_t change);
  // The worker reported the model before it was known here, so that its bytes were counted as overhead, and as strange.
  void FoundResident(GpuIndex index, ModelId model, Bytes bytes, Time now);

  void BeginEvict(GpuIndex index, ModelId model);
  // `gone` false: the worker kept it; it is a resident again when there is still room for it in the plan, and stays for a
  // while.
  void EndEvict(GpuIndex index, ModelId model, bool gone, Bytes bytes, Time now);
  // When the next model has stayed for long enough; Time::max(): there is none.
  [[nodiscard]] Time next_stay_end() const { return next_stay_end_; }
  // Models that have stayed for long enough may go again: these. So may `forgotten`, at once.
  struct Stayed {
    GpuIndex gpu = 0;
    ModelId model = kNoModel;
  };
  std::vector<Stayed> EndStays(Time now, ModelId forgotten = kNoModel);
  // Makes room on paper for a model that will be loaded; the caller made sure that it fits. `source`: the GPU
  // that it is copied from, where the model is, or is loading from the host, and is locked until EndLoad;
  // kNoGpu: the host.
  void BeginLoad(GpuIndex index, ModelId model, Bytes bytes, GpuIndex source, Duration load, Time now);
  void EndLoad(GpuIndex index, ModelId model, bool loaded, Bytes device_bytes, Time now);
  // Nothing can run there until this model has come, for about so long.
  void Occupy(GpuIndex index, ModelId model, Duration work, Time now);
  // A dispatched request uses `model`, and has what it claims until Unpin.
  void Pin(GpuIndex index, ModelId model, const RunClaim& claim, Time now);
  // A dispatched request brings its model with it, and takes it away: its bytes are in the claim, until Unpin.
  void Visit(GpuIndex index, const RunClaim& claim, Time now);
  // `pinned` false: the request visited, or the model was lost meanwhile (its load failed), and its pins with
  // it.
  void Unpin(GpuIndex index, ModelId model, bool pinned, const RunClaim& claim, Time now);
  // A function's state comes to where its model is; the caller made sure that it fits. `stayed`: it is there, since it could
  // not leave, and is left out when the plan has no room for it. False: nothing changes.
  bool AddState(GpuIndex index, ModelId model, const StateNumber& state, Bytes bytes, bool stayed = false);
  // It has gone from there, or is about to; nothing happens when it is not there.
  void RemoveState(GpuIndex index, ModelId model, const StateNumber& state);
  // The worker says that the model is not there. As long as dispatches use it, it is kept as missing.
  void Missing(GpuIndex index, ModelId model);
  // The worker had less room than the plan said.
  void CorrectFree(GpuIndex index, Bytes worker_free);
  // The overhead is taken to be free, except for that of strange models, which are really there.
  void ForgetOverhead(GpuIndex index);
  // Its worker has dropped a model that is unknown here.
  void OrphanGone(GpuIndex index, Bytes bytes);

  // Ends the process when an invariant is broken.
  void Check() const;

 private:
  void Claim(Gpu& gpu, const RunClaim& claim, Time now);
  Gpu& Found(GpuIndex index);
  // Code that changes a GPU asks for it with this.
  Gpu& Changing(GpuIndex index);
  template <class Change>
  void ChangeServed(Gpu& gpu, Change change);
  void Drop(Gpu& gpu, ModelId model);
  void LeaveLoad(Gpu& gpu, ModelId model, Resident& resident);
  void Insert(Gpu& gpu, ModelId model, const Resident& resident);

  GpuMap gpus_;
  std::vector<Gpu*> by_index_;  // of gpus_; null where there is none
  GpuLoads loads_;
  ModelHolders holders_;
  std::size_t keyed_ = 0;  // runtimes that serve a key, or will
  Time next_stay_end_ = Time::max();
};

}  // namespace troupe::node
