#include "sim/faults/fault_plan.hpp"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"

namespace troupe::sim {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Long runs are drawn by themselves: they need a function of their own.
constexpr std::uint64_t kDrawn = kFaultKinds - 1;

std::vector<std::string> Numbered(const char* what, std::uint32_t count) {
  std::vector<std::string> names;
  for (std::uint32_t i = 1; i <= count; ++i) names.push_back(absl::StrCat(what, i));
  return names;
}

template <class T>
const T& OneOf(const std::vector<T>& all, Random& random) {
  return all[random.Below(all.size())];
}

Duration Between(Duration low, Duration high, Random& random) {
  return low + Duration(static_cast<Duration::rep>(
                   random.Below(static_cast<std::uint64_t>((high - low).count()) + 1)));
}

// Two members that talk to each other.
void DrawConnection(const ClusterShape& shape, PlannedFault& fault, Random& random) {
  switch (random.Below(4)) {
    case 0:
      fault.member = OneOf(shape.NodeNames(), random);
      fault.peer = "manager";
      break;
    case 1:
      fault.member = OneOf(shape.GatewayNames(), random);
      fault.peer = "manager";
      break;
    case 2:
      fault.member = OneOf(shape.OperatorNames(), random);
      fault.peer = "manager";
      break;
    default:
      fault.member = OneOf(shape.GatewayNames(), random);
      fault.peer = OneOf(shape.NodeNames(), random);
  }
  if (random.Below(2) == 0) std::swap(fault.member, fault.peer);
}

void DrawTarget(const ClusterShape& shape, PlannedFault& fault, Random& random) {
  switch (fault.kind) {
    case FaultKind::kKillWorker:
    case FaultKind::kHangWorker:
    case FaultKind::kRefuseWorker:
      fault.gpu = static_cast<std::uint32_t>(random.Below(shape.gpus));
      fault.member = OneOf(shape.NodeNames(), random);
      break;
    case FaultKind::kKillDaemon:
    case FaultKind::kKillNode:
    case FaultKind::kReplaceNode:
    case FaultKind::kPowerCut:
      fault.member = OneOf(shape.NodeNames(), random);
      break;
    case FaultKind::kKillGateway:
      fault.member = OneOf(shape.GatewayNames(), random);
      break;
    case FaultKind::kPartition:
    case FaultKind::kPartitionOneWay:
    case FaultKind::kCut:
    case FaultKind::kDelay:
      DrawConnection(shape, fault, random);
      break;
    default:
      fault.member = "manager";
  }
}

void DrawSize(PlannedFault& fault, Random& random) {
  switch (fault.kind) {
    case FaultKind::kKillWorker:
    case FaultKind::kCut:
      break;
    case FaultKind::kDelay:
      fault.length = Between(milliseconds(100), seconds(2), random);
      fault.amount = Between(milliseconds(5), milliseconds(300), random);
      break;
    case FaultKind::kSlowDisk:
      fault.length = Between(milliseconds(200), seconds(2), random);
      fault.amount = Between(milliseconds(20), milliseconds(600), random);
      break;
    case FaultKind::kKillManager:
      fault.length = Between(milliseconds(50), seconds(2), random);
      fault.count = static_cast<std::uint32_t>(random.Below(2));
      break;
    case FaultKind::kFailedSync:
      fault.count = 1 + static_cast<std::uint32_t>(random.Below(4));
      break;
    case FaultKind::kClockJump:
      fault.amount = Between(-std::chrono::hours(48), std::chrono::hours(48), random);
      break;
    case FaultKind::kPartition:
    case FaultKind::kPartitionOneWay:
      // Half of them are over before the connection is given up.
      fault.length = Between(milliseconds(50), random.Below(2) == 0 ? milliseconds(900) : seconds(3), random);
      break;
    default:
      fault.length = Between(milliseconds(50), seconds(2), random);
  }
}

}  // namespace

const char* Name(FaultKind kind) {
  static constexpr std::array<const char*, kFaultKinds> kNames = {
      "kill-worker", "hang-worker",  "refuse-worker", "kill-daemon", "kill-node",         "replace-node",
      "power-cut",   "kill-gateway", "kill-manager",  "partition",   "partition-one-way", "cut",
      "delay",       "slow-disk",    "failed-sync",   "clock-jump",  "long-run"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::array<FaultKind, kFaultKinds> AllFaultKinds() {
  std::array<FaultKind, kFaultKinds> all{};
  for (std::size_t i = 0; i < kFaultKinds; ++i) all[i] = static_cast<FaultKind>(i);
  return all;
}

PolicyNames ClusterShape::Policies() const {
  auto policies = FindPreset(preset);
  TROUPE_CHECK(policies.ok(), "a shape names a preset");
  policies->batching = batching;
  return *std::move(policies);
}

std::vector<std::string> ClusterShape::NodeNames() const {
  return Numbered("node-", nodes);
}
std::vector<std::string> ClusterShape::GatewayNames() const {
  return Numbered("gateway-", gateways);
}
std::vector<std::string> ClusterShape::OperatorNames() const {
  return Numbered("operator-", operators);
}

std::string ToString(const PlannedFault& fault) {
  std::string text = absl::StrCat(Name(fault.kind), " ", fault.member);
  if (!fault.peer.empty()) absl::StrAppend(&text, " ", fault.peer);
  if (fault.kind <= FaultKind::kRefuseWorker) absl::StrAppend(&text, " GPU ", fault.gpu);
  if (fault.kind == FaultKind::kKillManager)
    absl::StrAppend(&text, fault.count > 0 ? " while it writes" : "");
  else if (fault.count > 0)
    absl::StrAppend(&text, " ", fault.count, " times");
  if (fault.amount != Duration()) absl::StrAppend(&text, " by ", FormatDuration(fault.amount));
  if (fault.length > Duration()) absl::StrAppend(&text, " for ", FormatDuration(fault.length));
  return text;
}

std::vector<PlannedFault> DrawFaults(const ClusterShape& shape, Duration window, Random& random) {
  std::vector<PlannedFault> faults;
  const auto count = 1 + random.Below(8);
  Duration at{};
  for (std::uint64_t i = 0; i < count; ++i) {
    PlannedFault fault;
    fault.kind = static_cast<FaultKind>(random.Below(kDrawn));
    DrawTarget(shape, fault, random);
    DrawSize(fault, random);
    if (i == 0 || random.Below(3) > 0) at = Between(Duration(), window, random);
    fault.at = at;
    fault.length = std::min(fault.length, window - at);
    faults.push_back(std::move(fault));
  }
  std::ranges::stable_sort(faults, {}, &PlannedFault::at);
  return faults;
}

std::vector<PlannedFault> BetweenNodes(std::vector<PlannedFault> faults, const ClusterShape& shape,
                                       Duration window, Random& random) {
  constexpr std::array<FaultKind, 4> kKinds = {FaultKind::kPartition, FaultKind::kPartitionOneWay,
                                               FaultKind::kCut, FaultKind::kDelay};
  const auto count = 1 + random.Below(3);
  for (std::uint64_t i = 0; i < count; ++i) {
    PlannedFault fault;
    fault.kind = kKinds[random.Below(kKinds.size())];
    auto nodes = shape.NodeNames();
    fault.member = nodes[random.Below(nodes.size())];
    std::erase(nodes, fault.member);
    fault.peer = OneOf(nodes, random);
    DrawSize(fault, random);
    fault.at = Between(Duration(), window, random);
    fault.length = std::min(fault.length, window - fault.at);
    faults.push_back(std::move(fault));
  }
  std::ranges::stable_sort(faults, {}, &PlannedFault::at);
  return faults;
}

std::vector<PlannedFault> WithLongRuns(std::vector<PlannedFault> faults, const std::string& function,
                                       Duration window, Random& random) {
  const auto count = 1 + random.Below(3);
  for (std::uint64_t i = 0; i < count; ++i) {
    PlannedFault fault;
    fault.kind = FaultKind::kLongRun;
    fault.member = function;
    fault.at = Between(Duration(), window * 3 / 4, random);
    fault.length = std::min(Between(milliseconds(700), seconds(2), random), window - fault.at);
    fault.amount = Between(seconds(1), seconds(4), random);
    faults.push_back(std::move(fault));
  }
  std::ranges::stable_sort(faults, {}, &PlannedFault::at);
  return faults;
}

}  // namespace troupe::sim
