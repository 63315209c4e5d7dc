// OBJECTS: when models and tensors that no function and no run refers to are removed from the manager's disk.
#pragma once

#include "base/units.hpp"
#include "cluster/events.hpp"

namespace troupe::cluster {

struct Parts;

class Objects {
 public:
  explicit Objects(Parts& parts) : parts_(parts) {}

  void Start();
  // When it is due.
  void Collect();
  void On(const ObjectsCollected& event);

 private:
  Parts& parts_;
  Time last_collected_{};
};

}  // namespace troupe::cluster
