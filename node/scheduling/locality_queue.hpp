// LOCALITY QUEUE: the waiting requests as locality-aware load balancing looks at them (LALB, 003, Algorithm
// 1): how often an idle GPU has passed each, in favour of one whose model it has. Owned by the swap
// scheduler. Two forms that decide the same: as the paper prints it, scanning the queue; and by index (its
// section VI), where a turn costs what it decides: what was passed too often is kept apart, and each request
// is counted at most limit + 1 times in its life.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/functional/function_ref.h"
#include "scheduling/ordering_policy.hpp"

namespace troupe::node {

struct LocalityRules {
  // A request that was passed more often than this is placed when it is next in order, hit or miss.
  std::uint32_t limit = 25;
  bool printed = false;  // the scanning form
};

// Where Algorithm 2 put a request: on the GPU that asks, on another one, or nowhere, since none takes it now.
enum class LocalityPlace { kNowhere, kElsewhere, kHere };

// The GPU whose turn it is. What it calls has to outlive it.
struct LocalityTurn {
  absl::FunctionRef<bool(const OrderingKey&)> has;            // it has that request's model, and can run it
  absl::FunctionRef<std::optional<OrderingKey>()> first_hit;  // the most urgent request whose model it has
  // Algorithm 2. Removes the request from the queue, unless it says nowhere.
  absl::FunctionRef<LocalityPlace(const OrderingKey&)> place;
};

class LocalityQueue {
 public:
  virtual ~LocalityQueue() = default;
  virtual void Add(const OrderingKey& key) = 0;
  virtual void Remove(const OrderingKey& key) = 0;
  [[nodiscard]] virtual std::size_t size() const = 0;
  // What an idle GPU does (Algorithm 1, lines 6 to 22). Answers the request that is to run there as a hit,
  // still in the queue; empty: none, or `place` has found one.
  [[nodiscard]] virtual std::optional<OrderingKey> Turn(const LocalityTurn& gpu) = 0;
};

[[nodiscard]] std::unique_ptr<LocalityQueue> MakeLocalityQueue(const LocalityRules& rules);

}  // namespace troupe::node
