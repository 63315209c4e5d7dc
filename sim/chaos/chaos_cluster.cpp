#include "sim/chaos/chaos_cluster.hpp"

#include <stdlib.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "cluster/records/record_keys.hpp"
#include "sim/checkers/usage_check.hpp"

namespace troupe::sim {

namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

// What is far shorter than in production, so that a schedule of seconds sees all of it.
actors::ExecutorLimits ShortLimits() {
  actors::ExecutorLimits limits;
  limits.supervision.start_timeout = seconds(1);
  limits.supervision.adopt_timeout = seconds(1);
  limits.supervision.hang_timeout = milliseconds(600);
  limits.supervision.kill_timeout = milliseconds(500);
  limits.supervision.first_backoff = milliseconds(50);
  limits.supervision.longest_backoff = seconds(1);
  limits.supervision.healthy_after = seconds(3);
  limits.watch_every = milliseconds(100);
  return limits;
}

// In memory where there is such a place: what the simulated node must not lose is not this machine's.
std::string MakeDisks() {
  std::error_code none;
  const std::filesystem::path memory = "/dev/shm";
  auto place = std::filesystem::is_directory(memory, none) ? memory : std::filesystem::temp_directory_path();
  std::string name = (place / "troupe-chaos-XXXXXX").string();
  TROUPE_CHECK(::mkdtemp(name.data()) != nullptr, "there is a place for a schedule's files");
  return name;
}

}  // namespace

ChaosCluster::ChaosCluster(ClusterShape shape, std::uint64_t seed, std::size_t notes)
    : shape_(shape),
      most_notes_(notes),
      disks_(MakeDisks()),
      world_(NetworkOf(seed)),
      agenda_(world_),
      disk_(DiskEvents(), Random(seed ^ 0xd15cULL)),
      fronts_(shape.gateways),
      lives_(shape.gateways) {
  world_.UseStore(disk_);
  world_.network()->SetTap(&taps_);
}

ChaosCluster::~ChaosCluster() {
  agenda_.Clear();
  for (const auto& link : operators_) {
    caf::anon_send_exit(link->watcher, caf::exit_reason::user_shutdown);
    link->manager = actors::ClusterManagerActor();
    link->watcher = nullptr;
  }
  world_.network()->SetTap(nullptr);
  world_.ShutDown();
  std::error_code ignored;
  std::filesystem::remove_all(disks_, ignored);
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

World::NodePlan ChaosCluster::PlanOf(const std::string& name) {
  World::NodePlan plan;
  plan.options.name = name;
  plan.options.executor = ShortLimits();
  plan.options.states.directory = DiskOf(name);
  plan.options.copies.region = plan.host_region;
  plan.worker.memory = GiB(1);
  plan.worker.prepare = milliseconds(5);
  // Longer than a run, so that a run of another function of the model may end while a state is written back.
  plan.worker.write_back = milliseconds(15);
  plan.worker.long_runs = long_runs_;
  for (std::uint32_t gpu = 0; gpu < shape_.gpus; ++gpu)
    plan.options.gpus.push_back({absl::StrCat("fake:", gpu), plan.worker.memory});
  meters_.Begin(name, plan);
  return plan;
}

void ChaosCluster::Start() {
  TROUPE_CHECK(StartManager().ok(), "a manager with an empty disk starts");
  for (std::size_t i = 0; i < shape_.gateways; ++i) {
    world_.StartGateway();
    OpenFront(i);
  }
  for (const auto& name : shape_.NodeNames()) {
    std::filesystem::create_directory(DiskOf(name));
    world_.StartNode(PlanOf(name));
  }
  for (const auto& name : shape_.OperatorNames())
    Connect(*operators_.emplace_back(std::make_shared<Link>()), name);
  agenda_.RunTo(world_.Now() + seconds(1));
}

void ChaosCluster::OpenFront(std::size_t index) {
  ++lives_[index];
  fronts_[index] = all_fronts_.emplace_back(std::make_shared<SimulatedFront>(
      world_, GatewayCount{shape_.GatewayNames()[index], lives_[index], 0, 0}, index));
  if (planted_) planted_(*fronts_[index]);
}

void ChaosCluster::Connect(Link& link, const std::string& name) {
  auto& directory = world_.DirectoryOf(name);
  link.watcher = world_.system().spawn(
      [link = operators_.back(), &directory](caf::event_based_actor* self) -> caf::behavior {
        directory.Watch("manager", self->system().message_types<actors::ClusterManagerActor>(),
                        caf::actor_cast<actors::PeerWatcherActor>(self));
        return {[link](const proto::PeerUp&, const caf::strong_actor_ptr& peer) {
                  link->manager = caf::actor_cast<actors::ClusterManagerActor>(peer);
                },
                [link](const proto::PeerLost&) { link->manager = actors::ClusterManagerActor(); }};
      });
}

void ChaosCluster::Infer(std::size_t gateway, proto::InferRequest request, const std::string& key,
                         SimulatedFront::Done done) {
  if (fronts_[gateway]) return fronts_[gateway]->Infer(std::move(request), key, std::move(done));
  proto::InferReply refused;
  refused.set_code(static_cast<int>(absl::StatusCode::kUnavailable));
  refused.set_message("connection refused");
  done(refused, false);
}

void ChaosCluster::Cancel(std::size_t gateway, std::uint64_t call) {
  if (fronts_[gateway]) fronts_[gateway]->Cancel(call);
}

void ChaosCluster::Admin(std::size_t of, proto::AdminRequest request, Duration timeout,
                         std::function<void(AdminResult)> done) {
  const auto& link = operators_[of];
  if (!link->manager) {
    agenda_.In(milliseconds(1), [done = std::move(done)] { done({}); });
    return;
  }
  world_.system().spawn([this, manager = link->manager, request = std::move(request), timeout,
                         done = std::move(done)](caf::event_based_actor* self) {
    self->request(manager, timeout, request)
        .then(
            [this, done, list = request.has_list_functions()](proto::AdminReply& reply) {
              if (list && hides_ && reply.functions_size() > 0) {
                hides_ = false;
                reply.mutable_functions()->RemoveLast();
              }
              done({true, std::move(reply)});
            },
            [done](const caf::error&) {
              done({true, std::nullopt});
            });
  });
}

bool ChaosCluster::KillGateway(std::size_t index) {
  if (!fronts_[index]) return false;
  world_.KillGateway(index);
  fronts_[index] = nullptr;
  return true;
}

bool ChaosCluster::StartGateway(std::size_t index) {
  if (fronts_[index]) return false;
  world_.RestartGateway(index);
  OpenFront(index);
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
  const auto started = world_.TryStartManager(kReplicas);
  manager_up_ = started.ok();
  return started;
}

bool ChaosCluster::KillNode(const std::string& name) {
  if (!NodeUp(name)) return false;
  world_.KillNode(name);
  return true;
}

bool ChaosCluster::StartNode(const std::string& name, World::Kept kept) {
  if (NodeUp(name)) return false;
  if (kept == World::Kept::kNothing) {
    std::filesystem::remove_all(DiskOf(name));
    std::filesystem::create_directory(DiskOf(name));
  }
  meters_.Restart(name, kept);
  world_.RestartNode(name, kept);
  return true;
}

void ChaosCluster::PlantInFronts(std::function<void(SimulatedFront&)> plant) {
  planted_ = std::move(plant);
  for (const auto& front : fronts_)
    if (front) planted_(*front);
}

void ChaosCluster::ForgetARun() {
  for (const auto& name : shape_.NodeNames())
    for (const auto& worker : world_.node(name).workers)
      for (auto& [function, state] : worker->life.states)
        if (state.image.runs() > 0) state.image.set_runs(state.image.runs() - 1);
}

void ChaosCluster::ShareStates() {
  for (const auto& name : shape_.NodeNames())
    for (const auto& worker : world_.node(name).workers) worker->states_by_model = true;
}

std::vector<std::string> ChaosCluster::BrokenUsage() const {
  std::vector<proto::UsageAmount> stored;
  const auto scanned = storage::ScanMessages<proto::UsageAmount>(
      disk_, storage::Table::kSettings, cluster::kUsageKey,
      [&stored](std::string_view, proto::UsageAmount amount) { stored.push_back(std::move(amount)); });
  if (!scanned.ok()) return {std::string(scanned.message())};
  return CheckUsage(meters_.Expected(), stored);
}

std::uint64_t ChaosCluster::WorkerStarts() {
  std::uint64_t starts = 0;
  for (const auto& name : shape_.NodeNames())
    for (const auto& worker : world_.node(name).workers) starts += worker->spawns;
  return starts;
}

void ChaosCluster::TakeMemory(Bytes bytes) {
  for (const auto& name : shape_.NodeNames())
    for (const auto& worker : world_.node(name).workers) worker->used += bytes;
}

std::vector<GatewayCount> ChaosCluster::Counts() const {
  std::vector<GatewayCount> counts;
  for (const auto& front : all_fronts_) counts.push_back(front->count());
  return counts;
}

void ChaosCluster::Note(const std::string& what) {
  const auto line = absl::StrCat(Clock(), " ", what);
  for (const char c : line) hash_ = (hash_ ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  notes_.push_back(line);
  if (notes_.size() > most_notes_) notes_.pop_front();
}

}  // namespace troupe::sim
