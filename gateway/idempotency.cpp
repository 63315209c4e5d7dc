#include "gateway/idempotency.hpp"

#include <algorithm>
#include <utility>

#include "gateway/text.hpp"

namespace troupe::gateway {

namespace {

constexpr std::size_t kLongestKey = 128;

Bytes SizeOf(const IdempotencyTable::Answer& answer) {
  return Bytes(answer.headers.size() + answer.body.size());
}

}  // namespace

IdempotencyTable::Decision IdempotencyClaim::Begin(std::string key, const std::string& fingerprint, Time now,
                                                   IdempotencyTable::Waiter waiter) {
  key_ = std::move(key);
  waits_ = true;  // the answer of the first may come, on another thread, before this returns
  auto decision = table_.Begin(key_, fingerprint, now, std::move(waiter));
  waits_ = decision.verdict != IdempotencyTable::Verdict::kRun;
  if (waits_) {
    waiter_ = decision.waiter;
  } else {
    run_ = decision.run;
  }
  return decision;
}

bool IdempotencyClaim::Abandon() {
  if (waits_) table_.Leave(key_, waiter_);
  return !waits_ && (run_ == 0 || table_.Abandon(key_, run_));
}

absl::Status CheckIdempotencyKey(std::string_view key) {
  const bool good = !key.empty() && key.size() <= kLongestKey &&
                    std::all_of(key.begin(), key.end(), [](char c) { return c > ' ' && c < '\x7f'; });
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(Cat(
      "Idempotency-Key has ", key.size(),
      " characters, or other ones than printable ASCII without spaces; use 1 to ", kLongestKey, " of those"));
}

IdempotencyTable::Decision IdempotencyTable::Begin(const std::string& key, const std::string& fingerprint,
                                                   Time now, Waiter waiter) {
  const std::lock_guard lock(mutex_);
  Expire(now);
  const auto it = entries_.find(key);
  if (it != entries_.end()) {
    Entry& entry = it->second;
    if (entry.fingerprint != fingerprint) return {.verdict = Verdict::kOtherBody};
    if (entry.answer != nullptr) return {.verdict = Verdict::kKept, .answer = entry.answer};
    if (entry.waiters.size() >= limits_.max_waiting) return {.verdict = Verdict::kFull};
    const std::uint64_t number = next_number_++;
    entry.waiters.emplace(number, std::move(waiter));
    return {.verdict = Verdict::kWait, .run = entry.run, .waiter = number};
  }
  if (entries_.size() >= limits_.max_keys) DropOldest();
  if (entries_.size() >= limits_.max_keys) return {.verdict = Verdict::kFull};
  const std::uint64_t run = next_number_++;
  entries_[key] = {.fingerprint = fingerprint, .run = run, .answer = nullptr, .waiters = {}};
  return {.verdict = Verdict::kRun, .run = run};
}

void IdempotencyTable::Finish(const std::string& key, std::uint64_t run, const AnswerPtr& answer, Time now) {
  std::map<std::uint64_t, Waiter> waiters;
  {
    const std::lock_guard lock(mutex_);
    Expire(now);
    const auto it = entries_.find(key);
    if (it == entries_.end() || it->second.run != run || it->second.answer != nullptr) return;
    waiters = std::exchange(it->second.waiters, {});
    const Bytes size = SizeOf(*answer);
    if (answer->code == 200 && size <= std::min(limits_.max_answer, limits_.max_bytes)) {
      while (bytes_ + size > limits_.max_bytes) DropOldest();
      it->second.answer = answer;
      bytes_ += size;
      kept_.push_back({now + limits_.kept, key, run});
    } else {
      entries_.erase(it);
    }
  }
  for (const auto& [number, waiter] : waiters) waiter(answer);
}

bool IdempotencyTable::Abandon(const std::string& key, std::uint64_t run) {
  const std::lock_guard lock(mutex_);
  const auto it = entries_.find(key);
  if (it == entries_.end() || it->second.run != run || it->second.answer != nullptr) return true;
  if (!it->second.waiters.empty()) return false;
  entries_.erase(it);
  return true;
}

void IdempotencyTable::Leave(const std::string& key, std::uint64_t waiter) {
  std::map<std::uint64_t, Waiter>::node_type left;  // destroyed outside the lock
  const std::lock_guard lock(mutex_);
  const auto it = entries_.find(key);
  if (it != entries_.end()) left = it->second.waiters.extract(waiter);
}

void IdempotencyTable::Expire(Time now) {
  while (!kept_.empty() && kept_.front().until <= now) DropOldest();
}

// Kept answers count; requests that still run do not.
void IdempotencyTable::DropOldest() {
  if (kept_.empty()) return;
  const Kept oldest = std::move(kept_.front());
  kept_.pop_front();
  const auto it = entries_.find(oldest.key);
  if (it == entries_.end() || it->second.run != oldest.run) return;
  bytes_ = bytes_ - SizeOf(*it->second.answer);
  entries_.erase(it);
}

std::size_t IdempotencyTable::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

Bytes IdempotencyTable::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace troupe::gateway
