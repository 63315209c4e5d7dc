#include "cluster/cluster.hpp"

#include <utility>
#include <variant>

#include "cluster/parts.hpp"

namespace troupe::cluster {

namespace {

// Which part hears how which commit ended.
struct StoreRouter {
  Parts& parts;
  const absl::Status& status;

  void operator()(std::monostate) const {}
  void operator()(const EpochStored& stored) const { parts.members.On(stored, status); }
  void operator()(const DrainStored& stored) const { parts.orders.On(stored, status); }
  void operator()(const HomeStored& stored) const { parts.copies.On(stored, status); }
  void operator()(const InStepStored& stored) const { parts.state_replicas.On(stored, status); }
  void operator()(const HomeMoved& stored) const { parts.state_moves.On(stored, status); }
  void operator()(const MutationStored& stored) const { parts.mutations.On(stored, status); }
  void operator()(const StartStored& stored) const { parts.runs.On(stored, status); }
  void operator()(const StepStored& stored) const { parts.runs.On(stored, status); }
  void operator()(const EndStored& stored) const { parts.runs.On(stored, status); }
  void operator()(const ClaimStored& stored) const { parts.claims.On(stored, status); }
  void operator()(const UsageStored& stored) const { parts.usage.On(stored, status); }
  void operator()(ExperimentStored& stored) const { parts.profiling.On(stored, status); }
  void operator()(const StartsTakenBack& stored) const { parts.unwritten.On(stored, status); }
};

// Which part hears which event.
struct Router {
  Parts& parts;

  void operator()(const Started& event) const { parts.Hear(event); }
  void operator()(const TimerFired& event) const {
    switch (event.timer) {
      case Timer::kPulse:
        return parts.Pulse();
      case Timer::kTakeBack:
        return parts.unwritten.OnTimer();
    }
  }
  void operator()(const Committed& event) const {
    auto then = parts.commits.Take(event.ticket);
    std::visit(StoreRouter{parts, event.status}, then);
  }
  void operator()(const AuditWritten& event) const { parts.audit.On(event); }
  void operator()(const JoinAsked& event) const { parts.members.On(event); }
  void operator()(const HeartbeatHeard& event) const { parts.members.On(event); }
  void operator()(const LeaveAsked& event) const { parts.members.On(event); }
  void operator()(const MemberLost& event) const { parts.members.On(event); }
  void operator()(const AdoptionAnswered& event) const { parts.copies.On(event); }
  void operator()(const StatesGivenUp& event) const { parts.state_moves.On(event); }
  void operator()(const StatesTakenOver& event) const { parts.state_moves.On(event); }
  void operator()(const ReplicasAnswered& event) const { parts.state_replicas.On(event); }
  void operator()(const PlacesAsked& event) const { parts.copies.On(event); }
  void operator()(const RunnerLost& event) const { parts.claims.On(event); }
  void operator()(StartAsked& event) const { parts.runs.On(event); }
  void operator()(const StepAsked& event) const { parts.runs.On(event); }
  void operator()(const FinishAsked& event) const { parts.runs.On(event); }
  void operator()(AdminAsked& event) const { parts.admin.On(event); }
  void operator()(ModelImported& event) const { parts.deployments.On(event); }
  void operator()(KeyMade& event) const { parts.keys.On(event); }
  void operator()(TrialAnswered& event) const { parts.profiling.On(event); }
  void operator()(const DrainAnswered& event) const { parts.orders.On(event); }
  void operator()(const NodeDescribed& event) const { parts.inquiries.On(event); }
  void operator()(const GatewayDescribed& event) const { parts.inquiries.On(event); }
  void operator()(FaultCarried& event) const { parts.orders.On(event); }
  void operator()(const MachineOrdered& event) const { parts.machines.On(event); }
  void operator()(const ObjectsCollected& event) const { parts.objects.On(event); }
};

}  // namespace

Parts::Parts(ClusterSettings given, Catalogue stored)
    : settings(std::move(given)), catalogue(std::move(stored)) {}

void Parts::Hear(const Started& event) {
  copies.Start();
  out.WakeAfter(Timer::kPulse, settings.tick);
  members.Start();
  objects.Start();
  claims.Start();
  ownership.Start();
  commits.Add(BirthChanges(catalogue));
  deployments.On(event);
}

void Parts::Pulse() {
  out.WakeAfter(Timer::kPulse, settings.tick);
  members.Pulse();
  usage.Pulse();
  claims.TakeOver();
  machines.Provision();
  ownership.Pulse();
  profiling.Pulse();
  sharing.Follow();
  objects.Collect();
}

ManagerState Parts::State() const {
  return {catalogue,    members.table(), copies.table(),
          ownership,    scaling,         state_replicas,
          out.events(), out.now(),       copies.unreachable().size()};
}

Cluster::Cluster(ClusterSettings settings, Catalogue catalogue)
    : parts_(std::make_unique<Parts>(std::move(settings), std::move(catalogue))) {}

Cluster::~Cluster() = default;

Effects Cluster::On(Event event, Time now, std::int64_t unix_now) {
  parts_->out.Begin(now, unix_now);
  std::visit(Router{*parts_}, event);
  // Between two events no part uses a record that it has found.
  parts_->catalogue.FoldCold();
  return parts_->out.Take();
}

const Catalogue& Cluster::catalogue() const {
  return parts_->catalogue;
}

}  // namespace troupe::cluster
