// EVICTIONS: orders models off a GPU, and states of sequences whose models stay. The states of a model are written back
// first, and the model is evicted by a second order: whatever dies between the two, the states are safe. Dispatches for
// the GPU that were decided meanwhile wait, because their room is not free yet. When a state could not be written back, its
// model (or the state) stays for a while, and they are planned anew, without that room.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "node/models/peer_copy_table.hpp"
#include "node/runtimes/order_purposes.hpp"

namespace troupe::node {

struct Parts;

class Evictions {
 public:
  explicit Evictions(Parts& parts) : parts_(parts) {}

  void On(const EvictionOrdered& purpose, const proto::WorkerOutcome& outcome);
  void On(const RuntimeLost& event) { Void(event.gpu); }
  void On(const RuntimeReassigned& event) { Void(event.gpu); }

  void Order(GpuIndex gpu, const ModelNumber& model);
  // The states of a model that is to be evicted were saved, or (`status`) could not be saved.
  void StatesSaved(const EvictionWrittenBack& purpose, const absl::Status& status,
                   const std::vector<ImagePtr>& images);

  // The state of a sequence is on its way off the GPU (SwapScheduler::SendAway): it is written back first, unless the host
  // has each run of it.
  void OrderLeave(GpuIndex gpu, const ModelNumber& model, const StateNumber& key);
  void StateWritten(const StateLeaving& purpose, const absl::Status& status,
                    const std::vector<ImagePtr>& images);
  // What the GPU has of such a state goes as it is.
  void Drop(GpuIndex gpu, const ModelNumber& model, const StateNumber& key);

  // True while states are being written back on this GPU.
  [[nodiscard]] bool Writing(GpuIndex gpu) const;
  // Starts the dispatch when these write-backs have ended; its model is in use until then.
  void StartBehind(const HeldStart& start);
  // The same for a model that no request waits for.
  void PrefetchBehind(const Dispatch& dispatch);

 private:
  struct Behind {
    HeldStart start{};
    bool ahead = false;  // no request waits for the model
  };
  struct Waits {
    std::size_t writing = 0;  // evictions, and states that leave, that are being written back
    std::vector<Behind> behind{};
  };
  void Evict(GpuIndex gpu, const ModelNumber& model, bool with_states);
  void WriteBackFirst(GpuIndex gpu, const ModelNumber& model);
  void Written(GpuIndex gpu);
  [[nodiscard]] Consequences TurnBack(GpuIndex gpu, const absl::Status& why);
  void Void(GpuIndex gpu);
  void StartAll(std::vector<Behind> behind, bool lost);

  Parts& parts_;
  std::map<GpuIndex, Waits> waits_;
};

}  // namespace troupe::node
