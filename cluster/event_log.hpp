// EVENT LOG: what an operator may want to know, `capacity` of it, numbered without gaps from 1. Full: the
// oldest of the kind that it holds most of goes, so that what happens all the time (a swap) never pushes out
// what happens rarely. Owned by the cluster manager and by each node's journal, in memory only.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "proto/cluster.pb.h"

namespace troupe::cluster {

// The kind of what happens all the time: logs leave it out unless asked for.
inline constexpr const char* kSwapEvent = "swap";

class EventLog {
 public:
  explicit EventLog(std::size_t capacity = 4096) : capacity_(capacity) {}

  // Gives the event its number; over-long texts are cut (kMaxText).
  std::uint64_t Add(proto::Event event);
  // Events with a number greater than `after`, oldest first, at most `limit` (0: all that there are). With
  // `after` 0 and a limit: the newest `limit`. Numbers that are missing between them are of events that went.
  [[nodiscard]] std::vector<proto::Event> After(std::uint64_t after, std::size_t limit) const;
  [[nodiscard]] std::uint64_t last() const { return last_; }
  [[nodiscard]] std::size_t size() const { return events_.size(); }

  static constexpr std::size_t kMaxText = 2048;

 private:
  void DropOne();

  std::size_t capacity_;
  std::map<std::uint64_t, proto::Event> events_;            // by number
  std::map<std::string, std::deque<std::uint64_t>> kinds_;  // the numbers of each kind, oldest first
  std::uint64_t last_ = 0;
};

}  // namespace troupe::cluster
