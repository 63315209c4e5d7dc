// Layout of the host region: the one memory file per node in which models wait. The layout lives here; which
// model is in it, and which leaves, is decided in storage/ and node/.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "proto/worker.pb.h"
#include "transport/memory_file.hpp"
#include "transport/range_allocator.hpp"

namespace troupe::transport {

// First page of the region.
struct HostRegionHeader {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t reserved;
  std::uint64_t size;  // of the file
  std::uint64_t
      generation;  // made with the region; a worker that kept ranges of another generation drops them
};

// The owner's side, in the node's daemon: the only writer (the kernel refuses any other writable mapping).
// Thread-safe; the caller that allocated a range writes into it, before it tells another process of the
// range.
class HostRegion {
 public:
  static constexpr Bytes kAlignment = KiB(4);
  struct Options {
    Bytes size = GiB(1);
    bool huge_pages = false;  // falls back to normal pages; huge_pages() says which
    bool gives_back = false;  // what is freed goes back to the system, by GiveBack
  };
  static absl::StatusOr<std::unique_ptr<HostRegion>> Create(const std::string& name, Options options);

  // ResourceExhausted with what is free and the largest free range.
  absl::StatusOr<proto::RegionRange> Allocate(Bytes size);
  // NotFound when no range begins there. The caller knows that no swap reads it any more.
  absl::Status Free(const proto::RegionRange& range);
  // With `gives_back`, a freed range is used again only after this has returned its pages. Slow; other calls
  // do not wait for it.
  void GiveBack();
  // The writable bytes of an allocated range.
  absl::StatusOr<std::span<std::byte>> Writable(const proto::RegionRange& range);

  // For a reader: the kernel refuses to map it for writing.
  [[nodiscard]] int fd() const { return read_only_.valid() ? read_only_.get() : memory_.fd(); }
  [[nodiscard]] bool huge_pages() const { return memory_.huge_pages(); }
  [[nodiscard]] std::uint64_t generation() const { return generation_; }
  [[nodiscard]] Bytes capacity() const;
  [[nodiscard]] Bytes used() const;
  [[nodiscard]] Bytes largest_free() const;

 private:
  HostRegion(MemoryFile memory, UniqueFd read_only, std::uint64_t generation);
  MemoryFile memory_;
  const UniqueFd read_only_;  // of a region that gives back
  const std::uint64_t generation_;
  mutable std::mutex mutex_;
  RangeAllocator ranges_;                  // guarded by mutex_
  std::vector<proto::RegionRange> freed_;  // guarded by mutex_; not yet given back
};

// The reader's side, in a worker: mapped whole, read-only. Immutable, any thread.
class HostRegionView {
 public:
  // InvalidArgument for a descriptor that is not a host region.
  static absl::StatusOr<HostRegionView> Open(UniqueFd fd);
  // OutOfRange when the range leaves the region or touches its header.
  [[nodiscard]] absl::StatusOr<std::span<const std::byte>> Resolve(const proto::RegionRange& range) const;
  [[nodiscard]] std::uint64_t generation() const { return generation_; }
  // All of it, to be registered with a device.
  [[nodiscard]] std::span<const std::byte> bytes() const { return memory_.bytes(); }

 private:
  MemoryFile memory_;
  std::uint64_t generation_ = 0;
};

}  // namespace troupe::transport
