// The node controller: whether swapping slows a model is measured when it has been adopted, by runs of zeros.
#include "actors/node/node_controller_actor.hpp"
#include "proto/element_size.hpp"

namespace troupe::actors {

namespace {

constexpr Duration kTrialTimeout = std::chrono::seconds(10);
constexpr std::uint64_t kNobody = 0;  // routers draw their numbers, and never this one
constexpr std::uint32_t kLeastUrgent = ~std::uint32_t{0};
// A trial is not worth more of what this process may send.
constexpr std::size_t kMostInput = std::size_t{16} << 20;

}  // namespace

void NodeController::AwaitTrial(const std::string& digest) {
  if (!options_.trials || scheduler_.costs().Measured(node::DigestOf(digest))) return;
  if (!models_.Find(digest)->function.state().empty()) return;  // a run of zeros is none of a state's runs
  trials_.Push(digest);
}

// Only on an idle node: what comes meanwhile waits for one run at most.
void NodeController::Try() {
  if (!scheduler_.idle() || scheduler_.draining() || trials_.busy()) return;
  while (const auto digest = trials_.Begin()) {
    const auto* model = models_.Find(*digest);
    // No runtime is assigned for a trial, nor taken from whom it serves: it comes when one is, for a request.
    const bool served = scheduler_.gpus().Served(node::KeyOf(*digest), std::nullopt);
    const bool wanted = model != nullptr && model->adopted && served && copies_.Usable(*digest) &&
                        !scheduler_.costs().Measured(node::DigestOf(*digest));
    if (wanted && StartTrial(*digest, model->function)) return;
    trials_.End();
    trials_.Remove(*digest);
  }
}

// False when the function cannot be called with zeros.
bool NodeController::StartTrial(const std::string& digest, const proto::FunctionRecord& function,
                                bool refill) {
  proto::SubmitRequest message;
  const node::RequestId id{kNobody, next_serial_++};
  message.mutable_id()->set_sequence(id.sequence);
  *message.mutable_function() = function.key();
  message.set_model_digest(digest);
  message.set_priority(kLeastUrgent);
  const auto prepared = PrepareOrderFor(function, {});
  for (const auto& spec : prepared.prepare().inputs()) {
    if (!AddZeros(spec, message)) {
      FreeZeros(message);
      return false;
    }
  }
  auto& held = requests_[id];
  held.trial = true;
  held.refill = refill;
  held.message = std::move(message);
  held.expiry = Now(this) + kTrialTimeout;
  Schedule({.id = id,
            .function = function.key().name(),
            .model = digest,
            .priority = kLeastUrgent,
            .expiry = held.expiry,
            .trial = true});
  return true;
}

bool NodeController::AddZeros(const proto::TensorSpec& spec, proto::SubmitRequest& message) {
  std::size_t bytes = proto::ElementSize(spec.type());
  for (const auto size : spec.shape()) {
    if (size < 0 || (size > 0 && bytes > kMostInput / static_cast<std::size_t>(size))) return false;
    bytes *= static_cast<std::size_t>(size);
  }
  if (proto::ElementSize(spec.type()) == 0) return false;  // strings
  auto& input = *message.add_inputs();
  *input.mutable_spec() = spec;
  if (bytes <= transport::kInlineLimit.count()) {
    input.mutable_data()->set_inlined(std::string(bytes, 0));
    return true;
  }
  if (options_.channel == nullptr) return false;
  const std::vector<std::byte> zeros(bytes);
  auto placed = options_.channel->Put(zeros, spec.name());
  if (!placed.ok()) return false;
  *input.mutable_data() = *std::move(placed);
  return true;
}

void NodeController::FreeZeros(const proto::SubmitRequest& message) {
  for (const auto& input : message.inputs())
    if (input.data().has_arena()) options_.channel->Release(input.data()).IgnoreError();
}

// A request has come: it is not to wait for a trial that has not begun to compute.
void NodeController::StopTrial() {
  if (!trials_.busy()) return;
  const auto trial = requests_.lower_bound({kNobody, 0});
  if (trial == requests_.end() || !trial->second.trial) return;
  const auto id = trial->first;
  const auto cancelled = scheduler_.Cancel(id);
  if (cancelled.verdict == node::CancelVerdict::kCancelled) Finish(cancelled.finished);
  if (cancelled.verdict == node::CancelVerdict::kInFlight) CancelAtWorker(cancelled.gpu, id);
}

void NodeController::EndTrial(const node::Finished& finished, const HeldRequest& held) {
  if (finished.gpu != node::kNoGpu) ReleaseSlices(finished.gpu, UnsentSlices(held.run, proto::InferReply()));
  FreeZeros(held.message);
  trials_.End();
  const auto& digest = held.message.model_digest();
  if (held.refill) {
    // A request came before it was on its way.
    const bool stopped = finished.kind == node::FinishKind::kCancelled;
    if (stopped && scheduler_.HolderCount(digest) == 0)
      AddLost(digest, scheduler_.WeightsOf(digest), Now(this));
    return;
  }
  // A model that fails on zeros fails again.
  if (finished.kind == node::FinishKind::kFailed || scheduler_.costs().Measured(node::DigestOf(digest)))
    trials_.Remove(digest);
}

}  // namespace troupe::actors
