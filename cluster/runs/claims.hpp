// CLAIMS: which gateway has which run. A run whose gateway or actor is lost is claimed for another gateway,
// and that one goes on with it once the claim is durable.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cluster/events.hpp"
#include "cluster/records/after_commit.hpp"
#include "cluster/run_takeover.hpp"
#include "cluster/runs/run_change.hpp"

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
  // Commits the wish when no other change of the run is being stored (run_changes.hpp).
  void Store(const ClaimWish& wish);
  void On(const ClaimStored& stored, const absl::Status& status);

 private:
  // Gives the run to the gateway that the wish names, if that is still wanted when no other change of the run is
  // being stored.
  void Claim(ClaimWish wish);
  // The change has ended, and the next change of the run may begin.
  void Settle(const ClaimWish& wish, const absl::Status& status);
  // Cancelled when it is not wanted any more, FailedPrecondition when the run has ended.
  [[nodiscard]] absl::Status Check(const ClaimWish& wish) const;
  void Claimed(const ClaimWish& wish, const absl::Status& status);
  // The claim of an actor that asked for the run has ended.
  void Owned(const ClaimWish& wish, const absl::Status& status);
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
