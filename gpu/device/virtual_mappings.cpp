#include "gpu/device/virtual_mappings.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "base/status.hpp"

namespace troupe::gpu {
namespace {

constexpr Bytes kPage = KiB(4);
// Pages that are found or forgotten at a time: the lock is held meanwhile.
constexpr Bytes kStep = MiB(2);
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

Bytes SizeOf(std::span<const DeviceRange> pieces) {
  Bytes size;
  for (const DeviceRange& piece : pieces) size += piece.size;
  return size;
}

}  // namespace

VirtualMappings::VirtualMappings(std::shared_ptr<const transport::MemoryFile> memory)
    : memory_(std::move(memory)) {}

VirtualMappings::~VirtualMappings() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
  for (const auto& [address, mapping] : mappings_) munmap(address, mapping.size.count());
}

absl::StatusOr<DeviceRange> VirtualMappings::Map(std::uint64_t address, std::span<const DeviceRange> pieces) {
  const Bytes size = SizeOf(pieces);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const std::ptrdiff_t offset = pieces[i].address - memory_->data();
    TROUPE_CHECK(offset >= 0 && static_cast<std::uint64_t>(offset) % kPage.count() == 0 &&
                     (i + 1 == pieces.size() || pieces[i].size.count() % kPage.count() == 0),
                 "memory is mapped in whole pages");
  }
  if (address % kPage.count() != 0 || size == Bytes(0)) {
    return absl::InvalidArgumentError(
        absl::StrCat(size.count(), " bytes cannot be mapped at 0x", absl::Hex(address)));
  }
  const std::lock_guard lock(mutex_);
  TROUPE_ASSIGN_OR_RETURN(std::byte* const begin, Reserve(address, size));
  std::byte* at = begin;
  for (const DeviceRange& piece : pieces) {
    void* const mapped = mmap(at, piece.size.count(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                              memory_->fd(), piece.address - memory_->data());
    if (mapped == MAP_FAILED) {
      const int error = errno;
      munmap(begin, size.count());
      return transport::ErrnoStatus(error, absl::StrCat("mapping ", FormatBytes(size), " of device memory"));
    }
    at += piece.size.count();
  }
  mappings_[begin] = {size, {pieces.begin(), pieces.end()}, ++lives_, false};
  Post({begin, lives_, Bytes(0)});
  return DeviceRange{begin, size};
}

absl::StatusOr<std::byte*> VirtualMappings::Reserve(std::uint64_t address, Bytes size) {
  auto* const wanted = reinterpret_cast<std::byte*>(address);
  if (address != 0) TROUPE_RETURN_IF_ERROR(MakeWay(wanted, size));
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (address == 0 ? 0 : MAP_FIXED_NOREPLACE);
  void* const reserved = mmap(wanted, size.count(), PROT_NONE, flags, -1, 0);
  if (reserved == MAP_FAILED) {
    return transport::ErrnoStatus(
        errno, absl::StrCat("reserving ", FormatBytes(size), " of addresses at 0x", absl::Hex(address)));
  }
  return static_cast<std::byte*>(reserved);
}

// What is leaving from there leaves now.
absl::Status VirtualMappings::MakeWay(std::byte* address, Bytes size) {
  for (auto it = mappings_.begin(); it != mappings_.end();) {
    const bool apart = it->first + it->second.size.count() <= address || address + size.count() <= it->first;
    if (!apart && !it->second.leaving) {
      return absl::AlreadyExistsError(
          absl::StrCat("another model lies at 0x", absl::Hex(reinterpret_cast<std::uintptr_t>(it->first))));
    }
    if (!apart) munmap(it->first, it->second.size.count());
    it = apart ? std::next(it) : mappings_.erase(it);
  }
  return absl::OkStatus();
}

void VirtualMappings::Unmap(const DeviceRange& mapped) {
  const std::lock_guard lock(mutex_);
  const auto found = mappings_.find(mapped.address);
  TROUPE_CHECK(found != mappings_.end() && !found->second.leaving, "a range was unmapped that is not mapped");
  found->second.leaving = true;
  found->second.life = ++lives_;  // its pages need not be found any more
  Post({mapped.address, lives_, Bytes(0)});
}

std::vector<DeviceRange> VirtualMappings::Behind(const DeviceRange& range) const {
  const std::lock_guard lock(mutex_);
  auto at = mappings_.upper_bound(range.address);
  if (at == mappings_.begin()) return {range};
  const auto& [begin, mapping] = *--at;
  if (range.address >= begin + mapping.size.count()) return {range};
  std::vector<DeviceRange> behind;
  std::uint64_t skip = static_cast<std::uint64_t>(range.address - begin);
  std::uint64_t left = range.size.count();
  for (const DeviceRange& piece : mapping.pieces) {
    if (skip >= piece.size.count()) {
      skip -= piece.size.count();
      continue;
    }
    const std::uint64_t length = std::min(left, piece.size.count() - skip);
    behind.push_back(piece.Part(Bytes(skip), Bytes(length)));
    skip = 0;
    left -= length;
    if (left == 0) break;
  }
  TROUPE_CHECK(left == 0, "a range leaves its mapping");
  return behind;
}

void VirtualMappings::Post(Task task) {
  tasks_.push_back(task);
  if (!thread_.joinable()) thread_ = std::thread([this] { Serve(); });
  changed_.notify_one();
}

void VirtualMappings::Serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
    if (stopping_) return;
    Task task = tasks_.front();
    tasks_.pop_front();
    while (!stopping_ && !Advance(task)) {
      lock.unlock();  // others map and copy in between
      std::this_thread::yield();
      lock.lock();
    }
  }
}

// One step; true when nothing is left to do.
bool VirtualMappings::Advance(Task& task) {
  const auto found = mappings_.find(task.address);
  if (found == mappings_.end() || found->second.life != task.life) return true;
  const Bytes size = found->second.size;
  const Bytes step = std::min(kStep, Bytes(size.count() - task.done.count()));
  std::byte* const at = task.address + task.done.count();
  if (found->second.leaving) {
    // Its addresses stay taken until all of it is gone.
    (void)mmap(at, step.count(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  } else {
    (void)madvise(at, step.count(), MADV_POPULATE_READ);  // a kernel without it finds them as they are read
  }
  task.done += step;
  if (task.done < size) return false;
  if (found->second.leaving) {
    munmap(task.address, size.count());
    mappings_.erase(found);
  }
  return true;
}

}  // namespace troupe::gpu
