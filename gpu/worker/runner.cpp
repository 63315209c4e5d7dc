#include "gpu/worker/runner.hpp"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "base/status.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::gpu {

using transport::SteadyNow;

Runner::Runner(DeviceMemory& memory, TaskQueue& queue, Lanes lanes, const WorkerLimits& limits,
               Residency& residency, Preparer& preparer)
    : memory_(memory),
      queue_(queue),
      lanes_(lanes),
      limits_(limits),
      residency_(residency),
      preparer_(preparer),
      in_(memory.device().MakeStream()),
      compute_(memory.device().MakeStream()),
      out_(memory.device().MakeStream()) {}

Runner::~Runner() {
  // The streams first: what they still do uses the runs' memory.
  in_.reset();
  compute_.reset();
  out_.reset();
}

Run* Runner::Find(Id id) {
  const auto found = runs_.find(id);
  return found == runs_.end() ? nullptr : found->second.get();
}

std::unique_ptr<Run> Runner::Take(Id id) {
  std::unique_ptr<Run> run = std::move(runs_.extract(id).mapped());
  const auto found = by_sequence_.find(run->request.sequence);
  if (found != by_sequence_.end() && found->second == id) by_sequence_.erase(found);
  return run;
}

void Runner::Submit(RunRequest request, Reply reply) {
  if (waiting_.size() >= limits_.waiting_runs) {
    reply.Fail(
        absl::ResourceExhaustedError(absl::StrCat(waiting_.size(), " runs wait at this worker already")));
    return;
  }
  const Id id = next_++;
  if (!by_sequence_.emplace(request.sequence, id).second) {
    reply.Fail(
        absl::InvalidArgumentError(absl::StrCat("sequence ", request.sequence, " is that of another run")));
    return;
  }
  Run& run = *runs_.emplace(id, std::make_unique<Run>(std::move(request), std::move(reply))).first->second;
  waiting_.Add(id, run.request.order.priority(), run.Expires());
  if (const absl::Status status = Accept(id, run); !status.ok()) {
    GiveUp(id, status);
    return;
  }
  Advance();
}

absl::Status Runner::Accept(Id id, Run& run) {
  const std::string& digest = run.request.order.digest();
  if (residency_.table().StateOf(digest) == ModelTable::State::kAbsent) {
    return absl::NotFoundError(absl::StrCat("model ", digest, " is not on this device: swap it in first"));
  }
  TROUPE_RETURN_IF_ERROR(FindPlan(id, run));
  if (Find(id) != nullptr) FetchInputs(id, run);  // preparation may have been refused, and the run with it
  return absl::OkStatus();
}

absl::Status Runner::FindPlan(Id id, Run& run) {
  const proto::RunOrder& order = run.request.order;
  const std::string key = PlanKeyOf(order.digest(), InputSpecs(order));
  run.plan = preparer_.Find(key);
  if (run.plan != nullptr) return absl::OkStatus();
  const auto here = [this, id](const absl::StatusOr<std::shared_ptr<DevicePlan>>& plan) {
    PlanHere(id, plan);
  };
  if (preparer_.Preparing(key)) {
    preparer_.Await(key, here);
  } else if (run.request.host) {
    preparer_.Prepare(run.request.sequence, *run.request.host, InputSpecs(order), here);
  } else {
    return absl::FailedPreconditionError(
        absl::StrCat("model ", order.digest(),
                     " is not prepared for these input shapes: prepare it, or name its host "
                     "copy in the order"));
  }
  return absl::OkStatus();
}

void Runner::PlanHere(Id id, const absl::StatusOr<std::shared_ptr<DevicePlan>>& plan) {
  Run* run = Find(id);
  if (run == nullptr) return;
  if (!plan.ok()) {
    GiveUp(id, plan.status());
    return;
  }
  run->plan = *plan;
  Advance();
}

void Runner::FetchInputs(Id id, Run& run) {
  bool blocks = false;
  for (const proto::Tensor& tensor : run.request.order.inputs()) {
    const proto::ArenaRef& arena = tensor.data().arena();
    blocks |= tensor.data().has_arena() && !known_arenas_.contains({arena.socket(), arena.arena()});
  }
  // The order is read here only, and outlives the fetch: a run that is given up meanwhile leaves it to the
  // task.
  auto fetch = [channel = run.request.channel, order = blocks ? run.request.order : proto::RunOrder()](
                   const proto::RunOrder* given) -> absl::StatusOr<std::vector<transport::TensorData>> {
    std::vector<transport::TensorData> inputs;
    for (const proto::Tensor& tensor : (given != nullptr ? *given : order).inputs()) {
      if (!tensor.data().has_arena()) {
        inputs.emplace_back();  // inline: read from the order itself
        continue;
      }
      absl::StatusOr<transport::TensorData> data = channel->FetchHere(tensor.data());
      if (!data.ok()) {
        // NOT_FOUND would say that the model is not here.
        const bool gone = absl::IsNotFound(data.status());
        return absl::Status(gone ? absl::StatusCode::kFailedPrecondition : data.status().code(),
                            absl::StrCat("input ", tensor.spec().name(), ": ", data.status().message()));
      }
      inputs.push_back(*std::move(data));
    }
    return inputs;
  };
  if (!blocks) {
    InputsHere(id, fetch(&run.request.order));
    return;
  }
  fetcher_.Post([this, id, fetch = std::move(fetch)] {
    queue_.Post([this, id, inputs = fetch(nullptr)] { InputsHere(id, inputs); });
  });
}

void Runner::InputsHere(Id id, absl::StatusOr<std::vector<transport::TensorData>> inputs) {
  Run* run = Find(id);
  if (run == nullptr) return;
  if (!inputs.ok()) {
    GiveUp(id, inputs.status());
    return;
  }
  run->inputs = *std::move(inputs);
  run->inputs_here = true;
  if (known_arenas_.size() > limits_.known_arenas) known_arenas_.clear();  // the fetcher meets them again
  for (int i = 0; i < run->request.order.inputs_size(); ++i) {
    const proto::TensorRef& ref = run->request.order.inputs(i).data();
    if (ref.has_arena()) known_arenas_.emplace(ref.arena().socket(), ref.arena().arena());
  }
  Advance();
}

bool Runner::CanStage(const Run& run) const {
  const ModelTable::State state = residency_.table().StateOf(run.request.order.digest());
  return run.plan != nullptr && run.inputs_here &&
         (state == ModelTable::State::kResident || state == ModelTable::State::kRunning);
}

// Not re-entered: what it starts may end at once and call back.
void Runner::Advance() {
  again_ = true;
  if (std::exchange(advancing_, true)) return;
  while (std::exchange(again_, false)) {
    while (staged_ < limits_.staged_runs) {
      const auto next = waiting_.First([this](Id id) { return CanStage(*runs_.at(id)); });
      if (!next || !Stage(*next)) break;
    }
    if (computing_) continue;
    if (const auto next = ready_.First([](Id) { return true; })) Launch(*next);
  }
  advancing_ = false;
}

// False when the run has to wait for device memory that other runs hold.
bool Runner::Stage(Id id) {
  Run& run = *Find(id);
  const std::string& digest = run.request.order.digest();
  if (run.plan->weights_bytes() > residency_.table().SizeOf(digest)) {
    GiveUp(id, absl::FailedPreconditionError(absl::StrCat(
                   "model ", digest, " was prepared with ", run.plan->weights_bytes().count(),
                   " bytes of weights, on the device are ", residency_.table().SizeOf(digest).count())));
    return true;
  }
  const RunLayout layout(*run.plan);
  const absl::StatusOr<DeviceRange> block = memory_.Allocate({MemoryUser::Kind::kRun, digest}, layout.total);
  if (!block.ok()) {
    if (on_device_ > 0) return false;
    GiveUp(id, block.status(), NoFitOutcome(memory_));
    return true;
  }
  if (const absl::Status reserved = ReserveOutputs(run, limits_.inline_outputs); !reserved.ok()) {
    memory_.Free(*block);
    GiveUp(id, reserved);
    return true;
  }
  run.block = *block;
  layout.Bind(run.block, run.arguments);
  run.arguments.weights = residency_.table().Acquire(digest);
  run.holds_model = true;
  run.stage = Run::Stage::kStaging;
  ++on_device_;
  ++staged_;
  waiting_.Remove(id);
  CopyInputs(id, run);
  return true;
}

void Runner::CopyInputs(Id id, Run& run) {
  run.copy_in_begin = SteadyNow();
  lanes_.At(Lane::kCopyIn, run.request.sequence);
  // One status for all copies: they end in order, on one stream.
  auto failed = std::make_shared<absl::Status>();
  const proto::RunOrder& order = run.request.order;
  for (std::size_t i = 0; i < run.plan->inputs().size(); ++i) {
    std::size_t from = 0;
    while (order.inputs(static_cast<int>(from)).spec().name() != run.plan->inputs()[i].name()) ++from;
    const proto::TensorRef& ref = order.inputs(static_cast<int>(from)).data();
    const auto bytes = ref.has_arena() ? run.inputs[from].bytes() : std::as_bytes(std::span(ref.inlined()));
    run.bytes += bytes.size();
    const bool last = i + 1 == run.plan->inputs().size();
    in_->CopyIn(run.arguments.inputs[i], bytes, [this, id, failed, last](const Completion& completion) {
      if (failed->ok()) *failed = completion.status;
      if (last) queue_.Post([this, id, failed] { Staged(id, *failed); });
    });
  }
  if (run.plan->inputs().empty()) queue_.Post([this, id] { Staged(id, absl::OkStatus()); });
}

void Runner::Staged(Id id, const absl::Status& status) {
  Run& run = *Find(id);
  run.copy_in = SteadyNow() - run.copy_in_begin;
  run.stage = Run::Stage::kReady;
  if (run.failed.ok()) run.failed = status;
  if (!run.failed.ok()) {
    GiveUp(id, absl::Status(run.failed));
    return;
  }
  ready_.Add(id, run.request.order.priority(), run.Expires());
  Advance();
}

void Runner::Launch(Id id) {
  Run& run = *Find(id);
  ready_.Remove(id);
  --staged_;
  computing_ = true;
  run.stage = Run::Stage::kComputing;
  lanes_.At(Lane::kCompute, run.request.sequence);
  compute_->Launch(run.plan, run.arguments,
                   [this, id](const Completion& completion, std::vector<proto::TensorSpec> outputs) {
                     queue_.Post([this, id, completion, outputs = std::move(outputs)] {
                       Computed(id, completion, outputs);
                     });
                   });
  again_ = true;  // there is room to stage one more
}

void Runner::Computed(Id id, const Completion& completion, std::vector<proto::TensorSpec> outputs) {
  Run& run = *Find(id);
  computing_ = false;
  run.compute = completion.end - completion.begin;
  run.outputs = std::move(outputs);
  run.stage = Run::Stage::kLeaving;
  residency_.table().Release(run.request.order.digest());
  run.holds_model = false;
  run.inputs.clear();
  Advance();  // before the outputs leave: the next run may compute meanwhile
  absl::Status status = completion.status;
  if (status.ok()) status = CopyOutputs(id, run);
  if (!status.ok()) Left(id, status);
}

absl::Status Runner::CopyOutputs(Id id, Run& run) {
  TROUPE_RETURN_IF_ERROR(MeasureOutputs(run));
  run.copy_out_begin = SteadyNow();
  lanes_.At(Lane::kCopyOut, run.request.sequence);
  auto failed = std::make_shared<absl::Status>();
  for (std::size_t i = 0; i < run.outputs.size(); ++i) {
    const Bytes size = run.output_sizes[i];
    const bool last = i + 1 == run.outputs.size();
    out_->CopyOut(run.rooms[i].bytes().first(size.count()), run.arguments.outputs[i].Part(Bytes(0), size),
                  [this, id, failed, last](const Completion& completion) {
                    if (failed->ok()) *failed = completion.status;
                    if (last) queue_.Post([this, id, failed] { Left(id, *failed); });
                  });
  }
  if (run.outputs.empty()) queue_.Post([this, id] { Left(id, absl::OkStatus()); });
  return absl::OkStatus();
}

void Runner::Left(Id id, const absl::Status& status) {
  const std::unique_ptr<Run> run = Take(id);
  FreeDevice(*run);
  ++runs_done_;
  if (status.ok()) {
    run->reply.Done(OutcomeOf(*run, SteadyNow()));
  } else {
    run->reply.Fail(status);
  }
  Advance();  // somebody may wait for the memory
}

void Runner::FreeDevice(Run& run) {
  if (run.holds_model) residency_.table().Release(run.request.order.digest());
  memory_.Free(run.block);
  --on_device_;
}

void Runner::GiveUp(Id id, const absl::Status& status, proto::WorkerOutcome outcome) {
  Run& run = *Find(id);
  if (run.stage == Run::Stage::kStaging) {
    run.failed = status;  // its inputs are on their way: answered when they are there
    return;
  }
  if (run.stage == Run::Stage::kComputing || run.stage == Run::Stage::kLeaving) return;
  const std::unique_ptr<Run> taken = Take(id);
  if (taken->stage == Run::Stage::kReady) {
    ready_.Remove(id);
    --staged_;
    FreeDevice(*taken);
  } else {
    waiting_.Remove(id);
  }
  taken->reply.Fail(status, std::move(outcome));
  Advance();
}

void Runner::Cancel(std::uint64_t sequence) {
  const auto found = by_sequence_.find(sequence);
  if (found == by_sequence_.end()) return;
  GiveUp(found->second, absl::CancelledError("nobody waits for this run any more"));
}

void Runner::Expire(Time now) {
  for (RunQueue* queue : {&waiting_, &ready_}) {
    if (queue->NextExpiry() > now) continue;
    for (const Id id : queue->TakeExpired(now)) {
      GiveUp(id, absl::DeadlineExceededError("the run did not begin within its timeout"));
    }
  }
}

Time Runner::NextExpiry() const {
  return std::min(waiting_.NextExpiry(), ready_.NextExpiry());
}

void Runner::FailAll(const absl::Status& status) {
  advancing_ = true;  // none of them begins while the others fall
  std::vector<Id> all;
  for (const auto& [id, run] : runs_) all.push_back(id);
  for (const Id id : all) GiveUp(id, status);
  advancing_ = false;
  by_sequence_.clear();
  known_arenas_.clear();
}

void Runner::ModelChanged(const std::string& digest, const absl::Status& status) {
  if (!status.ok()) {
    for (const Id id : waiting_.All()) {
      if (Run* run = Find(id); run != nullptr && run->request.order.digest() == digest) GiveUp(id, status);
    }
  }
  Advance();
}

bool Runner::Wants(const std::string& digest) const {
  for (const auto& [id, run] : runs_) {
    if (run->stage == Run::Stage::kWaiting && run->request.order.digest() == digest) return true;
  }
  return false;
}

}  // namespace troupe::gpu
