// BROADCAST: one process of a host sends the same bytes to several others at once.
//
// Each member knows the same slot but for its rank: the first member sends, the others receive. NCCL does
// this between GPUs (gpu/cuda/nccl_broadcast); LocalBroadcaster does it over shared memory, for virtual GPUs
// and for tests. One contract test runs on both (tests/unit/transport/broadcast_contract.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/units.hpp"

namespace troupe::transport {

struct BroadcastSlot {
  static constexpr std::size_t kMembers = 64;
  std::string id;                      // of NewId of the first member
  std::uint32_t rank = 0;              // in `members`; 0 sends
  std::vector<std::uint32_t> members;  // GPUs of the node, by rank
};
// InvalidArgument says what is wrong with it: two members at least, each of them once.
[[nodiscard]] absl::Status CheckSlot(const BroadcastSlot& slot);

// One member's part.
//   joined -(Pass, piece by piece)-> -(Finish)-> finished          joined -(an error, Abort)-> broken
// All members pass pieces of the same sizes in the same order. One thread; Abort from any. What breaks it for
// one member breaks it for all of them, at the latest `patience` after the last byte moved.
class BroadcastEnd {
 public:
  // Left before it was finished it is broken for the others.
  virtual ~BroadcastEnd() = default;
  // Blocks. OK: for the sender, the piece may change; for the others, its bytes are there. Unavailable: a
  // partner is gone, has left, or this end was aborted; DeadlineExceeded: a partner moved nothing for
  // `patience`. After an error the piece is not there, and no member writes to it any more.
  virtual absl::Status Pass(std::span<std::byte> piece) = 0;
  // Nothing more is passed. Blocks until all members have said so, no longer than `patience`.
  virtual absl::Status Finish() = 0;
  // Pass and Finish end soon, with an error.
  virtual void Abort() = 0;
};

// Thread-safe; outlives its ends.
class Broadcaster {
 public:
  virtual ~Broadcaster() = default;
  // For one broadcast that this process sends, to be told to the others. Any bytes, at most kIdBytes.
  static constexpr std::size_t kIdBytes = 129;
  virtual absl::StatusOr<std::string> NewId() = 0;
  // Names what an earlier broadcast between these members, in any order, has left at this one; empty: nothing.
  // When all members say the same, it serves as the identity of one more broadcast, in place of a new one,
  // and takes less time to join. Else each member lets go of what it has when it joins a new one.
  [[nodiscard]] virtual std::string Kept(const std::vector<std::uint32_t>& members) {
    (void)members;
    return {};
  }
  // Blocks until all members have joined a new broadcast; with a kept identity only until this one has.
  // DeadlineExceeded when they have not within `patience`, NotFound when there is no broadcast with this id
  // (any more) or no way from the first member to this one, Unavailable when another member is gone.
  virtual absl::StatusOr<std::unique_ptr<BroadcastEnd>> Join(const BroadcastSlot& slot,
                                                             Duration patience) = 0;
};

}  // namespace troupe::transport
