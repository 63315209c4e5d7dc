// The `eviction` slot: which resident model goes first when a GPU is short of memory.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/policy.hpp"
#include "base/units.hpp"

namespace troupe::node {

// A resident model that no request uses at the moment.
struct EvictionCandidate {
  Bytes bytes{};
  Time last_use{};
  std::uint32_t replicas = 1;  // GPUs of this node that hold it, this one included
  bool wanted = false;         // a request for it waits at this node
  bool heavy = false;          // swapping it in slows its run
  double rate = 0;             // requests a second for it at this node, estimated
  Duration load{};             // of the link's time that bringing it again takes, as much as others miss
  Duration slack = Duration::max();  // what its requests have to spare where it is; max: no deadline
  Duration delay{};                  // by how much a run that has to bring it is slower than another one
  Duration run{};                    // of its model where it is
};

// The smallest rank goes first; `tier` separates classes of models.
struct EvictionRank {
  std::int32_t tier = 0;
  std::int64_t value = 0;
  auto operator<=>(const EvictionRank&) const = default;
};
// Below the rank of every candidate: nothing has to go.
inline constexpr EvictionRank kNothingGoes{.tier = -1};
using EvictionPolicy = EvictionRank (*)(const EvictionCandidate&);

// `lru` (default): least recently used first; a model that a waiting request needs goes last.
// `lru-strict`: least recently used first, also when a request waits for it (003).
// `heaviness-aware` (Torpor, 002, 5.4): a model that another GPU of the node has too goes before the only copy
//   of any model, so that each model keeps at most one replica when memory is full. Of the only copies those
//   of light models go first, then those of median ones (the released code's levels), then those of heavy
//   ones, whose swap more than doubles what a run takes: a GPU full of median models would have the few that
//   are slow to swap come and go. Inside each class it is `lru`.
// `least-value`: the model whose absence costs least for the memory that it takes: the rate of its requests
//   times the delay and the time of the link that each request then costs; copies share their model's
//   requests. So a part of equally popular models stays, where `lru` would have all of them come and go. A
//   delay counts for more, the more of the time that its requests have to spare it takes.
[[nodiscard]] std::span<const PolicyEntry<EvictionPolicy>> EvictionPolicies();
[[nodiscard]] absl::StatusOr<EvictionPolicy> FindEvictionPolicy(std::string_view name);

}  // namespace troupe::node
