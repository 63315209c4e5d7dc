// CLAIMS: which gateway has which run. A run whose gateway or actor is lost is claimed for another gateway,
// and that one goes on with it once the claim is durable.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cluster/events.hpp"
#include "cluster/run_takeover.hpp"

namespace troupe::cluster {

struct Parts;

class Claims {
 public:
  explicit Claims(Parts& parts) : parts_(parts) {}

  // Runs that had not ended when the store was read have no actor.
  void Start();
  void On(const RunnerLost& event);
  void GatewayLost(const std::string& gateway);
  // Runs that no actor runs any more get another gateway.
  void TakeOver();
  // No actor runs it: now the asker does, under a claim of its own, so that the actor that had it before
  // commits nothing, and hears of it if it lives.
  void Own(Ask ask, const proto::StartRun& command, Runner asker);

 private:
  enum class Reopening { kNone, kAllowed };
  // Gives the run to `gateway`, if it is `wanted` when no other change of it is being stored. Cancelled when
  // it is not, FailedPrecondition when it has ended. kAllowed: a run that failed for a passing reason is begun
  // again.
  void Claim(const std::string& run, const std::string& gateway, Reopening reopening,
             std::function<bool()> wanted, std::function<void(absl::Status)> done);
  void StoreClaim(const std::string& run, const std::string& gateway, Reopening reopening,
                  const std::function<bool()>& wanted, std::function<void(absl::Status)> done);
  // A gateway was taken for dead, and is back before another could take its runs: those that run there still
  // are not begun anew.
  void Reattach();
  [[nodiscard]] std::vector<RunGateway> Gateways() const;
  [[nodiscard]] std::vector<LooseRun> LooseRuns() const;
  // It was claimed for `gateway`, which is told to go on with it.
  void GoOnAt(const std::string& gateway, const std::string& run);
  // `former`, if there is one, had `run` before the claim that it has now. Its gateway was taken for dead, and
  // yet it may live, be connected and know nothing of that.
  void TellFormer(Runner former, const proto::RunRecord& run);

  Parts& parts_;
};

}  // namespace troupe::cluster
