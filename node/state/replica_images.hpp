// REPLICA IMAGES: copies of images of states whose home is another node. That node says which image has changed, and this
// node fetches it from there. The copies are files only: nothing of them is in memory, and no run uses them.
//
//   offered -(fetched from the home)-> durable here -(this node becomes the home: read as after a start)-> its own
//
// A copy is taken from the newest home that this daemon has heard of, and in the life of this node that the manager told the
// home of: a home that was cut off cannot write over what this node has done as the home since. Nor does a run that began while
// this node was the home write over a copy.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "node/events.hpp"
#include "node/state/declared_states.hpp"

namespace troupe::node {

struct Parts;

class ReplicaImages {
 public:
  explicit ReplicaImages(Parts& parts) : parts_(parts) {}

  void On(const CopyOffered& event);
  void On(const ImagesPulled& event);
  // The model is to be adopted: this node is the home of its states, of this term, and copies are the states from now on.
  void Adopting(const std::string& digest, std::uint64_t term);
  // The states are taken over here, so copies of them come too late; or they were not.
  void TakingOver(const std::string& digest, bool taken);
  // What the manager asks for from now on does not follow on what it asked for before.
  void Joined();
  // A function that kept a state with this model is gone.
  void Undeclared(const std::string& digest);
  // A copy is on its way here.
  [[nodiscard]] bool Copying(const std::string& digest) const;
  // It keeps copies for a home of this term, or of a later one.
  [[nodiscard]] bool Follows(const std::string& digest, std::uint64_t term) const;
  // The file of this image is what another home has sent, and was not read since; or that home has said that there is none.
  [[nodiscard]] bool HasCopyOf(const std::string& image);
  // The state has copies, and its home is another node.
  [[nodiscard]] bool IsCopy(const StateNumber& function) const;

 private:
  struct Followed {
    std::uint64_t term = 0;
    bool taken = false;     // the states were taken over for another term
    bool copied = false;    // a home has sent files, or dropped them, and this daemon has not read them
    bool adopting = false;  // when the last copy has come, or has failed
    std::map<Ask, std::string> under_way{};  // images, by the home's question
  };

  [[nodiscard]] absl::Status Check(const proto::CopyImage& wish);
  [[nodiscard]] absl::Status CheckImage(const proto::CopyImage& wish);
  [[nodiscard]] DeclaredState* FunctionOf(const std::string& image);
  void Drop(const proto::CopyImage& wish);
  void Reread(const std::string& digest, Followed& followed);
  void Reply(Ask ask, const absl::Status& status);

  Parts& parts_;
  std::map<std::string, Followed> followed_;  // by model digest
};

}  // namespace troupe::node
