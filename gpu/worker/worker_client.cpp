#include "gpu/worker/worker_client.hpp"

#include <thread>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "base/wire_status.hpp"
#include "gpu/worker/adoption.hpp"
#include "transport/ring_message.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::gpu {

using transport::ProcessHandle;
using transport::RingMemory;
using transport::SteadyNow;
using transport::UnixConnection;

struct WorkerConnection::Parts {
  UnixConnection control;
  transport::RingWriter orders;
  transport::RingReader outcomes;
  transport::MemoryFile control_page;
  transport::MemoryFile output_memory;
  transport::UniqueFd device_memory;
  proto::AdoptReply reply;
  ProcessHandle process;
};

WorkerConnection::WorkerConnection(Parts parts)
    : control_(std::move(parts.control)),
      orders_(std::move(parts.orders)),
      outcomes_(std::move(parts.outcomes)),
      control_page_(std::move(parts.control_page)),
      device_memory_(std::move(parts.device_memory)),
      process_(std::move(parts.process)),
      description_(std::move(*parts.reply.mutable_description())),
      output_arena_(std::move(*parts.reply.mutable_output_arena())),
      output_memory_(std::make_shared<const transport::MemoryFile>(std::move(parts.output_memory))) {}

namespace {

absl::StatusOr<UnixConnection> ConnectWhenUp(const std::string& socket, const ProcessHandle& process,
                                             Time deadline) {
  constexpr Duration kBetween = std::chrono::milliseconds(1);
  for (;;) {
    absl::StatusOr<UnixConnection> connection = transport::ConnectUnix(socket, deadline - SteadyNow());
    if (connection.ok() || connection.status().code() != absl::StatusCode::kNotFound) return connection;
    // Only a worker that was just started may still be about to listen.
    if (!process.valid()) return connection;
    if (process.IsDead()) {
      return absl::UnavailableError(absl::StrCat("the worker ended before it listened at ", socket));
    }
    if (SteadyNow() >= deadline) return connection;
    std::this_thread::sleep_for(kBetween);
  }
}

constexpr char kServes[] = "troupe/serves";

absl::Status RefusalOf(const proto::AdoptReply& reply) {
  absl::Status status = StatusIn(reply);
  const std::string& serves = reply.description().isolation_key();
  if (!serves.empty()) status.SetPayload(kServes, absl::Cord(serves));
  return status;
}

absl::Status SendHello(UnixConnection& control, proto::AdoptHello hello, const AdoptionGifts& gifts,
                       Duration timeout) {
  std::vector<int> descriptors = {gifts.host_region};
  hello.set_device_memory(gifts.device_memory >= 0);
  if (hello.device_memory()) descriptors.insert(descriptors.end(), {gifts.device_memory, gifts.links});
  return control.Send(hello.SerializeAsString(), descriptors, timeout);
}

}  // namespace

std::optional<std::string> ServedRuntime(const absl::Status& status) {
  const auto serves = status.GetPayload(kServes);
  if (!serves) return std::nullopt;
  return std::string(*serves);
}

absl::StatusOr<WorkerConnection::Parts> WorkerConnection::Shake(UnixConnection control,
                                                                const proto::AdoptHello& hello,
                                                                const AdoptionGifts& gifts, Time deadline) {
  TROUPE_RETURN_IF_ERROR(SendHello(control, hello, gifts, deadline - SteadyNow()));
  TROUPE_ASSIGN_OR_RETURN(transport::SocketMessage message, control.Receive(deadline - SteadyNow()));
  proto::AdoptReply reply;
  if (!reply.ParseFromString(message.bytes))
    return absl::DataLossError("the worker's answer is not a valid AdoptReply");
  if (reply.code() != 0) return RefusalOf(reply);
  auto& fds = message.descriptors;
  if (fds.size() < kAdoptionDescriptors) {
    return absl::DataLossError(absl::StrCat("an adopted worker sends at least ", kAdoptionDescriptors,
                                            " descriptors, this one sent ", fds.size()));
  }
  TROUPE_ASSIGN_OR_RETURN(auto order_ring,
                          RingMemory::Open(std::move(fds[kOrderRing]), std::move(fds[kOrderDoorbell])));
  TROUPE_ASSIGN_OR_RETURN(auto outcome_ring,
                          RingMemory::Open(std::move(fds[kOutcomeRing]), std::move(fds[kOutcomeDoorbell])));
  TROUPE_ASSIGN_OR_RETURN(auto orders, transport::RingWriter::Attach(std::move(order_ring)));
  TROUPE_ASSIGN_OR_RETURN(auto outcomes, transport::RingReader::Attach(std::move(outcome_ring)));
  TROUPE_ASSIGN_OR_RETURN(auto page, transport::MemoryFile::Open(std::move(fds[kControlPage]),
                                                                 transport::MemoryFile::Access::kReadOnly));
  TROUPE_RETURN_IF_ERROR(CheckControlPage(page));
  TROUPE_ASSIGN_OR_RETURN(
      auto outputs,
      transport::MemoryFile::Open(std::move(fds[kOutputArena]), transport::MemoryFile::Access::kReadOnly));
  transport::UniqueFd memory;
  if (fds.size() > kDeviceMemory) memory = std::move(fds[kDeviceMemory]);
  return Parts{std::move(control), std::move(orders), std::move(outcomes), std::move(page),
               std::move(outputs), std::move(memory), std::move(reply),    ProcessHandle()};
}

absl::StatusOr<std::unique_ptr<WorkerConnection>> WorkerConnection::Adopt(const std::string& socket,
                                                                          const proto::AdoptHello& hello,
                                                                          const AdoptionGifts& gifts,
                                                                          ProcessHandle process,
                                                                          Duration timeout) {
  const Time deadline = SteadyNow() + timeout;
  TROUPE_ASSIGN_OR_RETURN(UnixConnection control, ConnectWhenUp(socket, process, deadline));
  const int pid = control.peer_pid();
  TROUPE_ASSIGN_OR_RETURN(Parts parts, Shake(std::move(control), hello, gifts, deadline));
  if (process.valid() && process.pid() == pid) {
    parts.process = std::move(process);
  } else {
    TROUPE_ASSIGN_OR_RETURN(parts.process, ProcessHandle::Open(pid));
  }
  return std::unique_ptr<WorkerConnection>(new WorkerConnection(std::move(parts)));
}

absl::Status WorkerConnection::Send(const proto::WorkerOrder& order) {
  const std::string bytes = order.SerializeAsString();
  const std::lock_guard lock(send_mutex_);
  if (!orders_) return absl::UnavailableError("the link to this worker was closed");
  TROUPE_ASSIGN_OR_RETURN(const bool written,
                          orders_->TryWrite(kOrderOp, 0, order.sequence(), std::as_bytes(std::span(bytes))));
  if (!written)
    return absl::ResourceExhaustedError("the worker's order ring is full: send again after an outcome");
  return absl::OkStatus();
}

absl::StatusOr<bool> WorkerConnection::Receive(proto::WorkerOutcome& outcome) {
  transport::RingRecord record;
  TROUPE_ASSIGN_OR_RETURN(const bool read, outcomes_.TryRead(record));
  if (!read) return false;
  if (record.op != kOutcomeOp) {
    return absl::DataLossError(absl::StrCat("record ", record.op, " in the outcome ring is not an outcome"));
  }
  TROUPE_RETURN_IF_ERROR(transport::ParseMessage(record, outcome));
  return true;
}

void WorkerConnection::Close() {
  const std::lock_guard lock(send_mutex_);
  orders_.reset();
  control_ = UnixConnection();
}

}  // namespace troupe::gpu
