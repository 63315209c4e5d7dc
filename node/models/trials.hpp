// TRIALS: runs of zeros on an idle node. One measures whether swapping slows a model that was adopted; one
// brings back a model that a dead worker held (node/models/refill.hpp). At most one is under way.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "node/events.hpp"
#include "node/models/trial_queue.hpp"
#include "node/requests/held_request.hpp"

namespace troupe::node {

struct Parts;

class Trials {
 public:
  explicit Trials(Parts& parts) : parts_(parts) {}

  // The model's cost is measured when the node is idle, on each kind of its GPUs on which it is not known.
  void Await(const ModelNumber& copy);
  // Begins the next one, if the node is idle: what comes meanwhile waits for one run at most.
  void Begin();
  // A trial that brings a lost model back. False: its function cannot be called with zeros.
  bool BeginRefill(const ModelNumber& copy, const proto::FunctionRecord& function);
  [[nodiscard]] bool busy() const { return queue_.busy(); }
  // A request has come: it is not to wait for a trial that has not begun to compute.
  void Stop();
  void Ended(const Finished& finished, const HeldRequest& held);

 private:
  // How the model is to be tried: once for each kind, but for models of runtimes that serve one key, for which no GPU can be
  // named.
  [[nodiscard]] std::vector<TrialQueue::Trial> TrialsOf(const ModelNumber& copy) const;
  [[nodiscard]] bool Measured(const TrialQueue::Trial& trial) const;
  // The GPU for it; nothing: none can serve it now.
  [[nodiscard]] std::optional<std::uint32_t> DeviceFor(const TrialQueue::Trial& trial) const;
  // `device`: kNoGpu for any.
  bool Run(const ModelNumber& copy, const proto::FunctionRecord& function, std::uint32_t device, bool refill);

  Parts& parts_;
  TrialQueue queue_;
  TrialQueue::Trial current_{};  // while one of the queue is under way
};

}  // namespace troupe::node
