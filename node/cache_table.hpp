// CACHE TABLE: what this node's host region holds against what placement wants. It decides what to fetch and
// what to drop; the cache actor fetches, packs and drops, and reports. Owned by the cache actor.
//
//   a model:  absent -> fetching -> held -> dropping -> absent;  fetching -> absent (failed; tried again with
//   back-off)
//
// Bytes of fetching + held + dropping models never exceed the region. Wanted models come first come first
// served; when the region is full, models that nobody wants go first, least recently used first; a wanted one
// is never dropped for another. A pinned model stays.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/units.hpp"

namespace troupe::node {

enum class CacheState { kAbsent, kFetching, kHeld, kDropping };

struct CacheEntry {
  Bytes bytes{};
  CacheState state = CacheState::kAbsent;
  bool wanted = false;
  std::uint32_t pins = 0;
  std::uint64_t order = 0;  // of the wish
  Time last_use{};
  Time retry_at{};
  std::uint32_t failures = 0;
  absl::Status last_error{};
};

struct CacheLimits {
  Bytes region = GiB(2);
  std::uint32_t parallel_fetches = 2;
  Duration first_retry = std::chrono::milliseconds(200);
  Duration longest_retry = std::chrono::seconds(30);
};

enum class CacheActionKind { kFetch, kDrop };
struct CacheAction {
  CacheActionKind kind{};
  std::string model{};
};

class CacheTable {
 public:
  explicit CacheTable(CacheLimits limits) : limits_(limits) {}

  // The manager wants a host copy. ResourceExhausted when it can never fit, or when wanted models fill the
  // region.
  absl::Status Want(const std::string& model, Bytes bytes);
  void Unwant(const std::string& model);
  // A restarted daemon found this copy in the region.
  void Found(const std::string& model, Bytes bytes, Time now);

  // What to do now; state changes to fetching/dropping with it. Ask again after each event and at NextDue().
  [[nodiscard]] std::vector<CacheAction> Decide(Time now);
  void FetchDone(const std::string& model, const absl::Status& status, Bytes actual, Time now);
  void DropDone(const std::string& model);
  void Pin(const std::string& model);
  void Unpin(const std::string& model);
  void Touch(const std::string& model, Time now);
  [[nodiscard]] Time NextDue() const;

  [[nodiscard]] const CacheEntry* Find(const std::string& model) const;
  [[nodiscard]] const std::map<std::string, CacheEntry>& entries() const { return entries_; }
  [[nodiscard]] std::vector<std::string> Held() const;
  [[nodiscard]] Bytes used() const { return used_; }
  [[nodiscard]] Bytes region() const { return limits_.region; }
  void Check() const;

 private:
  [[nodiscard]] Bytes WantedBytes() const;
  [[nodiscard]] std::vector<std::string> PlanDrops(Bytes needed) const;

  CacheLimits limits_;
  std::map<std::string, CacheEntry> entries_;
  Bytes used_;
  std::uint64_t next_order_ = 0;
  std::uint32_t fetching_ = 0;
};

}  // namespace troupe::node
