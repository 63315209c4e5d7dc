// How a worker meets its daemons.
#include <fcntl.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "base/wire_status.hpp"
#include "gpu/worker/worker.hpp"
#include "gpu/worker/worker_process.hpp"
#include "transport/host_id.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::gpu {
namespace {

absl::Status CheckHello(const proto::AdoptHello& hello, const WorkerOptions& options,
                        std::size_t descriptors) {
  if (!options.node.empty() && (hello.node() != options.node || hello.gpu() != options.gpu)) {
    return absl::InvalidArgumentError(absl::StrCat("this is the worker of GPU ", options.gpu, " of node ",
                                                   options.node, ", not of GPU ", hello.gpu(), " of node ",
                                                   hello.node()));
  }
  const std::size_t expected = hello.device_memory() ? kHelloLinks + 1 : kHostRegion + 1;
  if (descriptors != expected) {
    return absl::InvalidArgumentError(
        absl::StrCat("this hello comes with ", expected, " descriptors, not ", descriptors));
  }
  return absl::OkStatus();
}

absl::Status ReadHello(const transport::SocketMessage& message, const WorkerOptions& options,
                       proto::AdoptHello& hello) {
  if (!hello.ParseFromString(message.bytes))
    return absl::InvalidArgumentError("the message is not an AdoptHello");
  return CheckHello(hello, options, message.descriptors.size());
}

}  // namespace

void Worker::Refuse(transport::UnixConnection& connection, const absl::Status& status) {
  proto::AdoptReply reply;
  SetStatus(status, reply);
  reply.mutable_description()->set_isolation_key(ownership_.key());
  // The first message on a connection always has room: nothing waits here for a peer that does not read.
  connection.Send(reply.SerializeAsString(), {}, Duration(0)).IgnoreError();
}

absl::Status Worker::Adopt(transport::UnixConnection connection, transport::SocketMessage message) {
  proto::AdoptHello hello;
  const auto prepare = [&]() -> absl::StatusOr<RegionPtr> {
    TROUPE_RETURN_IF_ERROR(ReadHello(message, options_, hello));
    TROUPE_RETURN_IF_ERROR(ownership_.Admit(hello, handler_ != nullptr && handler_->used()));
    if (handler_ != nullptr && handler_->shutting_down())
      return absl::UnavailableError("this worker is shutting down");
    TROUPE_RETURN_IF_ERROR(OpenOrKeepDevice(hello, message.descriptors));
    return OpenRegion(std::move(message.descriptors[kHostRegion]));
  };
  absl::StatusOr<RegionPtr> region = prepare();
  if (!region.ok()) {
    if (absl::IsInvalidArgument(region.status())) refusals_->Count(transport::SocketRefusal::kBrokenMessage);
    Refuse(connection, region.status());
    return region.status();
  }
  if (session_ != nullptr) DropSession(ownership_.Assigns(hello) ? "it was assigned" : "a newer daemon came");
  const std::uint64_t number = ownership_.Begin(hello);
  handler_->Serve(ownership_.key());
  Session::Options options;
  options.arena_socket = absl::StrCat(options_.socket, ".a", number);
  options.arena = options_.arena;
  options.refusals = refusals_;
  absl::StatusOr<std::shared_ptr<Session>> session =
      Session::Open(std::move(connection), hello, *std::move(region), options);
  absl::Status status = session.status();
  if (status.ok()) status = (*session)->Welcome(handler_->Describe(), page_.fd(), device_memory_.get());
  if (!status.ok()) {
    Say(absl::StrCat("an adoption failed: ", status.message()));
    return status;
  }
  session_ = *std::move(session);
  ownership_.Adopted(hello);
  return absl::OkStatus();
}

absl::Status Worker::OpenOrKeepDevice(const proto::AdoptHello& hello,
                                      std::vector<transport::UniqueFd>& descriptors) {
  if (options_.virtual_device && !hello.device_memory()) {
    return absl::InvalidArgumentError(
        "a virtual device needs its memory and the node's links with the hello");
  }
  DeviceParts parts;
  if (hello.device_memory()) {
    TROUPE_ASSIGN_OR_RETURN(auto links, transport::LinkBuckets::Open(std::move(descriptors[kHelloLinks])));
    parts.links = std::make_shared<transport::LinkBuckets>(std::move(links));
  }
  const std::shared_ptr<transport::LinkBuckets> links = parts.links;
  if (handler_ != nullptr) {
    TROUPE_RETURN_IF_ERROR(handler_->device().UseLinks(links));
    ShareLinks(links);
    return absl::OkStatus();
  }
  transport::UniqueFd kept;
  if (hello.device_memory()) {
    parts.memory = std::move(descriptors[kHelloMemory]);
    TROUPE_ASSIGN_OR_RETURN(kept, parts.memory.Duplicate());
  }
  TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<Device> device, options_.open_device(std::move(parts)));
  device_memory_ = std::move(kept);
  OrderHandler::Options handling;
  handling.generation = absl::StrCat(absl::Hex(transport::UniqueId()));
  handling.allow_faults = options_.allow_faults;
  handling.limits = options_.limits;
  handling.memory = options_.memory;
  handling.swap = options_.swap;
  handling.sharing = options_.sharing;
  handling.gate = options_.gate;
  handling.gpu = options_.gpu;
  handling.meetings = absl::StrCat(options_.socket, ".b");
  handling.refusals = refusals_;
  handling.meter = WorkerMeter(options_.meter);
  handler_ =
      std::make_unique<OrderHandler>(std::move(device), *queue_, Lanes(PageOf(page_)), std::move(handling));
  ShareLinks(links);
  return absl::OkStatus();
}

void Worker::ShareLinks(const std::shared_ptr<transport::LinkBuckets>& links) {
  if (links == nullptr) return;
  handler_->links().Share(links,
                          {LinkInName(options_.gpu), LinkOutName(options_.gpu),
                           [gpu = options_.gpu](std::uint32_t from) { return PeerLinkName(from, gpu); }});
}

// Registered with the device for as long as anybody reads from it.
absl::StatusOr<RegionPtr> Worker::OpenRegion(transport::UniqueFd descriptor) {
  TROUPE_ASSIGN_OR_RETURN(auto view, transport::HostRegionView::Open(std::move(descriptor)));
  Device& device = handler_->device();
  if (!handler_->links().policy().registered) {
    return std::make_shared<const transport::HostRegionView>(std::move(view));
  }
  TROUPE_RETURN_IF_ERROR(device.RegisterHost(view.bytes()));
  return RegionPtr(new transport::HostRegionView(std::move(view)),
                   [&device](const transport::HostRegionView* region) {
                     device.UnregisterHost(region->bytes());
                     delete region;
                   });
}

void Worker::DropSession(const std::string& why) {
  session_.reset();
  ownership_.Lost(transport::SteadyNow());
  handler_->Abandon();
  Say(why);
}

}  // namespace troupe::gpu
