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

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "base/check.hpp"
#include "node/names.hpp"
#include "node/request.hpp"
#include "node/scheduling/gpu.hpp"
#include "node/scheduling/place_order.hpp"

namespace troupe::node {

class GpuTable {
 public:
  GpuTable() = default;
  GpuTable(const GpuTable&) = delete;
  GpuTable& operator=(const GpuTable&) = delete;
  void Add(GpuIndex index, Bytes memory, std::uint32_t device, bool assigned);
  [[nodiscard]] const Gpu& at(GpuIndex index) const {
    TROUPE_CHECK(index < by_index_.size() && by_index_[index] != nullptr, "no such GPU");
    return *by_index_[index];
  }
  [[nodiscard]] const std::map<GpuIndex, Gpu>& gpus() const { return gpus_; }
  // The same by index; null where there is none.
  [[nodiscard]] absl::Span<const Gpu* const> by_index() const { return {by_index_.data(), by_index_.size()}; }
  // The GPUs on which a model is loading, resident or running, in order.
  [[nodiscard]] const std::vector<GpuIndex>& Holders(ModelId model) const {
    return model < holders_.size() ? holders_[model] : kNoHolders;
  }
  // Null: it is not there. A table beside it tells which GPUs have a model, so that nothing is read for the
  // others.
  [[nodiscard]] const Resident* Find(ModelId model, const Gpu& gpu) const {
    const std::vector<GpuIndex>& holders = Holders(model);
    return std::binary_search(holders.begin(), holders.end(), gpu.index) ? gpu.Find(model) : nullptr;
  }
  [[nodiscard]] std::uint32_t HolderCount(ModelId model) const {
    return static_cast<std::uint32_t>(Holders(model).size());
  }
  // Models that are resident or running on some GPU, in no order.
  [[nodiscard]] std::vector<ModelId> ResidentModels() const;
  // Some GPU has it, or its worker is about to give it up.
  [[nodiscard]] bool Refers(ModelId model) const;
  // Those with a living worker.
  [[nodiscard]] const PlaceOrder& ready() const;
  // Of the first GPUs, without finding the places of GPUs that have changed; a number above every limit when
  // there is none.
  [[nodiscard]] std::uint32_t LeastInFlight() const {
    std::uint32_t least = 0;
    while (least < ready_with_.size() && ready_with_[least] == 0) ++least;
    return least < ready_with_.size() ? least : ~std::uint32_t{0};
  }
  [[nodiscard]] std::size_t ReadyCount() const { return ready_count_; }
  // No runtime serves a key, or will.
  [[nodiscard]] bool AllShared() const { return keyed_ == 0; }
  // Requests in flight on all runtimes of a device.
  [[nodiscard]] std::uint32_t InFlightOn(std::uint32_t device) const { return in_flight_.at(device); }
  // A runtime with this key that is ready, on this device or on any; and a runtime that will be.
  [[nodiscard]] bool Served(const std::string& key, std::optional<std::uint32_t> device) const;
  [[nodiscard]] bool Coming(const std::string& key) const;
  // A worker is being started, for no particular key.
  [[nodiscard]] bool Starting() const;
  // Nothing is in flight, on its way or read there: its worker may be taken away.
  [[nodiscard]] bool Takeable(const Gpu& gpu) const;
  // Idle models there whose functions have state: that has to be written back before its worker goes.
  [[nodiscard]] static std::vector<ModelId> WithStates(const Gpu& gpu);
  [[nodiscard]] bool AllUnfit() const;        // also true without GPUs
  [[nodiscard]] Bytes LargestMemory() const;  // over GPUs that are not unfit

  // `resident`: the models that the worker reports, one number for each report.
  void WorkerUp(const WorkerReady& ready, absl::Span<const ModelId> resident, Time now);
  void WorkerGone(GpuIndex index, WorkerState state);
  // Its worker is about to serve `key`; until it is ready again the runtime is absent.
  void BeginAssign(GpuIndex index, const std::string& key);
  void ForgetComing(GpuIndex index);
  void Unread(GpuIndex index, std::int32_t change);
  // A model that the worker reported before anybody here knew it: its bytes were counted as overhead, and
  // strange.
  void FoundResident(GpuIndex index, ModelId model, Bytes bytes, Time now);

  void BeginEvict(GpuIndex index, ModelId model);
  // `gone` false: the worker kept it; it is a resident again when there is still room for it in the plan.
  void EndEvict(GpuIndex index, ModelId model, bool gone, Bytes bytes, Time now);
  // Makes room on paper for a model that will be loaded; the caller made sure that it fits. `source`: the GPU
  // that it is copied from, where the model is, or is loading from the host, and is locked until EndLoad;
  // kNoGpu: the host.
  void BeginLoad(GpuIndex index, ModelId model, Bytes bytes, GpuIndex source, Duration load, Time now);
  void EndLoad(GpuIndex index, ModelId model, bool loaded, Bytes device_bytes, Time now);
  // Nothing can run there until this model has come, for about so long.
  void Occupy(GpuIndex index, ModelId model, Duration work, Time now);
  // A dispatched request uses `model` and is promised `activation` bytes, until Unpin.
  void Pin(GpuIndex index, ModelId model, Bytes activation, Duration work, Time now);
  // A dispatched request brings its model with it, and takes it away: all of that is in `bytes`, until Unpin.
  void Visit(GpuIndex index, Bytes bytes, Duration work, Time now);
  // `pinned` false: the request visited, or the model was lost meanwhile (its load failed), and its pins with
  // it.
  void Unpin(GpuIndex index, ModelId model, bool pinned, Bytes activation, Duration work, Time now);
  // A function's state comes to where its model is. The caller made sure that it fits; again: nothing
  // changes.
  void AddState(GpuIndex index, ModelId model, const StateNumber& state, Bytes bytes);
  // The worker says that the model is not there. As long as dispatches use it, it is kept as missing.
  void Missing(GpuIndex index, ModelId model);
  // The worker had less room than the plan said.
  void CorrectFree(GpuIndex index, Bytes worker_free);
  // But for what is strange, which is really there.
  void ForgetOverhead(GpuIndex index);
  // Its worker has dropped a model that is unknown here.
  void OrphanGone(GpuIndex index, Bytes bytes);

  // Ends the process when an invariant is broken.
  void Check() const;

 private:
  static std::optional<GpuPlace> PlaceOf(const Gpu& gpu);
  // Applies `change` to a resident, and counts it among the idle ones or not.
  template <class Change>
  static void ChangeResident(Gpu& gpu, Resident& resident, Change change);

  Gpu& Found(GpuIndex index);
  // Code that changes a GPU asks for it with this.
  Gpu& Changing(GpuIndex index);
  void SetStanding(Gpu& gpu, WorkerState worker, std::uint32_t in_flight);
  template <class Change>
  void ChangeServed(Gpu& gpu, Change change);
  void Drop(Gpu& gpu, ModelId model);
  void LeaveLoad(Gpu& gpu, ModelId model, Resident& resident);
  void CheckSwaps() const;
  void CheckServed() const;
  void Insert(Gpu& gpu, ModelId model, const Resident& resident);

  std::map<GpuIndex, Gpu> gpus_;
  std::vector<Gpu*> by_index_;  // of gpus_; null where there is none
  // A decision changes a GPU several times: its place is found anew when the places are asked for.
  mutable PlaceOrder ready_;
  mutable std::vector<GpuIndex> changed_;
  mutable std::vector<bool> is_changed_;   // by index: in changed_
  std::size_t keyed_ = 0;                  // runtimes that serve a key, or will
  std::vector<std::uint32_t> in_flight_;   // by device
  std::vector<std::uint32_t> ready_with_;  // GPUs with a living worker, by requests in flight
  std::size_t ready_count_ = 0;            // all of them
  static inline const std::vector<GpuIndex> kNoHolders{};
  std::vector<std::vector<GpuIndex>> holders_;  // by model; sorted
  std::vector<std::uint32_t> evicting_;         // by model: GPUs with orders on their way
};

}  // namespace troupe::node
