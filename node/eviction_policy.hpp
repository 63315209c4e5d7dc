// The `eviction` slot: which resident model goes first when a GPU is short of memory.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/policy.hpp"
#include "base/units.hpp"

namespace troupe::node {

// A resident model that nobody uses at the moment.
struct EvictionCandidate {
  std::string_view model{};
  Bytes bytes{};
  Time last_use{};
  std::uint32_t replicas = 1;  // GPUs of this node that hold it, this one included
  bool wanted = false;         // a request for it waits at this node
};

// The smallest rank goes first; `tier` separates classes of models.
struct EvictionRank {
  std::int32_t tier = 0;
  std::int64_t value = 0;
  auto operator<=>(const EvictionRank&) const = default;
};
using EvictionPolicy = EvictionRank (*)(const EvictionCandidate&);

// `lru` (default): least recently used first; a model that a waiting request needs goes last.
[[nodiscard]] std::span<const PolicyEntry<EvictionPolicy>> EvictionPolicies();
[[nodiscard]] absl::StatusOr<EvictionPolicy> FindEvictionPolicy(std::string_view name);

}  // namespace troupe::node
