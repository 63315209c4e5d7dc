// USAGE TOTALS: what functions used, by tenant, function and day, as the manager's store has it. The statements
// of nodes' ledgers are added up; a statement that comes again adds nothing. Pure.
//
// The totals here are those of the last commit that was acknowledged: Prepare says what a commit has to write,
// and Apply follows its acknowledgement.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "cluster/records/changes.hpp"
#include "proto/admin.pb.h"
#include "proto/usage.pb.h"

namespace troupe::cluster {

struct HeardStatement {
  std::string node{};
  proto::UsageStatement statement{};
};

class UsageTotals {
 public:
  // Ledgers that are known at a time; each belongs to one data directory of a node.
  static constexpr std::size_t kMostLedgers = 10'000;

  void Load(const proto::UsageAmount& amount);
  void Load(const proto::UsageLedger& ledger);

  // The last statement of this ledger that the totals contain; 0: none.
  [[nodiscard]] std::uint64_t StoredOf(const std::string& ledger) const;
  [[nodiscard]] bool Full() const { return ledgers_.size() >= kMostLedgers; }
  [[nodiscard]] Changes Prepare(const std::vector<HeardStatement>& statements) const;
  void Apply(const std::vector<HeardStatement>& statements);

  // Sums over the days that are asked for, by what is asked for; in the order of their names.
  [[nodiscard]] std::vector<proto::UsageAmount> Sum(const proto::ListUsage& wish) const;

 private:
  using Key = std::tuple<std::string, std::string, std::int64_t>;  // tenant, function, day
  using Amounts = std::map<Key, proto::UsageAmount>;
  // The totals that the statements change, as they will be.
  [[nodiscard]] Amounts After(const std::vector<HeardStatement>& statements) const;

  Amounts amounts_;
  std::map<std::string, proto::UsageLedger> ledgers_;
};

}  // namespace troupe::cluster
