#include "cluster/records/usage_totals.hpp"

#include <utility>

#include "absl/strings/str_cat.h"
#include "cluster/records/record_keys.hpp"

namespace troupe::cluster {

namespace {

void AddTo(proto::UsageAmount& sum, const proto::UsageAmount& more) {
  sum.set_gpu_ns(sum.gpu_ns() + more.gpu_ns());
  sum.set_runs(sum.runs() + more.runs());
  sum.set_bytes_moved(sum.bytes_moved() + more.bytes_moved());
  sum.set_host_kib_ms(sum.host_kib_ms() + more.host_kib_ms());
}

proto::UsageAmount Named(const std::tuple<std::string, std::string, std::int64_t>& key) {
  proto::UsageAmount amount;
  amount.set_tenant(std::get<0>(key));
  amount.set_function(std::get<1>(key));
  amount.set_day(std::get<2>(key));
  return amount;
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
  amounts_[{amount.tenant(), amount.function(), amount.day()}] = amount;
}

void UsageTotals::Load(const proto::UsageLedger& ledger) {
  ledgers_[ledger.ledger()] = ledger;
}

std::uint64_t UsageTotals::StoredOf(const std::string& ledger) const {
  const auto found = ledgers_.find(ledger);
  return found == ledgers_.end() ? 0 : found->second.sequence();
}

UsageTotals::Amounts UsageTotals::After(const std::vector<HeardStatement>& statements) const {
  Amounts after;
  for (const auto& heard : statements) {
    if (heard.statement.sequence() <= StoredOf(heard.statement.ledger())) continue;
    for (const auto& more : heard.statement.amounts()) {
      const Key key(more.tenant(), more.function(), more.day());
      auto [it, added] = after.try_emplace(key);
      if (added) {
        const auto before = amounts_.find(key);
        it->second = before == amounts_.end() ? Named(key) : before->second;
      }
      AddTo(it->second, more);
    }
  }
  return after;
}

Changes UsageTotals::Prepare(const std::vector<HeardStatement>& statements) const {
  Changes changes;
  for (const auto& [key, amount] : After(statements))
    changes.Put(Table::kSettings,
                absl::StrCat(kUsageKey, amount.tenant(), "/", amount.function(), "/", amount.day()), amount);
  for (const auto& heard : statements)
    changes.Put(Table::kSettings, absl::StrCat(kUsageLedgerKey, heard.statement.ledger()), LedgerOf(heard));
  return changes;
}

void UsageTotals::Apply(const std::vector<HeardStatement>& statements) {
  for (auto& [key, amount] : After(statements)) amounts_[key] = amount;
  for (const auto& heard : statements) ledgers_[heard.statement.ledger()] = LedgerOf(heard);
}

std::vector<proto::UsageAmount> UsageTotals::Sum(const proto::ListUsage& wish) const {
  Amounts sums;
  for (const auto& [key, amount] : amounts_) {
    const auto& [tenant, function, day] = key;
    if (day < wish.first_day() || day > wish.last_day()) continue;
    const Key name(tenant, wish.by() == proto::ListUsage::TENANT ? std::string() : function,
                   wish.by() == proto::ListUsage::DAY ? day : 0);
    auto [it, added] = sums.try_emplace(name);
    if (added) it->second = Named(name);
    AddTo(it->second, amount);
  }
  std::vector<proto::UsageAmount> out;
  for (auto& [name, amount] : sums) out.push_back(std::move(amount));
  return out;
}

}  // namespace troupe::cluster
