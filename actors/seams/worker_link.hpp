// WORKER LINK: the executor's way to its GPU worker. Production: rings and a process (process_worker_link); tests and the
// simulator: a worker that answers under the actors' clock (fake_worker_link). One contract test runs on both.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "proto/local.pb.h"
#include "proto/worker.pb.h"

namespace troupe::actors {

// Where the watchdog sees whether a worker moves.
struct WorkerProgress {
  std::uint64_t counter = 0;  // moves whenever the worker does
  bool busy = false;          // has orders that it has not answered
};

class WorkerLink {
 public:
  // Called on any thread, never after Detach or the destructor returned.
  struct Events {
    std::function<void(proto::WorkerReady)> on_ready;
    std::function<void(proto::WorkerOutcome)> on_outcome;
    std::function<void(proto::WorkerDied)> on_death;  // once per incarnation that was ready
  };

  virtual ~WorkerLink() = default;
  // Adopts a living worker, else starts one; answered by one on_ready. Not while one is up.
  virtual void Start(std::uint64_t incarnation, Events events) = 0;
  // Hands over an order without blocking. RESOURCE_EXHAUSTED when the ring is full, UNAVAILABLE without a worker.
  virtual absl::Status Send(const proto::WorkerOrder& order) = 0;
  [[nodiscard]] virtual WorkerProgress Progress() const = 0;
  // SIGKILL; on_death follows.
  virtual void Kill() = 0;
  // Lets go of the worker, which lives on for its lease.
  virtual void Detach() = 0;
};

}  // namespace troupe::actors
