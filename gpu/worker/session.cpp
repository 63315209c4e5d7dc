#include "gpu/worker/session.hpp"

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "gpu/worker/adoption.hpp"
#include "transport/arena.hpp"

namespace troupe::gpu {
namespace {

using transport::LocalChannel;
using transport::RingMemory;

absl::StatusOr<std::shared_ptr<LocalChannel>> OpenChannel(const proto::AdoptHello& hello,
                                                          const Session::Options& options) {
  LocalChannel::Options channel;
  channel.name = absl::StrCat("troupe-outputs-", hello.gpu());
  channel.socket = options.arena_socket;
  channel.capacity = options.arena;
  channel.refusals = options.refusals;
  channel.directories = {std::filesystem::path(options.arena_socket).parent_path().string()};
  if (!hello.run_directory().empty()) channel.directories.push_back(hello.run_directory());
  // The daemon serves our arena to other hosts: outputs say so themselves, wherever their references travel.
  channel.host = hello.host();
  channel.endpoint = hello.endpoint();
  return LocalChannel::Create(std::move(channel));
}

}  // namespace

absl::StatusOr<std::shared_ptr<Session>> Session::Open(transport::UnixConnection control,
                                                       const proto::AdoptHello& hello, RegionPtr region,
                                                       const Options& options) {
  TROUPE_ASSIGN_OR_RETURN(std::shared_ptr<LocalChannel> channel, OpenChannel(hello, options));
  TROUPE_ASSIGN_OR_RETURN(auto order_ring, RingMemory::Create("troupe-orders", kRingCapacity));
  TROUPE_ASSIGN_OR_RETURN(auto outcome_ring, RingMemory::Create("troupe-outcomes", kRingCapacity));
  TROUPE_ASSIGN_OR_RETURN(auto orders, transport::RingReader::Attach(order_ring));
  TROUPE_ASSIGN_OR_RETURN(auto outcomes, transport::RingWriter::Attach(outcome_ring));
  return std::shared_ptr<Session>(new Session(std::move(control), std::move(region), options,
                                              std::move(channel),
                                              OrderRing{std::move(order_ring), std::move(orders)},
                                              OutcomeRing{std::move(outcome_ring), std::move(outcomes)}));
}

Session::Session(transport::UnixConnection control, RegionPtr region, const Options& options,
                 std::shared_ptr<LocalChannel> channel, OrderRing orders, OutcomeRing outcomes)
    : control_(std::move(control)),
      region_(std::move(region)),
      pins_(options.pins),
      channel_(std::move(channel)),
      orders_(std::move(orders)),
      outcomes_(std::move(outcomes)) {}

absl::Status Session::Welcome(const proto::WorkerDescription& description, int control_page,
                              int device_memory) {
  proto::AdoptReply reply;
  *reply.mutable_description() = description;
  *reply.mutable_output_arena() = channel_->ArenaAddress();
  std::vector<int> descriptors(kAdoptionDescriptors);
  descriptors[kOrderRing] = orders_.memory->memory_fd();
  descriptors[kOrderDoorbell] = orders_.memory->doorbell_fd();
  descriptors[kOutcomeRing] = outcomes_.memory->memory_fd();
  descriptors[kOutcomeDoorbell] = outcomes_.memory->doorbell_fd();
  descriptors[kOutputArena] = channel_->arena()->fd();
  descriptors[kControlPage] = control_page;
  if (device_memory >= 0) descriptors.push_back(device_memory);
  std::string bytes = reply.SerializeAsString();
  if (Bytes(bytes.size()) > transport::SocketLimits::kMessage) {
    // A description of very many plans does not fit a socket's message: it is asked for with Describe.
    reply.mutable_description()->clear_prepared();
    bytes = reply.SerializeAsString();
  }
  // The first message on a connection always has room: nothing waits here for a daemon that does not read.
  return control_.Send(bytes, descriptors, Duration(0));
}

void Session::Want(const HostModel& host, bool urgent) {
  if (pins_ != nullptr) pins_->Want(host.weights, urgent);
}

void Session::DescribePins(proto::WorkerDescription& description) const {
  if (pins_ == nullptr) return;
  const RegionPins::State state = pins_->state();
  description.set_registered_bytes(state.registered.count());
  description.set_registering_bytes(state.wanted.count());
}

absl::StatusOr<bool> Session::Read(transport::RingRecord& record) {
  return orders_.end.TryRead(record);
}

absl::StatusOr<bool> Session::Write(const std::string& outcome, std::uint64_t sequence) {
  return outcomes_.end.TryWrite(kOutcomeOp, 0, sequence, std::as_bytes(std::span(outcome)));
}

void Session::Answer(const proto::WorkerOutcome& outcome) {
  std::string bytes = outcome.SerializeAsString();
  if (Bytes(bytes.size()) > outcomes_.memory->largest_payload()) {
    proto::WorkerOutcome instead;
    instead.set_sequence(outcome.sequence());
    instead.set_code(static_cast<int>(absl::StatusCode::kResourceExhausted));
    instead.set_message(absl::StrCat("an outcome of ", bytes.size(), " bytes does not fit the ring"));
    bytes = instead.SerializeAsString();
  }
  kept_.emplace_back(outcome.sequence(), std::move(bytes));
  (void)Flush();
}

bool Session::Flush() {
  while (!kept_.empty()) {
    const absl::StatusOr<bool> written = Write(kept_.front().second, kept_.front().first);
    if (!written.ok()) {
      broken_ = true;
      kept_.clear();
      return true;
    }
    if (!*written) return false;
    kept_.pop_front();
  }
  return true;
}

bool Session::StillThere() {
  const absl::StatusOr<transport::SocketMessage> message = control_.Receive(Duration(0));
  return message.status().code() == absl::StatusCode::kDeadlineExceeded;
}

}  // namespace troupe::gpu
