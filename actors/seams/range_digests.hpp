// RANGE DIGESTS: the digests of ranges of objects, which never change, so that those of a model that many nodes fetch are
// computed once. Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace troupe::actors {

class RangeDigests {
 public:
  // `most`: ranges that are remembered. When there are more, those of the object that was remembered first are forgotten.
  explicit RangeDigests(std::size_t most) : most_(most) {}

  [[nodiscard]] std::optional<std::string> Find(const std::string& object, std::uint64_t offset,
                                                std::uint64_t length) const {
    const std::lock_guard lock(mutex_);
    const auto of = objects_.find(object);
    if (of == objects_.end()) return std::nullopt;
    const auto found = of->second.find({offset, length});
    return found == of->second.end() ? std::nullopt : std::optional(found->second);
  }
  void Keep(const std::string& object, std::uint64_t offset, std::uint64_t length, std::string digest) {
    const std::lock_guard lock(mutex_);
    const auto [of, first] = objects_.try_emplace(object);
    if (first) order_.push_back(object);
    if (of->second.try_emplace({offset, length}, std::move(digest)).second) ++kept_;
    while (kept_ > most_) {
      kept_ -= objects_.at(order_.front()).size();
      objects_.erase(order_.front());
      order_.pop_front();
    }
  }
  [[nodiscard]] std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return kept_;
  }

 private:
  using Ranges = std::map<std::pair<std::uint64_t, std::uint64_t>, std::string>;  // by offset and length

  const std::size_t most_;
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::map<std::string, Ranges> objects_;
  std::deque<std::string> order_;  // of the objects, the first one first
  std::size_t kept_ = 0;
};

}  // namespace troupe::actors
