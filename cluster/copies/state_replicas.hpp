// STATE REPLICAS: on which nodes the images of functions' states have copies beside their home, and which of these nodes are in
// step: they have every image that was acknowledged, so each of them may become the home.
//
//   chosen -(the home says that it has every image, and waits for it from now on)-> stored as in step
//   in step -(the home says that a copy failed, or is heard after the node was lost)-> stored as out of step, filled anew
//   the home drains -(it has given the states up)-> a node in step is the home, with the next term; the old one is in step with it
//     (state_moves.hpp)
//   home gone for its lease, or back with an empty disk; a node in step lives -> that node is the home, with the next term; the
//     old one is in step with it until the new one is heard, unless its disk is empty
//
// The home goes on without a node only after the store has it out of step, so whatever the store names has all that was
// acknowledged. A home that was cut off cannot acknowledge a run meanwhile: the new home refuses its copies.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "cluster/events.hpp"
#include "cluster/records/after_commit.hpp"
#include "cluster/records/changes.hpp"

namespace troupe::cluster {

struct Parts;

class StateReplicas {
 public:
  explicit StateReplicas(Parts& parts) : parts_(parts) {}

  void Start();
  void Pulse();
  // The term of a home that the model gets now, and that the store does not have yet. It is larger than the term of every home
  // before, even of those that the model had for functions which were removed since.
  [[nodiscard]] std::uint64_t FirstTerm(const std::string& digest);
  [[nodiscard]] std::uint64_t last_term() const { return last_term_; }
  void On(const ReplicasAnswered& event);
  void On(const InStepStored& stored, const absl::Status& status);
  // The node joins, and does not say which models with copies of states it has adopted: it drops those whose home is another node.
  void NodeJoined(const std::string& node);
  // The node joins with an empty disk, whatever it had before. The store is to have these changes before the node has joined:
  // then its disk is not known as an empty one any more.
  [[nodiscard]] Changes DiskIsNew(const std::string& node);
  // The store has another home. `keeps`: the old one, when that has all of the states, too; empty: it has not.
  void Moved(const std::string& digest, const std::string& home, const std::string& keeps);

  // The store has the home that it had before the last two terms, with these nodes in step.
  void TurnedBack(const std::string& digest, const std::set<std::string>& in_step, bool home_is_empty);

  // Of the home that the store has.
  [[nodiscard]] std::uint64_t TermOf(const std::string& digest) const;
  // The store may name a node as in step.
  [[nodiscard]] bool AnyInStep(const std::string& digest) const;
  [[nodiscard]] bool InStep(const std::string& digest, const std::string& node) const;
  // The home's disk was lost.
  [[nodiscard]] bool HomeIsEmpty(const std::string& digest) const;
  // The nodes beside the home that have every image that was acknowledged, and their disks.
  [[nodiscard]] std::set<std::string> Whole(const std::string& digest) const;
  // The node in step that is to be the home after this one; empty: none can be now.
  // `leaving`: it may be a node that drains.
  [[nodiscard]] std::string Successor(const std::string& digest, bool leaving) const;
  // What the home is told when it adopts the model; nothing: its functions have no replicas.
  [[nodiscard]] std::optional<proto::StateReplicas> NamedFor(const std::string& digest,
                                                             const std::string& node) const;
  // Models whose states have copies in step on fewer nodes that are there than their functions ask for.
  [[nodiscard]] std::size_t Short() const;
  // Adds the home and the other nodes.
  void Describe(proto::FunctionStatus& function) const;

 private:
  struct Kept {
    std::uint64_t term = 1;
    std::set<std::string> in_step{};                  // as the store has it
    std::optional<std::set<std::string>> to_store{};  // as the store may have it, and is to have it
    bool storing = false;                             // it is on its way there
    std::set<std::string> chosen{};
    std::map<std::string, Time> missing{};  // chosen nodes that are not connected, since when
    std::set<std::string> emptied{};        // nodes in step whose disk was lost
    bool home_is_empty = false;             // the home's disk was lost, and a node in step replaces it
    std::string named{};                    // what the home was told last
    std::uint64_t question = 0;             // that the home has not answered; 0: none
    Time again{};                           // neither the home nor the store is asked before
    std::optional<Time> missed{};           // since when the home is not known

    // The nodes that have every image that was acknowledged: the home waits for a node before the store names it, and
    // until it was told that the store does not name it any more.
    [[nodiscard]] std::set<std::string> Complete() const;
  };

  void Follow(const std::string& digest, const std::string& home, Kept& kept);
  void Choose(const std::string& digest, const std::string& home, Kept& kept);
  void DropMissing(const std::string& home, Kept& kept);
  [[nodiscard]] std::string OtherNode(const std::string& digest, const std::string& home,
                                      const Kept& kept) const;
  void Ask(const std::string& digest, const std::string& home, Kept& kept);
  void Store(const std::string& digest, Kept& kept, std::set<std::string> in_step);
  // The home is dead, or its disk was lost: makes a node in step the home. When every node in step has lost its disk, too, the
  // states begin anew at their home.
  void Replace(const std::string& digest, const std::string& home, Kept& kept);
  // The node is connected and not dead. Lives: it does not drain either.
  [[nodiscard]] bool IsThere(const std::string& node) const;
  [[nodiscard]] bool Lives(const std::string& node) const;
  [[nodiscard]] proto::StateReplicas Named(const std::string& digest, const std::string& home,
                                           const Kept& kept) const;

  Parts& parts_;
  std::map<std::string, Kept> kept_;  // by model digest
  std::uint64_t last_ = 0;
  std::uint64_t last_term_ = 0;
};

}  // namespace troupe::cluster
