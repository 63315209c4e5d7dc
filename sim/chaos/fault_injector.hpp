// FAULT INJECTOR: carries out a plan of faults on a cluster, each from its begin to its end, and mends
// whatever is left when it is told to. A fault whose target is down already does not fire.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "sim/chaos/chaos_cluster.hpp"
#include "sim/checkers/request_ledger.hpp"
#include "sim/faults/fault_plan.hpp"

namespace troupe::sim {

using FaultCounts = std::array<std::uint64_t, kFaultKinds + 1>;
inline constexpr std::size_t kTornRecord = kFaultKinds;  // what a killed manager was writing

class FaultInjector {
 public:
  explicit FaultInjector(ChaosCluster& cluster) : cluster_(cluster) {}
  // Times of the plan are from now.
  void Schedule(const std::vector<PlannedFault>& plan);
  // Now, and without a fault of its own.
  void RestartManager();
  // Ends what has not ended: every member is up and every connection is free.
  void MendAll();
  [[nodiscard]] const FaultCounts& fired() const { return fired_; }
  // When each gateway may have heard nothing from the manager.
  [[nodiscard]] const std::vector<Silence>& silences() const { return silences_; }
  // When the last disk was lost that had the states.
  [[nodiscard]] const std::vector<Time>& lost_states() const { return lost_states_; }
  // A planted error: what begins next and lasts is never mended.
  void LeaveOne() { leave_one_ = true; }
  // Why a manager could not be started again; empty: each could.
  [[nodiscard]] const std::vector<std::string>& failures() const { return failures_; }

 private:
  void Begin(const PlannedFault& fault);
  [[nodiscard]] bool Strike(const PlannedFault& fault);
  bool StrikeWorker(const PlannedFault& fault);
  bool StrikeNode(const PlannedFault& fault);
  void LoseDisk(const std::string& node);
  // A worker goes, with what its memory alone had.
  void LoseMemory();
  bool StrikeGateway(const PlannedFault& fault);
  bool StrikeManager(const PlannedFault& fault);
  bool KillManager(Duration down);
  bool StrikeConnection(const PlannedFault& fault);
  bool StrikeDisk(const PlannedFault& fault);
  bool StrikeRuns(const PlannedFault& fault);
  // Done once: when its time has come, or before by MendAll.
  void Later(Duration after, const std::string& what, std::function<void()> mend);
  void Silent(const std::string& member, const std::string& peer, Duration length);
  [[nodiscard]] std::vector<std::string> PeersOf(const std::string& node) const;

  ChaosCluster& cluster_;
  FaultCounts fired_{};
  std::map<std::uint64_t, std::function<void()>> mends_;
  std::uint64_t next_mend_ = 0;
  std::vector<Silence> silences_;
  std::set<std::string> lost_disks_;  // nodes whose disk is gone, until they have joined with another
  std::vector<Time> lost_states_;
  bool leave_one_ = false;
  std::vector<std::string> failures_;
};

}  // namespace troupe::sim
