// MEMBERS: who takes part in the cluster, which of them are connected, and what they are told of it.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "cluster/events.hpp"
#include "cluster/members/update_feed.hpp"
#include "cluster/membership_table.hpp"
#include "cluster/records/after_commit.hpp"

namespace troupe::cluster {

struct Parts;

class Members {
 public:
  explicit Members(Parts& parts);

  void Start();
  void On(const JoinAsked& event);
  void On(const HeartbeatHeard& event);
  void On(const LeaveAsked& event);
  void On(const MemberLost& event);
  void On(const EpochStored& stored, const absl::Status& status);
  // Answers the member that joined.
  void Welcome(Ask ask, std::uint64_t epoch);
  // Acts on every change of membership since the last pulse.
  void Pulse();
  // Tells all of them what has changed.
  void Changed();
  // Asks a connected node to take nothing new.
  void BeginDrain(const std::string& name);
  absl::Status SetDraining(const std::string& name, bool drain) { return table_.SetDraining(name, drain); }

  [[nodiscard]] const MembershipTable& table() const { return table_; }
  [[nodiscard]] const std::set<std::string>& nodes() const { return nodes_; }
  [[nodiscard]] bool HasNode(const std::string& name) const { return nodes_.contains(name); }
  // The manager has started, and this member has not come back yet, but has the time to.
  [[nodiscard]] bool Awaits(const std::string& name) const;
  // The gateways that can go on with runs of workflows, and the process of each.
  [[nodiscard]] const std::map<std::string, std::uint32_t>& fronts() const { return fronts_; }

 private:
  // The member's epoch. FailedPrecondition for one of another cluster, AlreadyExists for one whose name
  // another has.
  absl::StatusOr<std::uint64_t> Admit(const JoinAsked& event);
  void Link(const JoinAsked& event);
  void Reply(Ask ask, proto::JoinReply reply);
  // An event, once for each name.
  void TellRefused(const proto::JoinRequest& join, const absl::Status& why);
  // The answer to a member that has joined before, and has missed updates.
  // What a member that has joined is told of what it has missed, or of the next part of its snapshot.
  [[nodiscard]] proto::JoinReply CatchUp(const proto::JoinRequest& ask);
  [[nodiscard]] proto::JoinReply JoinedAs(std::uint64_t epoch, proto::ClusterUpdate state) const;
  // A pulse that comes late: this process stood still, or what came before took long. What members said
  // meanwhile may lie unread behind it.
  void ExcuseStandstill();
  // False: others need not hear of it.
  bool Act(const Transition& transition);
  void Forget(const Transition& transition);

  Parts& parts_;
  MembershipTable table_;
  UpdateFeed feed_;
  std::set<std::string> nodes_;  // that are connected
  std::map<std::string, std::uint32_t> fronts_;
  std::set<std::string> refused_;  // members that are another's, or another's name; told once each
  Time last_pulse_{};
  Time gathered_{};  // a member that has not come back by then since the manager's start is gone
};

}  // namespace troupe::cluster
