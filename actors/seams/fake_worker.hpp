// FAKE WORKER: the actor that plays the worker behind a fake link. Private to fake_worker_link.
#pragma once

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>
#include <memory>
#include <string>

#include "actors/seams/fake_worker_link.hpp"

namespace troupe::actors {

// What the link and the actor that plays its worker have in common. Of one thread.
struct FakeWorkerShared {
  FakeWorkerProfile profile;
  std::shared_ptr<FakeWorkerControl> control;
  WorkerLink::Events events;
  std::uint64_t incarnation = 0;
  std::string runtime;                   // whom the next adopted worker is to serve
  bool death_told = true;                // of this incarnation
  std::uint64_t written = 0, taken = 0;  // orders into and out of the ring
  std::uint64_t sent = 0, answered = 0;  // orders that get an outcome
  std::uint64_t progress = 0;
  std::size_t working = 0;  // things that it has begun
  Time moved{};             // when some were last seen

  void Begin(std::uint64_t life) {
    incarnation = life;
    death_told = false;
    sent = answered = 0;
    control->open = 0;
  }
};

// As a worker describes itself when it is adopted.
[[nodiscard]] proto::WorkerDescription DescribeWorker(const FakeWorkerShared& shared);

caf::actor SpawnFakeWorker(caf::actor_system& system, std::shared_ptr<FakeWorkerShared> shared);

}  // namespace troupe::actors
