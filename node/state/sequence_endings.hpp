// SEQUENCE ENDINGS: why sequences have ended that their clients did not end, for requests that come too late. The newest
// ones; keys as cluster::SequenceKey.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace troupe::node {

class SequenceEndings {
 public:
  static constexpr std::size_t kMost = 1024;

  void Add(const std::string& key, std::string why) {
    if (!why_.insert_or_assign(key, std::move(why)).second) return;
    order_.push_back(key);
    if (order_.size() <= kMost) return;
    why_.erase(order_.front());
    order_.pop_front();
  }
  void Forget(const std::string& key) { why_.erase(key); }
  // Null: nothing is known of it.
  [[nodiscard]] const std::string* Find(const std::string& key) const {
    const auto it = why_.find(key);
    return it == why_.end() ? nullptr : &it->second;
  }

 private:
  absl::flat_hash_map<std::string, std::string> why_;
  std::deque<std::string> order_;
};

}  // namespace troupe::node
