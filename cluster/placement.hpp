// PLACEMENT: which nodes hold a host copy of which model. Rendezvous hashing, weighted by the size of the
// host regions: when a node comes or goes, only models that gain or lose it move. Every model has one node at
// least, also beyond the size of the regions (a node has its coldest models on disk only); further copies go
// where there is room for them. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/units.hpp"

namespace troupe::cluster {

struct PlacementNode {
  std::string name{};
  Bytes region{};          // size of its host region
  Bytes gpu_memory{};      // of its largest fit GPU; zero: no GPU
  std::uint32_t gpus = 0;  // fit ones
  bool accepts = true;     // false while draining or suspect: keeps what it has, gets nothing new
  bool leaving = false;    // draining: its copies are made elsewhere

  bool operator==(const PlacementNode&) const = default;
};
struct PlacementModel {
  std::string digest{};
  std::string function{};    // for messages
  Bytes host_bytes{};        // what a copy takes of a host region
  Bytes device_bytes{};      // what its weights take on a GPU
  std::uint32_t copies = 1;  // that its load needs, where those are more than every model has
  bool single = false;       // one copy: a function keeps state where it runs
  std::string home{};        // the only node that may have it: such a state is there; empty: any
};
struct PlacementOptions {
  std::uint32_t replicas = 2;  // of every model at least; fewer when there are fewer nodes
};

using PlacementMap = std::map<std::string, std::vector<std::string>>;  // digest -> sorted node names

struct PlacementMove {
  std::string digest{};
  std::string node{};
  bool adopt = true;  // false: disown, once every adoption of this model is done
};
struct PlacementProblem {
  std::string digest{};
  absl::Status why{};
};
struct PlacementPlan {
  PlacementMap placements{};
  std::vector<PlacementMove> moves{};        // from `current` to `placements`, adoptions before disownments
  std::vector<PlacementProblem> problems{};  // models with fewer copies than they could have
  // Some copy is not where it would be if the regions had no end. While none is, each model's place depends
  // on itself and the nodes alone.
  bool tight = false;
};

// `current` says where copies are now; nodes that are not listed any more hold nothing.
[[nodiscard]] PlacementPlan PlanPlacement(const std::vector<PlacementModel>& models,
                                          const std::vector<PlacementNode>& nodes,
                                          const PlacementMap& current, const PlacementOptions& options);

// How a plan ranks the nodes that could hold a model, the highest first, and of equal ones by name.
class PlacementRank {
 public:
  explicit PlacementRank(const std::string& digest);
  [[nodiscard]] double Of(const PlacementNode& node) const;

 private:
  std::uint64_t begun_;  // the hash of the digest, which each node's name continues
};
// Its memory and its region are large enough, whatever else is there.
[[nodiscard]] bool CanHold(const PlacementModel& model, const PlacementNode& node);

// FailedPrecondition, with the sizes, for a model that no GPU or no host region of the cluster can ever hold.
// Unavailable when there is no node.
[[nodiscard]] absl::Status CheckFits(const PlacementModel& model, const std::vector<PlacementNode>& nodes);

}  // namespace troupe::cluster
