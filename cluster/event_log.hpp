// EVENT LOG: what an operator may want to know, the newest `capacity` of it, numbered without gaps from 1.
// Owned by the cluster manager, in memory only.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "proto/cluster.pb.h"

namespace troupe::cluster {

class EventLog {
 public:
  explicit EventLog(std::size_t capacity = 4096) : capacity_(capacity) {}

  // Gives the event its number; over-long texts are cut (kMaxText).
  std::uint64_t Add(proto::Event event);
  // Events with a number greater than `after`, oldest first, at most `limit` (0: all that there are). With
  // `after` 0 and a limit: the newest `limit`.
  [[nodiscard]] std::vector<proto::Event> After(std::uint64_t after, std::size_t limit) const;
  [[nodiscard]] std::uint64_t last() const { return last_; }
  [[nodiscard]] std::size_t size() const { return events_.size(); }

  static constexpr std::size_t kMaxText = 2048;

 private:
  std::size_t capacity_;
  std::deque<proto::Event> events_;
  std::uint64_t last_ = 0;
};

}  // namespace troupe::cluster
