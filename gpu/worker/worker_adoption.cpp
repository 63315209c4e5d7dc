// How a worker meets its daemons.
#include <fcntl.h>

#include <cstdio>
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

// Of its group size and what was measured, whatever makes sense: both only say how models are cut.
LinkCurve KnownCurve(const proto::AdoptHello& hello) {
  constexpr int kMostPoints = 64;
  LinkCurve known;
  if (hello.group_bytes() < KiB(4).count() || hello.group_bytes() > GiB(4).count() ||
      hello.link_curve_size() > kMostPoints) {
    return known;
  }
  known.elbow = Bytes(hello.group_bytes());
  for (const proto::LinkPoint& point : hello.link_curve())
    known.points.push_back({Bytes(point.bytes()), {point.bytes_per_second()}});
  return known;
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
  const auto prepare = [&]() -> absl::StatusOr<OpenedRegion> {
    TROUPE_RETURN_IF_ERROR(ReadHello(message, options_, hello));
    TROUPE_RETURN_IF_ERROR(ownership_.Admit(hello, handler_ != nullptr && handler_->used()));
    if (handler_ != nullptr && handler_->shutting_down())
      return absl::UnavailableError("this worker is shutting down");
    TROUPE_RETURN_IF_ERROR(OpenOrKeepDevice(hello, message.descriptors));
    return OpenRegion(std::move(message.descriptors[kHostRegion]));
  };
  absl::StatusOr<OpenedRegion> region = prepare();
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
  options.pins = std::move(region->pins);
  absl::StatusOr<std::shared_ptr<Session>> session =
      Session::Open(std::move(connection), hello, std::move(region->region), options);
  absl::Status status = session.status();
  if (status.ok()) status = (*session)->Welcome(handler_->Describe(), page_.fd(), device_memory_.get());
  if (!status.ok()) {
    Say(absl::StrCat("an adoption failed: ", status.message()));
    return status;
  }
  handler_->Described();
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
  std::shared_ptr<WeightRecord> weights;
  if (hello.device_memory()) {
    parts.memory = std::move(descriptors[kHelloMemory]);
    parts.record = Bytes(hello.weight_record());
    TROUPE_ASSIGN_OR_RETURN(kept, parts.memory.Duplicate());
    TROUPE_ASSIGN_OR_RETURN(weights, OpenRecord(kept, parts.record));
  }
  TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<Device> device, options_.open_device(std::move(parts)));
  device_memory_ = std::move(kept);
  OrderHandler::Options handling;
  handling.generation = absl::StrCat(absl::Hex(transport::UniqueId()));
  handling.allow_faults = options_.allow_faults;
  handling.limits = options_.limits;
  handling.memory = options_.memory;
  handling.swap = options_.swap;
  handling.swap.known = KnownCurve(hello);
  // A probe would write over what an earlier worker left.
  if (weights != nullptr && !weights->empty() && handling.swap.known.elbow == Bytes(0))
    handling.swap.known.elbow = kUsualGroup;
  handling.weights = std::move(weights);
  handling.sharing = options_.sharing;
  handling.intermediates = options_.intermediates;
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

// A record that is not of this build is left alone: nothing is kept, and this worker writes none.
absl::StatusOr<std::shared_ptr<WeightRecord>> Worker::OpenRecord(const transport::UniqueFd& memory,
                                                                 Bytes size) {
  if (size == Bytes(0)) return std::shared_ptr<WeightRecord>();
  TROUPE_ASSIGN_OR_RETURN(transport::UniqueFd file, memory.Duplicate());
  absl::StatusOr<std::unique_ptr<WeightRecord>> record = WeightRecord::Open(std::move(file), size);
  if (record.ok()) return std::shared_ptr<WeightRecord>(*std::move(record));
  Say(std::string(record.status().message()));
  return std::shared_ptr<WeightRecord>();
}

void Worker::ShareLinks(const std::shared_ptr<transport::LinkBuckets>& links) {
  if (links == nullptr) return;
  handler_->links().Share(links,
                          {LinkInName(options_.gpu), LinkOutName(options_.gpu),
                           [gpu = options_.gpu](std::uint32_t from) { return PeerLinkName(from, gpu); }});
}

// Registered with the device for as long as anything reads from it: a virtual device at once, since it costs
// nothing there, a real one little by little.
absl::StatusOr<Worker::OpenedRegion> Worker::OpenRegion(transport::UniqueFd descriptor) {
  TROUPE_ASSIGN_OR_RETURN(auto view, transport::HostRegionView::Open(std::move(descriptor)));
  Device& device = handler_->device();
  if (!handler_->links().policy().registered) {
    return OpenedRegion{std::make_shared<const transport::HostRegionView>(std::move(view)), nullptr};
  }
  if (!options_.virtual_device) {
    RegionPins::Calls calls;
    calls.add = [&device](std::span<const std::byte> bytes) { return device.RegisterHost(bytes); };
    calls.remove = [&device](std::span<const std::byte> bytes) { device.UnregisterHost(bytes); };
    calls.refused = [](const absl::Status& why) {
      std::fprintf(
          stderr,
          "troupe-gpu-worker: models come by slower copies, through the driver's own memory, because "
          "the host region cannot be registered with the GPU: %s\n",
          std::string(why.message()).c_str());
    };
    auto pins = std::make_shared<RegionPins>(std::move(calls), std::move(view));
    return OpenedRegion{RegionPins::RegionOf(pins), pins};
  }
  TROUPE_RETURN_IF_ERROR(device.RegisterHost(view.bytes()));
  return OpenedRegion{RegionPtr(new transport::HostRegionView(std::move(view)),
                                [&device](const transport::HostRegionView* region) {
                                  device.UnregisterHost(region->bytes());
                                  delete region;
                                }),
                      nullptr};
}

void Worker::DropSession(const std::string& why) {
  session_.reset();
  ownership_.Lost(transport::SteadyNow());
  handler_->Abandon();
  Say(why);
}

}  // namespace troupe::gpu
