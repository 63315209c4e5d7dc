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
  ~GatePage();
  GatePage(const GatePage&) = delete;
  GatePage& operator=(const GatePage&) = delete;

  // What the other workers have.
  [[nodiscard]] SharesTaken Others() const;
  // This worker has so much from now on. False: another one took some of it at the same time, or there would be
  // more than `concurrency` runs without a share, and nothing has changed.
  [[nodiscard]] bool Set(const SharesTaken& mine, std::uint32_t concurrency);
  // This worker has less than before.
  void Reduce(const SharesTaken& mine);
  // Clears the slots of workers that have died; whether there were any that had something.
  bool ClearDead();

 private:
  struct Page;
  GatePage(int file, Page* page, std::size_t slot) : file_(file), page_(page), slot_(slot) {}

  const int file_;
  Page* const page_;
  const std::size_t slot_;
};

}  // namespace troupe::gpu
