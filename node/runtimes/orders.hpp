// ORDERS: the orders to workers that were not answered yet, with what they were given for. Each is answered
// once, also when its worker dies (OrderAnswered).
#pragma once

#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "node/runtimes/order_purposes.hpp"

namespace troupe::node {

struct Parts;

class Orders {
 public:
  explicit Orders(Parts& parts) : parts_(parts) {}

  void On(OrderAnswered& event);

  // A number that no other order has.
  [[nodiscard]] std::uint64_t Number() { return next_sequence_++; }
  // Returns the order's number.
  std::uint64_t Give(GpuIndex gpu, proto::WorkerOrder order, OrderPurpose purpose = NoPurpose{});
  // The same for an order that names a model: its host copy stays at least until the answer, unless the order
  // does not read it (an eviction, a write-back).
  std::uint64_t GiveFor(const ModelNumber& model, GpuIndex gpu, proto::WorkerOrder order,
                        OrderPurpose purpose);

 private:
  struct Open {
    OrderPurpose purpose{};
    ModelNumber model{};  // none: the order names none
    bool reads = false;
  };

  Parts& parts_;
  absl::flat_hash_map<std::uint64_t, Open> open_;
  std::uint64_t next_sequence_ = 1;
};

}  // namespace troupe::node
