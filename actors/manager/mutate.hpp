// How the sources of the cluster manager change the registries: each change is a command that is validated,
// committed and then applied, one after the other (mutations.hpp).
#pragma once

#include <memory>
#include <utility>

#include "actors/manager/cluster_manager_actor.hpp"

namespace troupe::actors {

template <class Command>
void ClusterManager::Mutate(std::shared_ptr<Command> command, std::function<absl::Status()> validate,
                            std::function<void(absl::Status)> answer) {
  mutations_.Add({[this, command, validate]() -> absl::StatusOr<cluster::Changes> {
                    TROUPE_RETURN_IF_ERROR(validate());
                    return catalogue_.ChangesFor(*command);
                  },
                  [this, command] {
                    placement_.UsersChanged(catalogue_.ModelOf(*command));
                    catalogue_.Apply(*command);
                    Changed();
                  },
                  std::move(answer)});
}

}  // namespace troupe::actors
