// Layout of the host region: the one memory file per node in which models wait. The layout lives here; which
// model is in it, and which leaves, is decided in storage/ and node/.
#pragma once

#include <atomic>
#include <cstddef>
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
  // Ranges whose pages went back to the system, the latest ones. A reader that comes too late to see all of them
  // takes it that every page was exchanged.
  static constexpr std::size_t kGivenBack = 224;
  struct GivenBack {
    std::atomic<std::uint64_t> offset;
    std::atomic<std::uint64_t> length;
  };
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t reserved;
  std::uint64_t size;  // of the file
  std::uint64_t
      generation;  // made with the region; a worker that kept ranges of another generation drops them
  std::atomic<std::uint64_t> given_back;  // ranges since the region was made; the last is at this, less one
  GivenBack ranges[kGivenBack];           // as a ring
};

// The owner's side, in the node's daemon: the only writer. The kernel refuses any other writable mapping, but of
// a region that its readers register with a GPU.
// Thread-safe; the caller that allocated a range writes into it, before it tells another process of the
// range.
class HostRegion {
 public:
  static constexpr Bytes kAlignment = KiB(4);
  struct Options {
    Bytes size = GiB(1);
    bool huge_pages = false;  // falls back to normal pages; huge_pages() says which
    bool gives_back = false;  // what is freed goes back to the system, by GiveBack
    // A reader may map it for writing, because its GPU's driver registers no memory that it could not write.
    bool readers_register = false;
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

  // For a reader: the kernel refuses to map it for writing, unless readers register it.
  [[nodiscard]] int fd() const { return read_only_.valid() ? read_only_.get() : memory_.fd(); }
  [[nodiscard]] bool huge_pages() const { return memory_.huge_pages(); }
  [[nodiscard]] std::uint64_t generation() const { return generation_; }
  [[nodiscard]] Bytes capacity() const;
  [[nodiscard]] Bytes used() const;
  [[nodiscard]] Bytes largest_free() const;

 private:
  HostRegion(MemoryFile memory, UniqueFd read_only, const Options& options, std::uint64_t generation);
  void NoteGivenBack(const proto::RegionRange& range);
  MemoryFile memory_;
  const UniqueFd read_only_;  // of a region that gives back and whose readers do not register it
  const bool gives_back_;
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

  // WHAT PAGES ARE THERE. Between two of these marks the pages of the ranges that GivenBackSince tells were
  // exchanged for others, and those of no other range. An order that names a range comes after the mark
  // that tells of it.
  [[nodiscard]] std::uint64_t GivenBackMark() const;
  // Sets `since` to the mark of now. Ranges that are told may lie anywhere in the region, never outside.
  [[nodiscard]] std::vector<std::span<const std::byte>> GivenBackSince(std::uint64_t& since) const;

 private:
  [[nodiscard]] const HostRegionHeader& header() const {
    return *reinterpret_cast<const HostRegionHeader*>(memory_.data());
  }
  MemoryFile memory_;
  std::uint64_t generation_ = 0;
};

}  // namespace troupe::transport
