// CHAOS NODES: the nodes of a cluster under faults, their disks, and their simulated workers.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "actors/seams/fake_worker_link.hpp"
#include "sim/chaos/node_meters.hpp"
#include "sim/checkers/isolation_check.hpp"
#include "sim/checkers/tensor_check.hpp"
#include "sim/faults/fault_plan.hpp"
#include "sim/world.hpp"

namespace troupe::sim {

class ChaosNodes {
 public:
  static constexpr Bytes kGpuMemory = GiB(1);

  // The world outlives the nodes.
  ChaosNodes(World& world, const ClusterShape& shape);
  ~ChaosNodes();
  ChaosNodes(const ChaosNodes&) = delete;
  ChaosNodes& operator=(const ChaosNodes&) = delete;

  void StartAll();
  // False: it is not up (or not down), and nothing is done.
  bool Kill(const std::string& name);
  bool Start(const std::string& name, World::Kept kept);
  [[nodiscard]] bool IsUp(const std::string& name) { return world_.node(name).running; }
  [[nodiscard]] actors::FakeWorkerControl& Worker(const std::string& node, std::uint32_t gpu) {
    return *WorkersOf(node, gpu).front();
  }
  // Of each runtime of the GPU. A replaced machine has others.
  [[nodiscard]] std::vector<std::shared_ptr<actors::FakeWorkerControl>> WorkersOf(const std::string& node,
                                                                                  std::uint32_t gpu) const {
    const auto first = world_.node(node).workers.begin() + gpu * shape_.runtimes;
    return {first, first + shape_.runtimes};
  }

  // From now on runs of this model take so long instead, at each GPU; zero: as long as all others.
  void StretchRuns(const std::string& digest, Duration run) { long_runs_->length[digest] = run; }
  // What the GPUs saw of the runs of models that StretchRuns named.
  [[nodiscard]] const std::vector<actors::FakeLongRuns::Seen>& long_runs() const { return long_runs_->seen; }

  // What the GPUs saw of functions with a quota.
  [[nodiscard]] const std::vector<actors::FakeQuotas::Seen>& quota_runs() const { return quotas_->seen; }

  // The bytes of a tensor that some worker keeps; "": none does.
  [[nodiscard]] std::string ReadKept(const proto::KeptTensor& tensor);
  // What workers keep of outputs now, and what lies in the arenas of their nodes.
  [[nodiscard]] std::vector<KeptThere> KeptTensors();

  // Which models each runtime that there is now was given, in the name of which function.
  [[nodiscard]] std::vector<RuntimeModel> RuntimeModels();

  // A line for each object on a node's disk whose bytes are not those of its digest.
  [[nodiscard]] std::vector<std::string> WrongModels();

  [[nodiscard]] NodeMeters& meters() { return meters_; }
  [[nodiscard]] const NodeMeters& meters() const { return meters_; }

  // --- planted errors (planted.hpp) ---
  void TakeMemory(Bytes bytes);  // of each GPU, behind its node's back
  void ForgetARun();             // each state that is on a GPU now
  void ShareStates();            // workers write back by model, not by function
  void NeverCut() { long_runs_->never_cuts = true; }
  void NeverCharge() { quotas_->never_charges = true; }
  void NeverRelease();  // what workers keep of outputs, they keep
  void SwapRuntimes();  // workers take themselves for those of other functions
  void SpoilCopies();   // of tensors that come from other GPUs: their bytes are others
  void SwapParts();     // inputs that come in parts are put together in the wrong order
  void TrustWeights();  // what a dead worker left is used without being compared
  void TrustRanges() {
    ranges_->trust = true;
  }                    // of models that come from other nodes, without being compared
  void SwapMembers();  // of each batch that a worker runs, the first two requests get each other's outputs

 private:
  [[nodiscard]] World::NodePlan PlanOf(const std::string& name);
  [[nodiscard]] std::string DiskOf(const std::string& node) const { return disks_ + "/" + node; }
  template <class Call>
  void ForEachWorker(Call call);

  World& world_;
  const ClusterShape shape_;
  const std::string disks_;  // a directory of its own: under it the states of each node's functions
  NodeMeters meters_{world_};
  const std::shared_ptr<actors::FakeLongRuns> long_runs_ = std::make_shared<actors::FakeLongRuns>();
  const std::shared_ptr<actors::FakeQuotas> quotas_ = std::make_shared<actors::FakeQuotas>();
  // Of every node's disk.
  const std::shared_ptr<actors::FakeRanges> ranges_ = std::make_shared<actors::FakeRanges>();
};

}  // namespace troupe::sim
