// SHARED MEMORY: the regions of clients' shared memory that are registered at this gateway (Triton's system
// shared memory extension). Each belongs to the client that registered it, and no other client finds it:
// two of them may use one name.
//
//   a region:  absent -> registered -> unregistered (no new request finds it; those that use it go on)
//                                   -> closed       (with the last of them)
#pragma once

#include <sys/types.h>

#include <atomic>
#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "gateway/copy_thread.hpp"
#include "gateway/shared_region.hpp"

namespace troupe::gateway {

// Who may use a region: requests with the same API key, from processes of the same user.
struct RegionOwner {
  std::string key;  // name of the API key; empty where none is needed
  uid_t user = 0;
  auto operator<=>(const RegionOwner&) const = default;
};

struct SharedMemoryOptions {
  std::string folder = "/dev/shm";  // where shm_open keeps its objects
  // Of regions that are registered or still in use; one owner has at most a quarter of their number, and half of
  // their bytes.
  std::size_t regions = 512;
  Bytes bytes = GiB(16);
  // Of inputs that were copied from regions, until their calls are over; one owner has two thirds at most.
  Bytes inputs = MiB(192);
};

// The bytes of one tensor in a region, which it keeps open.
class SharedRange {
 public:
  SharedRange() = default;  // no region
  SharedRange(std::shared_ptr<SharedRegion> region, std::string name, std::uint64_t offset, Bytes size)
      : region_(std::move(region)), name_(std::move(name)), offset_(offset), size_(size) {}
  [[nodiscard]] bool valid() const { return region_ != nullptr; }
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::uint64_t offset() const { return offset_; }
  [[nodiscard]] Bytes size() const { return size_; }
  [[nodiscard]] bool writable() const { return region_->writable(); }
  // All of it.
  [[nodiscard]] absl::Status Read(std::span<std::byte> into) const { return region_->Read(offset_, into); }
  // From its beginning on; not more than its size.
  [[nodiscard]] absl::Status Write(std::span<const std::byte> bytes) const;

 private:
  std::shared_ptr<SharedRegion> region_;
  std::string name_;
  std::uint64_t offset_ = 0;  // in the region
  Bytes size_;
};

// What the front tells of it on its page of metrics.
struct SharedMemoryLoad {
  std::size_t regions = 0;
  Bytes bytes;                   // of these
  std::uint64_t copied_in = 0;   // bytes, since the start
  std::uint64_t copied_out = 0;  // the same
};

// Thread-safe.
class SharedMemory {
 public:
  struct Status {
    std::string name;
    RegionPlace place;
  };
  explicit SharedMemory(SharedMemoryOptions options) : options_(std::move(options)) {}

  // AlreadyExists for a name in use, ResourceExhausted beyond a bound, and the errors of SharedRegion::Open.
  [[nodiscard]] absl::Status Register(const RegionOwner& owner, const std::string& name, RegionPlace place);
  // One region, or all of the owner's. `ended` is dropped when no request uses them any more; at once where
  // there are none.
  void Unregister(const RegionOwner& owner, const std::optional<std::string>& name,
                  const std::shared_ptr<const void>& ended);
  // One region (NotFound), or all of the owner's.
  [[nodiscard]] absl::StatusOr<std::vector<Status>> Describe(const RegionOwner& owner,
                                                             const std::optional<std::string>& name) const;
  // NotFound for a region that the owner has not registered, OutOfRange for a range that leaves it.
  [[nodiscard]] absl::StatusOr<SharedRange> Find(const RegionOwner& owner, const std::string& name,
                                                 std::uint64_t offset, std::uint64_t size) const;
  // Held for as long as an input of so many bytes takes room in the gateway. ResourceExhausted beyond the bound.
  [[nodiscard]] absl::StatusOr<std::shared_ptr<const void>> Charge(const RegionOwner& owner, Bytes size);

  [[nodiscard]] CopyThread& copies() { return copies_; }
  void CountIn(std::uint64_t bytes) { copied_in_ += bytes; }
  void CountOut(std::uint64_t bytes) { copied_out_ += bytes; }
  [[nodiscard]] SharedMemoryLoad load() const;

 private:
  using Name = std::pair<RegionOwner, std::string>;
  // What owners have of something that is bounded, in units of one kind. Shared with what was given out.
  struct Account {
    std::mutex mutex;
    std::map<RegionOwner, std::uint64_t> used;  // guarded by mutex, as is `total`
    std::uint64_t total = 0;
  };
  using Shared = std::shared_ptr<Account>;
  // Null when it is beyond a bound.
  static std::shared_ptr<const void> Take(const Shared& account, const RegionOwner& owner,
                                          std::uint64_t count, std::uint64_t most,
                                          std::uint64_t most_of_owner);
  static absl::Status NotRegistered(const std::string& name);

  const SharedMemoryOptions options_;
  const Shared regions_used_ = std::make_shared<Account>();
  const Shared bytes_used_ = std::make_shared<Account>();
  const Shared inputs_used_ = std::make_shared<Account>();
  std::atomic<std::uint64_t> copied_in_{0};
  std::atomic<std::uint64_t> copied_out_{0};
  mutable std::mutex mutex_;
  std::map<Name, std::shared_ptr<SharedRegion>> regions_;  // guarded by mutex_
  CopyThread copies_;                                      // ends first
};

}  // namespace troupe::gateway
