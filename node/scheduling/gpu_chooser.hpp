// GPU CHOOSER: which GPUs a request looks at, what it sees of each, where its weights may come from, and
// where the gpu policy sends it. Pure looks at the tables.
#pragma once

#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "node/scheduling/policies/gpu_policy.hpp"
#include "node/scheduling/scheduler_tables.hpp"
#include "node/scheduling/victim_planner.hpp"

namespace troupe::node {

class GpuChooser {
 public:
  GpuChooser(const SchedulerTables& tables, const VictimPlanner& victims)
      : tables_(tables), victims_(victims) {}

  // Some GPU takes a request more; `hits_only`: one whose model is there.
  [[nodiscard]] bool AnySlot(bool hits_only) const;
  // `draw`: random bits, new for each choice.
  [[nodiscard]] GpuChoice Choose(const RequestLook& look, std::uint64_t draw, Time now) const;
  // True when a GPU that the request looks at has its model and could take it; else the request cannot be a
  // hit, and the other GPUs need not be looked at.
  [[nodiscard]] bool MayHit(const RequestLook& look, std::uint64_t draw) const;
  // The GPU has a place for it. `resident`: its model there, or null.
  [[nodiscard]] bool HasSlot(const RequestEntry& entry, const Gpu& gpu, const Resident* resident) const;
  // The GPU could run it now. `resident`: its model there, or null.
  [[nodiscard]] bool CanTake(const RequestLook& look, const Gpu& gpu, const Resident* resident) const;

  // weight_sources.cpp
  // A GPU that is loading the model from the host and can send it on to this one; of several the one with the
  // fastest link. kNoGpu: none, it comes from the host.
  [[nodiscard]] GpuIndex SenderFor(const RequestLook& look, const Gpu& gpu) const;
  // What comes from the host over the switch that the GPU is behind.
  [[nodiscard]] SwitchLoad LoadOfSwitch(const Gpu& gpu) const;

  // The request's function has used up its quota, or has as many runs as it may have, on every GPU.
  [[nodiscard]] bool IsBarred(const RequestEntry& entry) const;
  // The request needs a place that others could have, and no GPU has one; requests with places of their own wait beside it.
  [[nodiscard]] bool LacksPlace(const RequestEntry& entry) const;

 private:
  using Options = absl::InlinedVector<GpuOption, kAllGpus + 1>;

  [[nodiscard]] bool AnyPlace(bool hits_only) const;
  [[nodiscard]] bool IsBehindRuns(const RequestEntry& entry, const Gpu& gpu) const;
  [[nodiscard]] bool IsBarredFrom(const RequestEntry& entry, const Gpu& gpu) const;
  [[nodiscard]] bool IsOwner(const RequestEntry& entry) const;
  [[nodiscard]] std::uint32_t MostRuns(const RequestEntry& entry, const Gpu& gpu) const;
  [[nodiscard]] bool HasAllItsRuns(const RequestEntry& entry, const Gpu& gpu) const;
  [[nodiscard]] bool MayChoose(const RequestEntry& entry, const Gpu& gpu) const;
  [[nodiscard]] GpuList SomeHolders(ModelId model, std::uint64_t draw) const;
  [[nodiscard]] GpuList LeastBusy(std::uint32_t below) const;
  [[nodiscard]] GpuList Candidates(const RequestLook& look, std::uint64_t draw) const;
  [[nodiscard]] bool IsOccupied(const Gpu& gpu) const;
  [[nodiscard]] Duration QueuedFor(ModelId model) const;
  [[nodiscard]] Duration QueuedForKinds(ModelId model, std::size_t behind) const;
  [[nodiscard]] Duration PauseOn(const RequestEntry& entry, const Gpu& gpu, Time now) const;
  bool AddOption(const RequestLook& look, const Gpu& gpu, Time now, Options& options) const;

  // weight_sources.cpp
  void FindPeer(const RequestLook& look, const Gpu& gpu, GpuOption& option) const;
  [[nodiscard]] SwitchLoad LoadTo(const Gpu& gpu) const;
  [[nodiscard]] Duration LoadsBeside(const Gpu& gpu, Time now) const;

  const SchedulerTables& tables_;
  const VictimPlanner& victims_;
};

}  // namespace troupe::node
