// METER PAGE: a file of shared memory in which a worker counts what each function uses. The worker writes a
// count before it answers the order, and the file outlives both the worker and its daemon, so that no crash of
// either loses what was counted.
//
// The worker holds a lock on the file for as long as it lives; a page without that lock counts no more.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "proto/usage.pb.h"
#include "transport/memory_file.hpp"

namespace troupe::gpu {

// One function's counts. The key is written once, before `length` is; the counts only grow.
struct MeterSlot {
  static constexpr std::size_t kLongestKey = 256;
  std::atomic<std::uint64_t> length;  // of the key
  char key[kLongestKey];
  std::atomic<std::uint64_t> gpu_ns;
  std::atomic<std::uint64_t> runs;
  std::atomic<std::uint64_t> bytes_moved;
};

// The memory itself. Only the worker writes it.
struct MeterPage {
  static constexpr std::uint64_t kMagic = 0x74726f7570656d31;  // "troupem1"
  // Slot 0 has no key: it counts what came when all other slots were taken.
  static constexpr std::size_t kSlots = 4096;
  std::atomic<std::uint64_t> magic;
  std::atomic<std::uint64_t> used;  // slots
  MeterSlot slots[kSlots];
};

// The worker's side. One thread.
class MeterWriter {
 public:
  // Makes the page's file, all of it in memory, so that a full file system is an error here and never a crash
  // later. ResourceExhausted when there is no room for it.
  static absl::StatusOr<std::unique_ptr<MeterWriter>> Create(const std::string& path);
  ~MeterWriter();
  MeterWriter(const MeterWriter&) = delete;
  MeterWriter& operator=(const MeterWriter&) = delete;

  // An empty key is not counted.
  void Count(std::string_view key, Duration gpu, std::uint64_t runs, Bytes moved);

 private:
  MeterWriter(transport::UniqueFd file, MeterPage* page);
  [[nodiscard]] MeterSlot& SlotOf(std::string_view key);

  transport::UniqueFd file_;  // its lock says that the worker lives
  MeterPage* page_;
  std::map<std::string, MeterSlot*, std::less<>> slots_;  // by key
};

// What a page says, without its name. It is not trusted: a page that makes no sense has no counts, and keys that
// make none are left out. An error: it could not be opened or mapped.
[[nodiscard]] absl::StatusOr<proto::MeterReading> ReadMeterPage(const std::string& path);

}  // namespace troupe::gpu
