#include "node/tensors/kept_tensors.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/wire_status.hpp"
#include "node/parts.hpp"
#include "node/requests/own_requests.hpp"
#include "node/runtimes/worker_orders.hpp"

namespace troupe::node {

void KeptTensors::Number(const proto::SubmitRequest& request, proto::RunOrder& order) {
  for (const auto& name : request.keep()) {
    auto& keep = *order.add_keep();
    keep.set_output(name);
    keep.set_number(next_number_++);
  }
}

void KeptTensors::Enter(GpuIndex gpu, const std::string& payer, proto::InferReply& reply) {
  for (auto& output : *reply.mutable_outputs()) {
    if (!output.data().has_kept()) continue;
    auto& kept = *output.mutable_data()->mutable_kept();
    kept.set_node(parts_.settings.name);
    kept.set_daemon(parts_.settings.incarnation);
    tensors_[kept.number()] = {gpu, payer};
  }
}

void KeptTensors::Forget(const proto::ReleaseOrder& released) {
  for (const auto number : released.kept()) {
    tensors_.erase(number);
    parts_.tensor_copies.Forget(number);
  }
}

std::string KeptTensors::PayerOf(std::uint64_t number) const {
  const auto it = tensors_.find(number);
  return it == tensors_.end() ? std::string() : it->second.payer;
}

const KeptTensors::Kept* KeptTensors::Find(const proto::KeptTensor& tensor) const {
  if (tensor.node() != parts_.settings.name || tensor.daemon() != parts_.settings.incarnation) return nullptr;
  const auto it = tensors_.find(tensor.number());
  return it == tensors_.end() ? nullptr : &it->second;
}

bool KeptTensors::Some(const Tensors& inputs) {
  return std::ranges::any_of(inputs, [](const proto::Tensor& input) { return input.data().has_kept(); });
}

std::optional<std::uint32_t> KeptTensors::Place(const Tensors& inputs, const NodeRequest& request) const {
  // Isolated runtimes read nothing of each other's memory, and a state says itself where its function runs.
  if (parts_.settings.scheduler.isolated || request.state) return std::nullopt;
  auto offers = Offers(inputs, request);
  if (request.named != kNoGpu) {
    // A function that owns parts of GPUs runs there, whatever its router has named.
    const bool obeys =
        std::ranges::any_of(offers, [&](const InputOffer& offer) { return offer.device == request.named; });
    return obeys ? std::optional(request.named) : std::nullopt;
  }
  return ChooseForInputs(offers);
}

double KeptTensors::NanosPerByte(const ModelNumber& model) const {
  double nanos_per_byte = 0;
  for (KindId kind = 0; kind < parts_.scheduler.kinds(); ++kind) {
    const auto estimate = parts_.scheduler.EstimateOf(model, kind);
    if (estimate.weights > Bytes(0))
      nanos_per_byte = std::max(nanos_per_byte, static_cast<double>(estimate.load.count()) /
                                                    static_cast<double>(estimate.weights.count()));
  }
  return nanos_per_byte;
}

void KeptTensors::AddInput(const proto::KeptTensor& input, double nanos_per_byte,
                           std::vector<InputOffer>& offers) const {
  const auto* holder = Find(input);
  if (holder == nullptr) return;
  const auto from = parts_.settings.DeviceOf(holder->gpu);
  const auto bytes = static_cast<double>(input.length());
  for (auto& offer : offers) {
    if (offer.device == from || parts_.tensor_copies.Find(input, offer.device)) {
      offer.kept += Bytes(input.length());
      continue;
    }
    const auto link = parts_.tensor_copies.Link(from, offer.device);
    offer.linked &= link.has_value();
    // Without a link of their own it passes both links to the host, out and in.
    offer.move +=
        Duration(static_cast<Duration::rep>(link ? 1e9 * bytes / link->value : 2 * bytes * nanos_per_byte));
  }
}

std::vector<InputOffer> KeptTensors::Offers(const Tensors& inputs, const NodeRequest& request) const {
  std::vector<InputOffer> offers(parts_.settings.gpus.size());
  bool owns = false;
  const auto owned = [&](std::uint32_t device) {
    return parts_.scheduler.OwnedOn(request.function, request.model, device) != nullptr;
  };
  for (std::uint32_t device = 0; device < offers.size(); ++device) {
    const auto& gpu = parts_.scheduler.gpus().at(device);
    auto& offer = offers[device];
    offer.device = device;
    offer.wait = parts_.scheduler.OthersOn(device, kNoRouter, parts_.out.now()).left;
    if (parts_.scheduler.FindResident(device, request.model) == nullptr)
      offer.swap = parts_.scheduler.EstimateOf(request.model, gpu.kind).load;
    owns |= owned(device);
  }
  const auto nanos_per_byte = NanosPerByte(request.model);
  for (const auto& input : inputs)
    if (input.data().has_kept()) AddInput(input.data().kept(), nanos_per_byte, offers);
  std::erase_if(offers, [&](const InputOffer& offer) {
    return !parts_.runtimes.Up(offer.device) || (owns && !owned(offer.device));
  });
  return offers;
}

bool KeptTensors::IsOn(const proto::KeptTensor& tensor, std::optional<std::uint32_t> device) const {
  const auto* holder = Find(tensor);
  return device && holder != nullptr && parts_.settings.DeviceOf(holder->gpu) == *device;
}

std::set<std::string> KeptTensors::LostInputs(const HeldRequest& held, bool unread) const {
  std::set<std::string> lost;
  for (int i = 0; i < held.message.inputs_size(); ++i) {
    const auto& input = held.message.inputs(i);
    const auto elsewhere = held.kept_elsewhere.find(i);
    const bool brought = elsewhere != held.kept_elsewhere.end();
    const bool exported = brought && !input.data().has_kept();
    const auto& named = brought ? elsewhere->second : input.data().kept();
    const bool kept = exported || !input.data().has_kept() || Keeps(named);
    if (!kept || (exported && unread)) lost.insert(input.spec().name());
  }
  return lost;
}

// --- exports ---

void KeptTensors::Order(const proto::KeptTensor& tensor, const Kept& kept, TensorExported purpose) {
  proto::WorkerOrder order;
  *order.mutable_export_tensor()->mutable_tensor() = tensor;
  order.mutable_export_tensor()->set_meter(kept.payer);
  parts_.orders.Give(kept.gpu, std::move(order), OrderPurpose(purpose));
}

void KeptTensors::UseCopies(Tensors& inputs, std::uint32_t device) const {
  for (auto& input : inputs) {
    if (!input.data().has_kept() || IsOn(input.data().kept(), device)) continue;
    if (const auto copy = parts_.tensor_copies.Find(input.data().kept(), device))
      *input.mutable_data()->mutable_kept() = *copy;
  }
}

std::size_t KeptTensors::BringInputs(const RequestId& id, const Tensors& inputs,
                                     std::optional<std::uint32_t> device) {
  std::size_t ordered = 0;
  for (int i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].data().has_kept() || IsOn(inputs[i].data().kept(), device)) continue;
    const auto* holder = Find(inputs[i].data().kept());
    if (holder == nullptr) continue;
    const TensorExported reader{.request = id, .index = i};
    if (device && parts_.tensor_copies.Link(parts_.settings.DeviceOf(holder->gpu), *device)) {
      parts_.tensor_copies.Bring(inputs[i].data().kept(), holder->gpu, *device, reader);
    } else {
      Order(inputs[i].data().kept(), *holder, reader);
    }
    ++ordered;
  }
  return ordered;
}

void KeptTensors::Export(const proto::KeptTensor& tensor, const TensorExported& reader) {
  if (const auto* holder = Find(tensor)) return Order(tensor, *holder, reader);
  parts_.requests.InputExported(reader.request, reader.index,
                                absl::NotFoundError("it was released, or its worker was lost"), {});
}

void KeptTensors::On(const ExportAsked& event) {
  const auto number = next_question_++;
  auto& question = questions_[number];
  question.ask = event.ask;
  question.open = 1;
  for (int i = 0; i < event.wish.tensors_size(); ++i) {
    const auto& tensor = event.wish.tensors(i);
    question.answer.add_places();
    const auto* holder = Find(tensor);
    if (holder == nullptr) {
      SetStatus(absl::NotFoundError(absl::StrCat("node '", parts_.settings.name, "' keeps no tensor ",
                                                 tensor.number(), " of its daemon ", tensor.daemon(),
                                                 ": it was released, or its worker was lost")),
                question.answer);
      break;
    }
    ++question.open;
    Order(tensor, *holder, {.question = number, .index = i});
  }
  Close(number);
}

void KeptTensors::On(const TensorExported& purpose, const proto::WorkerOutcome& outcome) {
  auto status = StatusOf(outcome);
  if (status.ok() && !outcome.has_exported())
    status = absl::DataLossError("the worker does not say where it has put a tensor");
  // A worker that is gone has taken it along.
  if (absl::IsUnavailable(status)) status = absl::NotFoundError(status.message());
  if (purpose.question == 0) {
    proto::TensorRef place;
    if (status.ok()) *place.mutable_arena() = outcome.exported().place();
    return parts_.requests.InputExported(purpose.request, purpose.index, status, place);
  }
  auto& question = questions_.at(purpose.question);
  if (!status.ok()) {
    SetStatus(status, question.answer);
  } else {
    *question.answer.mutable_places(purpose.index)->mutable_arena() = outcome.exported().place();
  }
  Close(purpose.question);
}

void KeptTensors::Close(std::uint64_t number) {
  const auto it = questions_.find(number);
  if (--it->second.open > 0) return;
  parts_.out.Add(Answer<proto::ExportedTensors>{it->second.ask, std::move(it->second.answer)});
  questions_.erase(it);
}

}  // namespace troupe::node
