// GATEWAY FRONTS: the simulated front of each gateway, as clients use it: one for each life of the gateway.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "sim/chaos/simulated_front.hpp"
#include "sim/world.hpp"

namespace troupe::sim {

class GatewayFronts {
 public:
  // The world outlives the fronts. `names`: of all gateways.
  GatewayFronts(World& world, std::vector<std::string> names)
      : world_(world), names_(std::move(names)), up_(names_.size()), lives_(names_.size()) {}

  // The gateway has been started, or killed.
  void Open(std::size_t gateway);
  void Close(std::size_t gateway) { up_[gateway] = nullptr; }
  [[nodiscard]] bool IsUp(std::size_t gateway) const { return up_[gateway] != nullptr; }
  // Of the gateway that is up, or was up last; each start is another one.
  [[nodiscard]] std::uint64_t LifeOf(std::size_t gateway) const { return lives_[gateway]; }

  // `done` is called once, also when the gateway dies. `request.call` names it for Cancel. A gateway that is
  // down answers Unavailable at once. `key`: the client's Idempotency-Key; empty: none.
  void Infer(std::size_t gateway, proto::InferRequest request, const std::string& key,
             SimulatedFront::Done done);
  void Cancel(std::size_t gateway, std::uint64_t call);
  void CancelAtAll(std::uint64_t call);
  // What each life of a gateway counted.
  [[nodiscard]] std::vector<GatewayCount> Counts() const;
  // A planted error, in each front from now on.
  void Plant(std::function<void(SimulatedFront&)> plant);

 private:
  World& world_;
  const std::vector<std::string> names_;
  std::vector<std::shared_ptr<SimulatedFront>> up_;   // by gateway; null: down
  std::vector<std::shared_ptr<SimulatedFront>> all_;  // of all lives
  std::vector<std::uint64_t> lives_;                  // by gateway
  std::function<void(SimulatedFront&)> planted_;
};

}  // namespace troupe::sim
