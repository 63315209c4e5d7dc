// DISPATCHES: the way of a dispatched request through its worker: its orders, and what becomes of their
// outcomes.
//
//   decided -> (waits for states that are written back there) -> started -> (waits for a copy from another
//   GPU) -> swap-in and run ordered -> ran -> (its state is written back) -> ended
//
// A dispatch has a serial number; when its worker is lost the request gets another one, and whatever still
// comes for the old one is dropped.
#pragma once

#include <cstdint>
#include <string>

#include "node/events.hpp"
#include "node/models/peer_copy_table.hpp"
#include "node/requests/held_request.hpp"
#include "node/runtimes/order_purposes.hpp"

namespace troupe::node {

struct Parts;

class Dispatches {
 public:
  explicit Dispatches(Parts& parts) : parts_(parts) {}

  void CarryOut(const Dispatch& dispatch);
  // What it evicts is on its way.
  void Start(const HeldStart& start);
  // Its model is there, or on its way, or comes from the host.
  void Go(const HeldStart& start);
  void OrderRun(const HeldStart& start);
  // Its orders are not given: the request is planned anew, when what this leads to is carried out.
  [[nodiscard]] Consequences TurnBack(const HeldStart& start, const absl::Status& why);
  void On(const RunOrdered& purpose, proto::WorkerOutcome& outcome);
  // The run's outcome is final: its state, if any, is safe.
  void End(const Dispatch& dispatch, HeldRequest& held, proto::WorkerOutcome outcome);
  // A run that went well ends as Unavailable, and does not count.
  void EndUnkept(const Dispatch& dispatch, HeldRequest& held, proto::WorkerOutcome run,
                 const std::string& why);

 private:
  // The request is given to the worker, with the run that `leader` leads.
  void Begin(const Dispatch& dispatch, const RequestId& leader, HeldRequest& request);
  void ShareOfOwner(const Dispatch& dispatch, const std::string& function, proto::RunOrder& run) const;
  void AsTrial(HeldRequest& held, proto::RunOrder& run) const;
  void NoteDispatch(const Dispatch& dispatch, HeldRequest& request);
  // What the run has had of a GPU is part of its model's load.
  void CountDemand(const Dispatch& dispatch, const HeldRequest& held, const proto::WorkerOutcome& outcome);
  // Gives each request of the dispatch its part of the outcome.
  void Divide(const Dispatch& dispatch, HeldRequest& leader, proto::WorkerOutcome outcome);
  void Ran(const HeldStart& start, proto::WorkerOutcome outcome);
  // Its model, or the state that it goes on with, was taken off this node before its orders could be given, or the weights
  // that it counted on do not come.
  [[nodiscard]] bool IsGone(const Dispatch& dispatch) const;
  void RunGone(const HeldStart& start);

  Parts& parts_;
};

}  // namespace troupe::node
