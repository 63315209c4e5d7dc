// Links as shared token buckets: virtual GPUs of different processes contend for a link as real ones do.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "transport/memory_file.hpp"

namespace troupe::transport {

// One link or switch of the node, as configured.
struct LinkConfig {
  std::string name;                                 // at most 31 bytes: "pcie0:h2d", "switch0"
  BytesPerSecond bandwidth;                         // zero: unlimited
  Duration burst = std::chrono::microseconds(500);  // how far behind a late sleeper may be and still catch up
  // The link that all of this one's bytes pass as well: a switch, named before it. Empty: none.
  std::string behind = {};
  // For which a copy occupies the link besides the time of its bytes: it is set up, and its first bytes are on their way.
  Duration copy_time{};
};

// What one user (a process, as a rule) wants of a link.
struct LinkDemand {
  std::int64_t urgency = 0;     // smaller goes first; comparable between users
  std::uint32_t transfers = 0;  // that share the user's part of the link; none: it wants nothing
};
// What it may do now.
struct LinkTurn {
  std::uint32_t blocks = 1;  // before it asks again; 0: a more urgent user wants the link
  bool contended = false;    // others want it too
  // How far others have come beyond it, all its transfers taken together: when that is more than its blocks,
  // it was late, and may take this much instead.
  Bytes missed{};
};

// The links of one node in one memory file: made by the daemon, mapped by every worker. Lock-free: a process
// that dies holds nothing, it has at most used up the time of the blocks that it asked for last. Users that
// ask block by block share a link evenly, in the order of asking. Any thread, any process; time comes in as
// an argument (all on CLOCK_MONOTONIC).
//
// Users with several transfers, or with urgent ones, say so (Want), and look before they ask (TurnOf): then
// transfers of different processes share a link as those of one process do; one that a busy machine woke late
// has what it missed, up to kCatchUp of the link's time, in its next turn. What a user said is forgotten
// kFresh after it said or did something, so a dead or stuck user delays no other. Each LinkBuckets
// object is one user.
class LinkBuckets {
 public:
  static constexpr std::size_t kLinks = 256;
  static constexpr std::size_t kUsers = 16;  // of one link, that are heard; more just ask block by block
  static constexpr Duration kFresh = std::chrono::milliseconds(20);
  static constexpr Duration kCatchUp = std::chrono::milliseconds(1);
  static absl::StatusOr<LinkBuckets> Create(const std::vector<LinkConfig>& links);
  static absl::StatusOr<LinkBuckets> Open(UniqueFd fd);

  // Takes the link for `size` bytes and says how long after `now` they will have passed. A link id outside is
  // a bug.
  [[nodiscard]] Duration Reserve(std::size_t link, Bytes size, Time now);
  // The same along a path (link, switch, link): the slowest decides.
  [[nodiscard]] Duration Reserve(std::span<const std::size_t> path, Bytes size, Time now);
  // The link itself, and what is behind it.
  [[nodiscard]] std::vector<std::size_t> PathOf(std::size_t link) const;

  // From now on this user wants `demand` of the link; without transfers: nothing.
  void Want(std::size_t link, const LinkDemand& demand, Time now);
  // It still wants what it wanted. A user that wants nothing may send whenever it asks.
  LinkTurn TurnOf(std::size_t link, Time now);

  // Nothing is to pass before `until`: a fault that tests inject, and end with a time that has passed. A user
  // looks (Stalled) before it asks for a link; what was reserved before still passes.
  void Stall(std::size_t link, Time until);
  // The same once the link has passed more than `passed` bytes since it was made; zero ends it.
  void StallBeyond(std::size_t link, Bytes passed);
  [[nodiscard]] bool Stalled(std::size_t link, Time now) const;

  // The id of a link by name; NotFound lists all names.
  [[nodiscard]] absl::StatusOr<std::size_t> Find(const std::string& name) const;
  [[nodiscard]] std::size_t count() const { return count_; }
  [[nodiscard]] BytesPerSecond bandwidth(std::size_t link) const;
  [[nodiscard]] Duration copy_time(std::size_t link) const;
  // Bytes reserved since the links were made.
  [[nodiscard]] Bytes passed(std::size_t link) const;
  [[nodiscard]] int fd() const { return memory_.fd(); }

 private:
  struct UserSlot;
  struct Slot;
  [[nodiscard]] Slot& slot(std::size_t link) const;
  [[nodiscard]] UserSlot* SlotOf(std::size_t link) const;
  [[nodiscard]] UserSlot* TakeSlot(std::size_t link, Time now);
  // A user that begins to want a link has missed nothing of it.
  void BeginLevel(std::size_t link, UserSlot& mine, Time now);
  // The part of what it missed that it may take yet.
  [[nodiscard]] Bytes Forgive(std::size_t link, UserSlot& mine, std::int64_t behind);
  void BecomeUser();
  MemoryFile memory_;
  std::size_t count_ = 0;
  std::uint64_t user_ = 0;
};

}  // namespace troupe::transport
