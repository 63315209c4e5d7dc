#include "sim/simulation.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/check.hpp"
#include "base/status.hpp"
#include "sim/simulated_cluster.hpp"

namespace troupe::sim {

namespace {

constexpr Duration kLongestDrain = std::chrono::hours(2);  // beyond every timeout
constexpr Duration kSample = std::chrono::seconds(1);

// What is looked at each second of the workload.
class Samples {
 public:
  void Asked(std::uint32_t function) { ++asked_[function]; }
  [[nodiscard]] Duration next() const { return next_; }
  // `counts`: the workload has not ended.
  void Take(SimulatedCluster& cluster, bool counts) {
    next_ += kSample;
    if (asked_.empty() || !counts) return;
    const auto most =
        std::ranges::max_element(asked_, [](const auto& a, const auto& b) { return a.second < b.second; });
    ++taken_;
    held_ += cluster.HeldBySandboxes();
    copies_ += cluster.CopiesOf(most->first);
  }
  void Show(const SimulatedCluster& cluster, const std::optional<Sandbox>& sandbox, Outcome& outcome) const {
    if (cluster.sandboxed() > 0 && taken_ > 0)
      outcome.gpu_memory =
          Bytes(held_.count() / taken_ / cluster.sandboxed()) + sandbox->footprint * sandbox->runtimes;
    outcome.duplicates = taken_ > 0 ? static_cast<double>(copies_) / static_cast<double>(taken_) : 0;
  }

 private:
  std::map<std::uint32_t, std::uint64_t> asked_;  // how often, by function
  Duration next_ = kSample;
  std::uint64_t taken_ = 0, copies_ = 0;
  Bytes held_{};  // by sandboxes, summed over the samples
};

class Run {
 public:
  Run(const SimulationSetup& setup, std::vector<std::size_t> models)
      : setup_(setup),
        cluster_(setup, std::move(models),
                 [this](const SimulatedCluster::Bringing& bringing) { Brought(bringing); }),
        faults_(StepsOf(setup.faults)),
        chains_(setup.workload.functions) {}
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  ~Run() {  // its actors write into this
    caf::anon_send_exit(later_, caf::exit_reason::user_shutdown);
    later_ = nullptr;
    world().ShutDown();
  }

  absl::StatusOr<Outcome> Go() {
    outcome_.from_host.resize(setup_.workload.functions.size());
    outcome_.from_peers.resize(setup_.workload.functions.size());
    cluster_.Start();
    later_ = SpawnLater();
    world().Run(std::chrono::seconds(1) + (setup_.sandbox ? setup_.sandbox->start : Duration()));
    TROUPE_RETURN_IF_ERROR(cluster_.Deploy());
    const auto before = world().WorkerStarts();
    Play();
    outcome_.starts = world().WorkerStarts() - before;
    Finish();
    return std::move(outcome_);
  }

 private:
  [[nodiscard]] World& world() { return cluster_.world(); }
  [[nodiscard]] Duration Elapsed() { return world().Now() - begin_; }

  void Brought(const SimulatedCluster::Bringing& bringing) {
    ++outcome_.swaps;
    outcome_.peer_swaps += bringing.from_peer ? 1 : 0;
    ++(bringing.from_peer ? outcome_.from_peers : outcome_.from_host)[bringing.function];
    Mix(bringing.digest.data(), bringing.digest.size());
    outcome_.false_misses += bringing.elsewhere ? 1 : 0;
  }

  void Play() {
    begin_ = world().Now();
    for (const Arrival& arrival : setup_.workload.arrivals) {
      if (!Reach(arrival.at)) return;
      Ask(arrival.function, chains_.Begin(arrival.function, Elapsed()));
      world().Settle();
    }
    const Duration latest = Elapsed() + kLongestDrain;
    while ((outcome_.answers.size() < outcome_.arrived || !waiting_.empty()) && Elapsed() < latest)
      if (!Reach(std::min(samples_.next(), latest))) return;
  }

  // To a time since the begin, with what goes wrong until then.
  void RunTo(Duration at) {
    for (; next_fault_ < faults_.size() && faults_[next_fault_].at <= at; ++next_fault_) {
      world().RunTo(begin_ + faults_[next_fault_].at);
      Apply(faults_[next_fault_], *world().network());
    }
    world().RunTo(begin_ + at);
  }

  // With a look at everything each second. False: the caller has had enough.
  bool Reach(Duration at) {
    while (samples_.next() <= at) {
      RunTo(samples_.next());
      samples_.Take(cluster_, Elapsed() <= setup_.workload.length);
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
    samples_.Asked(function);
    proto::InferRequest request;
    request.mutable_function()->set_name(cluster_.Name(function));
    request.set_timeout_ns(setup_.cluster.timeout.count());
    auto done = [this, function, run, at = Elapsed()](const proto::InferReply& reply) {
      Answered(function, at, reply);
      Follow(run, function, reply.code() == 0);
    };
    auto& gateway = world().gateway(0);
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
    return world().system().spawn([this](caf::event_based_actor*) -> caf::behavior {
      return {[this](const proto::Tick& tick) {
        const auto due = waiting_.extract(tick.token());
        Ask(due.mapped().first, due.mapped().second);
      }};
    });
  }

  void Answered(std::uint32_t function, Duration at, const proto::InferReply& reply) {
    Answer answer{.function = function, .code = reply.code(), .at = at, .took = Elapsed() - at};
    const Duration deadline = cluster_.ModelOf(function).deadline;
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

  void Finish() {
    outcome_.waiting = outcome_.arrived - outcome_.answers.size();
    outcome_.trace_hash = hash_;
    outcome_.workflows = chains_.ended();
    cluster_.ShowUse(outcome_);
    samples_.Show(cluster_, setup_.sandbox, outcome_);
  }

  const SimulationSetup& setup_;
  SimulatedCluster cluster_;
  const std::vector<FaultStep> faults_;
  std::size_t next_fault_ = 0;
  Chains chains_;
  caf::actor later_;
  std::map<std::uint64_t, std::pair<std::uint32_t, std::uint64_t>> waiting_;  // functions and their runs
  std::uint64_t next_waiting_ = 1;
  Time begin_{};
  Samples samples_;
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
