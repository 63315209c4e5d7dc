// CLIENT LOAD: what clients ask of a cluster, drawn from a schedule's seed, and the draws that all of them share.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "base/random.hpp"
#include "sim/chaos/chaos_cluster.hpp"

namespace troupe::sim {

// What is asked of the cluster, drawn from the schedule's seed.
struct WorkloadPlan {
  std::uint32_t functions = 4;  // that are there all the time
  std::uint32_t stateful = 1;   // that keep a state each: s0, s1, ..., all of one model
  double rate = 40;             // requests a second
  bool bursts = false;          // else steady
  bool churn = false;           // deployments and removals
  bool workflows = false;
  bool conditions = false;  // the workflow has a step that runs if its client says so
  bool keys = false;        // requests and runs with Idempotency-Keys
  bool drains = false;
  bool long_runs = false;  // of one more function, with a run limit, that is asked now and then
  std::uint32_t quota =
      0;  // of one more function: percent of a window's time that it may have of a GPU; 0: none
  bool updates = false;    // of how functions share their GPUs
  bool sequences = false;  // of requests to the functions with state
  // Not 0: there is a function whose two versions share its requests, and this seeds what happens to it.
  std::uint64_t canaries = 0;
  // Not 0: there is a function with state that is removed and deployed again, and this seeds what happens to it.
  std::uint64_t redeployments = 0;
  // One of the functions that come and go has a model of one and a half GPUs, so that it is deployed in stages.
  bool stages = false;
  Duration length = std::chrono::seconds(6);
  // The function that is deployed again has the model of the other functions with state.
  [[nodiscard]] bool AnewShares() const { return redeployments % 2 == 1; }
  // Its model is also that of a function without state, so that several nodes have the model while it is away, and when it comes.
  [[nodiscard]] bool AnewHasBare() const { return redeployments > 0 && !AnewShares(); }
};
[[nodiscard]] WorkloadPlan DrawWorkload(Random& random);
// In two worlds of three, two or three functions with state share their model. Drawn by itself, so that all
// else of a seed's schedule is the same with and without them.
[[nodiscard]] WorkloadPlan WithSiblings(WorkloadPlan plan, std::uint64_t seed);
// In one world of three. Drawn by itself too.
[[nodiscard]] WorkloadPlan WithLongRuns(WorkloadPlan plan, std::uint64_t seed);
// In one world of three a function with a quota of time is asked for more than that. Drawn by itself too.
[[nodiscard]] WorkloadPlan WithQuota(WorkloadPlan plan, std::uint64_t seed);
// In one world of two. Drawn by itself too.
[[nodiscard]] WorkloadPlan WithUpdates(WorkloadPlan plan, std::uint64_t seed);
// In one world of two. Drawn by itself too.
[[nodiscard]] WorkloadPlan WithSequences(WorkloadPlan plan, std::uint64_t seed);
// In one world of two. Drawn by itself too.
[[nodiscard]] WorkloadPlan WithConditions(WorkloadPlan plan, std::uint64_t seed);
// In one world of three. Drawn by itself too.
[[nodiscard]] WorkloadPlan WithCanaries(WorkloadPlan plan, std::uint64_t seed);
// One world of three has a function that is deployed again. In half of these worlds its model is also that of functions which keep
// state, in the other half that of a function which keeps none. Drawn by itself too.
[[nodiscard]] WorkloadPlan WithRedeployments(WorkloadPlan plan, std::uint64_t seed);
// In one world of three with functions that come and go. Drawn by itself too.
[[nodiscard]] WorkloadPlan WithStages(WorkloadPlan plan, std::uint64_t seed);
[[nodiscard]] std::string ToString(const WorkloadPlan& plan);

// One for all clients of a cluster: they draw in turn from one source.
class ClientLoad {
 public:
  static constexpr char kWorkflow[] = "chain";
  static constexpr char kConditional[] = "second";  // its step that a condition may skip
  static constexpr char kCondition[] = "go";        // the input that says so
  static constexpr char kStateful[] = "s";          // begins the name of each function that counts its runs
  static constexpr char kLong[] = "l0";             // whose runs are long now and then
  static constexpr Duration kRunLimit = std::chrono::milliseconds(300);  // that it declares
  static constexpr char kQuota[] = "q0";                                 // has a quota
  static constexpr char kCanaries[] = "v0";       // has two versions that share its requests
  static constexpr char kSecondModel[] = "v0-2";  // the model of its second version
  static constexpr char kAnew[] = "a0";           // keeps state, and is removed and deployed again
  static constexpr char kBare[] = "b0";           // keeps none with the same model, and is asked for nothing
  static constexpr Duration kCommandTimeout = std::chrono::seconds(2);  // of an operator's command
  static constexpr int kChurnNames = 3, kChurnVersions = 2;
  static constexpr char kStaged[] = "c2";  // one of these

  ClientLoad(ChaosCluster& cluster, const WorkloadPlan& plan, const Random& random)
      : cluster_(cluster), plan_(plan), random_(random) {}

  // Clients begin nothing new after the plan's length from now.
  void Begin() { end_ = cluster_.world().Now() + plan_.length; }
  [[nodiscard]] bool Over() { return cluster_.world().Now() >= end_; }
  [[nodiscard]] Duration Pause(Duration mean);
  [[nodiscard]] std::uint64_t Below(std::uint64_t bound) { return random_.Below(bound); }
  [[nodiscard]] std::string AnyGateway();
  [[nodiscard]] std::string AnyStateful();
  [[nodiscard]] std::set<std::string> StatefulNames() const;
  // Whether the function has the model that all of `StatefulNames` have.
  [[nodiscard]] bool SharesModel(const std::string& function) const {
    return StatefulNames().contains(function) || (function == kAnew && plan_.AnewShares());
  }
  // The name of the function's model.
  [[nodiscard]] std::string ModelOf(const std::string& function) const {
    if (SharesModel(function)) return "s0";
    return function == kBare ? kAnew : function;
  }
  // What the client of this question says of the workflow's conditional step.
  [[nodiscard]] static bool Goes(const std::string& question) { return question.back() % 2 == 0; }

  [[nodiscard]] ChaosCluster& cluster() { return cluster_; }
  [[nodiscard]] const WorkloadPlan& plan() const { return plan_; }

 private:
  ChaosCluster& cluster_;
  const WorkloadPlan plan_;
  Random random_;
  Time end_{};
};

}  // namespace troupe::sim
