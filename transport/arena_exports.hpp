// Arenas of other processes of this host (a node's workers) whose slices this process serves to other hosts.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "absl/status/statusor.h"
#include "proto/tensor.pb.h"
#include "transport/memory_file.hpp"
#include "transport/remote_endpoint.hpp"

namespace troupe::transport {

// The receiver of an arena's descriptor adds it here, and the channel's progress thread reads it: so nothing
// is mapped, and no process asked, while a reader waits. Thread-safe.
class ArenaExports : public std::enable_shared_from_this<ArenaExports> {
 public:
  // Serves the arena for as long as the returned object lives; what is being sent then keeps its mapping.
  [[nodiscard]] std::shared_ptr<const void> Add(std::uint64_t arena,
                                                std::shared_ptr<const MemoryFile> memory);
  // NotFound for an arena or slice that is not (any more) served; DataLoss for a range outside of it. The
  // slice is not held against its owner's release: a reader that has lost its claim may read other bytes,
  // which are then thrown away.
  absl::StatusOr<PinnedBytes> Pin(const proto::ArenaRef& asked) const;
  [[nodiscard]] std::size_t size() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::uint64_t, std::shared_ptr<const MemoryFile>> arenas_;  // guarded by mutex_
};

}  // namespace troupe::transport
