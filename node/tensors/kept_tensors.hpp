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
#include <set>
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
  // `payer` pays for copies of them: the function that computed them, as in ExportOrder.meter.
  void Enter(GpuIndex gpu, const std::string& payer, proto::InferReply& reply);
  void Forget(const proto::ReleaseOrder& released);
  [[nodiscard]] std::size_t size() const { return tensors_.size(); }

  // A number that no other tensor has.
  [[nodiscard]] std::uint64_t NextNumber() { return next_number_++; }
  [[nodiscard]] bool Keeps(std::uint64_t number) const { return tensors_.contains(number); }
  // Of copies on other GPUs (TensorCopies).
  void EnterCopy(std::uint64_t number, GpuIndex gpu, const std::string& payer) {
    tensors_[number] = {gpu, payer};
  }
  void ForgetCopy(std::uint64_t number) { tensors_.erase(number); }
  // Who pays for copies of it; empty when it is not here.
  [[nodiscard]] std::string PayerOf(std::uint64_t number) const;

  // --- inputs of requests ---
  [[nodiscard]] static bool Some(const Tensors& inputs);
  [[nodiscard]] bool Keeps(const proto::KeptTensor& tensor) const { return Find(tensor) != nullptr; }
  // The GPU on which the request is to run and reads its inputs: the one that its router has named, or the best one of those
  // that keep some; nothing: another one may run it.
  [[nodiscard]] std::optional<std::uint32_t> Place(const Tensors& inputs, const NodeRequest& request) const;
  // It is on the GPU (nothing: of none is that said).
  [[nodiscard]] bool IsOn(const proto::KeptTensor& tensor, std::optional<std::uint32_t> device) const;
  // Inputs that have a copy on the device become that copy.
  void UseCopies(Tensors& inputs, std::uint32_t device) const;
  // Has those inputs brought that are not on `device` (nothing: all of them): how many. Each becomes a copy on the device, if
  // a link leads there, else an input in the arena of its worker (Requests::InputExported).
  std::size_t BringInputs(const RequestId& id, const Tensors& inputs, std::optional<std::uint32_t> device);
  // The names of the request's inputs that are lost. An input is lost when this node does not keep it any more, or when it was
  // exported and the request's worker could not read it (`unread`).
  [[nodiscard]] std::set<std::string> LostInputs(const HeldRequest& held, bool unread) const;
  // To the arena of its worker, for this reader.
  void Export(const proto::KeptTensor& tensor, const TensorExported& reader);

 private:
  // The GPUs that may run the request.
  [[nodiscard]] std::vector<InputOffer> Offers(const Tensors& inputs, const NodeRequest& request) const;
  void AddInput(const proto::KeptTensor& input, double nanos_per_byte, std::vector<InputOffer>& offers) const;
  // Of the model's own link to the host, as far as it is known.
  [[nodiscard]] double NanosPerByte(const ModelNumber& model) const;
  struct Kept {
    GpuIndex gpu = 0;   // the runtime whose worker has it
    std::string payer;  // as in ExportOrder.meter
  };
  // Null: it is not here.
  [[nodiscard]] const Kept* Find(const proto::KeptTensor& tensor) const;
  void Order(const proto::KeptTensor& tensor, const Kept& kept, TensorExported purpose);
  void ForgetOf(GpuIndex gpu) {
    std::erase_if(tensors_, [gpu](const auto& tensor) { return tensor.second.gpu == gpu; });
  }
  void Close(std::uint64_t question);

  Parts& parts_;
  std::map<std::uint64_t, Kept> tensors_;  // by number
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
