// REMEMBERED: what the node had adopted before it was started again. The manager says what is to be on a
// node; while it is away, a node that has lost everything but its disk serves what it served before.
//
//   started -(remember_after, no manager heard)-> adopts again -(joined)-> the manager's to say
//
// Functions with state are left out: only the manager knows whether their one owner is still this node.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "node/events.hpp"
#include "node/names.hpp"

namespace troupe::node {

struct Parts;

class Remembered {
 public:
  explicit Remembered(Parts& parts) : parts_(parts) {}

  void On(const Started& event);
  void On(const Stopping& event);
  // A manager is there: what is not adopted yet, and was not told to it, goes.
  void On(const Joined& event);
  // What the disk refused is saved again after a while.
  void On(const AdoptedSaved& event);
  void OnTimer();      // no manager was heard for long enough
  void OnSaveTimer();  // of SaveSoon

  // The manager wants this copy, too.
  void Wanted(const ModelNumber& copy) { remembered_.erase(copy); }
  // Something that is to be remembered may have changed.
  void SaveSoon();

 private:
  void Save();

  Parts& parts_;
  absl::flat_hash_set<ModelNumber> remembered_;  // copies that this node adopts again by itself
  // "name/version" -> revision, as on disk; nothing: the last save failed.
  std::optional<std::map<std::string, std::uint64_t>> saved_{std::in_place};
  bool armed_ = false;
};

}  // namespace troupe::node
