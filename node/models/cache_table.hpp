// CACHE TABLE: the models that this node adopted, and where their bytes are: on its disk, and in its host
// region. It decides what comes into the region and what leaves it. Pure. The node controller owns it and
// tells it which copies are read and which are waited for; the cache actor fetches, places and frees.
//
//   a model:  absent -> fetching -> on disk -> loading -> held -> on disk ...
//             held -> leaving -> on disk                     chosen while it had readers: it goes with the last
//             fetching -> absent, loading -> on disk         failed: tried again with back-off
//             loading -> absent                              damaged on disk: fetched again
//
// An adopted model stays adopted: without room for all of them the coldest are on disk only, and come back
// when they are needed. Models that are needed, because they are being adopted or because requests wait for
// them, stand in one queue, first come first served: while one finds no room, none behind it is loaded. To
// make room, idle copies leave first, then copies that are only read, least recently used first, then copies
// that requests wait for, longest held first, once they were held for a turn. So models in use share a full
// region by turns, and a copy with readers never leaves.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "base/units.hpp"
#include "node/names.hpp"

namespace troupe::node {

enum class CacheState { kAbsent, kFetching, kOnDisk, kLoading, kHeld, kLeaving };
[[nodiscard]] const char* Name(CacheState state);

struct CacheEntry {
  Bytes bytes{};  // of the region
  CacheState state = CacheState::kAbsent;
  bool wanted = false;
  bool adopting = false;  // until Adopted()
  bool arrives = false;   // is counted as being adopted in the region
  std::uint32_t readers = 0;
  bool read = false;        // since it was held
  std::uint64_t place = 0;  // in the line; 0: not in it
  Time last_use{};
  Time held_since{};
  Time retry_at{};
  Bytes slack{};  // room to make beyond its bytes: what was free lay scattered
  std::uint32_t failures = 0;
  absl::Status last_error{};
};

struct CacheLimits {
  Bytes region = GiB(2);
  std::uint32_t parallel_fetches = 2;    // to the disk
  std::uint32_t parallel_loads = 2;      // from the disk to the region
  std::uint32_t parallel_adoptions = 2;  // in the region, and not yet ready: they do not leave
  Duration first_retry = std::chrono::milliseconds(200);
  Duration longest_retry = std::chrono::seconds(30);
  // How long a copy that requests wait for stays before another copy with waiting requests may take its
  // place.
  Duration turn = std::chrono::milliseconds(100);
  Duration unread_turn = std::chrono::seconds(1);  // of a copy that no GPU was free for since it came
};

enum class CacheActionKind {
  kFetch,  // bring it to the disk; FetchDone tells how it went
  kLoad,   // from the disk into the region; LoadDone tells how it went
  kLeave,  // no new reader begins; dropped with its last reader
  kDrop,   // free its place in the region, before any load that was decided later
};
struct CacheAction {
  CacheActionKind kind{};
  ModelNumber model{};
};

struct CacheCounts {
  std::uint64_t loads = 0;  // into the region
  std::uint64_t drops = 0;  // to disk only
  std::uint64_t damaged = 0;
};

class CacheTable {
 public:
  // True for a model that requests wait for at this node.
  using Waited = std::function<bool(const ModelNumber&)>;

  explicit CacheTable(CacheLimits limits) : limits_(limits) {}

  // The node is to hold this model. ResourceExhausted when it can never fit.
  absl::Status Want(const ModelNumber& model, Bytes bytes);
  void Unwant(const ModelNumber& model);
  // All that adopting it takes is done: from now on its copy may leave.
  void Adopted(const ModelNumber& model);
  // A request waits for a copy that is not usable.
  void Need(const ModelNumber& model);

  // What to do now, in this order; the states change with it. Ask again after each event and at NextDue().
  [[nodiscard]] std::vector<CacheAction> Decide(Time now, const Waited& waited);
  void FetchDone(const ModelNumber& model, const absl::Status& status, Time now);
  // `actual`: what the copy takes; zero: as estimated. DataLoss and NotFound: the disk does not have it any
  // more. ResourceExhausted: what is free lies scattered.
  void LoadDone(const ModelNumber& model, const absl::Status& status, Bytes actual, Time now);
  // A swap, a run or a preparation reads the copy, which is usable, until Unread.
  void Read(const ModelNumber& model, Time now);
  // True when a leaving copy lost its last reader: ask Decide.
  bool Unread(const ModelNumber& model, Time now);
  [[nodiscard]] Time NextDue() const;
  // False: Decide has nothing to do.
  [[nodiscard]] bool Busy() const { return !line_.empty() || !leaving_.empty(); }

  // In the region, and staying.
  [[nodiscard]] bool Usable(const ModelNumber& model) const;
  [[nodiscard]] const CacheEntry* Find(const ModelNumber& model) const;
  // All of them, in the order of their names.
  [[nodiscard]] std::vector<std::pair<ModelNumber, const CacheEntry*>> InOrder() const;
  [[nodiscard]] Bytes used() const { return used_; }
  [[nodiscard]] Bytes region() const { return limits_.region; }
  [[nodiscard]] const CacheCounts& counts() const { return counts_; }
  void Check() const;

 private:
  struct Victim {
    int rank = 0;
    Time since{};
    ModelNumber model{};
  };
  enum class Step { kStay, kGone, kFull };

  CacheEntry& At(const ModelNumber& model);
  void JoinLine(const ModelNumber& model, CacheEntry& entry);
  void LeaveLine(CacheEntry& entry);
  void Failed(CacheEntry& entry, const absl::Status& status, Time now);
  void Forget(const ModelNumber& model);
  void Drop(const ModelNumber& model, std::vector<CacheAction>& actions);
  Step Advance(const ModelNumber& model, CacheEntry& entry, Time now, const Waited& waited, bool full,
               std::vector<CacheAction>& actions);
  void MakeRoom(Bytes need, Time now, const Waited& waited, std::vector<CacheAction>& actions);
  [[nodiscard]] std::vector<Victim> Victims(Time now, const Waited& waited);
  [[nodiscard]] Bytes Room() const;
  // Being adopted, and in the region or on its way there.
  [[nodiscard]] static bool Arrives(const CacheEntry& entry);
  void CountArriving(CacheEntry& entry);  // after each change of what makes it so

  CacheLimits limits_;
  absl::flat_hash_map<ModelNumber, CacheEntry> entries_;
  std::map<std::uint64_t, ModelNumber> line_;  // by place
  absl::flat_hash_set<ModelNumber> leaving_;
  Bytes used_;
  std::uint64_t next_place_ = 1;
  std::uint32_t fetching_ = 0;
  std::uint32_t loading_ = 0;
  std::uint32_t arriving_ = 0;
  Time decided_{};
  // When the turn of a copy ends, so that the first of the queue may take its place.
  Time turn_ends_ = Time::max();
  CacheCounts counts_;
};

}  // namespace troupe::node
