// MEMBERSHIP TABLE: who belongs to the cluster and how it is. Owned by the cluster manager; one thread; time
// is given.
//
//   (join) -> alive <-> suspect -> dead -> (join: a new epoch) -> alive
//   alive, suspect <-> draining (by an operator; silence makes a draining member dead too)
//   any -> left (LeaveRequest)
//   left, dead -> forgotten (after `left_kept` or `dead_kept`)
//
// A member that joins gets an epoch larger than any before; whatever carries an older epoch is refused
// (FailedPrecondition), so two lives of one name never mix.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "proto/cluster.pb.h"

namespace troupe::cluster {

struct MembershipLimits {
  Duration heartbeat = std::chrono::milliseconds(100);
  Duration suspect_after = std::chrono::milliseconds(400);
  Duration dead_after = std::chrono::milliseconds(800);
  // How long an operator still sees a member that is gone.
  Duration left_kept = std::chrono::hours(1);
  Duration dead_kept = std::chrono::hours(24);
  std::size_t max_members = 10000;
};

struct Member {
  proto::MemberRecord record{};
  proto::NodeLoad load{};
  Time last_heard{};
  std::uint64_t last_sequence = 0;
  std::uint64_t last_event = 0;  // the newest that it told, in its own count
  std::string daemon{};          // as it joined
};

// Each GPU of the node takes an input in parts (proto::Tensor.continues). True of a member that has no GPU, is dead or has left.
[[nodiscard]] bool TakesInputParts(const proto::MemberRecord& member);
// A model can come to it: it has no fault that a new worker does not mend.
[[nodiscard]] inline bool IsFit(const proto::GpuRecord& gpu) {
  return gpu.state() != "unfit";
}

struct Transition {
  std::string name{};
  proto::MemberKind kind = proto::MEMBER_UNSPECIFIED;
  std::uint64_t epoch = 0;
  proto::MemberState from = proto::MEMBER_ALIVE;
  proto::MemberState to = proto::MEMBER_ALIVE;
  Duration silent{};
};

class MembershipTable {
 public:
  explicit MembershipTable(MembershipLimits limits = {}) : limits_(limits) {}

  // Gives the new member its epoch. `last_epoch` of the store goes in by SetEpochFloor before the first join.
  // AlreadyExists: another daemon has this name and was heard of a moment ago. One that was started again is
  // taken at once when it listens where it did before or when its connection went down, and else as soon as
  // the one before is silent long enough to be suspected. `daemon`: the same as long as the member's process
  // runs, and no other's.
  absl::StatusOr<std::uint64_t> Join(const proto::JoinRequest& request, Time now,
                                     const std::string& daemon = {});
  void SetEpochFloor(std::uint64_t epoch);
  // FailedPrecondition: unknown, dead, left or of another life; the member is to join again. A transition
  // back to alive is returned by the next Tick or TakeTransitions.
  absl::Status Hear(const proto::Heartbeat& heartbeat, Time now);
  // The same for any other message of the member, which says no more than that it lives.
  absl::Status HearOf(const std::string& name, std::uint64_t epoch, Time now);
  // The events of a heartbeat that was heard and that no earlier one told, oldest first, with the member's
  // name.
  [[nodiscard]] std::vector<proto::Event> TakeEvents(const proto::Heartbeat& heartbeat);
  absl::Status Leave(const proto::LeaveRequest& request, Time now);
  // Its connection went down: no need to wait for the silence. Unknown or older epochs are ignored.
  void ConnectionLost(const std::string& name, std::uint64_t epoch, Time now);
  absl::Status SetDraining(const std::string& name, bool drain);
  // The manager stood still for so long until `now` and heard no member: that is not their silence.
  void Excuse(Duration stood, Time now);
  // What silence has changed by `now`, together with every other change since the last call.
  [[nodiscard]] std::vector<Transition> Tick(Time now);
  [[nodiscard]] Time NextDue() const;

  [[nodiscard]] const Member* Find(const std::string& name) const;
  // OK when `epoch` is the current one of a member that takes part.
  [[nodiscard]] absl::Status CheckEpoch(const std::string& name, std::uint64_t epoch) const;
  [[nodiscard]] const std::map<std::string, Member>& members() const { return members_; }
  [[nodiscard]] std::vector<proto::MemberRecord> Records() const;
  [[nodiscard]] const MembershipLimits& limits() const { return limits_; }
  // Changes with every change that others have to hear of.
  [[nodiscard]] std::uint64_t version() const { return version_; }

 private:
  void Move(Member& member, proto::MemberState to, Duration silent);
  // When a member that is gone is forgotten.
  [[nodiscard]] Time Forgotten(const Member& member) const;
  // AlreadyExists: two daemons have the name, and `known` is alive.
  [[nodiscard]] absl::Status CheckOneDaemon(const Member& known, const proto::MemberRecord& wish,
                                            const std::string& daemon, Time now) const;
  absl::StatusOr<Member*> Current(const std::string& name, std::uint64_t epoch);

  MembershipLimits limits_;
  std::map<std::string, Member> members_;
  std::vector<Transition> transitions_;
  std::uint64_t last_epoch_ = 0;
  std::uint64_t version_ = 0;
};

}  // namespace troupe::cluster
