// Links as shared token buckets: virtual GPUs of different processes contend for a link as real ones do.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "transport/memory_file.hpp"

namespace troupe::transport {

// One link or switch of the node, as configured.
struct LinkConfig {
  std::string name;                                 // at most 31 bytes: "pcie0:h2d", "switch0"
  BytesPerSecond bandwidth;                         // zero: unlimited
  Duration burst = std::chrono::microseconds(500);  // how far behind a late sleeper may be and still catch up
};

// The links of one node in one memory file: made by the daemon, mapped by every worker. Lock-free: a process
// that dies holds nothing, it has at most used up the time of the block that it asked for last. Users that
// ask block by block share a link evenly, in the order of asking. Any thread, any process; time comes in as
// an argument (all on CLOCK_MONOTONIC).
class LinkBuckets {
 public:
  static constexpr std::size_t kLinks = 64;
  static absl::StatusOr<LinkBuckets> Create(const std::vector<LinkConfig>& links);
  static absl::StatusOr<LinkBuckets> Open(UniqueFd fd);

  // Takes the link for `size` bytes and says how long after `now` they will have passed. A link id outside is
  // a bug.
  [[nodiscard]] Duration Reserve(std::size_t link, Bytes size, Time now);
  // The same along a path (link, switch, link): the slowest decides.
  [[nodiscard]] Duration Reserve(std::span<const std::size_t> path, Bytes size, Time now);
  // Nothing passes before `until`: a fault that tests and operators inject.
  void Stall(std::size_t link, Time until);

  // The id of a link by name; NotFound lists those that exist.
  [[nodiscard]] absl::StatusOr<std::size_t> Find(const std::string& name) const;
  [[nodiscard]] std::size_t count() const { return count_; }
  [[nodiscard]] BytesPerSecond bandwidth(std::size_t link) const;
  // Bytes reserved since the links were made.
  [[nodiscard]] Bytes passed(std::size_t link) const;
  [[nodiscard]] int fd() const { return memory_.fd(); }

 private:
  struct Slot;
  [[nodiscard]] Slot& slot(std::size_t link) const;
  MemoryFile memory_;
  std::size_t count_ = 0;
};

}  // namespace troupe::transport
