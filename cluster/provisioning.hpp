// PROVISIONING: when the cluster gets another node, a node in place of a dead one, or gives one back. Owned
// by the cluster manager, which carries each action out through a NodeProvisioner and reports how that went;
// one thread; time is given.
//
//   a dead node:  dead -> (`replace_after`) asked for -> replaced, or asked for again after a back-off
//   load:         above `add_above` for `hold` -> add
//                 below `drain_below` for `hold` -> drain the least busy
//
// One action by load at a time, and `settle` between two, so that a new node can show what it is good for.
// The two marks lie apart, and a node is only drained if the others stay below `add_above` with what it had.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/units.hpp"
#include "proto/cluster.pb.h"

namespace troupe::cluster {

struct ProvisioningLimits {
  Duration replace_after = std::chrono::seconds(30);  // of death
  std::uint32_t min_nodes = 0;
  std::uint32_t max_nodes = 0;  // zero: none is added or drained by load
  // Requests at a node, waiting and running, for each of its GPUs that is fit: the mean over the nodes.
  double add_above = 4;
  double drain_below = 0.5;
  Duration hold = std::chrono::seconds(60);
  Duration settle = std::chrono::minutes(2);
  Duration first_retry = std::chrono::seconds(10);  // after an action that failed; doubled each time
  Duration longest_retry = std::chrono::minutes(10);
};
// InvalidArgument says which limits contradict each other.
[[nodiscard]] absl::Status CheckProvisioning(const ProvisioningLimits& limits);

struct ProvisionedNode {
  std::string name{};
  proto::MemberState state = proto::MEMBER_ALIVE;
  std::uint32_t gpus = 0;      // fit ones
  std::uint64_t requests = 0;  // waiting and running there
  bool stays = false;          // it has what cannot go elsewhere (a function's state): never drained by load
};

struct ProvisionAction {
  enum class Kind { kReplace, kAdd, kDrain };
  Kind kind = Kind::kAdd;
  std::string node{};  // with kReplace and kDrain

  auto operator<=>(const ProvisionAction&) const = default;
};
// "replace node-1", "add", "drain node-2".
[[nodiscard]] std::string Describe(const ProvisionAction& action);

class Provisioning {
 public:
  explicit Provisioning(ProvisioningLimits limits) : limits_(limits) {}

  // What is to be done now; each counts as under way until Ended.
  [[nodiscard]] std::vector<ProvisionAction> Decide(const std::vector<ProvisionedNode>& nodes, Time now);
  // How long until it is tried again; zero when it went well.
  Duration Ended(const ProvisionAction& action, const absl::Status& status, Time now);

 private:
  struct Attempt {
    bool under_way = false;
    std::uint32_t failures = 0;
    Time not_before{};
  };
  [[nodiscard]] bool MayTry(const ProvisionAction& action, Time now) const;
  void Replace(const std::vector<ProvisionedNode>& nodes, Time now, std::vector<ProvisionAction>& actions);
  [[nodiscard]] std::optional<ProvisionAction> ByLoad(const std::vector<ProvisionedNode>& nodes, Time now);
  void Begin(const ProvisionAction& action, std::vector<ProvisionAction>& actions);

  const ProvisioningLimits limits_;
  std::map<std::string, Time> dead_since_;
  std::map<std::string, Time> replaced_;  // asked for and granted: not again for the same death
  std::map<ProvisionAction, Attempt> attempts_;
  std::optional<Time> above_since_;
  std::optional<Time> below_since_;
  Time settled_{};  // no action by load before
};

}  // namespace troupe::cluster
