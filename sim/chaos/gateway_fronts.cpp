#include "sim/chaos/gateway_fronts.hpp"

#include <utility>

namespace troupe::sim {

void GatewayFronts::Open(std::size_t gateway) {
  ++lives_[gateway];
  up_[gateway] = all_.emplace_back(std::make_shared<SimulatedFront>(
      world_, GatewayCount{names_[gateway], lives_[gateway], 0, 0}, gateway));
  if (planted_) planted_(*up_[gateway]);
}

void GatewayFronts::Infer(std::size_t gateway, proto::InferRequest request, const std::string& key,
                          SimulatedFront::Done done) {
  if (up_[gateway]) return up_[gateway]->Infer(std::move(request), key, std::move(done));
  proto::InferReply refused;
  refused.set_code(static_cast<int>(absl::StatusCode::kUnavailable));
  refused.set_message("connection refused");
  done(refused, false);
}

void GatewayFronts::Cancel(std::size_t gateway, std::uint64_t call) {
  if (up_[gateway]) up_[gateway]->Cancel(call);
}

void GatewayFronts::CancelAtAll(std::uint64_t call) {
  for (std::size_t i = 0; i < up_.size(); ++i) Cancel(i, call);
}

std::vector<GatewayCount> GatewayFronts::Counts() const {
  std::vector<GatewayCount> counts;
  for (const auto& front : all_) counts.push_back(front->count());
  return counts;
}

void GatewayFronts::Plant(std::function<void(SimulatedFront&)> plant) {
  planted_ = std::move(plant);
  for (const auto& front : up_)
    if (front) planted_(*front);
}

}  // namespace troupe::sim
