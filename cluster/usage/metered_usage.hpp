// METERED USAGE: statements of nodes' ledgers on their way into the store. One commit at a time takes all that
// wait. A commit that fails is tried again as it was before any other one: it may be on the disk all the same, and
// another commit would then write totals that lack it.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "cluster/records/usage_totals.hpp"
#include "proto/cluster.pb.h"

namespace troupe::cluster {

struct Parts;
struct UsageStored;

class MeteredUsage {
 public:
  explicit MeteredUsage(Parts& parts) : parts_(parts) {}

  // A heartbeat of a member that is known. Returns the last statement of its ledger that is stored.
  std::uint64_t Hear(const proto::Heartbeat& heartbeat);
  void On(const UsageStored& stored, const absl::Status& status);
  // Tries again what could not be stored, and adds up old days.
  void Pulse();

 private:
  void Commit();
  [[nodiscard]] UsageChange Next();
  void LookAtClock(const proto::Heartbeat& heartbeat);

  Parts& parts_;
  std::map<std::string, HeardStatement> waiting_;  // by ledger
  UsageChange failed_;                             // of the last commit, when it failed
  bool committing_ = false;
  std::int64_t folded_on_ = 0;        // the day on which no old day was left
  std::set<std::string> clocks_off_;  // nodes whose clocks differ
};

}  // namespace troupe::cluster
