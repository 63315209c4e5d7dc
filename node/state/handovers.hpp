// HANDOVERS: states of a model's functions, with their sequences, that this node gives up to another one, or takes over.
//
//   asked to give up -(no run and no copy is under way, nothing is on a GPU)-> given up: the files are the states, and other
//     nodes may read them
//   given up -(asked to adopt the model)-> its own again; -(the states are elsewhere)-> forgotten
//   asked to take over: what was here is dropped -(all images are durable here)-> read -> taken over
//
// A model whose states were given up is not adopted here, so no run of its functions begins. Nothing but AdoptModel makes
// them this node's again: neither time nor a restart does.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "node/effects.hpp"
#include "node/state/declared_states.hpp"

namespace troupe::node {

struct Parts;

class Handovers {
 public:
  explicit Handovers(Parts& parts) : parts_(parts) {}

  void On(const StatesWanted& event);
  void On(const StatesOffered& event);
  void On(const StatesElsewhere& event);
  void On(const ImageAsked& event);
  void On(const ImagesPulled& event);
  // The model is to be adopted here.
  void Adopting(const std::string& digest);
  // Images of this model's functions are on their way here.
  [[nodiscard]] bool Taking(const std::string& digest) const { return taken_.contains(digest); }
  // What the disk and the workers have of it is known.
  [[nodiscard]] bool IsKnown(const DeclaredState& state) const;
  // The functions of this node that keep a state with the model.
  [[nodiscard]] std::vector<DeclaredState*> KeepersOf(const std::string& digest);
  // Its images and sequences go, in memory and on disk.
  void Empty(DeclaredState& state);
  // After each event: what was waited for may have come.
  void Look();

 private:
  struct Given {
    std::vector<Ask> asks{};
    std::vector<std::string> functions{};
    bool at_rest = false;
  };
  struct Taken {
    Ask ask = 0;
    std::vector<std::string> images{};
    bool pulled = false;
  };

  // Whether the files are the states; an error: why they cannot be.
  [[nodiscard]] absl::StatusOr<bool> AtRest(const std::string& digest, const Given& given);
  // A run, a write-back or an eviction of these states, or of their sequences, is under way.
  [[nodiscard]] bool Busy(const Given& given);
  void AnswerGiven(Given& given, const proto::GivenUpStates& reply);
  [[nodiscard]] proto::GivenUpStates ImagesOf(const std::string& digest, const Given& given);
  [[nodiscard]] absl::Status MayTake(const proto::TakeOverStates& wish);
  [[nodiscard]] absl::StatusOr<PullImages> PullOf(const proto::TakeOverStates& wish);
  // False: it has to wait.
  [[nodiscard]] bool Forget(const std::string& digest);
  void EndTaken(const std::string& digest, const absl::Status& status);
  void LookAtTaken(const std::string& digest);

  Parts& parts_;
  std::map<std::string, Given> given_;  // by model digest
  std::map<std::string, Taken> taken_;  // by model digest
  std::set<std::string> elsewhere_;     // models whose states are to be forgotten
};

}  // namespace troupe::node
