#include "cluster/records/usage_totals.hpp"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/civil_time.h"
#include "cluster/records/record_keys.hpp"
#include "proto/usage_amount.hpp"

namespace troupe::cluster {

namespace {

proto::UsageAmount Named(const UsageDay& key) {
  proto::UsageAmount amount;
  amount.set_tenant(key.tenant);
  amount.set_function(key.function);
  amount.set_day(key.day);
  return amount;
}

std::string StoreKey(const UsageDay& key) {
  return absl::StrCat(kUsageKey, key.tenant, "/", key.function, "/", key.day);
}

std::int64_t FirstOfMonth(std::int64_t day) {
  const absl::CivilDay epoch(1970, 1, 1);
  return absl::CivilDay(absl::CivilMonth(epoch + day)) - epoch;
}

proto::UsageLedger LedgerOf(const HeardStatement& heard) {
  proto::UsageLedger ledger;
  ledger.set_ledger(heard.statement.ledger());
  ledger.set_node(heard.node);
  ledger.set_sequence(heard.statement.sequence());
  return ledger;
}

}  // namespace

void UsageTotals::Load(const proto::UsageAmount& amount) {
  amounts_[UsageDay{amount.tenant(), amount.function(), amount.day()}] = amount;
}

void UsageTotals::Load(const proto::UsageLedger& ledger) {
  ledgers_[ledger.ledger()] = ledger;
}

std::uint64_t UsageTotals::StoredOf(const std::string& ledger) const {
  const auto found = ledgers_.find(ledger);
  return found == ledgers_.end() ? 0 : found->second.sequence();
}

std::vector<UsageDay> UsageTotals::Old(std::int64_t today, std::size_t most) const {
  std::vector<UsageDay> old;
  for (const auto& [key, amount] : amounts_) {
    if (key.day >= today - kDaysKept || key.day == FirstOfMonth(key.day)) continue;
    if (old.size() == most) break;
    old.push_back(key);
  }
  return old;
}

void UsageTotals::AddTotal(const UsageDay& key, const proto::UsageAmount& more, Amounts& after) const {
  auto [it, added] = after.try_emplace(key);
  if (added) {
    const auto before = amounts_.find(key);
    it->second = before == amounts_.end() ? Named(key) : before->second;
  }
  AddTo(it->second, more);
}

UsageTotals::Amounts UsageTotals::After(const UsageChange& change) const {
  Amounts after;
  for (const auto& heard : change.statements) {
    if (heard.statement.sequence() <= StoredOf(heard.statement.ledger())) continue;
    for (const auto& more : heard.statement.amounts())
      AddTotal({more.tenant(), more.function(), more.day()}, more, after);
  }
  for (const auto& day : change.folded)
    AddTotal({day.tenant, day.function, FirstOfMonth(day.day)}, amounts_.at(day), after);
  return after;
}

Changes UsageTotals::Prepare(const UsageChange& change) const {
  Changes changes;
  for (const auto& [key, amount] : After(change)) changes.Put(Table::kSettings, StoreKey(key), amount);
  for (const auto& day : change.folded) changes.Delete(Table::kSettings, StoreKey(day));
  for (const auto& heard : change.statements)
    changes.Put(Table::kSettings, absl::StrCat(kUsageLedgerKey, heard.statement.ledger()), LedgerOf(heard));
  return changes;
}

void UsageTotals::Apply(const UsageChange& change) {
  for (auto& [key, amount] : After(change)) amounts_[key] = amount;
  for (const auto& day : change.folded) amounts_.erase(day);
  for (const auto& heard : change.statements) ledgers_[heard.statement.ledger()] = LedgerOf(heard);
}

std::vector<proto::UsageAmount> UsageTotals::Sum(const proto::ListUsage& wish) const {
  Amounts sums;
  for (const auto& [key, amount] : amounts_) {
    if (key.day < wish.first_day() || key.day > wish.last_day()) continue;
    const UsageDay name{.tenant = key.tenant,
                        .function = wish.by() == proto::ListUsage::TENANT ? std::string() : key.function,
                        .day = wish.by() == proto::ListUsage::DAY ? key.day : 0};
    auto [it, added] = sums.try_emplace(name);
    if (added) it->second = Named(name);
    AddTo(it->second, amount);
  }
  std::vector<proto::UsageAmount> out;
  for (auto& [name, amount] : sums) out.push_back(std::move(amount));
  return out;
}

}  // namespace troupe::cluster
