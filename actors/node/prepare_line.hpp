// The models whose plans one worker is to make ahead of their first request: one at a time, so that a plan
// that a request waits for is never behind more than one of them, and so that few host copies are kept for
// it. Owned by the node controller, one per GPU.
#pragma once

#include <algorithm>
#include <deque>
#include <string>
#include <vector>

namespace troupe::actors {

class PrepareLine {
 public:
  // `adopting`: somebody waits for it; before all that nobody waits for.
  void Push(const std::string& digest, bool adopting) {
    auto& line = adopting ? adopting_ : others_;
    if (std::find(line.begin(), line.end(), digest) == line.end()) line.push_back(digest);
  }
  // The next to order, until Done; empty when one is under way, or none is left.
  [[nodiscard]] std::string Next() {
    auto& line = adopting_.empty() ? others_ : adopting_;
    if (busy_ || line.empty()) return {};
    busy_ = true;
    auto digest = std::move(line.front());
    line.pop_front();
    return digest;
  }
  void Done() { busy_ = false; }
  // The worker is gone. Gives back those that were being adopted and had not been ordered.
  [[nodiscard]] std::vector<std::string> Clear() {
    std::vector<std::string> adopting(adopting_.begin(), adopting_.end());
    *this = {};
    return adopting;
  }

 private:
  std::deque<std::string> adopting_;
  std::deque<std::string> others_;
  bool busy_ = false;
};

}  // namespace troupe::actors
