// Brings models onto the device and drops them.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gpu/device/device.hpp"
#include "gpu/memory/device_memory.hpp"
#include "gpu/swap/device_links.hpp"
#include "gpu/swap/model_load.hpp"
#include "gpu/worker/broadcast_handler.hpp"
#include "gpu/worker/host_model.hpp"
#include "gpu/worker/kept_weights.hpp"
#include "gpu/worker/lanes.hpp"
#include "gpu/worker/limits.hpp"
#include "gpu/worker/model_table.hpp"
#include "gpu/worker/peer_client.hpp"
#include "gpu/worker/reply.hpp"
#include "gpu/worker/room_maker.hpp"
#include "gpu/worker/state_table.hpp"
#include "gpu/worker/task_queue.hpp"
#include "gpu/worker/weight_checks.hpp"

namespace troupe::gpu {

// Executes swap orders over the device's links; the node decides which victim leaves for which model. The
// main loop's thread.
class Residency {
 public:
  // What the runs hear, and are asked; may be empty.
  struct Runs {
    // Runs of a model that is on its way may begin; it has become resident, or has failed to.
    std::function<void(const std::string& digest, const absl::Status& status)> changed;
    // Whether runs wait for this model: it is not evicted from under them.
    std::function<bool(const std::string& digest)> wanted;
    // Frees device memory for weights that lack so much: tensors that runs have left on the device leave it, and moves of other
    // weights within the device end. Returns false when it has freed nothing.
    std::function<bool(Bytes lacking)> make_room;
  };
  // What has come to the device since the start.
  struct Swapped {
    std::uint64_t models = 0;
    Bytes bytes;  // from the host
  };
  // `broadcasts`: where others meet for what this worker broadcasts; its pieces are chosen here. `record`: of
  // the weights in this memory; null: they end with this worker.
  Residency(DeviceMemory& memory, TaskQueue& queue, DeviceLinks& links, const WorkerLimits& limits,
            BroadcastHandler::Setup broadcasts = {}, std::shared_ptr<WeightRecord> record = nullptr);
  ~Residency();
  void Connect(Runs runs) { runs_ = std::move(runs); }

  // Answers when the whole model is there; at once when it was. NoFit with ResourceExhausted when memory is
  // short. A deadline makes a swap that is on its way more urgent, never less. `source`: the weights come
  // from that GPU, or not at all (Unavailable). They count when they were pinned there to the end of the copy:
  // until then the last group is not there, and no run that used the others ends.
  // `address`: where weights that are mapped go; 0: anywhere.
  // `part`: as the first of a broadcast the model is sent to the others, as it comes or as it is there; as
  // another one it comes from the first, and from the host whatever that does not send. The outcome's bytes
  // are then those from the host.
  void SwapIn(const HostModel& host, std::optional<Time> deadline, Reply reply,
              std::optional<PinnedSource> source = std::nullopt, std::uint64_t address = 0,
              const std::optional<BroadcastPart>& part = std::nullopt);
  // An order names the host copy of a model: when an earlier worker left it here, it is compared now, and is on
  // its way until that has ended. One that differs has not come (NotFound), and its runs are planned again.
  void Claim(const HostModel& host, std::optional<Time> deadline);
  // A run with this deadline waits for a model, which may be on its way.
  void Hurry(const std::string& digest, Time deadline);
  // The load of a model that is on its way and whose runs need not wait for all of it, else null.
  [[nodiscard]] std::shared_ptr<ModelLoad> Pipelined(const std::string& digest) const;
  // The model is on its way: calls `then` when that has ended and its order is answered. So the daemon, which
  // gave both orders, hears of the swap first.
  void Defer(const std::string& digest, std::function<void()> then);
  // A run that used the model lets go of it.
  void Release(const std::string& digest, const ModelTable::Hold& hold);
  void Evict(const std::string& digest, Reply reply);
  // Why Evict would refuse now.
  [[nodiscard]] absl::Status MayEvict(const std::string& digest) const;

  [[nodiscard]] const BroadcastHandler& broadcasts() const { return sources_.broadcasts; }
  // What an earlier worker left and no order has named yet.
  [[nodiscard]] KeptWeights& kept() { return sources_.kept; }
  [[nodiscard]] const KeptWeights& kept() const { return sources_.kept; }

  // What functions keep on the device; moved by the state handler, used by runs.
  [[nodiscard]] StateTable& states() { return states_; }
  [[nodiscard]] ModelTable& table() { return table_; }
  [[nodiscard]] const ModelTable& table() const { return table_; }
  [[nodiscard]] const Swapped& swapped() const { return swapped_; }

 private:
  struct Loading {
    std::shared_ptr<ModelLoad> load;
    std::optional<Time> deadline;
    std::optional<PinnedSource> source;  // the GPU that it comes from, when that is not the host
    bool broadcast = false;              // by another GPU, as far as that sends it
    bool kept = false;                   // here from before, as far as it is equal to the host copy
    std::size_t host_begins = 0;         // the first group that comes from the host
    LinkPort* port = nullptr;            // null: nothing was sent yet
    LinkPort::Id transfer = 0;
    std::vector<Reply> replies;
    std::vector<std::function<void()>> deferred;
  };
  // Takes the memory of a model that is absent. `no_fit` is filled in when there is too little of it.
  absl::StatusOr<DeviceRange> BeginLoad(const HostModel& host, bool whole, std::uint64_t address,
                                        proto::WorkerOutcome& no_fit);
  Loading& EnterLoad(const HostModel& host, DeviceRange range, const proto::Model& model, bool whole);
  // Null when the model is not kept, or is not the one that the host copy is.
  Loading* BeginClaim(const HostModel& host, std::uint64_t order, std::optional<Time> deadline);
  void Checked(const HostModel& host, DeviceRange range, std::uint64_t order, const absl::Status& status);
  void Send(const HostModel& host, DeviceRange range, std::uint64_t order, Loading& loading);
  void FirstGroupThere();
  void Broadcast(const std::string& digest, const BroadcastPart& part);
  void Receive(const HostModel& host, DeviceRange range, std::uint64_t order, Loading& loading,
               const BroadcastPart& part);
  void Received(const HostModel& host, DeviceRange range, std::uint64_t order, const absl::Status& status);
  void CopyFromPeer(const HostModel& host, DeviceRange range, std::uint64_t order,
                    const PinnedSource& source);
  void SendFromPeer(const HostModel& host, DeviceRange range, std::uint64_t order,
                    std::shared_ptr<const PeerMemory> memory);
  void Confirmed(const std::string& digest, const std::shared_ptr<ModelLoad>& load,
                 const absl::Status& status);
  [[nodiscard]] TransferRequest TransferOf(DeviceRange range, std::uint64_t order,
                                           const Loading& loading) const;
  void Copied(const std::string& digest, const absl::Status& status);

  DeviceMemory& memory_;
  TaskQueue& queue_;
  DeviceLinks& links_;
  const WorkerLimits& limits_;
  ModelTable table_;
  RoomMaker room_;
  StateTable states_;
  Runs runs_;
  std::map<std::string, Loading> loading_;
  Swapped swapped_;
  // Where models come from beside the host; threads of all but `kept` end loads.
  struct Sources {
    KeptWeights kept;
    WeightChecks checks;
    PeerClient peers;
    BroadcastHandler broadcasts;  // ends first
  };
  Sources sources_;
};

// What a refused allocation answers.
[[nodiscard]] proto::WorkerOutcome NoFitOutcome(const DeviceMemory& memory);

}  // namespace troupe::gpu
