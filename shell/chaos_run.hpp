// CHAOS RUN: injects a plan's faults into a cluster and watches what becomes of it. One thread; waits on the
// console, so that Ctrl-C is heard.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "shell/chaos_plan.hpp"
#include "shell/session.hpp"

namespace troupe::shell {

// What became of one fault. Times are after it was injected, as seen every tenth of a second.
struct FaultResult {
  PlannedFault planned;
  std::string refused;              // why it was not injected; "": it was
  Duration began{};                 // after the beginning of the run
  std::optional<Duration> noticed;  // the first event of its member, or the manager did not answer
  std::optional<Duration> well;     // everything was as at the beginning again
};

class ChaosRun {
 public:
  ChaosRun(Session& session, ChaosPlan plan) : session_(session), plan_(std::move(plan)) {}
  // All of it. FailedPrecondition (and nothing more is injected) when the cluster allows no faults; Aborted
  // when it was not well `settle` after the last fault; Unavailable when it cannot be reached at the start.
  absl::Status Go();
  [[nodiscard]] const std::vector<FaultResult>& results() const { return results_; }

 private:
  enum class Until { kTime, kWell };
  [[nodiscard]] Duration Passed() const;
  absl::Status Remember();
  // Looks at the cluster until `end`, or until it is well and every fault was noticed.
  absl::Status Watch(Duration end, Until until);
  absl::Status Look();
  absl::Status LookAtEvents();
  absl::Status Inject(const PlannedFault& planned);
  // Interruptions end the run; a manager that is away is what was asked for.
  absl::StatusOr<std::optional<proto::AdminReply>> Ask(proto::AdminRequest request);
  void Away();
  void Noticed(const std::string& member);
  void SeenWell();
  // "": as at the beginning.
  [[nodiscard]] std::string Sick(const proto::ClusterStatusReply& status) const;
  [[nodiscard]] bool Settled() const;

  Session& session_;
  const ChaosPlan plan_;
  Time start_{};
  std::set<std::string> members_;                    // that were alive
  std::set<std::pair<std::string, unsigned>> gpus_;  // that were ready
  std::uint64_t last_event_ = 0;
  bool away_ = false;
  std::string sick_;  // when it was looked at last
  std::vector<FaultResult> results_;
};

}  // namespace troupe::shell
