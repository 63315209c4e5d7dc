// REFILL: models that a dead worker held come to the other GPUs, and to the new worker, without being asked
// for: the hottest first, by runs of zeros as in trials, into room that is free, while no request waits. A
// model that is asked for before that comes by its requests. Where weights outlive their worker (keep_weights),
// nothing comes while the next worker is awaited, since it may have what is missing.
#pragma once

#include <vector>

#include "node/events.hpp"
#include "node/models/lost_models.hpp"

namespace troupe::node {

struct Parts;

class Refill {
 public:
  Refill(Parts& parts, std::size_t runtimes) : parts_(parts), awaited_(runtimes) {}

  // To be heard before the scheduler hears it, which then knows nothing of the worker's models any more.
  void On(const RuntimeLost& event);
  // Begins the next one, if no request waits.
  void Begin();
  // A request came before the model was on its way.
  void Again(const ModelNumber& copy);

 private:
  void Add(const ModelNumber& copy, Bytes bytes, Time last_use);
  [[nodiscard]] bool HasRoom(const LostModel& lost) const;
  [[nodiscard]] bool AwaitsWorker() const;

  Parts& parts_;
  LostModels lost_;
  std::vector<Time> awaited_;  // by runtime: until when its next worker may still have what the last one held
};

}  // namespace troupe::node
