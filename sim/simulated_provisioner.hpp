// SIMULATED PROVISIONER: machines under virtual time: what is ordered happens after a while, or is refused.
// The second form of NodeProvisioner (actors/seams). One thread, that of the world.
#pragma once

#include <caf/actor_system.hpp>
#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include "actors/seams/node_provisioner.hpp"
#include "base/units.hpp"

namespace troupe::sim {

class SimulatedProvisioner final : public actors::NodeProvisioner {
 public:
  // `happen` is called for each order that was taken up, `delay` after that. `system` and this outlive what
  // was ordered.
  SimulatedProvisioner(caf::actor_system& system, Duration delay,
                       std::function<void(const actors::ProvisionOrder&)> happen)
      : system_(system), delay_(delay), happen_(std::move(happen)) {}

  void Carry(actors::ProvisionOrder order, std::function<void(absl::Status)> done) override;
  // The next `count` orders are refused.
  void Refuse(std::size_t count) { refuse_ = count; }
  // All that was ordered, also what was refused.
  [[nodiscard]] const std::vector<actors::ProvisionOrder>& orders() const { return orders_; }

 private:
  caf::actor_system& system_;
  const Duration delay_;
  const std::function<void(const actors::ProvisionOrder&)> happen_;
  std::vector<actors::ProvisionOrder> orders_;
  std::size_t refuse_ = 0;
};

}  // namespace troupe::sim
