// GATE PAGE: which SMs of one GPU its workers have taken, in a file that these processes share: several runtimes
// of a GPU go by one gate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/share_ladder.hpp"

namespace troupe::gpu {

// Each worker has a slot, writes that one alone, and keeps a lock on it for as long as it lives: what a worker
// that died has taken counts no more, at the latest when another one finds no room for it. Two workers that take
// the same SMs at once cannot both have them: at least one sees it, and gives them back. One thread at a time.
class GatePage {
 public:
  static constexpr std::size_t kSlots = 64;

  // Makes the file when it is not there. AlreadyExists: a worker that lives has the slot.
  static absl::StatusOr<std::unique_ptr<GatePage>> Open(const std::string& path, std::size_t slot);
  virtual ~GatePage() = default;

  // What the other workers have.
  [[nodiscard]] virtual SharesTaken Others() const = 0;
  // This worker has so much from now on. False: another one took some of it at the same time, or there would be
  // more than `concurrency` runs without a share, and nothing has changed. What was in the way may be gone again.
  [[nodiscard]] virtual bool Set(const SharesTaken& mine, std::uint32_t concurrency) = 0;
  // This worker has less than before.
  virtual void Reduce(const SharesTaken& mine) = 0;
  // Clears the slots of workers that have died; whether there were any that had something.
  virtual bool ClearDead() = 0;
};

}  // namespace troupe::gpu
