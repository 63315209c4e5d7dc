// USAGE TOTALS: what functions used, by tenant, function and day, as the manager's store has it. The statements
// of nodes' ledgers are added up; a statement that comes again adds nothing. Pure.
//
// Days lie there one by one for more than a year; the days of a month that are older are added up to its first day,
// so that what is kept of a function grows by twelve records a year.
//
// The totals here are those of the last commit that was acknowledged: Prepare says what a commit has to write,
// and Apply follows its acknowledgement.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cluster/records/changes.hpp"
#include "proto/admin.pb.h"
#include "proto/usage.pb.h"

namespace troupe::cluster {

struct HeardStatement {
  std::string node{};
  proto::UsageStatement statement{};
};

struct UsageDay {
  std::string tenant{};
  std::string function{};
  std::int64_t day = 0;  // of UTC, counted from 1970-01-01

  auto operator<=>(const UsageDay&) const = default;
};

// What one commit does to the totals: it adds statements, or adds days to the first days of their months.
struct UsageChange {
  std::vector<HeardStatement> statements{};
  std::vector<UsageDay> folded{};

  [[nodiscard]] bool empty() const { return statements.empty() && folded.empty(); }
};

class UsageTotals {
 public:
  static constexpr std::int64_t kDaysKept =
      400;  // thirteen months: the same month of the year before, by day
  // Ledgers that are known at a time; each belongs to one data directory of a node.
  static constexpr std::size_t kMostLedgers = 10'000;

  void Load(const proto::UsageAmount& amount);
  void Load(const proto::UsageLedger& ledger);

  // The last statement of this ledger that the totals contain; 0: none.
  [[nodiscard]] std::uint64_t StoredOf(const std::string& ledger) const;
  [[nodiscard]] bool Full() const { return ledgers_.size() >= kMostLedgers; }
  // The first `most` days that are older than kDaysKept on the day `today`, and not the first of a month.
  [[nodiscard]] std::vector<UsageDay> Old(std::int64_t today, std::size_t most) const;
  [[nodiscard]] Changes Prepare(const UsageChange& change) const;
  void Apply(const UsageChange& change);

  // Sums over the days that are asked for, by what is asked for; in the order of their names.
  [[nodiscard]] std::vector<proto::UsageAmount> Sum(const proto::ListUsage& wish) const;

 private:
  using Amounts = std::map<UsageDay, proto::UsageAmount>;
  // The totals to which something is added, as they will be.
  [[nodiscard]] Amounts After(const UsageChange& change) const;
  // Adds to a total of `after`, which begins with what it is now.
  void AddTotal(const UsageDay& key, const proto::UsageAmount& more, Amounts& after) const;

  Amounts amounts_;
  std::map<std::string, proto::UsageLedger> ledgers_;
};

}  // namespace troupe::cluster
