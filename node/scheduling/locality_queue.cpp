#include "node/scheduling/locality_queue.hpp"

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "base/check.hpp"

namespace troupe::node {

namespace {

// Asks for each request in order, from the begin; stops behind a request that was placed here. `place` may
// remove it.
template <class Keys>
bool PlaceFirst(const Keys& keys, const LocalityTurn& gpu) {
  const auto key_of = [](const auto& item) -> const OrderingKey& {
    if constexpr (requires { item.first; })
      return item.first;
    else
      return item;
  };
  for (auto it = keys.begin(); it != keys.end();) {
    const OrderingKey key = key_of(*it);
    if (gpu.place(key) == LocalityPlace::kHere) return true;
    it = keys.upper_bound(key);
  }
  return false;
}

class PrintedLocalityQueue final : public LocalityQueue {
 public:
  explicit PrintedLocalityQueue(std::uint32_t limit) : limit_(limit) {}

  void Add(const OrderingKey& key) override { visits_.emplace(key, 0); }
  void Remove(const OrderingKey& key) override {
    TROUPE_CHECK(visits_.erase(key) == 1, "a request to remove does not wait");
  }
  [[nodiscard]] std::size_t size() const override { return visits_.size(); }

  std::optional<OrderingKey> Turn(const LocalityTurn& gpu) override {
    for (auto it = visits_.begin(); it != visits_.end();) {
      const OrderingKey key = it->first;
      if (gpu.has(key)) return key;
      if (it->second > limit_) {
        if (gpu.place(key) == LocalityPlace::kHere) return std::nullopt;
        it = visits_.upper_bound(key);
      } else {
        ++it->second;
        ++it;
      }
    }
    PlaceFirst(visits_, gpu);
    return std::nullopt;
  }

 private:
  const std::uint32_t limit_;
  absl::btree_map<OrderingKey, std::uint32_t> visits_;
};

class IndexedLocalityQueue final : public LocalityQueue {
 public:
  explicit IndexedLocalityQueue(std::uint32_t limit) : limit_(limit) {}

  void Add(const OrderingKey& key) override {
    all_.insert(key);
    young_.emplace(key, 0);
  }
  void Remove(const OrderingKey& key) override {
    TROUPE_CHECK(all_.erase(key) == 1, "a request to remove does not wait");
    if (young_.erase(key) == 0) overdue_.erase(key);
  }
  [[nodiscard]] std::size_t size() const override { return all_.size(); }

  std::optional<OrderingKey> Turn(const LocalityTurn& gpu) override {
    const std::optional<OrderingKey> hit = gpu.first_hit();
    for (auto it = overdue_.begin(); it != overdue_.end() && !(hit && *hit <= *it);) {
      const OrderingKey key = *it;
      const auto placed = gpu.place(key);
      if (placed == LocalityPlace::kHere) {
        Count(key);
        return std::nullopt;
      }
      it = overdue_.upper_bound(key);
    }
    Count(hit);
    if (!hit) PlaceFirst(all_, gpu);
    return hit;
  }

 private:
  // What stands before `end` was passed once more.
  void Count(const std::optional<OrderingKey>& end) {
    for (auto it = young_.begin(); it != young_.end() && !(end && *end <= it->first);) {
      if (++it->second > limit_) {
        overdue_.insert(it->first);
        it = young_.erase(it);
      } else {
        ++it;
      }
    }
  }

  const std::uint32_t limit_;
  absl::btree_set<OrderingKey> all_;
  absl::btree_map<OrderingKey, std::uint32_t> young_;  // and how often each was passed
  absl::btree_set<OrderingKey> overdue_;               // passed more often than the limit
};

}  // namespace

std::unique_ptr<LocalityQueue> MakeLocalityQueue(const LocalityRules& rules) {
  if (rules.printed) return std::make_unique<PrintedLocalityQueue>(rules.limit);
  return std::make_unique<IndexedLocalityQueue>(rules.limit);
}

}  // namespace troupe::node
