// WORKER LINK: the executor's way to its GPU worker. Production: rings and a process (process_worker_link);
// tests and the simulator: a worker that answers under the actors' clock (fake_worker_link). One contract
// test runs on both.
//
//   Spawn -> on_listening -> Adopt -> on_ready -> Send / on_outcome ... -> on_death
//   on_death may come at any time from Spawn on.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "proto/local.pb.h"
#include "proto/worker.pb.h"

namespace troupe::actors {

// Where the watchdog sees whether a worker moves.
struct WorkerProgress {
  std::uint64_t counter = 0;  // moves whenever the worker does
  bool busy = false;          // has orders that it has not answered
  // What of it has stood still for too long while it was busy, whatever else moves ("copy in stands still at
  // order 17 for 5.1 s"); empty: nothing.
  std::string hung = {};
  // Why nothing is to run on its device any more, as the device's driver says; empty: it does not.
  std::string unfit = {};
};

// Whether the worker answers it at all.
[[nodiscard]] inline bool HasOutcome(const proto::WorkerOrder& order) {
  return !order.has_cancel() && !order.has_release() && !order.has_unpin();
}

class WorkerLink {
 public:
  // Called on any thread, never after the destructor returned.
  struct Events {
    std::function<void(proto::WorkerListening)> on_listening;
    std::function<void(proto::WorkerReady)> on_ready;
    std::function<void(proto::WorkerAnswer)> on_outcome;
    std::function<void(proto::WorkerDied)> on_death;  // once per incarnation
  };

  // Lets go of the worker; it lives on for its lease.
  virtual ~WorkerLink() = default;
  // Before anything else, once.
  virtual void Bind(Events events) = 0;
  // Which key the worker serves from the next Spawn or Adopt on (node::RuntimeName); none until this is said.
  // A worker from before that serves a key goes on doing so: on_ready names the key.
  virtual void Serve(const std::string& runtime) = 0;
  // A worker from before waits for its daemon: Adopt without Spawn. A worker that is adopted already, and has
  // served no key, is adopted anew, as another incarnation: outcomes of the old one are dropped.
  [[nodiscard]] virtual bool Listens() = 0;
  virtual void Spawn(std::uint64_t incarnation) = 0;
  virtual void Adopt(std::uint64_t incarnation) = 0;
  // Hands over an order without blocking. RESOURCE_EXHAUSTED when the ring is full, UNAVAILABLE without a
  // worker.
  virtual absl::Status Send(const proto::WorkerOrder& order) = 0;
  // Asked at each look of the watchdog: what stands still is seen from one to the next.
  [[nodiscard]] virtual WorkerProgress Progress() const = 0;
  virtual void Kill() = 0;      // SIGKILL; on_death follows
  virtual void ShutDown() = 0;  // asks it to finish what runs and end; on_death follows
};

}  // namespace troupe::actors
