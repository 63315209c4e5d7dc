#include "node/node.hpp"

#include <utility>
#include <variant>

#include "node/parts.hpp"

namespace troupe::node {

namespace {

// Which part hears which event.
struct Router {
  Parts& parts;

  void operator()(const Started& event) const {
    parts.routers.UpdateCapacity();
    parts.profiles.On(event);
    parts.remembered.On(event);
    parts.metering.On(event);
  }
  void operator()(const Stopping& event) const {
    parts.profiles.On(event);
    parts.remembered.On(event);
  }
  void operator()(const TimerFired& event) const {
    switch (event.timer) {
      case Timer::kExpire:
        return parts.decisions.OnTimer();
      case Timer::kGrant:
        return parts.routers.OnGrantTimer();
      case Timer::kWork:
        return parts.routers.OnWorkTimer();
      case Timer::kCopies:
        return parts.copies.OnTimer();
      case Timer::kSaveProfiles:
        return parts.profiles.OnTimer();
      case Timer::kGiveBack:
        return parts.runtimes.OnGiveBackTimer();
      case Timer::kOrphans:
        return parts.orphans.OnTimer();
      case Timer::kRemember:
        return parts.remembered.OnTimer();
      case Timer::kSaveAdopted:
        return parts.remembered.OnSaveTimer();
      case Timer::kBroadcasts:
        return parts.broadcasts.OnTimer();
      case Timer::kMeters:
        return parts.metering.OnTimer();
      case Timer::kRefill:
        return parts.decisions.Decide();
      case Timer::kSequences:
        return parts.sequences.OnTimer();
      case Timer::kStates:
        return parts.states.OnTimer();
    }
  }
  void operator()(const RouterSaidHello& event) const {
    parts.requests.On(event);
    parts.routers.On(event);
  }
  void operator()(const RouterLost& event) const { parts.Hear(event); }
  void operator()(RequestArrived& event) const { parts.requests.On(event); }
  void operator()(InputsArrived& event) const { parts.requests.On(event); }
  void operator()(const RequestCancelled& event) const { parts.requests.On(event); }
  void operator()(const OutputsRead& event) const { parts.requests.On(event); }
  void operator()(const ExportAsked& event) const { parts.kept_tensors.On(event); }
  void operator()(const AdoptionAsked& event) const { parts.models.On(event); }
  void operator()(const ModelDisowned& event) const { parts.models.On(event); }
  void operator()(const CopyFetched& event) const { parts.copies.On(event); }
  void operator()(const CopyPlaced& event) const { parts.copies.On(event); }
  void operator()(const WorkerReported& event) const { parts.runtimes.On(event); }
  void operator()(OrderAnswered& event) const { parts.orders.On(event); }
  void operator()(const ImageLoaded& event) const { parts.states.On(event); }
  void operator()(ImageSaved& event) const { parts.write_backs.On(event); }
  void operator()(const StatesWanted& event) const { parts.handovers.On(event); }
  void operator()(const StatesOffered& event) const { parts.handovers.On(event); }
  void operator()(const StatesElsewhere& event) const { parts.handovers.On(event); }
  void operator()(const ImageAsked& event) const { parts.handovers.On(event); }
  void operator()(const ImagesPulled& event) const {
    event.copy == 0 ? parts.handovers.On(event) : parts.replica_images.On(event);
  }
  void operator()(const ReplicasNamed& event) const { parts.replication.On(event); }
  void operator()(const CopyOffered& event) const { parts.replica_images.On(event); }
  void operator()(const CopyEnded& event) const { parts.replication.On(event); }
  void operator()(const MetersRead& event) const { parts.metering.On(event); }
  void operator()(const UsageSaved& event) const { parts.metering.On(event); }
  void operator()(const ProfilesSaved& event) const { parts.profiles.On(event); }
  void operator()(const AdoptedSaved& event) const { parts.remembered.On(event); }
  void operator()(const TrialAsked& event) const { parts.profile_trials.On(event); }
  void operator()(const TrialStopped& event) const { parts.profile_trials.On(event); }
  void operator()(const ClusterChanged& event) const { parts.membership.On(event); }
  void operator()(const Joined& event) const { parts.Hear(event); }
  void operator()(const ReportAsked& event) const { parts.membership.On(event); }
  void operator()(const DrainAsked& event) const { parts.membership.On(event); }
  void operator()(const KillAsked& event) const { parts.runtimes.On(event); }
  void operator()(const FaultAsked& event) const { parts.runtimes.On(event); }
};

}  // namespace

void Parts::Hear(const RuntimeLost& event) {
  refill.On(event);
  states.On(event);
  kept_tensors.On(event);
  tensor_copies.On(event);
  requests.On(event);
  evictions.On(event);
  peer_copies.On(event);
  preparation.On(event);
  decisions.On(event);
  sequences.On(event);
}

void Parts::Hear(const RuntimeReassigned& event) {
  kept_tensors.On(event);
  requests.On(event);
  evictions.On(event);
  preparation.On(event);
}

void Parts::Hear(const RouterLost& event) {
  routers.On(event);
  requests.On(event);
}

void Parts::Hear(const Joined& event) {
  states.Joined(event.epoch);
  if (event.lapsed) replication.Lapsed(event.epoch);
  replica_images.Joined();
  membership.On(event);
  routers.On(event);
  remembered.On(event);
  remembered.SaveSoon();
  routers.GrantAll();
}

Node::Node(NodeSettings settings, SchedulerPolicies policies)
    : parts_(std::make_unique<Parts>(std::move(settings), policies)) {}

Node::~Node() = default;

Effects Node::On(Event event, Time now) {
  parts_->out.Begin(now);
  std::visit(Router{*parts_}, event);
  parts_->handovers.Look();
  return parts_->out.Take();
}

proto::NodeDescription Node::Describe(Time now) const {
  return parts_->view.Describe(now);
}

void Node::AddWorker(GpuIndex gpu, proto::WorkerDescription worker, proto::NodeDescription& node, Time now) {
  auto& status = *node.mutable_gpus(static_cast<int>(parts_->settings.DeviceOf(gpu)));
  parts_->view.AddWorker(gpu, worker, status, now);
}

std::uint64_t Node::NumberOrder() {
  return parts_->orders.Number();
}

std::uint32_t Node::runtimes() const {
  return parts_->runtimes.size();
}

std::size_t Node::names() const {
  return parts_->names.size();
}

}  // namespace troupe::node
