// What goes wrong in one schedule, and when, drawn from its seed. Plain data: sim/chaos carries it out.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/policy.hpp"
#include "base/random.hpp"
#include "base/units.hpp"

namespace troupe::sim {

enum class FaultKind : std::uint8_t {
  kKillWorker,       // a GPU's worker
  kHangWorker,       // takes orders and answers none, until its watchdog has killed it
  kRefuseWorker,     // dies, and does not come up for a while
  kKillDaemon,       // a node's daemon; its workers and its host region live
  kKillNode,         // a node's machine; it comes back with its disk
  kReplaceNode,      // a node's machine; it comes back with an empty disk
  kPowerCut,         // a node's machine, and no process is told: its connections are just silent
  kKillGateway,      // comes back after a while
  kKillManager,      // half of them in the middle of what it writes; comes back with its disk
  kPartition,        // nothing goes between two members
  kPartitionOneWay,  // nothing goes from one to the other
  kCut,              // a connection is lost, and made anew
  kDelay,            // a connection is slow, so that others overtake it
  kSlowDisk,         // the manager's
  kFailedSync,       // some of the manager's next commits fail
  kClockJump,        // of the manager's wall clock, forward or back
  kLongRun,          // runs of one function take far longer than its limit
};
inline constexpr std::size_t kFaultKinds = 17;
[[nodiscard]] const char* Name(FaultKind kind);
[[nodiscard]] std::array<FaultKind, kFaultKinds> AllFaultKinds();

struct ClusterShape {
  std::uint32_t nodes = 2;
  std::uint32_t gpus = 2;  // of each node
  std::uint32_t gateways = 2;
  std::uint32_t operators = 2;
  std::uint32_t runtimes = 1;  // of each GPU; of several, each serves one function alone
  bool linked = false;         // the GPUs of a node have links to each other
  std::uint32_t copies = 0;    // of each state, on other nodes; with any, members have a short lease
  bool by_eviction = false;    // states are written back when their model leaves its GPU, and not by each run
  std::string preset = "troupe";   // of the policies of nodes and gateways
  std::string batching = "off";    // instead of the preset's policy of that slot
  std::string owning = "by-cost";  // the manager's policy of that slot
  [[nodiscard]] bool Isolated() const { return runtimes > 1; }
  [[nodiscard]] PolicyNames Policies() const;
  [[nodiscard]] std::vector<std::string> NodeNames() const;
  [[nodiscard]] std::vector<std::string> GatewayNames() const;
  [[nodiscard]] std::vector<std::string> OperatorNames() const;
};

struct PlannedFault {
  Duration at{};
  FaultKind kind = FaultKind::kKillWorker;
  std::string member{};     // whom it strikes
  std::string peer{};       // of a connection, its other end
  std::uint32_t gpu = 0;    // of a worker
  Duration length{};        // until it is over; zero: at once
  Duration amount{};        // of a delay, a slow commit, a jump, a run
  std::uint32_t count = 0;  // of commits; of a manager that is killed: 1 while it writes
};
[[nodiscard]] std::string ToString(const PlannedFault& fault);

// From one to eight faults that begin and end within `window`, some at the same moment; in their order.
[[nodiscard]] std::vector<PlannedFault> DrawFaults(const ClusterShape& shape, Duration window,
                                                   Random& random);
// The same with one to three faults more, of connections between two nodes. There are several.
[[nodiscard]] std::vector<PlannedFault> BetweenNodes(std::vector<PlannedFault> faults,
                                                     const ClusterShape& shape, Duration window,
                                                     Random& random);
// The same with one to three times within `window` in which the runs of `function` are long.
[[nodiscard]] std::vector<PlannedFault> WithLongRuns(std::vector<PlannedFault> faults,
                                                     const std::string& function, Duration window,
                                                     Random& random);

}  // namespace troupe::sim
