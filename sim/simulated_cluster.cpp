#include "sim/simulated_cluster.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "cluster/copies/fetch_policy.hpp"

namespace troupe::sim {
namespace {

constexpr std::uint32_t kRuntimesAtWork = 64;  // requests given to a GPU whose functions have each their own

// The tensors of the simulator are small and stand for large ones, which cost more to write than to compute again: so they are
// kept, as a run would choose for those. Where each function has its own runtime they would often be lost with it, when it is
// given to another function: systems with such sandboxes have a store for them.
StepTerms TermsOf(const SimulationSetup& setup) {
  return {.timeout = setup.cluster.timeout,
          .written = setup.sandbox && setup.sandbox->isolation == proto::ISOLATION_FUNCTION};
}

}  // namespace

SimulatedCluster::SimulatedCluster(const SimulationSetup& setup, std::vector<std::size_t> models,
                                   OnBring on_bring)
    : setup_(setup),
      models_(std::move(models)),
      on_bring_(std::move(on_bring)),
      workflows_(WorkflowsOf(setup.workload.functions, TermsOf(setup))),
      world_(NetworkOf(setup)),
      disk_(world_, setup.seed) {
  for (std::size_t i = 0; i < setup_.workload.functions.size(); ++i) {
    functions_[World::WorkerDigest(Name(i))] = i;
    (*catalogue_)[World::WorkerDigest(Name(i))] = TimesOf(ModelOf(i));
  }
  if (!workflows_.all.empty()) world_.UseStore(disk_.store());
}

void SimulatedCluster::ShutDown() {
  disk_.End();
  world_.ShutDown();
}

void SimulatedCluster::Start() {
  const auto replicas = cluster::FindReplicaPolicy(setup_.policies.replicas);
  TROUPE_CHECK(replicas.ok(), "the policies of a simulation are checked before it begins");
  const auto fetching = cluster::FindFetchPolicy(setup_.policies.fetching);
  TROUPE_CHECK(fetching.ok(), "the policies of a simulation are checked before it begins");
  world_.StartManager(setup_.cluster.host_copies, [&](auto& options) {
    options.replica_policy = *replicas;
    options.fetch_policy = *fetching;
    options.scaling.policy = setup_.policies.scaling;
    options.scaling.forecast = setup_.policies.forecast;
    options.scaling.owning = setup_.policies.owning;
  });
  actors::RouterOptions router;
  router.policies = setup_.policies;
  for (std::uint32_t i = 0; i < setup_.cluster.gateways; ++i) world_.StartGateway(router);
  for (std::uint32_t i = 1; i <= setup_.cluster.nodes; ++i) StartNode(absl::StrCat("node-", i));
}

// A runtime of its own has a cold start instead of a load, on no link that others use.
ModelTimes SimulatedCluster::TimesOf(const ModelSpec& model) const {
  if (!setup_.runtimes) return model.times;
  return {.run = model.runtime.run > Duration() ? model.runtime.run : model.times.run,
          .load = model.runtime.cold_start,
          .swapped = {}};
}

Bytes SimulatedCluster::MemoryOf(const ModelSpec& model) const {
  return setup_.runtimes && model.runtime.footprint > Bytes() ? model.runtime.footprint : model.memory;
}

// Faults need a network.
std::optional<NetworkOptions> SimulatedCluster::NetworkOf(const SimulationSetup& setup) {
  auto network = setup.cluster.network;
  if (!network && !setup.faults.empty()) network.emplace();
  if (network) network->seed = setup.seed;
  return network;
}

void SimulatedCluster::StartNode(const std::string& name) {
  nodes_.push_back(name);
  const ClusterSpec& cluster = setup_.cluster;
  World::NodePlan plan;
  plan.options.name = name;
  plan.options.policies = setup_.policies;
  plan.options.scheduler = setup_.limits;
  plan.options.scheduler.seed = setup_.seed;
  if (cluster.loads == LoadMode::kAtomic) plan.options.scheduler.swap_ahead = 1;
  if (setup_.runtimes) {
    // Foreign runtimes take turns on a GPU by themselves: no request waits here for a runtime that is
    // starting.
    plan.options.scheduler.concurrency = kRuntimesAtWork;
    plan.options.credits_per_gpu = kRuntimesAtWork;
  }
  if (setup_.profiled) plan.options.profiles = Profiles();
  plan.options.topology = cluster.topology;
  plan.options.costs.link = cluster.link;
  plan.options.copies.region = plan.host_region = cluster.host_memory;
  plan.worker.prepare = std::chrono::milliseconds(1);
  plan.worker.activation = Bytes();  // a model's memory is for its runs too
  for (std::uint32_t i = 0; i < cluster.gpus; ++i) {
    const GpuKind kind = cluster.KindOf(NumberOf(name), i);
    plan.memories.push_back(kind.memory);
    plan.options.gpus.push_back({absl::StrCat("sim:", i), plan.memories.back()});
    if (!cluster.kinds.empty()) plan.options.gpus.back().kind = kind.name;
  }
  if (setup_.sandbox) return StartSandboxed(name, std::move(plan));
  const auto links = LinksOf(cluster.topology, cluster.gpus, cluster.link_sharing);
  links_.insert(links.begin(), links.end());
  plan.make_gpu = [this, name, links](std::uint32_t gpu, actors::FakeGpu::Timer timer) {
    return MakeProfiledGpu(MechanismOf(name, gpu), catalogue_, links[gpu], UseOf(name, gpu),
                           std::move(timer));
  };
  world_.StartNode(std::move(plan));
}

// Several runtimes on each GPU.
void SimulatedCluster::StartSandboxed(const std::string& name, World::NodePlan plan) {
  const Sandbox& sandbox = *setup_.sandbox;
  PutInSandbox(sandbox, setup_.cluster.gpu_memory, plan);
  std::vector<std::shared_ptr<SharedGpu>> shared;
  for (std::uint32_t i = 0; i < setup_.cluster.gpus; ++i)
    shared.push_back(std::make_shared<SharedGpu>(sandbox.link_in_turns));
  sandboxed_.insert(sandboxed_.end(), shared.begin(), shared.end());
  const auto run_memory = [this](const std::string& digest) {
    return RunMemory(*setup_.sandbox, ModelOf(functions_.at(digest)));
  };
  plan.worker.activation_of = run_memory;
  plan.worker.reading = [this](const proto::RunOrder& run) {
    const Bytes bytes = workflows_.bytes_read[functions_.at(run.digest())];
    return bytes > Bytes() ? setup_.sandbox->ReadingTime(run, bytes, setup_.cluster.link) : Duration();
  };
  plan.make_gpu = [this, name, shared, sandbox, run_memory](std::uint32_t runtime,
                                                            actors::FakeGpu::Timer timer) {
    const auto gpu = runtime / sandbox.runtimes;
    return MakeSandboxGpu(sandbox, MechanismOf(name, runtime), catalogue_, run_memory, shared[gpu],
                          UseOf(name, gpu), std::move(timer));
  };
  world_.StartNode(std::move(plan));
}

proto::NodeProfiles SimulatedCluster::Profiles() const {
  proto::NodeProfiles profiles;
  profiles.set_format_version(1);
  std::vector<GpuKind> kinds = setup_.cluster.kinds;
  if (kinds.empty()) {
    kinds.emplace_back();
  } else {
    profiles.set_format_version(2);
  }
  for (std::size_t i = 0; i < setup_.workload.functions.size(); ++i) {
    const ModelTimes times = TimesOf(ModelOf(i));
    for (const GpuKind& kind : kinds) {
      const Duration slower =
          kind.speed == 1 ? Duration() : FromSeconds(ToSeconds(times.run) / kind.speed) - times.run;
      auto& profile = *profiles.add_models();
      profile.set_model(World::ModelDigest(Name(i)));
      profile.set_gpu_kind(kind.name);
      profile.set_run_ns((times.run + slower).count());
      if (times.swapped > Duration()) profile.set_swapped_ns((times.swapped + slower).count());
    }
  }
  return profiles;
}

// From 0 on, in the order in which they were started.
std::uint32_t SimulatedCluster::NumberOf(const std::string& node) const {
  return static_cast<std::uint32_t>(std::ranges::find(nodes_, node) - nodes_.begin());
}

GpuMechanism SimulatedCluster::MechanismOf(const std::string& node, std::uint32_t gpu) {
  const GpuKind kind = setup_.cluster.KindOf(NumberOf(node), gpu);
  const bool by_deadline = setup_.cluster.link_sharing == gpu::LinkSharing::kDeadline;
  GpuMechanism mechanism{.mode = setup_.runtimes ? LoadMode::kRuntimes : setup_.cluster.loads,
                         .link = kind.link,
                         .peer_link = {},
                         .speed = kind.speed,
                         .allocation = AllocationTimesOf(setup_.policies.memory),
                         .loads = by_deadline ? Turns::kDeadline : Turns::kArrival,
                         .runs = setup_.cluster.run_turns,
                         .on_bring = {}};
  mechanism.peer_link = [this, gpu](std::uint32_t from) {
    return setup_.cluster.topology.PeerLink(from, gpu).value_or(BytesPerSecond{});
  };
  mechanism.on_bring = [this, node, gpu](const std::string& digest, bool from_peer) {
    on_bring_({.digest = digest,
               .function = functions_.at(digest),
               .from_peer = from_peer,
               .elsewhere = IsElsewhere(digest, node, gpu)});
  };
  return mechanism;
}

// Some other GPU has it.
bool SimulatedCluster::IsElsewhere(const std::string& digest, const std::string& node, std::uint32_t gpu) {
  for (const auto& name : nodes_) {
    const auto& workers = world_.node(name).workers;
    for (std::uint32_t other = 0; other < workers.size(); ++other)
      if ((name != node || other != gpu) && workers[other]->life.resident.contains(digest)) return true;
  }
  return false;
}

std::shared_ptr<GpuUse> SimulatedCluster::UseOf(const std::string& node, std::uint32_t gpu) {
  auto& use = uses_[{node, gpu}];
  if (use == nullptr) use = std::make_shared<GpuUse>();
  return use;
}

absl::Status SimulatedCluster::Deploy() {
  for (std::size_t i = 0; i < setup_.workload.functions.size(); ++i) {
    const ModelSpec& model = ModelOf(i);
    const auto wish = [&](proto::DeployRequest& deploy) {
      if (model.deadline == Duration()) deploy.clear_slo();
      deploy.set_tenant(setup_.workload.functions[i].tenant);
      if (setup_.may_own) deploy.mutable_sharing()->add_automatic("quota_request");
    };
    const Bytes memory = MemoryOf(model);
    TROUPE_RETURN_IF_ERROR(world_.Deploy(Name(i), memory, model.deadline, {"x"}, {}, wish));
  }
  TROUPE_RETURN_IF_ERROR(SubmitWorkflows());
  world_.Run(std::chrono::seconds(1));
  return absl::OkStatus();
}

absl::Status SimulatedCluster::SubmitWorkflows() {
  for (const TraceWorkflow& workflow : workflows_.all) {
    proto::AdminRequest submit;
    submit.mutable_submit_workflow()->set_yaml(workflow.yaml);
    TROUPE_RETURN_IF_ERROR(world_.Ask(submit).status());
  }
  return absl::OkStatus();
}

Bytes SimulatedCluster::HeldBySandboxes() const {
  Bytes held;
  for (const auto& gpu : sandboxed_) held += gpu->held;
  return held;
}

std::uint64_t SimulatedCluster::CopiesOf(std::size_t function) {
  const auto digest = World::WorkerDigest(Name(function));
  std::uint64_t copies = 0;
  for (const auto& name : nodes_)
    for (const auto& worker : world_.node(name).workers) copies += worker->life.resident.contains(digest);
  return copies;
}

void SimulatedCluster::ShowUse(Outcome& outcome) {
  if (world_.network() != nullptr) outcome.connections_lost = world_.network()->counts().lost;
  Duration computing{};
  Duration loading{};
  for (const auto& [gpu, use] : uses_) {
    const double length = ToSeconds(outcome.length);
    outcome.gpus.push_back(length > 0 ? ToSeconds(use->computing) / length : 0);
    computing += use->computing;
    loading += use->loading;
  }
  const double span = ToSeconds(outcome.length) * static_cast<double>(uses_.size());
  outcome.computing = span > 0 ? ToSeconds(computing) / span : 0;
  outcome.loading = span > 0 ? ToSeconds(loading) / span : 0;
  Duration busy{};
  for (const auto& link : links_) busy += link->busy();
  const double links_span = ToSeconds(outcome.length) * static_cast<double>(links_.size());
  outcome.link = links_span > 0 ? ToSeconds(busy) / links_span : 0;
}

}  // namespace troupe::sim
