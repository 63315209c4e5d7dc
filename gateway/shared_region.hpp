// SHARED REGION: a part of a POSIX shared memory object of a client's, which requests name instead of sending
// bytes. The gateway never maps it: a client may shrink its object at any time, and a read of a mapping beyond
// the end is a signal that ends the process. Bytes are copied by pread and pwrite, which only come back short.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/units.hpp"

namespace troupe::gateway {

// Where an object is, as the client that registers it says.
struct RegionPlace {
  std::string key;  // as for shm_open: "/name" or "name"
  std::uint64_t offset = 0;
  std::uint64_t byte_size = 0;
};

// open -> read and written through ranges of it -> closed when the last range and the table have dropped it.
// Thread-safe.
class SharedRegion {
 public:
  // Opens the object below `folder` (/dev/shm) that `place` names, if it is a regular file in memory that
  // belongs to `client`. An object of another user is never opened, nor is one behind a link.
  // InvalidArgument for a name, offset or size that cannot be; NotFound; PermissionDenied for another user's.
  static absl::StatusOr<std::shared_ptr<SharedRegion>> Open(const std::string& folder, RegionPlace place,
                                                            uid_t client);
  SharedRegion(const SharedRegion&) = delete;
  SharedRegion& operator=(const SharedRegion&) = delete;
  ~SharedRegion();

  [[nodiscard]] const RegionPlace& place() const { return place_; }
  // The gateway's user may write the object.
  [[nodiscard]] bool writable() const { return writable_; }
  // Copies between the region, from `offset` of it on, and memory of this process. FailedPrecondition when the
  // object has become too short; ResourceExhausted when there is no memory for what is written. The caller
  // stays within the region.
  [[nodiscard]] absl::Status Read(std::uint64_t offset, std::span<std::byte> into) const;
  [[nodiscard]] absl::Status Write(std::uint64_t offset, std::span<const std::byte> bytes) const;

  // `what` lives until the region is closed: a request that waits for that end learns of it by the destructor of `what`.
  void Hold(std::shared_ptr<const void> what);

 private:
  SharedRegion(RegionPlace place, int descriptor, bool writable)
      : place_(std::move(place)), descriptor_(descriptor), writable_(writable) {}
  [[nodiscard]] absl::Status Shrunk(std::uint64_t offset, std::uint64_t length) const;

  const RegionPlace place_;
  const int descriptor_;
  const bool writable_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<const void>> held_;  // guarded by mutex_
};

}  // namespace troupe::gateway
