#include "gpu/cuda/stream.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "base/status.hpp"
#include "gpu/cuda/peers.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::gpu::cuda {
namespace {

using transport::SteadyNow;

// While an event of the host's is waited for: how often the GPU is asked how far it is, and how often whether
// it is well.
constexpr Duration kTellingSlice = std::chrono::microseconds(100);
constexpr Duration kSlice = std::chrono::milliseconds(50);

CUdeviceptr PointerOf(const std::byte* address) {
  return reinterpret_cast<CUdeviceptr>(address);
}

}  // namespace

absl::Status Submission::Wait(const EventPtr& event) {
  const auto words = waits_.weights.Add(event);
  if (!words) return Counted([&] { return WaitFor(event); });
  if (words->empty()) return absl::OkStatus();
  return Counted([&]() -> absl::Status {
    for (const WeightsAhead::Word& word : *words)
      TROUPE_RETURN_IF_ERROR(word.of->WaitOn(context_, stream_, word.index));
    return absl::OkStatus();
  });
}

absl::Status Submission::StepPut() {
  const EventPtr event = waits_.weights.AfterStep();
  return event == nullptr ? absl::OkStatus() : WaitHere(*event);
}

absl::Status Submission::Counted(const std::function<absl::Status()>& wait) {
  if (!waits_.counted) return wait();
  TROUPE_ASSIGN_OR_RETURN(EventHandle before, context_.Record(stream_, EventKind::kTimed));
  TROUPE_RETURN_IF_ERROR(wait());
  TROUPE_ASSIGN_OR_RETURN(EventHandle after, context_.Record(stream_, EventKind::kTimed));
  waits_.gaps.emplace_back(std::move(before), std::move(after));
  return absl::OkStatus();
}

absl::Status Submission::AwaitTurn(const EventPtr& turn) {
  const Time begin = SteadyNow();
  const absl::Status status = Wait(turn);
  waits_.paused += SteadyNow() - begin;
  return status;
}

absl::Status Submission::WaitFor(const EventPtr& event) {
  const auto ours = std::dynamic_pointer_cast<const CudaEvent>(event);
  if (ours == nullptr) return WaitHere(*event);
  const CudaEvent::Ahead ahead = ours->WaitSubmitted();
  awaited_.push_back(ours);
  TROUPE_RETURN_IF_ERROR(ahead.status);
  if (ahead.end == nullptr) return absl::OkStatus();
  return context_.Check(context_.driver().cuStreamWaitEvent(stream_, ahead.end.get(), 0),
                        "waiting for another stream");
}

// Operations that were put on the stream before go on meanwhile, and their ends are told as they are reached:
// what is waited for may come only then (a layer's weights, in the place of weights that were read).
absl::Status Submission::WaitHere(const Event& event) {
  while (!event.done()) {
    TROUPE_RETURN_IF_ERROR(context_.health());
    Alive();
    (void)event.Wait(TellReached() ? kSlice : kTellingSlice);
  }
  return event.status();
}

// Whether there is nothing left to tell.
bool Submission::TellReached() {
  while (!milestones_.empty()) {
    if (context_.driver().cuEventQuery(milestones_.front().reached.get()) != CUDA_SUCCESS) return false;
    const Milestone milestone = std::move(milestones_.front());
    milestones_.pop_front();
    milestone.then();
  }
  return true;
}

absl::StatusOr<Duration> Submission::AwaitAll() {
  TROUPE_ASSIGN_OR_RETURN(const EventHandle here, context_.Record(stream_, EventKind::kTimed));
  const auto told = [this](std::size_t weights) {
    return waits_.weights.Await(weights, context_, [this] { Alive(); });
  };
  while (!milestones_.empty()) {
    TROUPE_RETURN_IF_ERROR(told(milestones_.front().weights));
    TROUPE_RETURN_IF_ERROR(context_.Await(milestones_.front().reached));
    const Milestone milestone = std::move(milestones_.front());
    milestones_.pop_front();
    milestone.then();
  }
  TROUPE_RETURN_IF_ERROR(told(waits_.weights.size()));
  TROUPE_RETURN_IF_ERROR(context_.Await(here));
  for (const auto& [before, after] : std::exchange(waits_.gaps, {}))
    waits_.waited += context_.Between(before, after);
  return std::max(context_.Between(begin_, here) - waits_.waited, Duration(1));
}

absl::Status Submission::Mark(std::function<void()> then) {
  TROUPE_ASSIGN_OR_RETURN(EventHandle reached, context_.Record(stream_));
  milestones_.push_back({std::move(reached), std::move(then), waits_.weights.size()});
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<CudaStream>> CudaStream::Make(Context& context, Meters& meters,
                                                             GreenContexts& shares, const HostPins& pins) {
  context.Enter();
  CUstream stream = nullptr;
  TROUPE_RETURN_IF_ERROR(
      context.CheckWork(context.driver().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "making a stream"));
  return std::unique_ptr<CudaStream>(new CudaStream(context, meters, shares, pins, stream));
}

CudaStream::CudaStream(Context& context, Meters& meters, GreenContexts& shares, const HostPins& pins,
                       CUstream stream)
    : context_(context),
      meters_(meters),
      shares_(shares),
      pins_(pins),
      stream_(stream),
      pipeline_({.enter = [this] { context_.Enter(); },
                 .submit = [this](Operation operation) { return Submit(std::move(operation)); },
                 .tell = [this](Flying& flying) { Tell(flying); }}) {}

CudaStream::~CudaStream() {
  pipeline_.Close();
  context_.Enter();
  (void)context_.driver().cuStreamDestroy(stream_);
}

void CudaStream::Wait(EventPtr event) {
  const std::lock_guard lock(pushing_);
  waits_.push_back(std::move(event));
}

void CudaStream::Raise(Signal signal) {
  const std::lock_guard lock(pushing_);
  raises_ = std::move(signal);
}

void CudaStream::Alive() {
  meter(Engine::kCompute).Moved(1);
  own_.Moved(1);
}

EventPtr CudaStream::Push(Operation operation) {
  EventPtr event = operation.event;
  const std::lock_guard lock(pushing_);
  operation.waits = std::exchange(waits_, {});
  if (const Signal signal = std::exchange(raises_, {}); signal.of != nullptr) {
    operation.raises = std::dynamic_pointer_cast<const CudaSignals>(signal.of);
    operation.raised = signal.index;
    TROUPE_CHECK(operation.raises != nullptr, "a stream was told to raise another device's signal");
  }
  const auto ready = [](const EventPtr& wait) {
    const auto* const ours = dynamic_cast<const CudaEvent*>(wait.get());
    TROUPE_CHECK(ours != nullptr, "a stream was told to wait for another device's event");
    return ours->submitted();
  };
  const bool at_once = operation.at_once && std::ranges::all_of(operation.waits, ready);
  pipeline_.Push(std::move(operation), at_once);
  return event;
}

absl::Status CudaStream::Follow(CUstream later, CUstream earlier) const {
  if (later == earlier) return absl::OkStatus();
  TROUPE_ASSIGN_OR_RETURN(const EventHandle here, context_.Record(earlier));
  return context_.Check(context_.driver().cuStreamWaitEvent(later, here.get(), 0), "going on on other SMs");
}

absl::Status CudaStream::Put(Operation& operation, Submission& submission, Flying& flying, bool timed) const {
  TROUPE_RETURN_IF_ERROR(context_.health());
  for (const EventPtr& wait : operation.waits) TROUPE_RETURN_IF_ERROR(submission.Wait(wait));
  TROUPE_RETURN_IF_ERROR(Follow(submission.stream(), stream_));
  flying.submitted = SteadyNow();
  if (timed) {
    TROUPE_ASSIGN_OR_RETURN(flying.begin, context_.Record(submission.stream(), EventKind::kTimed));
    submission.begin_ = flying.begin;
  }
  TROUPE_RETURN_IF_ERROR(operation.submit(submission));
  if (operation.raises == nullptr) return absl::OkStatus();
  return operation.raises->RaiseOn(context_, submission.stream(), operation.raised);
}

// What got onto the CUDA stream before an operation failed is waited for like all else: only then is nothing
// of it under way any more. A copy takes one event, at its end, since each block of a model is a copy: its time is
// the host's, from its submission or from the end of the copy before.
CudaStream::Flying CudaStream::Submit(Operation operation) {
  context_.Enter();
  Flying flying;
  const bool computes = operation.engine == Engine::kCompute;
  const bool timed = computes || !operation.waits.empty();
  const EventKind kind = timed ? EventKind::kTimed : EventKind::kOrder;
  meter(operation.engine).Began();
  if (computes) own_.Began();
  const auto place = shares_.PlaceOf(operation.share);
  const CUstream stream = place.ok() && place->stream != nullptr ? place->stream : stream_;
  Submission submission(context_, stream, stream_);
  if (computes) submission.alive_ = [this] { Alive(); };
  flying.submitted = SteadyNow();
  flying.status = place.ok() ? Put(operation, submission, flying, timed) : place.status();
  auto end = context_.Record(stream, kind);
  absl::Status recorded = end.status();
  if (end.ok()) flying.end = *std::move(end);
  if (recorded.ok() && stream != stream_) {
    recorded = context_.Check(context_.driver().cuStreamWaitEvent(stream_, flying.end.get(), 0),
                              "coming back from other SMs");
  }
  if (flying.status.ok()) flying.status = recorded;
  flying.milestones = std::move(submission.milestones_);
  flying.at_end = std::move(submission.at_end_);
  flying.awaited = std::move(submission.awaited_);
  flying.verify = std::move(submission.verify_);
  flying.waits = std::move(submission.waits_);
  flying.cut_after = submission.cut_after_;
  flying.measured = std::move(submission.measured_);
  if (flying.status.ok()) operation.event->Submitted(flying.end);
  flying.operation = std::move(operation);
  return flying;
}

absl::Status CudaStream::TellMilestones(Flying& flying) {
  WeightsAhead& weights = flying.waits.weights;
  const auto alive = [this] { Alive(); };
  for (const Submission::Milestone& milestone : flying.milestones) {
    TROUPE_RETURN_IF_ERROR(weights.Await(milestone.weights, context_, alive));
    TROUPE_RETURN_IF_ERROR(context_.Await(milestone.reached));
    if (flying.status.ok()) milestone.then();
  }
  return weights.Await(weights.size(), context_, alive);
}

// Weights that did not come are the launch's error, whatever the GPU has made of what lay in their place.
void CudaStream::Tell(Flying& flying) {
  const absl::Status told = TellMilestones(flying);
  absl::Status status = told.ok() ? flying.status : told;
  if (flying.end != nullptr) {
    const absl::Status ended = context_.Await(flying.end);
    if (status.ok()) status = ended;
  }
  if (status.ok() && flying.at_end) flying.at_end();
  for (const auto& event : flying.awaited) event->WaitDone();
  if (status.ok() && flying.verify) status = flying.verify();
  Completion completion{status, {}, SteadyNow(), flying.cut_after, flying.waits.paused};
  const bool timed = flying.begin != nullptr && flying.end != nullptr;
  const Duration took = timed ? context_.Between(flying.begin, flying.end)
                              : std::max(completion.end - std::max(flying.submitted, told_), Duration(1));
  completion.begin = completion.end - took;
  told_ = completion.end;
  if (status.ok() && flying.measured) {
    for (const auto& [before, after] : flying.waits.gaps)
      flying.waits.waited += context_.Between(before, after);
    flying.measured(took - flying.waits.waited);
  }
  const Engine engine = flying.operation.engine;
  if (engine != Engine::kCompute) meter(engine).Moved(1);
  meter(engine).Ended(completion.begin, completion.end);
  if (engine == Engine::kCompute) own_.Ended(completion.begin, completion.end);
  flying.operation.event->Complete(status);
  if (flying.operation.report) flying.operation.report(completion);
}

CudaStream::Operation CudaStream::Copy(Engine engine, bool at_once, OnComplete done) {
  Operation operation;
  operation.engine = engine;
  operation.at_once = at_once;
  operation.report = std::move(done);
  return operation;
}

// What is not registered the driver takes before it returns, so it is not put on the stream at once.
EventPtr CudaStream::CopyIn(DeviceRange to, std::span<const std::byte> from, OnComplete done) {
  TROUPE_CHECK(to.size.count() >= from.size(), "a copy to the device does not fit its destination");
  Operation operation = Copy(Engine::kCopyIn, pins_.Has(from), std::move(done));
  operation.submit = [this, to, from](Submission& submission) {
    return pins_.ForEachPart(from, [&](std::size_t offset, std::size_t length) {
      return context_.Check(
          context_.driver().cuMemcpyHtoDAsync(PointerOf(to.address + offset), from.data() + offset, length,
                                              submission.stream()),
          "copying to the GPU");
    });
  };
  return Push(std::move(operation));
}

EventPtr CudaStream::CopyOut(std::span<std::byte> to, DeviceRange from, OnComplete done) {
  TROUPE_CHECK(to.size() <= from.size.count(), "a copy from the device is longer than its source");
  Operation operation = Copy(Engine::kCopyOut, pins_.Has(to), std::move(done));
  operation.submit = [this, to, from](Submission& submission) {
    return pins_.ForEachPart(to, [&](std::size_t offset, std::size_t length) {
      return context_.Check(
          context_.driver().cuMemcpyDtoHAsync(to.data() + offset, PointerOf(from.address + offset), length,
                                              submission.stream()),
          "copying from the GPU");
    });
  };
  return Push(std::move(operation));
}

EventPtr CudaStream::CopyWithin(DeviceRange to, DeviceRange from, OnComplete done) {
  TROUPE_CHECK(to.size >= from.size, "a copy within the device does not fit its destination");
  Operation operation = Copy(Engine::kCopyIn, true, std::move(done));
  operation.submit = [to, from](Submission& submission) -> absl::Status {
    if (from.size == Bytes(0)) return absl::OkStatus();
    const Context& context = submission.context();
    return context.Check(context.driver().cuMemcpyDtoDAsync(PointerOf(to.address), PointerOf(from.address),
                                                            from.size.count(), submission.stream()),
                         "copying within the GPU");
  };
  return Push(std::move(operation));
}

EventPtr CudaStream::CopyPeer(DeviceRange to, std::shared_ptr<const PeerMemory> from, Bytes offset,
                              OnComplete done) {
  TROUPE_CHECK(offset <= from->size() && to.size <= from->size() - offset,
               "a copy from another GPU leaves its source");
  const auto ours = std::dynamic_pointer_cast<const CudaPeerMemory>(from);
  TROUPE_CHECK(ours != nullptr, "memory of another GPU that this device did not open");
  Operation operation = Copy(Engine::kCopyPeer, true, std::move(done));
  operation.submit = [to, ours, offset](Submission& submission) -> absl::Status {
    const Context& context = submission.context();
    std::byte* there = to.address;
    for (const std::span<const std::byte> part : ours->At(offset, to.size)) {
      TROUPE_RETURN_IF_ERROR(
          context.Check(context.driver().cuMemcpyDtoDAsync(PointerOf(there), PointerOf(part.data()),
                                                           part.size(), submission.stream()),
                        "copying from another GPU"));
      there += part.size();
    }
    return absl::OkStatus();
  };
  return Push(std::move(operation));
}

EventPtr CudaStream::Launch(std::shared_ptr<DevicePlan> plan, LaunchArguments arguments, OnLaunched done) {
  auto ours = std::dynamic_pointer_cast<CudaPlan>(plan);
  TROUPE_CHECK(ours != nullptr, "a plan was launched on a device that did not prepare it");
  Operation operation;
  operation.engine = Engine::kCompute;
  operation.share = arguments.share;
  operation.report = [ours, done = std::move(done)](const Completion& completion) {
    if (done) done(completion, {ours->outputs().begin(), ours->outputs().end()});
  };
  operation.submit = [this, ours, arguments = std::move(arguments)](Submission& submission) {
    return ours->Submit(submission, arguments, [this](std::uint64_t steps) {
      meter(Engine::kCompute).Moved(steps);
      own_.Moved(steps);
    });
  };
  return Push(std::move(operation));
}

}  // namespace troupe::gpu::cuda
