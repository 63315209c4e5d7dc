// KEPT PROFILES: what the node learned of its models outlives it (node/models/profiles.hpp).
#pragma once

#include <cstdint>
#include <optional>

#include "node/events.hpp"

namespace troupe::node {

struct Parts;

class KeptProfiles {
 public:
  explicit KeptProfiles(Parts& parts) : parts_(parts) {}

  void On(const Started& event);
  void On(const Stopping& event);
  // What the disk refused is saved at the next timer.
  void On(const ProfilesSaved& event);
  void OnTimer();

 private:
  // What was learned of the models since the last time, if anything.
  void Save();

  Parts& parts_;
  std::optional<std::uint64_t> saved_ = 0;  // the revision on disk; nothing: the last save failed
};

}  // namespace troupe::node
