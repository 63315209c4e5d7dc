// PEER COPIES: models that come from another GPU of this node. The worker of that GPU pins the model from its
// answer to the Pin order until the Unpin order; in between the destination copies it. Every pin is
// released once, however the copy ended.
#pragma once

#include "node/models/peer_copy_table.hpp"
#include "node/runtimes/order_purposes.hpp"

namespace troupe::node {

struct Parts;

class PeerCopies {
 public:
  explicit PeerCopies(Parts& parts) : parts_(parts) {}

  void On(const PinOrdered& purpose, const proto::WorkerOutcome& outcome);
  void On(const RuntimeLost& event);

  void Begin(const HeldStart& start);
  // The start goes on when the source of its model's copy has answered. False: none is asked for.
  [[nodiscard]] bool Await(const HeldStart& start);
  // The copy, if it is one, has ended.
  void End(PeerCopyTable::Ticket ticket);

 private:
  void Release(GpuIndex source, std::uint64_t pin);

  Parts& parts_;
  PeerCopyTable copies_;
};

}  // namespace troupe::node
