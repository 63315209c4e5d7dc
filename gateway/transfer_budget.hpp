// TRANSFER BUDGET: how many bytes of one kind (request bodies that arrive, answers that wait for their
// readers) the server holds, in all and for each client address. A connection charges what it really holds,
// in steps, and returns it at the end of its request; so a length that a client merely claims takes nothing.
//
// When bytes were refused, the budget is short for a second. Slow transfers are then given up much sooner
// than otherwise (http_pace.hpp), so that the memory goes to clients that send or read.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>

#include "base/units.hpp"

namespace troupe::gateway {

// Thread-safe.
class TransferBudget {
 public:
  using SteadyTime = std::chrono::steady_clock::time_point;
  enum class Verdict { kTaken, kClientFull, kFull };

  struct Limits {
    Bytes total;
    Bytes one_client;  // the most that one client address may hold of it
  };

  explicit TransferBudget(Limits limits) : limits_(limits) {}

  // Takes all of `bytes`, or nothing. A client that holds nothing is always under its own limit.
  [[nodiscard]] Verdict Take(const std::string& client, std::uint64_t bytes, SteadyTime now);
  void Return(const std::string& client, std::uint64_t bytes);
  // Whether a single further byte would be taken, without taking it.
  [[nodiscard]] Verdict Look(const std::string& client) const;

  // Bytes were refused during the last second.
  [[nodiscard]] bool IsShort(SteadyTime now) const;
  [[nodiscard]] Bytes used() const { return Bytes(used_.load(std::memory_order_relaxed)); }
  [[nodiscard]] const Limits& limits() const { return limits_; }

 private:
  [[nodiscard]] Verdict Judge(const std::string& client, std::uint64_t bytes) const;  // under the lock

  const Limits limits_;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, std::uint64_t> held_;  // by client, never 0; guarded by mutex_
  std::atomic<std::uint64_t> used_{0};                   // the sum of held_; written under mutex_
  std::atomic<SteadyTime> refused_{SteadyTime::min()};
};

}  // namespace troupe::gateway
