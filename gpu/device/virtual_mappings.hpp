// Memory of the virtual GPU under given addresses: pieces of its file, one after the other.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "gpu/device/device.hpp"
#include "transport/memory_file.hpp"

namespace troupe::gpu {

//   mapped -(Unmap)-> leaving -> gone
// A page costs its first access as much as a copy of it, and takes time to forget: a thread of its own finds
// the pages of a mapping, in order and ahead of its readers, and takes unmapped ones down. Copies use the
// file's own mapping (Behind), whose pages are there. Thread-safe.
class VirtualMappings {
 public:
  explicit VirtualMappings(std::shared_ptr<const transport::MemoryFile> memory);
  ~VirtualMappings();
  VirtualMappings(const VirtualMappings&) = delete;
  VirtualMappings& operator=(const VirtualMappings&) = delete;

  absl::StatusOr<DeviceRange> Map(std::uint64_t address, std::span<const DeviceRange> pieces);
  void Unmap(const DeviceRange& mapped);
  // The file's own memory behind a range, in order; the range itself when it is not mapped.
  [[nodiscard]] std::vector<DeviceRange> Behind(const DeviceRange& range) const;

 private:
  struct Mapping {
    Bytes size;
    std::vector<DeviceRange> pieces;
    std::uint64_t life = 0;
    bool leaving = false;
  };
  using Mappings = std::map<std::byte*, Mapping>;
  struct Task {
    std::byte* address = nullptr;
    std::uint64_t life = 0;
    Bytes done;  // of its pages
  };
  absl::StatusOr<std::byte*> Reserve(std::uint64_t address, Bytes size);
  absl::Status MakeWay(std::byte* address, Bytes size);
  void Post(Task task);
  void Serve();
  bool Advance(Task& task);

  const std::shared_ptr<const transport::MemoryFile> memory_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Mappings mappings_;       // guarded by mutex_, as all below
  std::deque<Task> tasks_;  // pages to find, or to forget
  std::uint64_t lives_ = 0;
  bool stopping_ = false;
  std::thread thread_;  // from the first mapping on
};

}  // namespace troupe::gpu
