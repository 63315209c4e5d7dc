// Maps the arenas of other processes of this host.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "proto/tensor.pb.h"
#include "transport/host_id.hpp"
#include "transport/memory_file.hpp"

namespace troupe::transport {

// Maps arenas of other processes on first use and keeps the mappings, least recently used ones dropped beyond
// a bound. A mapping outlives its place in the cache as long as what Resolve gave is held. Thread-safe; a
// first use blocks for one round trip to the owner, at most Options::timeout.
class ArenaClient {
 public:
  struct Options {
    std::vector<std::string>
        directories;  // sockets must lie in one of these (run directories); empty: any absolute path
    std::string host = HostId();  // ours
    Duration timeout = std::chrono::seconds(2);
    std::size_t mappings = 64;
  };
  struct Resolved {
    std::span<const std::byte> bytes;
    std::shared_ptr<const MemoryFile> memory;  // keeps the mapping
  };
  explicit ArenaClient(Options options);

  // PermissionDenied for a socket elsewhere, FailedPrecondition for another host, Unavailable when the owner
  // is gone, NotFound for an arena or slice that is no more, DataLoss for what lies outside the arena.
  absl::StatusOr<Resolved> Resolve(const proto::ArenaRef& ref);
  // The descriptor of the memory that `ref` names, asked for now and not kept: whether its owner still hands
  // it out. Errors as Resolve's; what lies in it, and where, is the caller's to check.
  absl::StatusOr<UniqueFd> Ask(const proto::ArenaRef& ref);
  // True when `ref` could be mapped here: same host and a permitted socket.
  [[nodiscard]] bool Reachable(const proto::ArenaRef& ref) const;
  // Drops the mappings of a process that is known to be gone.
  void Forget(const std::string& socket);
  [[nodiscard]] std::size_t mappings() const;

 private:
  using Key = std::pair<std::string, std::uint64_t>;
  struct Entry {
    std::shared_ptr<const MemoryFile> memory;
    std::uint64_t used = 0;
  };
  absl::StatusOr<std::shared_ptr<const MemoryFile>> MapOf(const Key& key);
  absl::Status Check(const proto::ArenaRef& ref) const;
  absl::StatusOr<UniqueFd> AskOwner(const Key& key, std::vector<std::uint64_t>& known) const;
  [[nodiscard]] bool Permitted(const std::string& socket) const;

  const Options options_;
  mutable std::mutex mutex_;
  std::map<Key, Entry> entries_;  // guarded by mutex_
  std::uint64_t clock_ = 0;       // guarded by mutex_; counts uses
};

}  // namespace troupe::transport
