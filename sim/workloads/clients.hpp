// CLIENTS: the people who use a cluster while things go wrong: requests at every gateway, operators who
// deploy, remove and look, runs of a workflow, nodes that are drained and taken back. They behave as clients
// do: they time out, they cancel, they ask again elsewhere, they send a command twice, and a request with its
// key at several gateways. What they saw is in their ledger and their history.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "sim/chaos/chaos_cluster.hpp"
#include "sim/checkers/registry_history.hpp"
#include "sim/checkers/request_ledger.hpp"

namespace troupe::sim {

// What is asked of the cluster, drawn from the schedule's seed.
struct WorkloadPlan {
  std::uint32_t functions = 4;  // that are there all the time
  std::uint32_t stateful = 1;   // that keep a state each: s0, s1, ..., all of one model
  double rate = 40;             // requests a second
  bool bursts = false;          // else steady
  bool churn = false;           // deployments and removals
  bool workflows = false;
  bool keys = false;  // requests and runs with Idempotency-Keys
  bool drains = false;
  bool long_runs = false;  // of one more function, with a run limit, that is asked now and then
  Duration length = std::chrono::seconds(6);
};
[[nodiscard]] WorkloadPlan DrawWorkload(Random& random);
// In two worlds of three, two or three functions with state share their model. Drawn by itself, so that all
// else of a seed's schedule is the same with and without them.
[[nodiscard]] WorkloadPlan WithSiblings(WorkloadPlan plan, std::uint64_t seed);
// In one world of three. Drawn by itself too.
[[nodiscard]] WorkloadPlan WithLongRuns(WorkloadPlan plan, std::uint64_t seed);
[[nodiscard]] std::string ToString(const WorkloadPlan& plan);

class Clients {
 public:
  Clients(ChaosCluster& cluster, WorkloadPlan plan, Random random);
  // A planted error: the n-th answer from now on is told twice.
  void AnswerTwice(std::uint64_t nth) { twice_ = nth; }

  // What is there all the time: deployed, and usable when it returns.
  void Prepare();
  // Begins; everything they do has begun by the plan's length.
  void Begin();
  [[nodiscard]] bool Idle() const { return ledger_.open() == 0 && commands_ == 0; }

  // --- afterwards ---
  // Once to each function that is there, at each gateway; `asked` hears of each.
  std::uint64_t Ask(std::size_t gateway, const std::string& function, const std::string& version,
                    Duration timeout);
  void Undrain();
  using Listed = std::function<void(const AdminResult&)>;
  void List(Listed done = {});

  [[nodiscard]] const RequestLedger& ledger() const { return ledger_; }
  [[nodiscard]] const std::vector<RegistryOp>& history() const { return history_; }
  [[nodiscard]] const std::set<std::string>& cancelled_runs() const { return cancelled_runs_; }
  [[nodiscard]] std::vector<std::string> Names() const;  // of all functions there may be
  [[nodiscard]] std::set<std::string> StatefulNames() const;
  [[nodiscard]] const WorkloadPlan& plan() const { return plan_; }
  [[nodiscard]] std::uint64_t served() const { return served_; }

  static constexpr char kWorkflow[] = "chain";
  static constexpr char kStateful[] = "s";  // begins the name of each function that counts its runs
  static constexpr char kLong[] = "l0";     // whose runs are long now and then
  static constexpr Duration kRunLimit = std::chrono::milliseconds(300);  // that it declares
  static constexpr int kChurnNames = 3, kChurnVersions = 2;

 private:
  [[nodiscard]] bool Over() const;
  void RequestLoop();
  void Burst();
  void AskAnything(std::uint32_t tries);
  [[nodiscard]] std::string AnyStateful();
  std::uint64_t Send(RequestRecord record, std::uint32_t tries);
  void Answered(std::uint64_t request, const AnswerSeen& answer, std::uint32_t tries);
  void ChurnLoop(std::size_t of);
  void Change(std::size_t of, RegistryOp::Kind kind, const std::string& key, std::uint32_t tries,
              const std::function<void()>& then);
  void Changed(std::size_t op, const AdminResult& result);
  void AskAgain(std::uint64_t request, std::uint32_t tries);
  void WorkflowLoop();
  void KeyLoop();
  void LongLoop();
  void AskWithKey(RequestRecord record);
  void CancelLoop();
  void DrainLoop();
  void SetDrain(const std::string& node, bool drain, std::uint32_t tries);
  void Command(std::size_t of, const proto::AdminRequest& request, Listed done);
  [[nodiscard]] Duration Pause(Duration mean);
  std::size_t Record(RegistryOp::Kind kind, const std::string& key);

  ChaosCluster& cluster_;
  const WorkloadPlan plan_;
  Random random_;
  Time end_{};
  RequestLedger ledger_;
  std::vector<RegistryOp> history_;
  std::map<std::string, std::string> onnx_;  // by function
  std::set<std::string> cancelled_runs_;     // whose cancellation was acknowledged
  std::set<std::string> draining_;
  std::uint64_t commands_ = 0;  // under way
  std::uint64_t served_ = 0;
  std::uint64_t twice_ = 0;
  std::uint64_t keys_ = 0;
  std::uint64_t long_asked_ = 0;
  const std::shared_ptr<bool> here_ = std::make_shared<bool>(true);  // answers may come when this is gone
};

}  // namespace troupe::sim
