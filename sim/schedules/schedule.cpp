#include "sim/schedules/schedule.hpp"

#include <algorithm>
#include <initializer_list>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/chaos/health.hpp"
#include "sim/chaos/run_log.hpp"
#include "sim/chaos/wait_watch.hpp"
#include "sim/checkers/count_check.hpp"
#include "sim/checkers/isolation_check.hpp"
#include "sim/checkers/ownership_check.hpp"
#include "sim/checkers/quota_check.hpp"
#include "sim/checkers/run_check.hpp"
#include "sim/checkers/run_limit_check.hpp"
#include "sim/checkers/state_check.hpp"
#include "sim/checkers/tensor_check.hpp"
#include "sim/checkers/version_check.hpp"
#include "sim/schedules/drawn_world.hpp"
#include "sim/schedules/planting.hpp"

namespace troupe::sim {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kWindow = seconds(6);       // in which things go wrong
constexpr Duration kLongestEnd = seconds(40);  // of what was begun in it
constexpr Duration kLongestRecovery = seconds(15);
// A member that has joined is alive for the manager before it has heard so.
constexpr Duration kSettle = seconds(1);
constexpr Duration kPropagation =
    milliseconds(50);                           // of an acknowledged change, to a gateway that is connected
constexpr Duration kLastTimeout = seconds(10);  // of the requests that have to be served at the end

class ScheduleRun {
 public:
  explicit ScheduleRun(const ScheduleOptions& options)
      : options_(options),
        random_(options.seed),
        shape_(DrawShape(random_, options.seed)),
        workload_(DrawPlan(random_, options.seed)),
        faults_(Faults()),
        cluster_(shape_, options.seed, options.steps),
        injector_(cluster_),
        clients_(cluster_, workload_, random_.Fork()),
        last_start_(random_.Below(2) == 0) {}

  ScheduleResult Go() {
    Describe();
    cluster_.Start();
    clients_.operators().Prepare();
    if (workload_.canaries > 0) clients_.canaries().Prepare();
    cluster_.nodes().StretchRuns(World::WorkerDigest(ClientLoad::kLong), Duration());
    starts_ = cluster_.world().WorkerStarts();
    PlantIn(cluster_, injector_, clients_, waits_, options_.planted, kWindow);
    waits_.Begin();
    clients_.Begin();
    injector_.Schedule(faults_);
    cluster_.agenda().RunTo(cluster_.world().Now() + kWindow);
    injector_.MendAll();
    cluster_.Note("nothing goes wrong any more");
    Quiesce();
    Check();
    Tell();
    return std::move(result_);
  }

 private:
  // Long runs, and what befalls connections between nodes in every other world of several, are drawn by themselves, so that all
  // else of a seed's schedule is the same without them.
  [[nodiscard]] std::vector<PlannedFault> Faults() {
    auto faults = DrawFaults(shape_, kWindow, random_);
    Random random(options_.seed ^ 0x70aULL);
    if (workload_.long_runs) faults = WithLongRuns(std::move(faults), ClientLoad::kLong, kWindow, random);
    Random between(options_.seed ^ 0x20de5ULL);
    if (shape_.nodes > 1 && between.Below(2) == 0)
      faults = BetweenNodes(std::move(faults), shape_, kWindow, between);
    return faults;
  }

  void Describe() {
    result_.seed = options_.seed;
    result_.what =
        absl::StrCat(shape_.nodes, " nodes of ", shape_.gpus, shape_.linked ? " linked" : "", " GPUs, ",
                     shape_.Isolated() ? absl::StrCat(shape_.runtimes, " isolated runtimes each, ") : "",
                     shape_.copies > 0 ? absl::StrCat("states with ", shape_.copies, " copies, ") : "",
                     shape_.by_eviction ? "states written back by evictions, " : "", shape_.gateways,
                     " gateways, preset ", shape_.preset, ", batching ", shape_.batching, ", owning ",
                     shape_.owning, "; ", ToString(workload_), "; ", faults_.size(), " faults");
    cluster_.Note(result_.what);
  }

  // Service returns: what was begun ends, every member is well, every function is served and nothing else.
  void Quiesce() {
    const Time mended = cluster_.world().Now();
    auto& agenda = cluster_.agenda();
    if (!agenda.RunUntil([this] { return clients_.Idle(); }, kLongestEnd)) return;  // said by other checkers
    clients_.operators().Undrain();
    agenda.RunUntil([this] { return clients_.Idle(); }, kLongestEnd);
    Health health(cluster_);
    AwaitHealth(health, false);
    result_.recovered = cluster_.world().Now() - mended;
    if (last_start_) {
      cluster_.Note("the manager is started once more");
      injector_.RestartManager();
      AwaitHealth(health, true);
    }
    agenda.RunTo(cluster_.world().Now() + kSettle);
    AskEverything();
    agenda.RunTo(cluster_.world().Now() + kSettle);  // what was begun ahead of requests ends by itself
    for (const auto& line : health.LookInside()) Break("quiescence", line);
  }

  // `all`: as Health::Look.
  void AwaitHealth(Health& health, bool all) {
    const Time end = cluster_.world().Now() + kLongestRecovery;
    auto ill = health.Look(all);
    while (!ill.empty() && cluster_.world().Now() < end) {
      cluster_.agenda().RunTo(cluster_.world().Now() + milliseconds(500));
      ill = health.Look(all);
    }
    for (const auto& line : ill) Break("quiescence", line);
  }

  void AskEverything() {
    std::set<std::string> there = {ClientLoad::kWorkflow};
    clients_.operators().List([&there, this](const AdminResult& result) {
      if (!result.reply) return Break("quiescence", "the manager did not list its functions");
      for (const auto& function : result.reply->functions()) there.insert(CalledBy(function.record()));
      BreakAll("sharing", clients_.updates().Check(*result.reply));
    });
    cluster_.agenda().RunUntil([this] { return clients_.Idle(); }, kLongestEnd);
    // A change of what functions own may be on its way to the nodes: then the next look finds it done.
    auto broken = LookAtOwnership();
    if (!broken.empty()) {
      cluster_.agenda().RunTo(cluster_.world().Now() + milliseconds(300));
      broken = LookAtOwnership();
    }
    BreakAll("ownership", broken);
    AskInARow();
    auto names = clients_.operators().Names();
    names.push_back(ClientLoad::kWorkflow);
    std::vector<std::pair<std::uint64_t, bool>> asked;
    for (std::size_t gateway = 0; gateway < shape_.gateways; ++gateway)
      for (const auto& name : names)
        asked.emplace_back(clients_.requests().Ask(gateway, name, "", kLastTimeout), there.contains(name));
    cluster_.agenda().RunUntil([this] { return clients_.Idle(); }, kLastTimeout + seconds(3));
    for (const auto& [request, expected] : asked) CheckLast(request, expected);
  }

  // The parts are what the manager says now.
  void AskInARow() {
    if (workload_.canaries == 0) return;
    clients_.canaries().Look();
    cluster_.agenda().RunUntil([this] { return clients_.Idle(); }, kLongestEnd);
    cluster_.agenda().RunTo(cluster_.world().Now() + kPropagation);
    const auto asked = clients_.canaries().AskInARow(kLastTimeout);
    cluster_.agenda().RunUntil([this] { return clients_.Idle(); }, kLastTimeout + seconds(3));
    for (const auto request : asked) CheckLast(request, true);
  }

  [[nodiscard]] std::vector<std::string> LookAtOwnership() {
    const auto listed = std::make_shared<std::vector<proto::FunctionRecord>>();
    clients_.operators().List([listed](const AdminResult& result) {
      if (!result.reply) return;
      for (const auto& function : result.reply->functions()) listed->push_back(function.record());
    });
    cluster_.agenda().RunUntil([this] { return clients_.Idle(); }, kLongestEnd);
    return CheckOwnership(*listed, Nodes());
  }

  // What the nodes say of themselves.
  [[nodiscard]] std::vector<proto::NodeDescription> Nodes() {
    std::vector<proto::NodeDescription> nodes;
    for (const auto& name : shape_.NodeNames()) {
      nodes.push_back(cluster_.world().Describe(name));
      if (options_.planted == Planted::kDisobeyedOwner) nodes.back().clear_owned();
    }
    return nodes;
  }

  void CheckLast(std::uint64_t request, bool expected) {
    const auto& record = clients_.ledger().all().at(request - 1);
    const auto wanted = expected ? absl::StatusCode::kOk : absl::StatusCode::kNotFound;
    if (record.code == wanted && record.answers > 0) return;
    Break("quiescence",
          absl::StrCat("nothing goes wrong, and '", record.function, "' at ", record.gateway, " answers ",
                       record.answers == 0 ? "nothing" : absl::StatusCodeToString(record.code), " (",
                       record.said, ") instead of ", absl::StatusCodeToString(wanted)));
  }

  void Break(const std::string& checker, const std::string& line) {
    cluster_.Note(absl::StrCat("BROKEN ", checker, ": ", line));
    result_.broken.push_back({checker, line});
  }
  void BreakAll(const std::string& checker, const std::vector<std::string>& lines) {
    for (const auto& line : lines) Break(checker, line);
  }

  // What was counted last is read within a second, told with a heartbeat and stored.
  void CheckCharges() {
    cluster_.agenda().RunUntil([this] { return cluster_.BrokenUsage().empty(); }, kLongestRecovery);
    BreakAll("usage", cluster_.BrokenUsage());
  }

  void Check() {
    BreakAll("start", injector_.failures());
    BreakAll("requests", CheckRequests(clients_.ledger(), WithWorkflow(), Requests()));
    const auto registry = CheckLinearizable(clients_.history());
    if (registry.verdict == Linearizable::kNo) Break("registry", registry.why);
    if (registry.verdict == Linearizable::kUndecided) ++result_.undecided;
    BreakAll("store", cluster_.store_watch().broken());
    BreakAll("store", cluster_.store_watch().CheckKept(cluster_.disk()));
    BreakAll("epochs", cluster_.wire_watch().broken());
    BreakAll("steps", cluster_.step_watch().broken());
    BreakAll("counts", CheckCounts(clients_.ledger(), cluster_.fronts().Counts()));
    BreakAll("states", CheckStates(clients_.ledger(), {.functions = clients_.load().StatefulNames(),
                                                       .lost = injector_.lost_states(),
                                                       .once = NothingIsRepeated(),
                                                       .callers = {ClientLoad::kWorkflow},
                                                       .redeployed = Redeployed(),
                                                       .registry = clients_.history(),
                                                       .requests = Requests()}));
    CheckTheVersions();
    BreakAll("limits", CheckRunLimits(clients_.ledger(), GpuRuns(), LimitRules()));
    BreakAll("quotas", CheckQuotas(QuotaRuns(), actors::FakeTurns::kWindow));
    // A runtime that is given to another function is a worker that is started again.
    if (Calm() && !shape_.Isolated() && cluster_.world().WorkerStarts() != starts_)
      Break("limits", "a worker was started again, though nothing had befallen any");
    BreakAll("tensors", CheckTensors(cluster_.nodes().KeptTensors()));
    BreakAll("models", cluster_.nodes().WrongModels());
    BreakAll("waits", waits_.broken());
    if (shape_.Isolated())
      BreakAll("isolation",
               CheckIsolation(cluster_.nodes().RuntimeModels(), clients_.operators().ModelUsers()));
    CheckMemory();
    CheckLog();
    CheckCharges();
  }

  [[nodiscard]] RequestRules Requests() const {
    return {.propagation = kPropagation, .silences = injector_.silences()};
  }
  [[nodiscard]] std::string Redeployed() const {
    return workload_.redeployments > 0 ? ClientLoad::kAnew : "";
  }
  void CheckTheVersions() {
    if (workload_.canaries == 0) return;
    BreakAll("versions",
             CheckVersions(
                 clients_.ledger(), clients_.canaries().ops(), cluster_.version_watch().sent(),
                 {.function = ClientLoad::kCanaries, .models = Canaries::Models(), .requests = Requests()}));
  }

  [[nodiscard]] std::vector<GpuRun> GpuRuns() const {
    std::vector<GpuRun> runs;
    for (const auto& seen : cluster_.nodes().long_runs())
      runs.push_back({.question = seen.question, .begin = seen.begin, .end = seen.end, .cut = seen.cut});
    return runs;
  }
  [[nodiscard]] std::vector<QuotaRun> QuotaRuns() const {
    std::vector<QuotaRun> runs;
    for (const auto& seen : cluster_.nodes().quota_runs())
      runs.push_back({seen.life, seen.function, seen.limit, seen.begin, seen.end});
    return runs;
  }
  [[nodiscard]] RunLimitRules LimitRules() const {
    return {.function = ClientLoad::kLong,
            .limit = ClientLoad::kRunLimit,
            .group = actors::FakeLongRuns::kGroup,
            .once = NothingIsRepeated(),
            .calm = Calm() && !workload_.drains && !shape_.Isolated()};  // drained nodes serve no requests
  }
  // No worker was struck, and no machine, member or connection.
  [[nodiscard]] bool Calm() const {
    using Kind = FaultKind;
    return OnlyFired({Kind::kLongRun, Kind::kSlowDisk, Kind::kFailedSync, Kind::kClockJump});
  }
  [[nodiscard]] bool OnlyFired(std::initializer_list<FaultKind> kinds) const {
    return std::ranges::all_of(AllFaultKinds(), [&](FaultKind kind) {
      return injector_.fired()[static_cast<std::size_t>(kind)] == 0 ||
             std::ranges::find(kinds, kind) != kinds.end();
    });
  }

  // As a function that was deployed first and never removed.
  [[nodiscard]] std::vector<RegistryOp> WithWorkflow() const {
    auto history = clients_.history();
    history.push_back({.kind = RegistryOp::Kind::kDeploy,
                       .key = absl::StrCat(ClientLoad::kWorkflow, "/1"),
                       .result = RegistryOp::Result::kDone,
                       .invoked = Time{},
                       .returned = Time{}});
    return history;
  }

  void CheckMemory() {
    for (const auto& node : shape_.NodeNames()) {
      for (std::uint32_t gpu = 0; gpu < shape_.gpus; ++gpu) {
        for (const auto& worker : cluster_.nodes().WorkersOf(node, gpu)) {
          const auto name = absl::StrCat(node, " GPU ", gpu);
          const Bytes memory(GiB(1).count() / shape_.runtimes);
          if (worker->no_fit > 0)
            Break("memory", absl::StrCat(name, " had no room for ", worker->no_fit, " models that came"));
          if (worker->fullest > memory)
            Break("memory", absl::StrCat(name, " was given ", FormatBytes(worker->fullest), " of its ",
                                         FormatBytes(memory)));
        }
      }
    }
  }

  // Nothing came between a node that had computed something and the client that waits for it.
  [[nodiscard]] bool NothingIsRepeated() const {
    using Kind = FaultKind;
    return OnlyFired({Kind::kKillWorker, Kind::kHangWorker, Kind::kRefuseWorker, Kind::kSlowDisk,
                      Kind::kFailedSync, Kind::kClockJump, Kind::kLongRun});
  }

  void CheckLog() {
    const auto log = RunLogOf(cluster_.disk());
    if (!log.ok()) return Break("runs", std::string(log.status().message()));
    std::set<std::string> unknown;
    for (const auto& run : *log)
      if (!last_start_ && !cluster_.store_watch().Acknowledged(storage::Table::kRuns, run.start().run()))
        unknown.insert(run.start().run());
    result_.runs = log->size();
    BreakAll("runs",
             CheckRuns(clients_.ledger(), *log,
                       {.workflow = ClientLoad::kWorkflow,
                        .steps = 3,
                        .conditional = clients_.load().plan().conditions ? ClientLoad::kConditional : "",
                        .goes = &ClientLoad::Goes,
                        .cancelled = clients_.operators().cancelled_runs(),
                        .unknown = std::move(unknown)}));
  }

  void Tell() {
    result_.fired = injector_.fired();
    result_.requests = clients_.ledger().all().size();
    result_.served = clients_.requests().served();
    result_.commands = clients_.history().size();
    result_.commits = cluster_.store_watch().batches();
    result_.resumed = cluster_.step_watch().resumed();
    result_.repeated =
        static_cast<std::uint64_t>(std::ranges::count(clients_.ledger().all(), true, &RequestRecord::again));
    result_.stale = cluster_.wire_watch().stale();
    result_.trace_hash = cluster_.trace().hash();
    if (!result_.broken.empty())
      result_.last_steps.assign(cluster_.trace().lines().begin(), cluster_.trace().lines().end());
  }

  const ScheduleOptions options_;
  Random random_;
  const ClusterShape shape_;
  const WorkloadPlan workload_;
  const std::vector<PlannedFault> faults_;
  ChaosCluster cluster_;
  FaultInjector injector_;
  WaitWatch waits_{cluster_};
  Clients clients_;
  std::uint64_t starts_ = 0;  // of workers, before anything went wrong
  const bool last_start_;     // of the manager, at the end: what lies on its disk is all that it knows then
  ScheduleResult result_;
};

}  // namespace

ScheduleResult RunSchedule(const ScheduleOptions& options) {
  return ScheduleRun(options).Go();
}

}  // namespace troupe::sim
