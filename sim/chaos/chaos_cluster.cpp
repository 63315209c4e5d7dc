#include "sim/chaos/chaos_cluster.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "cluster/records/record_keys.hpp"
#include "sim/checkers/usage_check.hpp"

namespace troupe::sim {

namespace {

using std::chrono::microseconds;
using std::chrono::seconds;

}  // namespace

ChaosCluster::ChaosCluster(ClusterShape shape, std::uint64_t seed, std::size_t notes)
    : shape_(shape),
      trace_(notes),
      world_(NetworkOf(seed)),
      agenda_(world_),
      disk_(DiskEvents(), Random(seed ^ 0xd15cULL)),
      fronts_(world_, shape.GatewayNames()),
      operators_(world_, agenda_),
      nodes_(world_, shape) {
  world_.UseStore(disk_);
  world_.network()->SetTap(&taps_);
}

ChaosCluster::~ChaosCluster() {
  agenda_.Clear();
  operators_.Clear();
  world_.network()->SetTap(nullptr);
  world_.ShutDown();
}

NetworkOptions ChaosCluster::NetworkOf(std::uint64_t seed) {
  NetworkOptions options;
  options.delay = microseconds(200);
  options.jitter = microseconds(300);
  options.connection_timeout = seconds(1);
  options.seed = seed;
  return options;
}

SimulatedDisk::Events ChaosCluster::DiskEvents() {
  return {.now = [this] { return world_.Now(); },
          .at = [this](Time when, std::function<void()> what) { agenda_.At(when, std::move(what)); },
          .written = [this](const storage::Batch& batch,
                            bool acknowledged) { store_watch_.Written(batch, acknowledged, world_.Now()); }};
}

void ChaosCluster::Start() {
  TROUPE_CHECK(StartManager().ok(), "a manager with an empty disk starts");
  for (std::size_t i = 0; i < shape_.gateways; ++i) {
    actors::RouterOptions router;
    router.policies = shape_.Policies();
    world_.StartGateway(std::move(router));
    fronts_.Open(i);
  }
  taps_.steps.ReadKept([this](const proto::KeptTensor& tensor) { return nodes_.ReadKept(tensor); });
  nodes_.StartAll();
  for (const auto& name : shape_.OperatorNames()) operators_.Connect(name);
  agenda_.RunTo(world_.Now() + seconds(1));
}

bool ChaosCluster::KillGateway(std::size_t index) {
  if (!fronts_.IsUp(index)) return false;
  world_.KillGateway(index);
  fronts_.Close(index);
  return true;
}

bool ChaosCluster::StartGateway(std::size_t index) {
  if (fronts_.IsUp(index)) return false;
  world_.RestartGateway(index);
  fronts_.Open(index);
  return true;
}

bool ChaosCluster::KillManager() {
  if (!manager_up_) return false;
  manager_up_ = false;
  world_.StopManager();
  torn_ += disk_.Crash() ? 1 : 0;
  return true;
}

absl::Status ChaosCluster::StartManager() {
  if (manager_up_) return absl::OkStatus();
  const auto started = world_.TryStartManager(kReplicas, [this](actors::ManagerOptions& options) {
    options.scaling.owning = shape_.owning;
    if (shape_.copies > 0) options.member_lease = options.membership.dead_after;
  });
  manager_up_ = started.ok();
  return started;
}

bool ChaosCluster::StatesAreOnlyOn(const std::set<std::string>& nodes) const {
  bool only = false;
  const auto scanned = storage::ScanMessages<proto::PlacementRecord>(
      disk_, storage::Table::kSettings, cluster::kHomeKey,
      [&](std::string_view, const proto::PlacementRecord& home) {
        std::set<std::string> holders{home.in_step().begin(), home.in_step().end()};
        if (!home.home_is_empty()) holders.insert(home.nodes(0));
        only |= std::ranges::includes(nodes, holders);
      });
  TROUPE_CHECK(scanned.ok(), "the homes can be read");
  return only;
}

std::vector<std::string> ChaosCluster::BrokenUsage() const {
  std::vector<proto::UsageAmount> stored;
  const auto scanned = storage::ScanMessages<proto::UsageAmount>(
      disk_, storage::Table::kSettings, cluster::kUsageKey,
      [&stored](std::string_view, proto::UsageAmount amount) { stored.push_back(std::move(amount)); });
  if (!scanned.ok()) return {std::string(scanned.message())};
  return CheckUsage(nodes_.meters().Expected(), stored);
}

void ChaosCluster::Note(const std::string& what) {
  trace_.Add(absl::StrCat(FormatDuration(world_.Now().time_since_epoch()), " ", what));
}

}  // namespace troupe::sim
