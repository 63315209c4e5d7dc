// Spawns the cache of a node (interface and contract: actors/interfaces/cache.hpp).
#pragma once

#include <caf/actor_system.hpp>
#include <memory>
#include <string>

#include "actors/interfaces/cache.hpp"
#include "actors/node/image_puller.hpp"
#include "actors/node/model_pulls.hpp"
#include "actors/seams/model_repository.hpp"
#include "actors/seams/peer_directory.hpp"
#include "base/units.hpp"

namespace troupe::actors {

struct CacheOptions {
  std::string manager;  // address of the cluster manager
  std::string node{};   // the name of this node
  PullTerms pulls{};
  ImagePullTerms images{};  // of states
  // Ranges that other nodes are given at a time; more are refused, and asked of others. So an input of a request waits on
  // the link behind 32 MiB of models at most.
  std::size_t served = 8;
  // Of a question for a range that is still being fetched; less than the asker's relay_timeout.
  Duration relay_patience = std::chrono::seconds(4);
  Duration release_after = std::chrono::seconds(15);  // of a range that a node did not say that it has
  std::shared_ptr<PullCounts> counts = std::make_shared<PullCounts>();
};

// `repository` and `directory` outlive the actor.
CacheActor SpawnCache(caf::actor_system& system, CacheOptions options, ModelRepository& repository,
                      PeerDirectory& directory);

}  // namespace troupe::actors
