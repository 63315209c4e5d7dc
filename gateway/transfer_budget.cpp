#include "gateway/transfer_budget.hpp"

#include "base/check.hpp"

namespace troupe::gateway {

namespace {
constexpr std::chrono::seconds kShortFor{1};
}  // namespace

TransferBudget::Verdict TransferBudget::Judge(const std::string& client, std::uint64_t bytes) const {
  // Differences, since a sum could wrap.
  const std::uint64_t used = used_.load(std::memory_order_relaxed);
  if (bytes > limits_.total.count() - used) return Verdict::kFull;
  const auto it = held_.find(client);
  const std::uint64_t held = it == held_.end() ? 0 : it->second;
  return bytes > limits_.one_client.count() - held ? Verdict::kClientFull : Verdict::kTaken;
}

TransferBudget::Verdict TransferBudget::Take(const std::string& client, std::uint64_t bytes, SteadyTime now) {
  if (bytes == 0) return Verdict::kTaken;
  const std::lock_guard lock(mutex_);
  const Verdict verdict = Judge(client, bytes);
  if (verdict != Verdict::kTaken) {
    refused_.store(now, std::memory_order_relaxed);
    return verdict;
  }
  held_[client] += bytes;
  used_.fetch_add(bytes, std::memory_order_relaxed);
  return verdict;
}

void TransferBudget::Return(const std::string& client, std::uint64_t bytes) {
  if (bytes == 0) return;
  const std::lock_guard lock(mutex_);
  const auto it = held_.find(client);
  TROUPE_CHECK(it != held_.end() && it->second >= bytes, "more bytes were returned than were taken");
  it->second -= bytes;
  if (it->second == 0) held_.erase(it);
  used_.fetch_sub(bytes, std::memory_order_relaxed);
}

TransferBudget::Verdict TransferBudget::Look(const std::string& client) const {
  const std::lock_guard lock(mutex_);
  return Judge(client, 1);
}

bool TransferBudget::IsShort(SteadyTime now) const {
  const SteadyTime refused = refused_.load(std::memory_order_relaxed);
  return refused != SteadyTime::min() && now - refused < kShortFor;
}

}  // namespace troupe::gateway
