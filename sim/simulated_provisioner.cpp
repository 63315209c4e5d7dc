#include "sim/simulated_provisioner.hpp"

#include <caf/all.hpp>
#include <utility>

#include "actors/core/time.hpp"

namespace troupe::sim {

void SimulatedProvisioner::Carry(actors::ProvisionOrder order, std::function<void(absl::Status)> done) {
  orders_.push_back(order);
  if (refuse_ > 0) {
    --refuse_;
    return done(absl::UnavailableError("no machine is to be had"));
  }
  done(absl::OkStatus());
  system_.spawn([this, order = std::move(order)](caf::event_based_actor* self) -> caf::behavior {
    actors::After(self, delay_, actors::MakeTick(1));
    return {[this, order, self](const proto::Tick&) {
      happen_(order);
      self->quit();
    }};
  });
}

}  // namespace troupe::sim
