// ORPHANS: models that an adopted worker has and this node does not know. They are not known yet, since the
// manager tells of its functions one by one, or not any more, since a function was removed while no daemon
// was there. What is not known after a while is evicted; its states are written back before.
#pragma once

#include <string>
#include <vector>

#include "node/runtimes/order_purposes.hpp"

namespace troupe::node {

struct Parts;

class Orphans {
 public:
  Orphans(Parts& parts, std::size_t runtimes) : parts_(parts), until_(runtimes) {}

  void On(const OrphanEvicted& purpose, const proto::WorkerOutcome& outcome);
  void OnTimer();
  // A worker has such models, or what they have of states is being written back.
  [[nodiscard]] bool Any();

  // A worker came: what stays in its report is not known; returns the sum of it.
  Bytes WorkerUp(GpuIndex gpu, const std::string& key);
  // The states of a model that is not known are safe, or (`status`) could not be made so.
  void StatesSaved(const OrphanWrittenBack& purpose, const absl::Status& status,
                   const std::vector<ImagePtr>& images);

 private:
  void Save(GpuIndex gpu, const proto::ResidentModel& orphan);
  void Evict(GpuIndex gpu, const proto::ResidentModel& orphan);
  void Keep(GpuIndex gpu, const proto::ResidentModel& orphan);

  Parts& parts_;
  std::size_t saving_ = 0;   // write-backs that have not ended
  std::vector<Time> until_;  // by runtime: what its worker has and is not known then is evicted
};

}  // namespace troupe::node
