#include "transport/arena_exports.hpp"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "transport/arena.hpp"

namespace troupe::transport {

std::shared_ptr<const void> ArenaExports::Add(std::uint64_t arena, std::shared_ptr<const MemoryFile> memory) {
  {
    const std::lock_guard lock(mutex_);
    arenas_[arena] = memory;
  }
  return std::shared_ptr<const void>(memory.get(), [weak = weak_from_this(), arena, memory](const void*) {
    const auto exports = weak.lock();
    if (!exports) return;
    const std::lock_guard lock(exports->mutex_);
    const auto it = exports->arenas_.find(arena);
    if (it != exports->arenas_.end() && it->second == memory) exports->arenas_.erase(it);
  });
}

absl::StatusOr<PinnedBytes> ArenaExports::Pin(const proto::ArenaRef& asked) const {
  std::shared_ptr<const MemoryFile> memory;
  {
    const std::lock_guard lock(mutex_);
    if (const auto it = arenas_.find(asked.arena()); it != arenas_.end()) memory = it->second;
  }
  if (memory == nullptr)
    return absl::NotFoundError(absl::StrCat("this process has no arena ", asked.arena(), " (any more)"));
  TROUPE_ASSIGN_OR_RETURN(const auto bytes, ResolveSlice(*memory, asked));
  return PinnedBytes{bytes, std::move(memory)};
}

std::size_t ArenaExports::size() const {
  const std::lock_guard lock(mutex_);
  return arenas_.size();
}

}  // namespace troupe::transport
