#include "node/tensors/tensor_copies.hpp"

#include <utility>

#include "node/parts.hpp"
#include "node/runtimes/worker_orders.hpp"

namespace troupe::node {

namespace {

TensorCopyKey KeyOf(const proto::KeptTensor& part, GpuIndex gpu) {
  return {.tensor = part.number(), .offset = part.offset(), .length = part.length(), .gpu = gpu};
}

proto::WorkerOrder ReleaseOf(std::uint64_t number) {
  proto::WorkerOrder order;
  order.mutable_release()->add_kept(number);
  return order;
}

}  // namespace

std::optional<BytesPerSecond> TensorCopies::Link(std::uint32_t from, std::uint32_t to) const {
  if (parts_.settings.scheduler.isolated || !parts_.runtimes.Up(to) ||
      !parts_.scheduler.gpus().at(to).peer_copies)
    return std::nullopt;
  return parts_.settings.topology.PeerLink(from, to);
}

proto::KeptTensor TensorCopies::PlaceOf(const Copy& copy) const {
  auto place = copy.part;
  place.set_number(copy.number);
  place.set_offset(0);
  return place;
}

std::optional<proto::KeptTensor> TensorCopies::Find(const proto::KeptTensor& part, GpuIndex gpu) const {
  const auto it = copies_.find(KeyOf(part, gpu));
  if (it == copies_.end() || it->second.number == 0) return std::nullopt;
  return PlaceOf(it->second);
}

void TensorCopies::Bring(const proto::KeptTensor& part, GpuIndex from, GpuIndex to,
                         const TensorExported& reader) {
  const auto key = KeyOf(part, to);
  auto& copy = copies_[key];
  copy.readers.push_back(reader);
  if (copy.readers.size() > 1) return;  // it is on its way
  copy.part = part;
  copy.from = from;
  proto::WorkerOrder order;
  *order.mutable_pin()->mutable_tensor() = part;
  parts_.orders.Give(from, std::move(order), TensorPinned{key});
}

void TensorCopies::On(const TensorPinned& purpose, const proto::WorkerOutcome& outcome) {
  const auto& copy = copies_.at(purpose.key);
  const auto pin = outcome.pin().pin();
  if (pin == 0) return ExportInstead(purpose.key);
  if (!parts_.runtimes.Up(purpose.key.gpu)) {
    Unpin(copy.from, pin);
    return ExportInstead(purpose.key);
  }
  proto::WorkerOrder order;
  auto& pull = *order.mutable_pull();
  const auto number = parts_.kept_tensors.NextNumber();
  pull.set_number(number);
  pull.set_length(copy.part.length());
  pull.set_from_gpu(parts_.settings.DeviceOf(copy.from));
  *pull.mutable_pinned() = outcome.pin().memory();
  pull.set_meter(parts_.kept_tensors.PayerOf(copy.part.number()));
  parts_.orders.Give(purpose.key.gpu, std::move(order),
                     TensorPulled{.key = purpose.key, .pin = pin, .number = number});
}

void TensorCopies::On(const TensorPulled& purpose, const proto::WorkerOutcome& outcome) {
  const auto it = copies_.find(purpose.key);
  auto& copy = it->second;
  Unpin(copy.from, purpose.pin);
  const bool there = StatusOf(outcome).ok() && parts_.runtimes.Up(purpose.key.gpu);
  if (there && !parts_.kept_tensors.Keeps(purpose.key.tensor))
    parts_.orders.Give(purpose.key.gpu, ReleaseOf(purpose.number));
  if (!there || !parts_.kept_tensors.Keeps(purpose.key.tensor)) return ExportInstead(purpose.key);
  copy.number = purpose.number;
  parts_.kept_tensors.EnterCopy(copy.number, purpose.key.gpu,
                                parts_.kept_tensors.PayerOf(purpose.key.tensor));
  proto::TensorRef place;
  *place.mutable_kept() = PlaceOf(copy);
  // What they lead to may ask for copies.
  for (const auto& reader : std::exchange(copy.readers, {}))
    parts_.requests.InputExported(reader.request, reader.index, absl::OkStatus(), place);
}

void TensorCopies::Unpin(GpuIndex gpu, std::uint64_t pin) {
  if (parts_.runtimes.Up(gpu)) parts_.orders.Give(gpu, UnpinOrderFor(pin));
}

void TensorCopies::ExportInstead(const TensorCopyKey& key) {
  const auto copy = copies_.extract(key).mapped();
  for (const auto& reader : copy.readers) parts_.kept_tensors.Export(copy.part, reader);
}

void TensorCopies::Drop(Copies::const_iterator it) {
  parts_.kept_tensors.ForgetCopy(it->second.number);
  if (parts_.runtimes.Up(it->first.gpu)) parts_.orders.Give(it->first.gpu, ReleaseOf(it->second.number));
  copies_.erase(it);
}

void TensorCopies::Forget(std::uint64_t tensor) {
  for (auto it = copies_.lower_bound({.tensor = tensor});
       it != copies_.end() && it->first.tensor == tensor;) {
    const auto copy = it++;
    if (copy->second.number != 0) Drop(copy);  // else as soon as it has come
  }
}

void TensorCopies::On(const RuntimeLost& event) {
  for (auto it = copies_.begin(); it != copies_.end();) {
    const auto copy = it++;
    if (copy->second.number == 0) continue;  // its order is answered
    if (copy->first.gpu == event.gpu) {
      copies_.erase(copy);
    } else if (copy->second.from == event.gpu) {
      Drop(copy);
    }
  }
}

}  // namespace troupe::node
