// REQUESTS: the requests that are at this node, and the outputs of answered requests that were not read yet.
//
//   arrived -(its inputs are on this host)-> scheduled -> finished: exactly one answer
//   arrived -(its inputs are elsewhere)-> awaits inputs -> scheduled, or finished
//   arrived -(its inputs were kept, and are lost)-> finished: DATA_LOSS, with their names
//
// The scheduler orders them (node/scheduling/swap_scheduler.hpp); this part keeps what only the answer needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "node/events.hpp"
#include "node/models/demand_count.hpp"
#include "node/requests/held_request.hpp"
#include "node/requests/scaled_runs.hpp"
#include "node/requests/unread_outputs.hpp"

namespace troupe::node {

struct Parts;

class Requests {
 public:
  explicit Requests(Parts& parts) : parts_(parts) {}

  void On(RequestArrived& event);
  void On(InputsArrived& event);
  void On(const RequestCancelled& event);
  void On(const OutputsRead& event) { Released(event.id); }
  void On(const RouterSaidHello& event);
  void On(const RouterLost& event);
  // Outcomes of the worker that is gone come later: they find no dispatch any more.
  void On(const RuntimeLost& event) { Void(event.gpu); }
  void On(const RuntimeReassigned& event) { Void(event.gpu); }

  // An input that another GPU of this node, or another worker, keeps has come to an arena; or why it has not.
  void InputExported(const RequestId& id, int index, const absl::Status& status,
                     const proto::TensorRef& place);
  // The node's own request, which has no question: it is scheduled at once, or when its zeros lie in the
  // arena.
  HeldRequest& HoldTrial(const RequestId& id, const ModelNumber& copy);
  void AwaitZeros(const NodeRequest& request);
  void Schedule(const NodeRequest& request);
  void Finish(const Finished& finished);
  // The request waits for nothing any more, wherever it is.
  void Cancel(const RequestId& id);
  // Cancels its run, unless that answers others that still want an answer.
  void CancelAtWorker(GpuIndex gpu, const RequestId& id);
  // Frees outputs in the memory of the runtime's worker, if it is up.
  void ReleaseSlices(GpuIndex gpu, const proto::ReleaseOrder& slices);

  // The request, if `serial` is still its dispatch. Null: its worker was lost, or it has ended.
  [[nodiscard]] HeldRequest* Current(const RequestId& id, std::uint64_t serial);
  [[nodiscard]] HeldRequest* Find(const RequestId& id);
  [[nodiscard]] const std::map<RequestId, HeldRequest>& all() const { return requests_; }
  [[nodiscard]] std::size_t awaiting_inputs() const { return awaiting_inputs_; }
  [[nodiscard]] std::uint64_t NextSerial() { return next_serial_++; }
  [[nodiscard]] DemandCount& demand() { return demand_; }
  [[nodiscard]] ScaledRuns& scaled_runs() { return scaled_runs_; }

 private:
  void Bounce(Ask ask, proto::BounceReason reason, const std::string& message);
  [[nodiscard]] BatchTerms TermsOf(const proto::FunctionRecord& function, const proto::SubmitRequest& message,
                                   const ModelNumber& copy) const;
  [[nodiscard]] bool MayEnter(const RequestArrived& event, const RequestId& id, bool has_state);
  void Enter(HeldRequest& held, NodeRequest request);
  void BringOrSchedule(HeldRequest& held, const NodeRequest& request);
  [[nodiscard]] Finished Judge(const Finished& finished, const HeldRequest& held) const;
  void Answer(const Finished& finished, HeldRequest& held);
  // The outputs of the request are read, or are not wanted: those that it has given, or will give.
  void Released(const RequestId& id);
  // Outputs that the answer refers to, until its router has read them.
  void KeepUnread(const Finished& finished, const HeldRequest& held, UnreadSlices unread);
  // What happened to the request beside its times.
  void Tell(const Finished& finished, const HeldRequest& held, proto::RunStory& story) const;
  void Void(GpuIndex gpu);
  [[nodiscard]] bool AllCancelled(const HeldRequest& leader) const;

  Parts& parts_;
  std::map<RequestId, HeldRequest> requests_;
  UnreadOutputs unread_;
  DemandCount demand_;
  ScaledRuns scaled_runs_;
  std::size_t awaiting_inputs_ = 0;  // of requests_
  std::uint64_t next_serial_ = 1;
};

}  // namespace troupe::node
