// SCALE MANAGER: the manager's decisions (cluster::Cluster, the production class) with a store, nodes and a gateway that
// answer at once, so that what takes time is what is decided. It counts that time, and what was decided.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "cluster/cluster.hpp"

namespace troupe::sim {

struct ScaleSize {
  std::uint32_t functions = 0, gpus = 0;
  [[nodiscard]] std::uint32_t GpusOfNode() const { return gpus <= 100 ? 10 : 8; }
  [[nodiscard]] std::uint32_t nodes() const { return (gpus + GpusOfNode() - 1) / GpusOfNode(); }
};

class ScaleManager {
 public:
  // What the manager did since the counts were taken last.
  struct Counts {
    Duration spent{};    // in its decisions
    Duration longest{};  // of these, for one event
    std::uint64_t commits = 0;
    std::uint64_t adoptions = 0;                  // copies that nodes were asked for
    std::uint64_t updates = 0;                    // told to all members
    std::uint64_t update_bytes = 0;               // of these
    std::uint64_t answers = 0;                    // to the administration
    std::vector<std::uint64_t> snapshot_bytes{};  // of each part that a member got that joined
  };

  // All nodes join, and a gateway.
  explicit ScaleManager(const ScaleSize& size);

  // Deploys so many functions, each with a model of its own; the manager pulses after every twentieth.
  void Deploy(std::uint32_t count);
  // Nodes refuse copies from now on, or take them.
  void RefuseCopies(bool refuse) { refuse_ = refuse; }
  // By its number; the first that was deployed has 0.
  void Unload(std::uint32_t function);
  // Another node.
  void Join();
  void Pulse(Duration passed);
  // Pulses until no copy has been asked for in a while, and no time passes; returns the pulses.
  std::uint64_t SettleCopies();
  // The gateway and the nodes tell that each of so many functions has had 20 requests of 10 ms.
  void TellLoads(std::uint32_t functions);
  [[nodiscard]] Counts TakeCounts() { return std::exchange(counts_, {}); }
  // Functions that own a part of a GPU.
  [[nodiscard]] std::size_t Owners() const {
    return cluster_.catalogue().functions().table().owners().size();
  }

 private:
  void JoinAs(const std::string& name, bool gateway);
  void DeployOne(std::uint32_t number);
  void On(cluster::Event event);
  void Count(const cluster::Effect& effect);
  void AddAnswer(const cluster::Effect& effect, std::vector<cluster::Event>& answers);
  [[nodiscard]] cluster::HeartbeatHeard HeartbeatOf(std::size_t member);

  const ScaleSize size_;
  cluster::Cluster cluster_;
  Time now_{std::chrono::seconds(100)};
  std::vector<std::uint64_t> epochs_;  // of the gateway, then of the nodes
  std::uint64_t asks_ = 0, heartbeats_ = 0;
  std::uint32_t deployed_ = 0, joined_ = 0;
  std::string joining_;  // the member that joined last
  bool refuse_ = false;
  Counts counts_;
};

}  // namespace troupe::sim
