#include "sim/schedules/planting.hpp"

namespace troupe::sim {

namespace {

constexpr std::uint64_t kPlantedAt = 40;  // the answer that is told twice

}  // namespace

// One line for each error.
void PlantIn(ChaosCluster& cluster, FaultInjector& injector, Clients& clients, WaitWatch& waits,
             Planted planted, Duration window) {
  switch (planted) {
    case Planted::kNone:
      return;
    case Planted::kSmallGpu:
      return cluster.nodes().TakeMemory(MiB(400));
    case Planted::kDropRecord:
      return cluster.disk().DropOne(storage::Table::kFunctions);
    case Planted::kStaleEpoch:
      return cluster.wire_watch().HideStaleEpochs();
    case Planted::kDoubleAnswer:
      return clients.requests().AnswerTwice(kPlantedAt);
    case Planted::kHiddenFunction:
      return cluster.operators().HideAFunction();
    case Planted::kSecondRun:
      return cluster.fronts().Plant([](SimulatedFront& front) { front.ChangeRunKeys(); });
    case Planted::kForgottenStep:
      return cluster.step_watch().HideSteps();
    case Planted::kSharedState:
      return cluster.nodes().ShareStates();
    case Planted::kForgottenImages:
      return cluster.wire_watch().HideImages();
    case Planted::kStaleImage:
      return cluster.wire_watch().DropCopies();
    case Planted::kLostState:
      return cluster.agenda().In(window / 2, [&cluster] { cluster.nodes().ForgetARun(); });
    case Planted::kForgottenKey:
      return cluster.fronts().Plant([](SimulatedFront& front) { front.ForgetKeys(); });
    case Planted::kIgnoredCondition:
      return cluster.fronts().Plant([](SimulatedFront& front) { front.IgnoreConditions(); });
    case Planted::kCountedTwice:
      return cluster.fronts().Plant([](SimulatedFront& front) { front.CountTwice(); });
    case Planted::kForgottenPages:
      return cluster.nodes().meters().ForgetPages();
    case Planted::kUncutRun:
      return cluster.nodes().NeverCut();
    case Planted::kUnchargedRun:
      return cluster.nodes().NeverCharge();
    case Planted::kUnreleased:
      return cluster.nodes().NeverRelease();
    case Planted::kSpoiledCopy:
      return cluster.nodes().SpoilCopies();
    case Planted::kSwappedParts:
      return cluster.nodes().SwapParts();
    case Planted::kTrustedWeights:
      return cluster.nodes().TrustWeights();
    case Planted::kTrustedRanges:
      return cluster.nodes().TrustRanges();
    case Planted::kSwappedMembers:
      return cluster.nodes().SwapMembers();
    case Planted::kForgottenUpdate:
      return clients.updates().Misremember();
    case Planted::kDisobeyedOwner:
      return;  // by what the schedule asks of the nodes
    case Planted::kForgottenWakeup:
      return waits.ForgetWakeups();
    case Planted::kSwappedRuntimes:
      return cluster.agenda().In(window / 2, [&cluster] { cluster.nodes().SwapRuntimes(); });
    case Planted::kPinnedVersion:
      return cluster.fronts().Plant(
          [](SimulatedFront& front) { front.PinVersion(ClientLoad::kCanaries, 1); });
    case Planted::kUnevenVersions:
      return cluster.fronts().Plant(
          [](SimulatedFront& front) { front.PinVersion(ClientLoad::kCanaries, 7); });
    case Planted::kKeptState:
      return cluster.wire_watch().HideRemovals(ClientLoad::kAnew);
    case Planted::kTornStages:
      return cluster.operators().HideAStage();
    case Planted::kUnmended:
      return injector.LeaveOne();
  }
}

}  // namespace troupe::sim
