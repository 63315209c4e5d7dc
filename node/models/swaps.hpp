// SWAPS: how models come onto GPUs: from the host region, or from another GPU, for a request or ahead of it.
#pragma once

#include "node/models/peer_copy_table.hpp"
#include "node/models/swap_log.hpp"
#include "node/runtimes/order_purposes.hpp"

namespace troupe::node {

struct Parts;

// The way that weights take which do not come from the host.
struct SwapWay {
  const proto::PinOutcome* pinned = nullptr;    // at the GPU that they are copied from
  PeerCopyTable::Ticket copy = 0;               // of that copy
  const proto::Broadcast* broadcast = nullptr;  // as they come to another GPU
};

class Swaps {
 public:
  explicit Swaps(Parts& parts) : parts_(parts) {}

  void Order(const HeldStart& start, const SwapWay& way = {});
  // A model that no request waits for yet: when what is evicted on its GPU is gone.
  void Prefetch(const Dispatch& dispatch);
  // It is ordered now.
  void Bring(const Dispatch& dispatch);
  // It does not come: what was kept for it is free.
  [[nodiscard]] Consequences NotBrought(const Dispatch& dispatch, const absl::Status& why);
  void On(const SwapInOrdered& purpose, const proto::WorkerOutcome& outcome);
  // The model has come, or not; `source`: from where.
  void Ended(const HeldStart& start, ModelWas source, const proto::WorkerOutcome& outcome);
  void NoteVictims(const Dispatch& dispatch);
  [[nodiscard]] SwapLog& log() { return log_; }
  [[nodiscard]] const SwapLog& log() const { return log_; }

 private:
  void Note(GpuIndex gpu, SwapDone swap);

  Parts& parts_;
  SwapLog log_;
};

}  // namespace troupe::node
