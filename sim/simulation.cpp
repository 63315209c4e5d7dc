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
        faults_(StepsOf(setup.faults)) {}
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  ~Run() { cluster_.ShutDown(); }  // its actors write into this

  absl::StatusOr<Outcome> Go() {
    outcome_.from_host.resize(setup_.workload.functions.size());
    outcome_.from_peers.resize(setup_.workload.functions.size());
    cluster_.Start();
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
      Ask(arrival.function);
      world().Settle();
    }
    const Duration latest = Elapsed() + kLongestDrain;
    while (outcome_.answers.size() < outcome_.arrived && Elapsed() < latest)
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

  // A function's request goes to the router, a run of a workflow through the front, as in a gateway.
  void Ask(std::uint32_t function) {
    auto& gateway = world().gateway(outcome_.arrived++ % world().gateways());
    samples_.Asked(function);
    proto::InferRequest request;
    request.set_timeout_ns(setup_.cluster.timeout.count());
    if (const TraceWorkflow* const workflow = cluster_.workflows().BegunBy(function); workflow != nullptr) {
      request.mutable_function()->set_name(workflow->name);
      request.set_timeout_ns(
          (workflow->depth * setup_.cluster.timeout).count());  // its steps have it one after the other
      *request.add_inputs() = World::InputX(1, std::string(4 * sizeof(float), '\0'));
      return gateway.front->Infer(std::move(request),
                                  [this, function, at = Elapsed()](const proto::InferReply& reply) {
                                    RunEnded(function, at, reply);
                                  });
    }
    request.mutable_function()->set_name(cluster_.Name(function));
    auto done = [this, function, at = Elapsed()](const proto::InferReply& reply) {
      Answered(function, at, reply);
    };
    gateway.inbox->Post(gateway.router, [request = std::move(request), done = std::move(done)](
                                            actors::RouterClient& router) { router.Infer(request, done); });
  }

  void RunEnded(std::uint32_t function, Duration at, const proto::InferReply& reply) {
    const bool served = reply.code() == 0;
    Keep({.function = function, .code = reply.code(), .at = at, .took = Elapsed() - at, .in_time = served});
  }

  void Answered(std::uint32_t function, Duration at, const proto::InferReply& reply) {
    Answer answer{.function = function, .code = reply.code(), .at = at, .took = Elapsed() - at};
    const Duration deadline = cluster_.ModelOf(function).deadline;
    answer.in_time = reply.code() == 0 && (deadline == Duration() || answer.took <= deadline);
    outcome_.misses += reply.code() == 0 && !reply.hit() ? 1 : 0;
    Keep(answer);
  }

  void Keep(const Answer& answer) {
    outcome_.Count(static_cast<absl::StatusCode>(answer.code));
    outcome_.length = Elapsed();
    Mix(&answer.function, sizeof(answer.function));
    Mix(&answer.code, sizeof(answer.code));
    const auto end = (answer.at + answer.took).count();
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
    cluster_.ShowUse(outcome_);
    samples_.Show(cluster_, setup_.sandbox, outcome_);
  }

  const SimulationSetup& setup_;
  SimulatedCluster cluster_;
  const std::vector<FaultStep> faults_;
  std::size_t next_fault_ = 0;
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
