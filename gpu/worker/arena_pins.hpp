// ARENA PINS: which pages of arenas a real GPU has registered, so that large inputs and outputs are copied at full
// speed.
//
//   used -> registered (on a thread, in chunks) -> let go of: no copy has used it for a while, or others need room
//
// An arena is a sparse file, and a registration commits each page of it: so what is registered is the pages in
// which a large tensor lay, when it was first copied. That copy is a slower one; the next tensor at the same
// place, where an arena likes to put it, is not. An arena never exchanges its pages, and its memory stays mapped
// for as long as any of it is registered.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "base/units.hpp"

namespace troupe::gpu {

// Thread-safe. Lets go of everything in its destructor: no copy uses the arenas any more.
class ArenaPins {
 public:
  static constexpr Bytes kLeast = MiB(1);   // smaller tensors are not worth a registration
  static constexpr Bytes kChunk = MiB(64);  // of one registration
  // Whose arena it is. This process may write to its own one; the other ones are mapped for reading alone, and few
  // drivers register that.
  enum class Owner { kWorker, kOthers };
  // The device's, with the same contract.
  struct Calls {
    std::function<absl::Status(std::span<const std::byte>)> add;
    std::function<void(std::span<const std::byte>)> remove;
    // Once at most for each kind of owner, on a thread of its own: nothing more of that kind is registered.
    std::function<void(Owner owner, const absl::Status& why)> refused;
  };
  struct Bounds {
    Bytes registered = GiB(1);                 // in all
    Duration idle = std::chrono::seconds(30);  // for which what no copy uses stays registered
  };
  ArenaPins(Calls calls, const Bounds& bounds);
  ~ArenaPins();
  ArenaPins(const ArenaPins&) = delete;
  ArenaPins& operator=(const ArenaPins&) = delete;

  // While this lives, what it was given for stays registered. Null: nothing of it is.
  using Lease = std::shared_ptr<const void>;
  // A copy of these bytes of an arena begins, and ends before the lease. What of them is not registered will be,
  // for later copies. `memory` keeps the arena mapped.
  [[nodiscard]] Lease Use(std::span<const std::byte> bytes, Owner owner, std::shared_ptr<const void> memory);
  [[nodiscard]] Bytes registered() const;

 private:
  using Range = std::span<const std::byte>;
  struct Wanted {
    Range range;  // whole pages
    Owner owner{};
    std::shared_ptr<const void> memory;
  };
  struct Pinned {
    Range range;
    std::shared_ptr<const void> memory;
    Time used;
  };
  using PinnedPtr = std::shared_ptr<Pinned>;
  void Serve();
  // The next chunk to register; what is registered already is forgotten on the way.
  [[nodiscard]] std::optional<Wanted> NextChunk();
  void Register(const Wanted& chunk, std::unique_lock<std::mutex>& lock);
  // Takes out what no copy uses: until there is room for so much, the one used longest ago first.
  [[nodiscard]] std::vector<PinnedPtr> TakeFor(Bytes size);
  // Or what was not used since then.
  [[nodiscard]] std::vector<PinnedPtr> TakeIdle(Time since);
  void LetGo(std::vector<PinnedPtr> gone, std::unique_lock<std::mutex>& lock);

  const Calls calls_;
  const Bounds bounds_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<const std::byte*, PinnedPtr> pinned_;  // by their begin, apart from each other; guarded by mutex_
  Bytes registered_;                              // the sum of them; guarded by mutex_, as all below
  std::deque<Wanted> wanted_;
  std::set<Owner> given_up_;
  bool stopping_ = false;
  std::thread thread_;  // ends first; makes all calls
};

}  // namespace troupe::gpu
