#include "cluster/usage/metered_usage.hpp"

#include <utility>

#include "absl/strings/str_cat.h"
#include "cluster/parts.hpp"
#include "proto/usage_amount.hpp"

namespace troupe::cluster {

namespace {

// Statements, or days, of one commit, which a batch of the store has room for.
constexpr std::size_t kAtATime = 32;
// A reading of a node's clock is up to a second old when it comes.
constexpr Duration kClockMayDiffer = std::chrono::minutes(1);

}  // namespace

std::uint64_t MeteredUsage::Hear(const proto::Heartbeat& heartbeat) {
  if (heartbeat.usage_ledger().empty()) return 0;
  LookAtClock(heartbeat);
  const auto& totals = parts_.catalogue.usage();
  const auto stored = totals.StoredOf(heartbeat.usage_ledger());
  const auto& statement = heartbeat.usage();
  if (statement.ledger() != heartbeat.usage_ledger() || statement.sequence() <= stored) return stored;
  // A node that says too much is not heard until there is room.
  if (stored == 0 && (totals.Full() || waiting_.size() >= UsageTotals::kMostLedgers)) return stored;
  waiting_.try_emplace(statement.ledger(), HeardStatement{heartbeat.name(), statement});
  if (failed_.empty()) Commit();  // else the pulse tries again
  return stored;
}

void MeteredUsage::LookAtClock(const proto::Heartbeat& heartbeat) {
  if (heartbeat.unix_ns() == 0) return;
  const Duration ahead(heartbeat.unix_ns() - parts_.out.unix_now());
  const bool off = ahead > kClockMayDiffer || ahead < -kClockMayDiffer;
  if (!off) {
    clocks_off_.erase(heartbeat.name());
    return;
  }
  if (clocks_off_.size() >= UsageTotals::kMostLedgers || !clocks_off_.insert(heartbeat.name()).second) return;
  const bool before = ahead < Duration::zero();
  parts_.out.Tell(heartbeat.name(), "clock-off",
                  absl::StrCat("the clock of this host is ", FormatDuration(before ? -ahead : ahead),
                               before ? " behind" : " ahead of",
                               " the manager's: what is used around midnight UTC counts for another day; set "
                               "the clock (NTP)"));
}

UsageChange MeteredUsage::Next() {
  UsageChange next;
  for (auto it = waiting_.begin(); it != waiting_.end() && next.statements.size() < kAtATime; ++it)
    next.statements.push_back(it->second);
  const std::int64_t today = proto::DayOf(parts_.out.unix_now());
  if (!next.empty() || today == folded_on_) return next;
  next.folded = parts_.catalogue.usage().Old(today, kAtATime);
  if (next.folded.empty()) folded_on_ = today;
  return next;
}

void MeteredUsage::Commit() {
  if (committing_) return;
  UsageStored stored{failed_.empty() ? Next() : failed_};
  if (stored.change.empty()) return;
  committing_ = true;
  auto changes = parts_.catalogue.usage().Prepare(stored.change);
  parts_.commits.Add(std::move(changes), std::move(stored));
}

void MeteredUsage::On(const UsageStored& stored, const absl::Status& status) {
  committing_ = false;
  if (!status.ok()) {
    if (std::exchange(failed_, stored.change).empty())
      parts_.out.Tell(
          "manager", "usage-not-stored",
          absl::StrCat("what functions used could not be stored, and is asked for again until it is: ",
                       status.message()));
    return;
  }
  failed_ = {};
  parts_.catalogue.ApplyUsage(stored.change);
  for (const auto& heard : stored.change.statements) waiting_.erase(heard.statement.ledger());
  Commit();
}

void MeteredUsage::Pulse() {
  Commit();
}

}  // namespace troupe::cluster
