// EVENT TRACE: what happened in a schedule, line by line: the last lines for people, and a hash of all, by which
// two runs are compared.
#pragma once

#include <cstdint>
#include <deque>
#include <string>

namespace troupe::sim {

class EventTrace {
 public:
  // `most`: how many of the last lines it keeps.
  explicit EventTrace(std::size_t most) : most_(most) {}

  void Add(const std::string& line) {
    for (const char c : line) hash_ = (hash_ ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
    lines_.push_back(line);
    if (lines_.size() > most_) lines_.pop_front();
  }
  [[nodiscard]] const std::deque<std::string>& lines() const { return lines_; }
  [[nodiscard]] std::uint64_t hash() const { return hash_; }

 private:
  const std::size_t most_;
  std::deque<std::string> lines_;
  std::uint64_t hash_ = 0xcbf29ce484222325ULL;  // FNV-1a
};

}  // namespace troupe::sim
