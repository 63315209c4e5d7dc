// Which model lies where in the host region, how many readers it has, and which models leave when room is
// needed. Pure bookkeeping: it touches no memory, reads no clock, and the caller serialises.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "proto/worker.pb.h"

namespace troupe::storage {

// An entry's life (Discard of an unread one forgets it at once; a doomed one goes with its last reader):
//   absent -> filling -> present <-> pinned -> doomed -> absent
class HostRegionTable {
 public:
  struct Entry {
    proto::HostCopy copy;
    std::uint64_t offset = 0;    // of the whole
    Bytes length;                // of the whole
    std::uint64_t last_use = 0;  // order of use; larger is more recent
    std::uint32_t pins = 0;
    bool filling = true;
    bool doomed = false;
    [[nodiscard]] bool evictable() const { return pins == 0 && !filling; }
  };

  // Manages [begin, begin + capacity).
  HostRegionTable(std::uint64_t begin, Bytes capacity) : begin_(begin), end_(begin + capacity.count()) {}

  // The models whose eviction leaves `size` contiguous bytes free; none when they are free already. Of all
  // choices it takes the coldest by the most recently used model in it, and of equal ones the smallest.
  // ResourceExhausted, with the sizes: models with readers leave no room. FailedPrecondition: it never fits.
  [[nodiscard]] absl::StatusOr<std::vector<std::string>> PlanRoom(Bytes size) const;

  // A new entry, filling. Its place was free.
  void Insert(const proto::HostCopy& copy, std::uint64_t offset, Bytes length);
  // Null when absent. Pointers are good until the entry is erased.
  [[nodiscard]] Entry* Find(const std::string& digest);
  [[nodiscard]] const Entry* Find(const std::string& digest) const;
  // Makes this the most recently used.
  void Touch(Entry& entry) { entry.last_use = ++uses_; }
  void Erase(const std::string& digest);

  [[nodiscard]] const std::map<std::string, Entry>& entries() const { return entries_; }
  [[nodiscard]] Bytes capacity() const { return Bytes(end_ - begin_); }
  [[nodiscard]] Bytes used() const { return used_; }
  [[nodiscard]] Bytes in_use() const;  // of entries that cannot be evicted

 private:
  [[nodiscard]] absl::Status NoRoom(Bytes size) const;

  const std::uint64_t begin_;
  const std::uint64_t end_;
  std::map<std::string, Entry> entries_;             // by digest
  std::map<std::uint64_t, const Entry*> by_offset_;  // disjoint, inside [begin_, end_)
  Bytes used_;
  std::uint64_t uses_ = 0;
};

}  // namespace troupe::storage
