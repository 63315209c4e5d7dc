#include "storage/host_region_table.hpp"

#include <algorithm>
#include <deque>
#include <iterator>
#include <optional>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"

namespace troupe::storage {

// Slides a window of neighbouring evictable entries over the region, in order of offset. Extending to the
// right until the window is long enough, and then shrinking from the left while it stays so, meets every
// minimal window once.
absl::StatusOr<std::vector<std::string>> HostRegionTable::PlanRoom(Bytes size) const {
  if (size > capacity()) {
    return absl::FailedPreconditionError(absl::StrCat("a model of ", FormatBytes(size),
                                                      " never fits into the host region of ",
                                                      FormatBytes(capacity()), ": make the region larger"));
  }
  struct Choice {
    std::uint64_t hottest;
    std::uint64_t bytes;
    std::vector<const Entry*> victims;
  };
  std::optional<Choice> best;
  std::deque<const Entry*> window;
  std::uint64_t left = begin_;  // where the window's bytes begin: the end of the entry before it
  const auto consider = [&](std::uint64_t right) {
    while (right - left >= size.count()) {
      Choice choice{0, 0, {window.begin(), window.end()}};
      for (const Entry* each : window) {
        choice.hottest = std::max(choice.hottest, each->last_use);
        choice.bytes += each->length.count();
      }
      if (!best || std::tie(choice.hottest, choice.bytes) < std::tie(best->hottest, best->bytes)) {
        best = std::move(choice);
      }
      if (window.empty()) return;
      left = window.front()->offset + window.front()->length.count();
      window.pop_front();
    }
  };
  for (const auto& [offset, entry] : by_offset_) {
    consider(offset);
    if (entry->evictable()) {
      window.push_back(entry);
    } else {
      window.clear();
      left = offset + entry->length.count();
    }
  }
  consider(end_);
  if (!best) return NoRoom(size);
  std::vector<std::string> digests;
  for (const Entry* each : best->victims) digests.push_back(each->copy.digest());
  return digests;
}

absl::Status HostRegionTable::NoRoom(Bytes size) const {
  return absl::ResourceExhaustedError(absl::StrCat(
      "no room for ", FormatBytes(size), " in the host region of ", FormatBytes(capacity()), ": ",
      FormatBytes(in_use()), " are being read or filled, and what may leave is not contiguous",
      " enough: try again, or make the region larger"));
}

void HostRegionTable::Insert(const proto::HostCopy& copy, std::uint64_t offset, Bytes length) {
  TROUPE_CHECK(offset >= begin_ && length.count() <= end_ - offset && length > Bytes(0),
               "outside the region");
  const auto next = by_offset_.lower_bound(offset);
  TROUPE_CHECK(next == by_offset_.end() || offset + length.count() <= next->first, "overlaps its successor");
  TROUPE_CHECK(next == by_offset_.begin() ||
                   std::prev(next)->first + std::prev(next)->second->length.count() <= offset,
               "overlaps its predecessor");
  const auto [it, inserted] = entries_.try_emplace(copy.digest());
  TROUPE_CHECK(inserted, "a model lies in the region once");
  it->second.copy = copy;
  it->second.offset = offset;
  it->second.length = length;
  Touch(it->second);
  by_offset_[offset] = &it->second;
  used_ += length;
}

HostRegionTable::Entry* HostRegionTable::Find(const std::string& digest) {
  const auto found = entries_.find(digest);
  return found == entries_.end() ? nullptr : &found->second;
}

const HostRegionTable::Entry* HostRegionTable::Find(const std::string& digest) const {
  const auto found = entries_.find(digest);
  return found == entries_.end() ? nullptr : &found->second;
}

void HostRegionTable::Erase(const std::string& digest) {
  const auto found = entries_.find(digest);
  TROUPE_CHECK(found != entries_.end() && found->second.pins == 0, "only a model without readers is erased");
  by_offset_.erase(found->second.offset);
  used_ -= found->second.length;
  entries_.erase(found);
}

Bytes HostRegionTable::in_use() const {
  Bytes bytes;
  for (const auto& [digest, entry] : entries_) {
    if (!entry.evictable()) bytes += entry.length;
  }
  return bytes;
}

}  // namespace troupe::storage
