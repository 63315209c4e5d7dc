#include "sim/chaos/chaos_nodes.hpp"

#include <stdlib.h>

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"

namespace troupe::sim {

namespace {

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

ChaosNodes::ChaosNodes(World& world, const ClusterShape& shape)
    : world_(world), shape_(shape), disks_(MakeDisks()) {
  ranges_->spoil_every = 5;
}

ChaosNodes::~ChaosNodes() {
  std::error_code ignored;
  std::filesystem::remove_all(disks_, ignored);
}

World::NodePlan ChaosNodes::PlanOf(const std::string& name) {
  World::NodePlan plan;
  plan.options.name = name;
  plan.options.executor = ShortLimits();
  plan.options.states.directory = DiskOf(name);
  if (shape_.by_eviction) plan.options.state_write_back = node::StateWriteBack::kEvict;
  plan.options.copies.region = plan.host_region;
  plan.options.policies = shape_.Policies();
  plan.worker.memory = kGpuMemory;
  plan.worker.prepare = milliseconds(5);
  // Longer than a run, so that a run of another function of the model may end while a state is written back.
  plan.worker.write_back = milliseconds(15);
  plan.worker.long_runs = long_runs_;
  plan.worker.quotas = quotas_;
  plan.worker.keeps = true;
  plan.worker.spoil_every = 3;
  plan.options.keep_weights = node::KeepWeights::kOn;
  // An object of a few bytes comes in several ranges, and now and then another node sends a wrong one.
  plan.pulls.limits = {.range_bytes = 3, .under_way = 4, .of_a_source = 3, .in_memory = 8};
  plan.ranges = ranges_;
  for (std::uint32_t gpu = 0; gpu < shape_.gpus; ++gpu)
    plan.options.gpus.push_back({absl::StrCat("fake:", gpu), plan.worker.memory});
  if (shape_.linked && shape_.gpus > 1) plan.options.topology = *node::Topology::Parse("link:0-1=25GB");
  if (shape_.Isolated()) {
    plan.options.isolation = {
        .mode = proto::ISOLATION_FUNCTION, .runtimes = shape_.runtimes, .idle = seconds(2)};
    plan.options.scheduler.isolated = true;
  }
  meters_.Begin(name, plan);
  return plan;
}

void ChaosNodes::StartAll() {
  for (const auto& name : shape_.NodeNames()) {
    std::filesystem::create_directory(DiskOf(name));
    world_.StartNode(PlanOf(name));
  }
}

bool ChaosNodes::Kill(const std::string& name) {
  if (!IsUp(name)) return false;
  world_.KillNode(name);
  return true;
}

bool ChaosNodes::Start(const std::string& name, World::Kept kept) {
  if (IsUp(name)) return false;
  if (kept == World::Kept::kNothing) {
    std::filesystem::remove_all(DiskOf(name));
    std::filesystem::create_directory(DiskOf(name));
  }
  meters_.Restart(name, kept);
  world_.RestartNode(name, kept);
  return true;
}

template <class Call>
void ChaosNodes::ForEachWorker(Call call) {
  for (const auto& name : shape_.NodeNames())
    for (const auto& worker : world_.node(name).workers) call(*worker);
}

void ChaosNodes::TakeMemory(Bytes bytes) {
  ForEachWorker([&](actors::FakeWorkerControl& worker) { worker.used += bytes; });
}

void ChaosNodes::ForgetARun() {
  ForEachWorker([](actors::FakeWorkerControl& worker) {
    for (auto& [function, state] : worker.life.states)
      if (state.image.runs() > 0) state.image.set_runs(state.image.runs() - 1);
  });
}

void ChaosNodes::ShareStates() {
  ForEachWorker([](actors::FakeWorkerControl& worker) { worker.states_by_model = true; });
}

void ChaosNodes::TrustWeights() {
  ForEachWorker([](actors::FakeWorkerControl& worker) { worker.kept.trust = true; });
}

void ChaosNodes::SwapMembers() {
  ForEachWorker([](actors::FakeWorkerControl& worker) { worker.swap_members = true; });
}

std::string ChaosNodes::ReadKept(const proto::KeptTensor& tensor) {
  std::string bytes;
  const auto& node = world_.node(tensor.node());
  if (tensor.daemon() != node.incarnation) return bytes;  // another machine had it, that counted its own
  for (const auto& worker : node.workers)
    if (bytes.empty()) bytes = worker->life.tensors.Read(tensor);
  return bytes;
}

std::vector<KeptThere> ChaosNodes::KeptTensors() {
  std::vector<KeptThere> kept;
  for (const auto& name : shape_.NodeNames()) {
    const auto& node = world_.node(name);
    kept.push_back({.where = name, .bytes = node.channel->used().count()});
    for (std::size_t i = 0; i < node.workers.size(); ++i)
      kept.push_back(
          {.where = absl::StrCat(name, " GPU ", i), .tensors = node.workers[i]->life.tensors.size()});
  }
  return kept;
}

void ChaosNodes::SpoilCopies() {
  ForEachWorker([](actors::FakeWorkerControl& worker) { worker.spoils_copies = true; });
}

void ChaosNodes::SwapParts() {
  ForEachWorker([](actors::FakeWorkerControl& worker) { worker.swaps_parts = true; });
}

std::vector<std::string> ChaosNodes::WrongModels() {
  std::vector<std::string> wrong;
  for (const auto& name : shape_.NodeNames())
    for (const auto& object : world_.node(name).repository.WrongObjects())
      wrong.push_back(absl::StrCat(name, " has other bytes than those of object ", object));
  return wrong;
}

std::vector<RuntimeModel> ChaosNodes::RuntimeModels() {
  std::vector<RuntimeModel> models;
  for (const auto& name : shape_.NodeNames()) {
    const auto& workers = world_.node(name).workers;
    for (std::size_t i = 0; i < workers.size(); ++i)
      for (const auto& [runtime, digest] : workers[i]->touched)
        models.push_back(
            {.where = absl::StrCat(name, " GPU ", i / shape_.runtimes, ", runtime ", i % shape_.runtimes),
             .runtime = runtime,
             .model = digest});
  }
  return models;
}

// Each of a node takes the name of the next one.
void ChaosNodes::SwapRuntimes() {
  for (const auto& name : shape_.NodeNames()) {
    std::vector<std::string*> names;
    for (const auto& worker : world_.node(name).workers)
      if (!worker->life.runtime.empty()) names.push_back(&worker->life.runtime);
    for (std::size_t i = 1; i < names.size(); ++i) names[i]->swap(*names[i - 1]);
  }
}

void ChaosNodes::NeverRelease() {
  ForEachWorker([](actors::FakeWorkerControl& worker) { worker.never_releases = true; });
}

}  // namespace troupe::sim
