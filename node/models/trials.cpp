#include "node/models/trials.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "node/parts.hpp"
#include "node/requests/own_requests.hpp"
#include "node/runtimes/worker_orders.hpp"

namespace troupe::node {

namespace {

constexpr Duration kTrialTimeout = std::chrono::seconds(10);
// A trial is not worth more of what this process may send.
constexpr std::size_t kMostInput = std::size_t{16} << 20;

}  // namespace

void Trials::Await(const ModelNumber& copy) {
  if (parts_.settings.measure == MeasureRule::kRequests) return;
  // A trial runs on zeros, which must not become a run of a state.
  if (!parts_.models.Find(copy)->function.state().empty()) return;
  for (const auto& trial : TrialsOf(copy))
    if (!Measured(trial)) queue_.Push(trial);
}

std::vector<TrialQueue::Trial> Trials::TrialsOf(const ModelNumber& copy) const {
  const KindId kinds = parts_.scheduler.kinds();
  if (kinds < 2 || !copy->key.empty()) return {{copy, std::nullopt}};
  std::vector<TrialQueue::Trial> trials;
  for (KindId kind = 0; kind < kinds; ++kind) trials.push_back({copy, kind});
  return trials;
}

bool Trials::Measured(const TrialQueue::Trial& trial) const {
  const CostModel& costs = parts_.scheduler.costs();
  const std::string& model = trial.copy->digest.text();
  return trial.kind ? costs.MeasuredOn(model, *trial.kind) : costs.Measured(model);
}

std::optional<std::uint32_t> Trials::DeviceFor(const TrialQueue::Trial& trial) const {
  const auto& gpus = parts_.scheduler.gpus().gpus();
  // No runtime is assigned for a trial, nor taken from another key: it comes when one is, for a request.
  if (!trial.kind) return Served(gpus, trial.copy->key, std::nullopt) ? std::optional(kNoGpu) : std::nullopt;
  for (const auto& [index, gpu] : gpus)
    if (gpu.kind == *trial.kind && gpu.worker == WorkerState::kReady) return gpu.device;
  return std::nullopt;
}

void Trials::Begin() {
  if (!parts_.scheduler.idle() || parts_.scheduler.draining() || queue_.busy()) return;
  while (const auto trial = queue_.Begin()) {
    const auto* model = parts_.models.Find(trial->copy);
    const auto device = DeviceFor(*trial);
    const bool wanted = model != nullptr && model->adopted && device && parts_.copies.Usable(trial->copy) &&
                        !Measured(*trial);
    current_ = *trial;
    if (wanted && Run(trial->copy, model->function, *device, false)) return;
    queue_.End();
    queue_.Remove(*trial);
  }
}

bool Trials::BeginRefill(const ModelNumber& copy, const proto::FunctionRecord& function) {
  queue_.Occupy();
  if (Run(copy, function, kNoGpu, true)) return true;
  queue_.End();
  return false;
}

bool Trials::Run(const ModelNumber& copy, const proto::FunctionRecord& function, std::uint32_t device,
                 bool refill) {
  proto::SubmitRequest message;
  const RequestId id{kNoRouter, parts_.requests.NextSerial()};
  message.mutable_id()->set_sequence(id.sequence);
  *message.mutable_function() = function.key();
  message.set_model_digest(copy.text());
  message.set_priority(kLeastUrgent);
  const auto prepared = PrepareOrderFor(function, {});
  for (const auto& spec : prepared.prepare().inputs())
    if (!AddZeros(spec, kMostInput, *message.mutable_inputs())) return false;
  const bool in_arena = NeedArena(message.inputs());
  auto& held = parts_.requests.HoldTrial(id, copy);
  held.refill = refill;
  held.message = std::move(message);
  held.expiry = parts_.out.now() + kTrialTimeout;
  const NodeRequest request{.id = id,
                            .function = parts_.names.Function(function.key().name()),
                            .model = copy,
                            .priority = kLeastUrgent,
                            .expiry = held.expiry,
                            .trial = true,
                            .named = device};
  in_arena ? parts_.requests.AwaitZeros(request) : parts_.requests.Schedule(request);
  return true;
}

void Trials::Stop() {
  if (!queue_.busy()) return;
  const auto& requests = parts_.requests.all();
  const auto trial = std::find_if(requests.lower_bound({kNoRouter, 0}), requests.end(),
                                  [](const auto& one) { return !one.second.profiled; });
  if (trial == requests.end() || !trial->second.trial) return;
  parts_.requests.Cancel(RequestId(trial->first));
}

void Trials::Ended(const Finished& finished, const HeldRequest& held) {
  if (finished.gpu != kNoGpu)
    parts_.requests.ReleaseSlices(finished.gpu, UnsentSlices(held.run, proto::InferReply()));
  if (held.brought) parts_.out.Add(FreeZeros{held.message.inputs()});
  queue_.End();
  const auto& copy = held.trial;
  if (held.refill) {
    // A request came before it was on its way.
    const bool stopped = finished.kind == FinishKind::kCancelled;
    if (stopped && parts_.scheduler.HolderCount(copy) == 0) parts_.refill.Again(copy);
    return;
  }
  if (finished.kind == FinishKind::kFailed) return queue_.Remove(copy);  // on zeros it fails again
  if (Measured(current_)) queue_.Remove(current_);
}

}  // namespace troupe::node
