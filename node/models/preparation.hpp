// PREPARATION: plans of the declared shapes, which each worker makes ahead of the first request; and behind all
// of these the plans of functions whose requests may be joined, for two rows, four, and so on.
#pragma once

#include <vector>

#include "node/models/prepare_queue.hpp"
#include "node/runtimes/order_purposes.hpp"

namespace troupe::node {

struct Parts;

class Preparation {
 public:
  Preparation(Parts& parts, std::size_t runtimes) : parts_(parts), queues_(runtimes) {}

  void On(const PrepareOrdered& purpose, const proto::WorkerOutcome& outcome);
  // What was to be prepared there is prepared when another worker comes.
  void On(const RuntimeLost& event) { Forget(event.gpu); }
  void On(const RuntimeReassigned& event) { Forget(event.gpu); }
  // The model is given up: should it be held again, it is asked for anew once it is placed.
  void GivenUp(const ModelNumber& copy);
  // A worker came: the plans of all models that are in the host region are made.
  void WorkerUp(GpuIndex gpu);

  // On every runtime that serves the copy's key; AskMissing: unless its worker has made it. False: none is
  // up.
  bool AskAll(const ModelNumber& copy);
  void AskMissing(const ModelNumber& copy);

 private:
  bool Ask(GpuIndex gpu, const ModelNumber& copy);
  void OrderNext(GpuIndex gpu);
  void Prepared(const PrepareOrdered& purpose, const proto::WorkerOutcome& outcome);
  void PreparedBatch(const PrepareOrdered& purpose, const proto::WorkerOutcome& outcome);
  void AskBatch(GpuIndex gpu, const ModelNumber& copy, std::uint32_t rows);
  void Forget(GpuIndex gpu);

  Parts& parts_;
  std::vector<PrepareQueue> queues_;  // by runtime
};

}  // namespace troupe::node
