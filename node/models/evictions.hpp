// EVICTIONS: models that leave a GPU. One that has states is written back first and evicted then, in two
// orders: whatever dies between them, the state is somewhere. What was decided for the GPU meanwhile waits,
// since its room is not there yet.
#pragma once

#include <cstddef>
#include <map>
#include <string>
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

  void Order(GpuIndex gpu, const std::string& model);
  // The states of a model that is to go are safe, or (`status`) could not be made so.
  void StatesSaved(const EvictionWrittenBack& purpose, const absl::Status& status,
                   const std::vector<ImagePtr>& images);

  // States are being written back there.
  [[nodiscard]] bool Writing(GpuIndex gpu) const;
  // Starts when they are; the model is in use until then.
  void StartBehind(const HeldStart& start);

 private:
  struct Waits {
    std::size_t writing = 0;  // evictions that write states back
    std::vector<HeldStart> behind{};
  };
  void Evict(GpuIndex gpu, const std::string& model, bool with_states);
  void WriteBackFirst(GpuIndex gpu, const std::string& model);
  void Written(GpuIndex gpu);
  void Void(GpuIndex gpu);
  void StartAll(std::vector<HeldStart> behind);

  Parts& parts_;
  std::map<GpuIndex, Waits> waits_;
};

}  // namespace troupe::node
