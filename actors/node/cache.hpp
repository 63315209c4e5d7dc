// Spawns the cache of a node (interface and contract: actors/interfaces/cache.hpp).
#pragma once

#include <caf/actor_system.hpp>
#include <memory>
#include <string>

#include "actors/interfaces/cache.hpp"
#include "actors/seams/model_repository.hpp"
#include "actors/seams/peer_directory.hpp"
#include "base/units.hpp"

namespace troupe::actors {

struct CacheOptions {
  std::string manager;                                // address of the cluster manager
  Duration fetch_timeout = std::chrono::seconds(10);  // of one part of an object
  std::uint64_t part_bytes = 4u << 20;
};

// `repository` and `directory` outlive the actor.
CacheActor SpawnCache(caf::actor_system& system, CacheOptions options, ModelRepository& repository,
                      PeerDirectory& directory);

}  // namespace troupe::actors
