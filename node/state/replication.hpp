// REPLICATION: the images of states whose home is this node, on their way to other nodes, so that one of these can become the
// home when this node is gone. The manager names the other nodes, and its store says which of them are in step: those have
// every image that was acknowledged, so each of them may become the home.
//
//   named -(it has dropped what it had)-> filled -(it has every image)-> in step
//   any -(a copy failed)-> failed: no copy goes there until the manager names it anew
//
// With every run written back, a run is answered when its image is durable here and on each of these nodes: one that is being
// filled, too, since it comes into step later without a pause. A node in step whose copy failed is waited for until the
// manager has stored that it is out of step. Other write-backs wait for no copy.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "node/events.hpp"
#include "node/state/declared_states.hpp"

namespace troupe::node {

struct Parts;

class Replication {
 public:
  // Copies to one node at a time.
  static constexpr std::size_t kAtOnce = 4;

  explicit Replication(Parts& parts) : parts_(parts) {}

  void On(const ReplicasNamed& event);
  void On(const CopyEnded& event);
  // The model is to be adopted: this node is its home, in this epoch.
  void Adopting(const std::string& digest, const std::optional<proto::StateReplicas>& replicas,
                std::uint64_t epoch);
  // The model is to be adopted for a function without state.
  void AdoptingBare(const std::string& digest, std::uint64_t epoch) { bare_in_[digest] = epoch; }
  // The lease of what only one node may have was over before this node joined with this epoch: another node may be the home of
  // what has copies, but for models that were to be adopted in this epoch. Such an order may come before the answer to the join.
  void Lapsed(std::uint64_t epoch);
  // This node is not the home any more, or no function keeps a state with the model.
  void Leave(const std::string& digest, const absl::Status& why);
  // The model has a function whose state is to have copies.
  [[nodiscard]] bool IsReplicated(const std::string& digest) const;

  // The file of the image here is another one; `ended`: there is none.
  void Changed(const std::string& image, bool ended);
  // Whether the image of a run, which is durable here, has to wait for other nodes: then WriteBacks::Copied is called once,
  // later. MayBeElsewhere(): the run does not count.
  [[nodiscard]] absl::StatusOr<bool> Await(const std::string& image, std::uint64_t batch);
  // FailedPrecondition: another node may be the home of the state.
  [[nodiscard]] static absl::Status MayBeElsewhere();
  // Copies are on their way to nodes whose copies have not failed.
  [[nodiscard]] bool Copying(const std::string& digest) const;
  // The nodes that have a copy of every image.
  [[nodiscard]] std::vector<std::string> Complete(const std::string& digest) const;
  // Other nodes may read the images of this function.
  [[nodiscard]] bool Serves(const std::string& function) const;

 private:
  struct Wanted {
    std::string image{};
    bool ended = false;
    bool fills = false;  // the node never had it
  };
  struct Replica {
    proto::StateReplica told{};
    bool begun = false;                           // it has dropped what it had
    bool failed = false;                          // until it is named anew
    std::map<std::string, bool> due{};            // images that changed; true: it ended
    std::set<std::string> fill{};                 // images that it never had
    std::map<std::uint64_t, Wanted> under_way{};  // by number of the copy

    [[nodiscard]] bool UnderWay(const std::string& image) const;
    [[nodiscard]] bool Filled() const;
    [[nodiscard]] bool Busy() const { return begun && !(due.empty() && fill.empty() && under_way.empty()); }
    // A run's answer waits for it.
    [[nodiscard]] bool Lacks(const std::string& image) const;
  };
  struct Home {
    proto::StateReplicas named{};
    std::map<std::string, Replica> replicas{};  // by node
    std::optional<Ask> ask{};
    std::map<std::uint64_t, std::string> waiting{};  // images of runs, by batch
  };
  using Homes = std::map<std::string, Home>;

  // `stored`: nodes that are not named as in step are not so in the manager's store.
  void Name(const std::string& digest, const proto::StateReplicas& named, bool stored);
  void Begin(Homes::value_type& home, const proto::StateReplica& named, bool stored);
  [[nodiscard]] bool Known(const std::string& digest);
  void Fill(const std::string& digest, Replica& replica);
  void Pump(Homes::value_type& home, Replica& replica);
  // An empty image: the node is to drop what it has.
  void Send(const Homes::value_type& home, Replica& replica, const Wanted& wanted);
  void Fail(const std::string& digest, Replica& replica, const absl::Status& why);
  // Answers what waits for nothing any more.
  void Look(const std::string& digest);
  void AnswerManager(Home& home);
  [[nodiscard]] DeclaredState* OwnerOf(const std::string& image) const;

  Parts& parts_;
  Homes homes_;                   // by model digest
  std::set<std::string> fenced_;  // models of which another node may be the home
  // The epoch in which the model was to be adopted last: for its states, and for functions without.
  std::map<std::string, std::uint64_t> adopted_in_, bare_in_;
  std::map<std::uint64_t, std::pair<std::string, std::string>> copies_;  // model and node, by number
  std::uint64_t last_ = 0;
};

}  // namespace troupe::node
