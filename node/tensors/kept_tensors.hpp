// KEPT TENSORS: outputs of answered requests that stayed with the workers of this node, until their router has released
// them: which worker has which, who may read it, and how other processes come to its bytes (004 StreamBox, section 6.1).
//
//   a run is ordered (Number) -> it is answered (Enter) -> read by runs, and exported -> released (Forget)
//                                                       -> its worker is lost: it is lost
//
// The number of a tensor is its identity at the node and at the worker. A reader that names one which is not here, or is
// another daemon's, learns that it is lost: the workflow that has the reference computes it anew.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "node/events.hpp"
#include "node/requests/held_request.hpp"
#include "node/runtimes/order_purposes.hpp"
#include "node/tensors/input_placement.hpp"
#include "proto/worker.pb.h"

namespace troupe::node {

struct Parts;

class KeptTensors {
 public:
  explicit KeptTensors(Parts& parts) : parts_(parts) {}

  void On(const ExportAsked& event);
  void On(const TensorExported& purpose, const proto::WorkerOutcome& outcome);
  void On(const RuntimeLost& event) { ForgetOf(event.gpu); }
  void On(const RuntimeReassigned& event) { ForgetOf(event.gpu); }

  // What a run is to keep gets its numbers.
  void Number(const proto::SubmitRequest& request, proto::RunOrder& order);
  // The outputs of this reply that its worker keeps: they are known from now on, and named for readers.
  void Enter(GpuIndex gpu, proto::InferReply& reply);
  void Forget(const proto::ReleaseOrder& released);
  [[nodiscard]] std::size_t size() const { return tensors_.size(); }

  // --- inputs of requests ---
  [[nodiscard]] static bool Some(const Tensors& inputs);
  // The names of the inputs that are kept tensors and are not here (any more).
  [[nodiscard]] std::vector<std::string> Lost(const Tensors& inputs) const;
  // The GPU on which the request is to run and reads its inputs: the one that its router has named, or the best one of those
  // that keep some; nothing: another one may run it.
  [[nodiscard]] std::optional<std::uint32_t> Place(const Tensors& inputs, const NodeRequest& request) const;
  // It is on the GPU (nothing: of none is that said).
  [[nodiscard]] bool IsOn(const proto::KeptTensor& tensor, std::optional<std::uint32_t> device) const;
  // Has those inputs exported that are not on `device` (nothing: all of them): how many. Each becomes an input in the
  // arena of its worker (Requests::InputExported).
  std::size_t ExportInputs(const RequestId& id, const Tensors& inputs, std::optional<std::uint32_t> device);

 private:
  // The GPUs that may run the request.
  [[nodiscard]] std::vector<InputOffer> Offers(const Tensors& inputs, const NodeRequest& request) const;
  // Null: it is not here.
  [[nodiscard]] const GpuIndex* Find(const proto::KeptTensor& tensor) const;
  void Order(const proto::KeptTensor& tensor, GpuIndex gpu, TensorExported purpose);
  void ForgetOf(GpuIndex gpu) {
    std::erase_if(tensors_, [gpu](const auto& tensor) { return tensor.second == gpu; });
  }
  void Close(std::uint64_t question);

  Parts& parts_;
  std::map<std::uint64_t, GpuIndex> tensors_;  // by number: the runtime whose worker has it
  // Questions of routers whose exports are under way.
  struct Question {
    Ask ask = 0;
    std::size_t open = 0;
    proto::ExportedTensors answer{};
  };
  std::map<std::uint64_t, Question> questions_;
  std::uint64_t next_question_ = 1;
  std::uint64_t next_number_ = 1;
};

}  // namespace troupe::node
