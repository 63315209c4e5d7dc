#include "sim/chaos/fault_injector.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/check.hpp"

namespace troupe::sim {

namespace {

// How long a member that lost the manager takes to know again what has changed: its connection is given up
// and made anew, and it joins again.
constexpr Duration kRejoin = std::chrono::seconds(3);

std::size_t IndexOf(const std::string& name) {
  std::size_t number = 0;
  TROUPE_CHECK(absl::SimpleAtoi(name.substr(name.find('-') + 1), &number), "a member's name has a number");
  return number - 1;
}

}  // namespace

void FaultInjector::Schedule(const std::vector<PlannedFault>& plan) {
  for (const PlannedFault& fault : plan) cluster_.agenda().In(fault.at, [this, fault] { Begin(fault); });
}

void FaultInjector::Begin(const PlannedFault& fault) {
  if (!Strike(fault)) return;
  ++fired_[static_cast<std::size_t>(fault.kind)];
  cluster_.Note(absl::StrCat("FAULT ", ToString(fault)));
}

bool FaultInjector::Strike(const PlannedFault& fault) {
  switch (fault.kind) {
    case FaultKind::kKillWorker:
    case FaultKind::kHangWorker:
    case FaultKind::kRefuseWorker:
      return StrikeWorker(fault);
    case FaultKind::kKillDaemon:
    case FaultKind::kKillNode:
    case FaultKind::kReplaceNode:
    case FaultKind::kPowerCut:
      return StrikeNode(fault);
    case FaultKind::kKillGateway:
      return StrikeGateway(fault);
    case FaultKind::kKillManager:
      return StrikeManager(fault);
    case FaultKind::kPartition:
    case FaultKind::kPartitionOneWay:
    case FaultKind::kCut:
    case FaultKind::kDelay:
      return StrikeConnection(fault);
    case FaultKind::kLongRun:
      return StrikeRuns(fault);
    default:
      return StrikeDisk(fault);
  }
}

void FaultInjector::Later(Duration after, const std::string& what, std::function<void()> mend) {
  if (std::exchange(leave_one_, false)) return;
  const auto number = next_mend_++;
  mends_[number] = [this, what, mend = std::move(mend)] {
    cluster_.Note(what);
    mend();
  };
  cluster_.agenda().In(after, [this, number] {
    const auto due = mends_.extract(number);
    if (!due.empty()) due.mapped()();
  });
}

void FaultInjector::MendAll() {
  while (!mends_.empty()) mends_.extract(mends_.begin()).mapped()();
  cluster_.disk().Mend();
  fired_[kTornRecord] = cluster_.torn();
}

bool FaultInjector::StrikeWorker(const PlannedFault& fault) {
  if (!cluster_.nodes().IsUp(fault.member)) return false;
  auto& worker = cluster_.nodes().Worker(fault.member, fault.gpu);
  if (!worker.kill || worker.hang || worker.refuse_start) return false;
  const auto name = absl::StrCat(fault.member, " GPU ", fault.gpu);
  // The worker may be another's by then, when its machine was replaced: what is held here lives on.
  const auto held = cluster_.nodes().WorkersOf(fault.member, fault.gpu).front();
  LoseMemory();
  if (fault.kind == FaultKind::kHangWorker) {
    worker.hang = true;
    Later(fault.length, absl::StrCat("hang of ", name, " is over"), [this, held] {
      LoseMemory();
      if (held->kill) held->kill();  // what it took meanwhile is lost
      held->hang = false;
    });
    return true;
  }
  if (fault.kind == FaultKind::kRefuseWorker) {
    worker.refuse_start = true;
    Later(fault.length, absl::StrCat(name, " starts again"), [held] { held->refuse_start = false; });
  }
  worker.kill();
  return true;
}

std::vector<std::string> FaultInjector::PeersOf(const std::string& node) const {
  auto peers = cluster_.shape().GatewayNames();
  peers.push_back("manager");
  for (auto& other : cluster_.shape().NodeNames())
    if (other != node) peers.push_back(std::move(other));
  return peers;
}

bool FaultInjector::StrikeNode(const PlannedFault& fault) {
  const auto& name = fault.member;
  if (!cluster_.nodes().IsUp(name)) return false;
  const bool silent = fault.kind == FaultKind::kPowerCut;
  if (silent)
    for (const auto& peer : PeersOf(name)) cluster_.world().network()->Partition(name, peer, false);
  cluster_.nodes().Kill(name);
  const auto kept = fault.kind == FaultKind::kKillDaemon    ? World::Kept::kWorkers
                    : fault.kind == FaultKind::kReplaceNode ? World::Kept::kNothing
                                                            : World::Kept::kDisk;
  if (kept == World::Kept::kNothing) LoseDisk(name);
  if (kept != World::Kept::kWorkers) LoseMemory();
  Later(fault.length, absl::StrCat(name, " is back"), [this, name, silent, kept] {
    cluster_.nodes().Start(name, kept);
    if (kept == World::Kept::kNothing)
      cluster_.agenda().In(kRejoin, [this, name] { lost_disks_.erase(name); });
    if (silent)
      for (const auto& peer : PeersOf(name)) cluster_.world().network()->Heal(name, peer, false);
  });
  return true;
}

// The store hears of it when the node joins with another disk.
void FaultInjector::LoseDisk(const std::string& node) {
  lost_disks_.insert(node);
  if (cluster_.StatesAreOnlyOn(lost_disks_)) lost_states_.push_back(cluster_.world().Now());
}

void FaultInjector::LoseMemory() {
  if (cluster_.shape().by_eviction) lost_states_.push_back(cluster_.world().Now());
}

bool FaultInjector::StrikeGateway(const PlannedFault& fault) {
  const auto index = IndexOf(fault.member);
  if (!cluster_.KillGateway(index)) return false;
  Silent(fault.member, "manager", fault.length);  // it knows nothing yet when it is back
  Later(fault.length, absl::StrCat(fault.member, " is back"),
        [this, index] { cluster_.StartGateway(index); });
  return true;
}

// While it writes: when it has asked its disk for something, and before that is done.
bool FaultInjector::StrikeManager(const PlannedFault& fault) {
  if (fault.count == 0) return KillManager(fault.length);
  if (!cluster_.manager_up()) return false;
  cluster_.disk().WhenAsked([this, length = fault.length] {
    cluster_.Note("what the manager writes is torn");
    KillManager(length);
  });
  return true;
}

bool FaultInjector::KillManager(Duration down) {
  if (!cluster_.KillManager()) return false;
  for (const auto& gateway : cluster_.shape().GatewayNames()) Silent(gateway, "manager", down);
  Later(down, "the manager is back", [this] {
    const auto started = cluster_.StartManager();
    if (!started.ok())
      failures_.push_back(absl::StrCat("the manager does not start again: ", started.message()));
  });
  return true;
}

void FaultInjector::RestartManager() {
  KillManager(Duration());
  cluster_.agenda().RunTo(cluster_.world().Now());
}

bool FaultInjector::StrikeConnection(const PlannedFault& fault) {
  auto& network = *cluster_.world().network();
  const auto between = absl::StrCat(fault.member, " and ", fault.peer);
  Silent(fault.member, fault.peer, fault.length + fault.amount);
  switch (fault.kind) {
    case FaultKind::kCut:
      network.Cut(fault.member, fault.peer);
      break;
    case FaultKind::kDelay:
      network.Slow(fault.member, fault.peer, fault.amount);
      Later(fault.length, absl::StrCat("no delay between ", between),
            [&network, fault] { network.Slow(fault.member, fault.peer, Duration()); });
      break;
    default: {
      const bool one_way = fault.kind == FaultKind::kPartitionOneWay;
      network.Partition(fault.member, fault.peer, one_way);
      Later(fault.length, absl::StrCat("no partition between ", between),
            [&network, fault, one_way] { network.Heal(fault.member, fault.peer, one_way); });
    }
  }
  return true;
}

bool FaultInjector::StrikeDisk(const PlannedFault& fault) {
  if (fault.kind == FaultKind::kClockJump) {
    cluster_.world().SetWallClock(fault.amount);
    return true;
  }
  if (fault.kind == FaultKind::kFailedSync) {
    cluster_.disk().FailSyncs(fault.count);
    return true;
  }
  cluster_.disk().SetLatency(fault.amount);
  Later(fault.length, "the disk is fast again",
        [this] { cluster_.disk().SetLatency(SimulatedDisk::kLatency); });
  return true;
}

bool FaultInjector::StrikeRuns(const PlannedFault& fault) {
  const std::string digest = World::WorkerDigest(fault.member);
  cluster_.nodes().StretchRuns(digest, fault.amount);
  Later(fault.length, absl::StrCat("runs of ", fault.member, " are short again"),
        [this, digest] { cluster_.nodes().StretchRuns(digest, Duration()); });
  return true;
}

void FaultInjector::Silent(const std::string& member, const std::string& peer, Duration length) {
  const auto now = cluster_.world().Now();
  for (const auto& gateway : {member, peer})
    if (absl::StartsWith(gateway, "gateway-") && (member == "manager" || peer == "manager"))
      silences_.push_back({gateway, now, now + length + kRejoin});
}

}  // namespace troupe::sim
