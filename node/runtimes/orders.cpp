#include "node/runtimes/orders.hpp"

#include <utility>
#include <variant>

#include "node/parts.hpp"

namespace troupe::node {

namespace {

// Tells the part that gave an order what it came to.
struct Teller {
  Parts& parts;
  proto::WorkerOutcome& outcome;

  void operator()(const NoPurpose&) const {}
  void operator()(const RunOrdered& purpose) const { parts.dispatches.On(purpose, outcome); }
  void operator()(const SwapInOrdered& purpose) const { parts.swaps.On(purpose, outcome); }
  void operator()(const PinOrdered& purpose) const { parts.peer_copies.On(purpose, outcome); }
  void operator()(const EvictionOrdered& purpose) const { parts.evictions.On(purpose, outcome); }
  void operator()(const PrepareOrdered& purpose) const { parts.preparation.On(purpose, outcome); }
  void operator()(const OrphanEvicted& purpose) const { parts.orphans.On(purpose, outcome); }
  void operator()(const FaultOrdered& purpose) const { parts.runtimes.On(purpose, outcome); }
  void operator()(const TensorExported& purpose) const { parts.kept_tensors.On(purpose, outcome); }
  void operator()(const TensorPinned& purpose) const { parts.tensor_copies.On(purpose, outcome); }
  void operator()(const TensorPulled& purpose) const { parts.tensor_copies.On(purpose, outcome); }
  void operator()(const WriteBackPurpose& purpose) const { parts.write_backs.On(purpose, outcome); }
};

}  // namespace

std::uint64_t Orders::Give(GpuIndex gpu, proto::WorkerOrder order, OrderPurpose purpose) {
  const auto sequence = Number();
  order.set_sequence(sequence);
  if (!std::holds_alternative<NoPurpose>(purpose)) open_[sequence].purpose = std::move(purpose);
  parts_.out.Add(GiveOrder{gpu, std::move(order)});
  return sequence;
}

std::uint64_t Orders::GiveFor(const ModelNumber& model, GpuIndex gpu, proto::WorkerOrder order,
                              OrderPurpose purpose) {
  const bool reads = !order.has_evict() && !order.has_write_back();
  parts_.models.BeginUse(model, reads);
  const auto sequence = Give(gpu, std::move(order), std::move(purpose));
  auto& open = open_[sequence];
  open.model = model;
  open.reads = reads;
  return sequence;
}

void Orders::On(OrderAnswered& event) {
  const auto it = open_.find(event.outcome.sequence());
  if (it == open_.end()) return;
  const auto answered = std::move(it->second);
  open_.erase(it);
  std::visit(Teller{parts_, event.outcome}, answered.purpose);
  // Behind that: the outcome may lead to an order to evict the model, while its name has to be known.
  if (answered.model) parts_.models.EndUse(answered.model, answered.reads);
}

}  // namespace troupe::node
