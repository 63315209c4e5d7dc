#include "gpu/worker/order_handler.hpp"

#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/worker/adoption.hpp"
#include "transport/ring_message.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::gpu {
namespace {

using transport::SteadyNow;

// Answers go to the session that the order came from; they are dropped when it is gone.
Reply ReplyTo(const std::shared_ptr<Session>& session, std::uint64_t sequence, Lanes lanes,
              const WorkerMeter& meter, WorkerMeter::Payer payer) {
  return Reply(sequence, SteadyNow(),
               [weak = std::weak_ptr<Session>(session), lanes, &meter,
                payer = std::move(payer)](const proto::WorkerOutcome& outcome) mutable {
                 // Before the answer, so that no answered run is without its count when this process dies.
                 meter.Count(payer, outcome);
                 lanes.page().outcomes.fetch_add(1, std::memory_order_relaxed);
                 if (const auto here = weak.lock()) here->Answer(outcome);
               });
}

// From now. A deadline beyond an hour, either way, is as good as one at an hour.
Time DeadlineIn(std::int64_t nanoseconds) {
  constexpr Duration kFar = std::chrono::hours(1);
  return SteadyNow() + std::clamp(Duration(nanoseconds), -kFar, kFar);
}

// TROUPE_CRASH=forbidden-call makes of a crash that is asked for a call that the jail ends a worker for.
void Crash() {
  const char* const how = std::getenv("TROUPE_CRASH");
  if (how != nullptr && std::string_view(how) == "forbidden-call")
    (void)syscall(SYS_ptrace, PTRACE_TRACEME, 0, nullptr, nullptr);
  (void)raise(SIGSEGV);
}

void DescribeMemory(const DeviceMemory& memory, proto::WorkerDescription& description) {
  const MemoryUse use = memory.memory();
  description.set_memory_bytes(use.total.count());
  description.set_free_bytes(use.free.count());
  description.set_largest_free_bytes(use.largest.count());
  description.set_memory(memory.policy());
  description.set_pool_bytes(memory.pool().size().count());
  description.set_pool_used_bytes(memory.pool().held().count());
  description.set_pool_peak_bytes(memory.pool().peak().count());
  description.set_fragmentation(memory.fragmentation());
}

void DescribeTensors(const WorkerDevice& device, proto::WorkerDescription& description) {
  const TensorStore& tensors = device.tensors;
  description.set_intermediates(tensors.policy());
  description.set_kept_tensors(tensors.size());
  description.set_kept_bytes(tensors.kept().count());
  description.set_kept_device_bytes(tensors.on_device().count());
  description.set_moved_tensor_bytes(tensors.moved().count());
  description.set_pulled_tensor_bytes(device.pulls.pulled().count());
}

void AddResident(const std::string& digest, Bytes size, proto::WorkerDescription& description) {
  proto::ResidentModel& resident = *description.add_resident();
  resident.set_digest(digest);
  resident.set_bytes(size.count());
}

proto::WorkerOutcome PreparedOutcomeOf(const DevicePlan& plan) {
  proto::WorkerOutcome outcome;
  proto::PreparedOutcome& prepared = *outcome.mutable_prepared();
  for (const proto::TensorSpec& output : plan.outputs()) *prepared.add_outputs() = output;
  prepared.set_weights_bytes(plan.weights_bytes().count());
  prepared.set_activation_bytes((RunLayout(plan).total + plan.activation_bytes()).count());
  return outcome;
}

}  // namespace

OrderHandler::OrderHandler(std::unique_ptr<Device> device, TaskQueue& queue, Lanes lanes, Options options)
    : lanes_(lanes),
      options_(std::move(options)),
      device_(std::move(device), queue,
              {options_.swap, options_.memory, options_.sharing, options_.intermediates}, options_.limits,
              options_.gate),
      residency_(device_.memory, queue, device_.links, options_.limits,
                 {options_.meetings, Bytes(), options_.refusals}, options_.weights),
      states_(device_.memory, queue, device_.links, residency_, options_.limits),
      preparer_(*device_.device, queue, lanes, options_.limits),
      runner_(device_, queue, lanes, options_.limits, residency_, preparer_),
      consolidator_(device_.memory, residency_.table(), queue),
      pins_(*device_.device, residency_, device_.tensors, options_.limits) {
  residency_.Connect({[this](const std::string& digest, const absl::Status& status) {
                        runner_.ModelChanged(digest, status);
                      },
                      [this](const std::string& digest) { return runner_.Wants(digest); },
                      [this](Bytes lacking) {
                        return consolidator_.Finish() || device_.tensors.MakeRoom(lacking) > Bytes(0);
                      }});
  states_.Connect([this] { runner_.StatesChanged(); },
                  [this](const std::string& payer, Bytes moved) { options_.meter.CountMoved(payer, moved); });
}

void OrderHandler::Take(const std::shared_ptr<Session>& session, const transport::RingRecord& record) {
  std::atomic<std::uint64_t>& orders = lanes_.page().orders;
  orders.store(orders.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  proto::WorkerOrder order;
  absl::Status status;
  if (record.op != kOrderOp) {
    status =
        absl::InvalidArgumentError(absl::StrCat("record ", record.op, " in the order ring is not an order"));
  } else if (!transport::ParseMessage(record, order).ok()) {
    status = absl::InvalidArgumentError("the order cannot be parsed");
  } else if (order.sequence() != record.sequence) {
    status = absl::InvalidArgumentError(
        absl::StrCat("the order's sequence is ", order.sequence(), ", its record's ", record.sequence));
  }
  Reply reply = ReplyTo(session, record.sequence, lanes_, options_.meter,
                        options_.meter.PayerOf(order, device_.device->info().shares));
  if (!status.ok()) {
    reply.Fail(status);
    return;
  }
  Execute(session, std::move(order), std::move(reply));
}

void OrderHandler::Execute(const std::shared_ptr<Session>& session, proto::WorkerOrder order, Reply reply) {
  const bool new_work =
      order.has_prepare() || order.has_swap_in() || order.has_run() || order.has_pin() || order.has_pull();
  if (shutting_down_ && new_work) {
    reply.Fail(absl::UnavailableError("this worker is shutting down"));
    return;
  }
  switch (order.order_case()) {
    case proto::WorkerOrder::kPrepare:
      return Prepare(session, std::move(*order.mutable_prepare()), std::move(reply));
    case proto::WorkerOrder::kSwapIn:
      return SwapIn(session, order.swap_in(), std::move(reply));
    case proto::WorkerOrder::kEvict:
      return states_.Evict(session->channel(), order.evict().digest(), std::move(reply));
    case proto::WorkerOrder::kRun:
      return Run(session, std::move(*order.mutable_run()), std::move(reply));
    case proto::WorkerOrder::kCancel:
      return runner_.Cancel(order.cancel().target());
    case proto::WorkerOrder::kRelease:
      for (const proto::ArenaRef& slice : order.release().slices()) {
        proto::TensorRef ref;
        *ref.mutable_arena() = slice;
        session->channel()->Release(ref).IgnoreError();  // released before, or never ours: nothing to free
      }
      for (const std::uint64_t number : order.release().kept()) device_.tensors.Drop(number);
      return;
    case proto::WorkerOrder::kDescribe: {
      proto::WorkerOutcome outcome;
      *outcome.mutable_description() = Describe();
      session->DescribePins(*outcome.mutable_description());
      return reply.Done(std::move(outcome));
    }
    case proto::WorkerOrder::kShutdown:
      if (shutdown_reply_)
        return reply.Fail(absl::FailedPreconditionError("this worker is shutting down already"));
      BeginShutdown();
      shutdown_reply_ = std::move(reply);
      return;
    case proto::WorkerOrder::kFault:
      return Fault(order.fault(), std::move(reply));
    case proto::WorkerOrder::kWriteBack:
      return states_.WriteBack(session->channel(), order.write_back(), std::move(reply));
    case proto::WorkerOrder::kExportTensor:
      return Export(order.export_tensor(), std::move(reply));
    case proto::WorkerOrder::kPin:
      return pins_.Pin(session->channel(), order.pin(), std::move(reply));
    case proto::WorkerOrder::kPull:
      return device_.pulls.Pull(session->channel(), order.pull(), std::move(reply));
    case proto::WorkerOrder::kUnpin:
      return pins_.Unpin(order.unpin().pin());
    case proto::WorkerOrder::ORDER_NOT_SET:
      break;
  }
  reply.Fail(absl::InvalidArgumentError("the order asks for nothing that this worker knows"));
}

void OrderHandler::Prepare(const std::shared_ptr<Session>& session, proto::PrepareOrder order, Reply reply) {
  const absl::StatusOr<HostModel> host = ResolveHostCopy(session->region(), order.model());
  if (!host.ok()) return reply.Fail(host.status());
  session->Want(*host, false);
  if (static_cast<std::size_t>(order.inputs_size()) > options_.limits.tensors) {
    return reply.Fail(absl::InvalidArgumentError(absl::StrCat(order.inputs_size(), " inputs are too many")));
  }
  if (const absl::Status status = CheckPrecision(order.precision()); !status.ok()) return reply.Fail(status);
  const std::uint64_t sequence = reply.sequence();
  auto answer = std::make_shared<Reply>(std::move(reply));
  preparer_.Prepare(sequence, *host, {order.inputs().begin(), order.inputs().end()}, order.precision(),
                    [answer](const absl::StatusOr<std::shared_ptr<DevicePlan>>& plan) {
                      plan.ok() ? answer->Done(PreparedOutcomeOf(**plan)) : answer->Fail(plan.status());
                    });
}

void OrderHandler::SwapIn(const std::shared_ptr<Session>& session, const proto::SwapInOrder& order,
                          Reply reply) {
  const absl::StatusOr<HostModel> host = ResolveHostCopy(session->region(), order.model());
  if (!host.ok()) return reply.Fail(host.status());
  session->Want(*host, true);
  std::optional<Time> deadline;
  if (order.has_deadline_in_ns()) deadline = DeadlineIn(order.deadline_in_ns());
  std::optional<PinnedSource> source;
  if (order.has_from_gpu()) {
    absl::StatusOr<PinnedSource> read =
        ReadPinned(order.from_gpu(), order.pinned(), Bytes(host->weights.size()), options_.limits);
    if (!read.ok()) return reply.Fail(read.status());
    source = *std::move(read);
    source->channel = session->channel();
  }
  std::optional<BroadcastPart> part;
  if (order.has_broadcast() && residency_.broadcasts().able()) {
    const std::string directory = std::filesystem::path(options_.meetings).parent_path();
    absl::StatusOr<BroadcastPart> read = ReadBroadcast(order.broadcast(), options_.gpu, directory);
    if (!read.ok()) return reply.Fail(read.status());
    part = *std::move(read);
  }
  states_.SwapIn(session->channel(), order, deadline, std::move(reply), [&](Reply weights) {
    residency_.SwapIn(*host, deadline, std::move(weights), std::move(source), order.address(), part);
  });
}

void OrderHandler::Run(const std::shared_ptr<Session>& session, proto::RunOrder order, Reply reply) {
  RunRequest request;
  if (const absl::Status status = CheckRunInputs(order); !status.ok()) return reply.Fail(status);
  if (order.has_model()) {
    absl::StatusOr<HostModel> host = ResolveHostCopy(session->region(), order.model());
    if (!host.ok()) return reply.Fail(host.status());
    if (host->digest != order.digest()) {
      return reply.Fail(absl::InvalidArgumentError(
          absl::StrCat("a run of model ", order.digest(), " brings the host copy of ", host->digest)));
    }
    session->Want(*host, true);
    request.host = *std::move(host);
  }
  request.sequence = reply.sequence();
  request.order = std::move(order);
  request.channel = session->channel();
  request.received = SteadyNow();
  if (request.order.has_deadline_in_ns()) request.deadline = DeadlineIn(request.order.deadline_in_ns());
  runner_.Submit(std::move(request), std::move(reply));
}

void OrderHandler::Export(const proto::ExportOrder& order, Reply reply) {
  const proto::KeptTensor& tensor = order.tensor();
  auto answer = std::make_shared<Reply>(std::move(reply));
  // A part that is in the arena already, or on its way there, is not copied for this reader.
  const auto copied = std::make_shared<Bytes>();
  const Bytes before = device_.tensors.bytes_out();
  device_.tensors.Export(
      {.number = tensor.number(), .offset = Bytes(tensor.offset()), .length = Bytes(tensor.length())},
      [answer, copied](const absl::StatusOr<proto::ArenaRef>& place) {
        proto::WorkerOutcome outcome;
        if (!place.ok()) return answer->Fail(place.status());
        *outcome.mutable_exported()->mutable_place() = *place;
        outcome.set_bytes(copied->count());
        answer->Done(std::move(outcome));
      });
  *copied = device_.tensors.bytes_out() - before;
}

void OrderHandler::Fault(const proto::FaultOrder& order, Reply reply) {
  if (!options_.allow_faults) {
    return reply.Fail(
        absl::PermissionDeniedError("faults are injected only into workers with --allow-faults"));
  }
  switch (order.kind()) {
    case proto::FaultOrder::CRASH:
      Crash();
      return;
    case proto::FaultOrder::HANG:
      lanes_.At(Lane::kCompute, reply.sequence());
      (void)device_.device->HangCompute();
      return reply.Done();
    case proto::FaultOrder::STALL_LINK:
      (void)device_.device->StallCopies();
      return reply.Done();
    default:
      return reply.Fail(
          absl::InvalidArgumentError(absl::StrCat("no such fault: ", static_cast<int>(order.kind()))));
  }
}

void OrderHandler::Abandon() {
  pins_.UnpinAll();
  runner_.FailAll(absl::UnavailableError("the daemon is gone"));
  states_.Abandon();
  device_.pulls.Abandon();
  device_.tensors.DropAll();
}

void OrderHandler::Tick(Time now) {
  if (runner_.NextDue() <= now) runner_.Expire(now);
  device_.memory.pool().Follow(now);
  device_.tensors.Tick(now);
  consolidator_.Tick(now, idle() && !shutting_down_);
  runner_.ShowCompute(now);
  ShowLinks();
}

// While a port has transfers, what counts is whether their blocks pass: an engine that waits for its link may
// look alive.
void OrderHandler::ShowLinks() {
  for (const auto& [lane, engine, sent] :
       {std::tuple(Lane::kCopyIn, Engine::kCopyIn, device_.links.from_host()),
        std::tuple(Lane::kCopyOut, Engine::kCopyOut, device_.links.out().state())}) {
    if (sent.busy) {
      lanes_.At(lane, sent.order);
      lanes_.Show(lane, true, sent.progress);
    } else {
      const EngineState state = device_.device->engine(engine);
      lanes_.Show(lane, state.busy, state.progress);
    }
  }
  const LinkPort::State peer = device_.links.from_others();
  if (peer.busy) lanes_.At(Lane::kCopyPeer, peer.order);
  lanes_.Show(Lane::kCopyPeer, peer.busy, peer.progress);
}

void OrderHandler::BeginShutdown() {
  shutting_down_ = true;
  runner_.FailAll(absl::UnavailableError("this worker is shutting down"));
}

void OrderHandler::FinishShutdown() {
  if (shutdown_reply_) std::exchange(shutdown_reply_, std::nullopt)->Done();
}

proto::WorkerDescription OrderHandler::Describe() const {
  proto::WorkerDescription description;
  description.set_device(device_.device->info().name);
  for (const auto& [digest, size] : residency_.table().Resident()) AddResident(digest, size, description);
  for (const auto& [digest, size] : residency_.kept().All()) AddResident(digest, size, description);
  *description.mutable_kept() = residency_.kept().report();
  if (options_.weights != nullptr) description.set_weight_record(WeightRecord::Size().count());
  for (proto::PlanKey& key : preparer_.cache().Keys()) *description.add_prepared() = std::move(key);
  description.set_pid(getpid());
  description.set_runs(runner_.runs_done());
  description.set_swaps(residency_.swapped().models);
  description.set_busy_ns(device_.device->compute_busy().count());
  description.set_link_bytes_per_second(device_.device->info().link.value);
  description.set_copy_in_bytes(
      (residency_.swapped().bytes + runner_.bytes_in() + states_.bytes_in()).count());
  description.set_copy_out_bytes(
      (runner_.bytes_out() + states_.bytes_out() + device_.tensors.bytes_out()).count());
  description.set_copy_in_busy_ns(device_.device->engine(Engine::kCopyIn).busy_time.count());
  description.set_copy_out_busy_ns(device_.device->engine(Engine::kCopyOut).busy_time.count());
  description.set_generation(options_.generation);
  description.set_concurrency(device_.sharing.concurrency);
  description.set_isolation_key(isolation_key_);
  description.set_sms(device_.device->info().shares.sms());
  for (const std::uint32_t sms : device_.device->info().shares.shares()) description.add_share_sms(sms);
  DescribeMemory(device_.memory, description);
  DescribeTensors(device_, description);
  description.set_swap(device_.links.options().swap);
  description.set_sharing(options_.sharing.name);
  description.set_link_sharing(device_.links.options().sharing);
  description.set_peer_copies(device_.device->info().peer_copies);
  description.set_input_parts(true);
  description.set_broadcasts(residency_.broadcasts().able());
  description.set_broadcast_socket(residency_.broadcasts().socket());
  description.set_group_bytes(device_.links.curve().elbow.count());
  for (const LinkPoint& point : device_.links.curve().points) {
    proto::LinkPoint& measured = *description.add_link_curve();
    measured.set_bytes(point.size.count());
    measured.set_bytes_per_second(point.bandwidth.value);
  }
  return description;
}

}  // namespace troupe::gpu
