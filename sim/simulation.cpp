#include "sim/simulation.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "base/status.hpp"
#include "sim/network.hpp"
#include "sim/sandbox_gpu.hpp"
#include "sim/world.hpp"

namespace troupe::sim {

namespace {

constexpr Duration kLongestDrain = std::chrono::hours(2);  // beyond every timeout
constexpr Duration kSample = std::chrono::seconds(1);
constexpr std::uint32_t kRuntimesAtWork = 64;  // requests given to a GPU whose functions have each their own

class Run {
 public:
  Run(const SimulationSetup& setup, std::vector<std::size_t> models)
      : setup_(setup),
        models_(std::move(models)),
        catalogue_(std::make_shared<ModelCatalogue>()),
        world_(NetworkOf(setup)),
        faults_(StepsOf(setup.faults)),
        chains_(setup.workload.functions) {}
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  ~Run() {  // its actors write into this
    caf::anon_send_exit(later_, caf::exit_reason::user_shutdown);
    later_ = nullptr;
    world_.ShutDown();
  }

  absl::StatusOr<Outcome> Go() {
    for (std::size_t i = 0; i < setup_.workload.functions.size(); ++i) {
      functions_[World::WorkerDigest(Name(i))] = i;
      (*catalogue_)[World::WorkerDigest(Name(i))] = TimesOf(ModelOf(i));
    }
    outcome_.from_host.resize(functions_.size());
    outcome_.from_peers.resize(functions_.size());
    world_.StartManager(setup_.cluster.host_copies);
    actors::RouterOptions router;
    router.policies = setup_.policies;
    world_.StartGateway(std::move(router));
    for (std::uint32_t i = 1; i <= setup_.cluster.nodes; ++i) StartNode(absl::StrCat("node-", i));
    later_ = SpawnLater();
    world_.Run(std::chrono::seconds(1) + (setup_.sandbox ? setup_.sandbox->start : Duration()));
    TROUPE_RETURN_IF_ERROR(Deploy());
    const auto before = Starts();
    Play();
    outcome_.starts = Starts() - before;
    Finish();
    return std::move(outcome_);
  }

 private:
  [[nodiscard]] const std::string& Name(std::size_t function) const {
    return setup_.workload.functions[function].name;
  }
  [[nodiscard]] const ModelSpec& ModelOf(std::size_t function) const {
    return setup_.cluster.models[models_[function]];
  }
  // A runtime of its own has a cold start instead of a load, on no link that others use.
  [[nodiscard]] ModelTimes TimesOf(const ModelSpec& model) const {
    if (!setup_.runtimes) return model.times;
    return {.run = model.runtime.run > Duration() ? model.runtime.run : model.times.run,
            .load = model.runtime.cold_start,
            .swapped = {}};
  }
  [[nodiscard]] Bytes MemoryOf(const ModelSpec& model) const {
    return setup_.runtimes && model.runtime.footprint > Bytes() ? model.runtime.footprint : model.memory;
  }
  [[nodiscard]] Duration Elapsed() { return world_.Now() - begin_; }

  // Faults need a network.
  [[nodiscard]] static std::optional<NetworkOptions> NetworkOf(const SimulationSetup& setup) {
    auto network = setup.cluster.network;
    if (!network && !setup.faults.empty()) network.emplace();
    if (network) network->seed = setup.seed;
    return network;
  }

  void StartNode(const std::string& name) {
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
      plan.memories.push_back(cluster.KindOf(i).memory);
      plan.options.gpus.push_back({absl::StrCat("sim:", i), plan.memories.back()});
    }
    if (setup_.sandbox) return StartSandboxed(name, std::move(plan));
    const auto links = LinksOf(cluster.topology, cluster.gpus, cluster.link_sharing);
    links_.insert(links.begin(), links.end());
    plan.make_gpu = [this, name, links](std::uint32_t gpu, actors::FakeGpu::Timer timer) {
      return MakeProfiledGpu(MechanismOf(name, gpu), catalogue_, links[gpu], UseOf(name, gpu),
                             std::move(timer));
    };
    world_.StartNode(std::move(plan));
    nodes_.push_back(name);
  }

  // Several runtimes on each GPU.
  void StartSandboxed(const std::string& name, World::NodePlan plan) {
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
    plan.make_gpu = [this, name, shared, sandbox, run_memory](std::uint32_t runtime,
                                                              actors::FakeGpu::Timer timer) {
      const auto gpu = runtime / sandbox.runtimes;
      return MakeSandboxGpu(sandbox, MechanismOf(name, runtime), catalogue_, run_memory, shared[gpu],
                            UseOf(name, gpu), std::move(timer));
    };
    world_.StartNode(std::move(plan));
    nodes_.push_back(name);
  }

  [[nodiscard]] std::uint64_t Starts() {
    std::uint64_t starts = 0;
    for (const auto& name : nodes_)
      for (const auto& worker : world_.node(name).workers) starts += worker->spawns;
    return starts;
  }

  [[nodiscard]] proto::NodeProfiles Profiles() const {
    proto::NodeProfiles profiles;
    profiles.set_format_version(1);
    for (std::size_t i = 0; i < setup_.workload.functions.size(); ++i) {
      auto& profile = *profiles.add_models();
      profile.set_model(World::ModelDigest(Name(i)));
      profile.set_run_ns(TimesOf(ModelOf(i)).run.count());
      profile.set_swapped_ns(TimesOf(ModelOf(i)).swapped.count());
    }
    return profiles;
  }

  [[nodiscard]] GpuMechanism MechanismOf(const std::string& node, std::uint32_t gpu) {
    const GpuKind kind = setup_.cluster.KindOf(gpu);
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
      ++outcome_.swaps;
      outcome_.peer_swaps += from_peer ? 1 : 0;
      ++(from_peer ? outcome_.from_peers : outcome_.from_host)[functions_.at(digest)];
      Mix(digest.data(), digest.size());
      for (const auto& name : nodes_) {
        const auto& workers = world_.node(name).workers;
        for (std::uint32_t other = 0; other < workers.size(); ++other) {
          if ((name == node && other == gpu) || !workers[other]->life.resident.contains(digest)) continue;
          ++outcome_.false_misses;
          return;
        }
      }
    };
    return mechanism;
  }

  std::shared_ptr<GpuUse> UseOf(const std::string& node, std::uint32_t gpu) {
    auto& use = uses_[{node, gpu}];
    if (use == nullptr) use = std::make_shared<GpuUse>();
    return use;
  }

  absl::Status Deploy() {
    for (std::size_t i = 0; i < setup_.workload.functions.size(); ++i) {
      const ModelSpec& model = ModelOf(i);
      const auto wish = [&](proto::DeployRequest& deploy) {
        if (model.deadline == Duration()) deploy.clear_slo();
        deploy.set_tenant(setup_.workload.functions[i].tenant);
      };
      const Bytes memory = MemoryOf(model);
      TROUPE_RETURN_IF_ERROR(world_.Deploy(Name(i), memory, model.deadline, {"x"}, {}, wish));
    }
    world_.Run(std::chrono::seconds(1));
    return absl::OkStatus();
  }

  void Play() {
    begin_ = world_.Now();
    for (const Arrival& arrival : setup_.workload.arrivals) {
      if (!Reach(arrival.at)) return;
      Ask(arrival.function, chains_.Begin(arrival.function, Elapsed()));
      world_.Settle();
    }
    const Duration latest = Elapsed() + kLongestDrain;
    while ((outcome_.answers.size() < outcome_.arrived || !waiting_.empty()) && Elapsed() < latest)
      if (!Reach(std::min(next_sample_, latest))) return;
  }

  // To a time since the begin, with what goes wrong until then.
  void RunTo(Duration at) {
    for (; next_fault_ < faults_.size() && faults_[next_fault_].at <= at; ++next_fault_) {
      world_.RunTo(begin_ + faults_[next_fault_].at);
      Apply(faults_[next_fault_], *world_.network());
    }
    world_.RunTo(begin_ + at);
  }

  // With a look at everything each second. False: the caller has had enough.
  bool Reach(Duration at) {
    while (next_sample_ <= at) {
      RunTo(next_sample_);
      next_sample_ += kSample;
      Sample();
      if (setup_.go_on && !setup_.go_on({Elapsed(), outcome_.arrived, outcome_.answers.size()})) {
        outcome_.ended_early = true;
        return false;
      }
    }
    RunTo(at);
    return true;
  }

  // As part of a run of a workflow, or (zero) of none.
  void Ask(std::uint32_t function, std::uint64_t run) {
    ++outcome_.arrived;
    ++asked_[function];
    proto::InferRequest request;
    request.mutable_function()->set_name(Name(function));
    request.set_timeout_ns(setup_.cluster.timeout.count());
    auto done = [this, function, run, at = Elapsed()](const proto::InferReply& reply) {
      Answered(function, at, reply);
      Follow(run, function, reply.code() == 0);
    };
    auto& gateway = world_.gateway(0);
    gateway.inbox->Post(gateway.router, [request = std::move(request), done = std::move(done)](
                                            actors::RouterClient& router) { router.Infer(request, done); });
  }

  // What comes after an answer, when it has been handed over.
  void Follow(std::uint64_t run, std::uint32_t function, bool served) {
    const auto next = chains_.Answered(run, function, served, Elapsed());
    if (next.empty()) return;
    const Bytes bytes = setup_.workload.functions[function].passes;
    const Duration passing =
        setup_.sandbox ? setup_.sandbox->HandOverTime(bytes, setup_.cluster.link) : Duration();
    for (const std::uint32_t follower : next) {
      proto::Tick tick;
      tick.set_token(next_waiting_++);
      waiting_[tick.token()] = {follower, run};
      caf::delayed_anon_send(later_, passing, tick);
    }
  }

  caf::actor SpawnLater() {
    return world_.system().spawn([this](caf::event_based_actor*) -> caf::behavior {
      return {[this](const proto::Tick& tick) {
        const auto due = waiting_.extract(tick.token());
        Ask(due.mapped().first, due.mapped().second);
      }};
    });
  }

  void Answered(std::uint32_t function, Duration at, const proto::InferReply& reply) {
    Answer answer{.function = function, .code = reply.code(), .at = at, .took = Elapsed() - at};
    const Duration deadline = ModelOf(function).deadline;
    answer.in_time = reply.code() == 0 && (deadline == Duration() || answer.took <= deadline);
    outcome_.Count(static_cast<absl::StatusCode>(reply.code()));
    outcome_.misses += reply.code() == 0 && !reply.hit() ? 1 : 0;
    outcome_.length = Elapsed();
    Mix(&answer.function, sizeof(answer.function));
    Mix(&answer.code, sizeof(answer.code));
    const auto end = (at + answer.took).count();
    Mix(&end, sizeof(end));
    outcome_.answers.push_back(answer);
  }

  // FNV-1a over what happened, in the order in which it happened.
  void Mix(const void* bytes, std::size_t size) {
    const auto* at = static_cast<const unsigned char*>(bytes);
    for (std::size_t i = 0; i < size; ++i) hash_ = (hash_ ^ at[i]) * 0x100000001b3ULL;
  }

  void Sample() {
    if (asked_.empty() || Elapsed() > setup_.workload.length) return;
    const auto most =
        std::ranges::max_element(asked_, [](const auto& a, const auto& b) { return a.second < b.second; });
    const auto digest = World::WorkerDigest(Name(most->first));
    ++samples_;
    for (const auto& gpu : sandboxed_) held_ += gpu->held;
    for (const auto& name : nodes_)
      for (const auto& worker : world_.node(name).workers) copies_ += worker->life.resident.contains(digest);
  }

  void Finish() {
    outcome_.waiting = outcome_.arrived - outcome_.answers.size();
    outcome_.trace_hash = hash_;
    outcome_.workflows = chains_.ended();
    if (world_.network() != nullptr) outcome_.connections_lost = world_.network()->counts().lost;
    Duration computing{};
    Duration loading{};
    for (const auto& [gpu, use] : uses_) {
      const double length = ToSeconds(outcome_.length);
      outcome_.gpus.push_back(length > 0 ? ToSeconds(use->computing) / length : 0);
      computing += use->computing;
      loading += use->loading;
    }
    const double span = ToSeconds(outcome_.length) * static_cast<double>(uses_.size());
    outcome_.computing = span > 0 ? ToSeconds(computing) / span : 0;
    outcome_.loading = span > 0 ? ToSeconds(loading) / span : 0;
    Duration busy{};
    for (const auto& link : links_) busy += link->busy();
    const double links_span = ToSeconds(outcome_.length) * static_cast<double>(links_.size());
    outcome_.link = links_span > 0 ? ToSeconds(busy) / links_span : 0;
    if (!sandboxed_.empty() && samples_ > 0)
      outcome_.gpu_memory = Bytes(held_.count() / samples_ / sandboxed_.size()) +
                            setup_.sandbox->footprint * setup_.sandbox->runtimes;
    outcome_.duplicates = samples_ > 0 ? static_cast<double>(copies_) / static_cast<double>(samples_) : 0;
  }

  const SimulationSetup& setup_;
  const std::vector<std::size_t> models_;  // of the functions
  const std::shared_ptr<ModelCatalogue> catalogue_;
  std::map<std::string, std::size_t> functions_;  // by the key under which workers know their models
  World world_;
  const std::vector<FaultStep> faults_;
  std::size_t next_fault_ = 0;
  std::vector<std::string> nodes_;
  std::map<std::pair<std::string, std::uint32_t>, std::shared_ptr<GpuUse>> uses_;
  std::set<std::shared_ptr<HostLink>> links_;
  std::vector<std::shared_ptr<SharedGpu>> sandboxed_;
  std::map<std::uint32_t, std::uint64_t> asked_;
  Chains chains_;
  caf::actor later_;
  std::map<std::uint64_t, std::pair<std::uint32_t, std::uint64_t>> waiting_;  // functions and their runs
  std::uint64_t next_waiting_ = 1;
  Time begin_{};
  Duration next_sample_ = kSample;
  std::uint64_t samples_ = 0, copies_ = 0;
  Bytes held_{};  // by sandboxes, summed over the samples
  std::uint64_t hash_ = 0xcbf29ce484222325ULL;
  Outcome outcome_;
};

}  // namespace

absl::StatusOr<Outcome> Simulate(const SimulationSetup& setup) {
  TROUPE_ASSIGN_OR_RETURN(auto models, AssignModels(setup.cluster, setup.workload.functions));
  for (const Arrival& arrival : setup.workload.arrivals)
    TROUPE_CHECK(arrival.function < setup.workload.functions.size(), "a workload asks for what it has not");
  if (setup.sandbox) TROUPE_RETURN_IF_ERROR(CheckFits(*setup.sandbox, setup.cluster));
  Run run(setup, std::move(models));
  return run.Go();
}

}  // namespace troupe::sim
