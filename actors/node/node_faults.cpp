// The node controller: faults that an operator injects. What a worker is told to do to itself comes to its
// executor as any other death or hang would.
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/core/fault_hook.hpp"
#include "actors/node/node_controller_actor.hpp"

namespace troupe::actors {

namespace {

std::optional<proto::FaultOrder::Kind> OrderOf(proto::InjectFault::Kind kind) {
  switch (kind) {
    case proto::InjectFault::KILL_WORKER:
      return proto::FaultOrder::CRASH;
    case proto::InjectFault::HANG_WORKER:
      return proto::FaultOrder::HANG;
    case proto::InjectFault::STALL_LINK:
      return proto::FaultOrder::STALL_LINK;
    default:
      return std::nullopt;
  }
}

}  // namespace

// Whether faults are allowed here was asked before: by this node's member, and by the worker of itself.
absl::Status NodeController::Inject(const proto::InjectFault& fault) {
  const auto kind = OrderOf(fault.kind());
  if (!kind)
    return absl::InvalidArgumentError(
        absl::StrCat(FaultName(fault.kind()), " is not a fault of a GPU worker"));
  if (fault.gpu() >= options_.gpus.size())
    return absl::NotFoundError(absl::StrCat("node '", options_.name, "' has no GPU ", fault.gpu()));
  bool any = false;
  for (node::GpuIndex gpu = 0; gpu < gpus_.size(); ++gpu) {
    if (DeviceOf(gpu) != fault.gpu() || gpus_[gpu].last.state() != proto::ExecutorReport::READY) continue;
    any = true;
    proto::WorkerOrder order;
    order.mutable_fault()->set_kind(*kind);
    Order(gpu, std::move(order), [this, gpu](const proto::WorkerOutcome& outcome) {
      // One that was killed does not answer; its executor says UNAVAILABLE.
      if (outcome.code() != 0 && outcome.code() != static_cast<int>(absl::StatusCode::kUnavailable))
        Note("fault-refused", absl::StrCat(Label(gpu), ": ", outcome.message()));
    });
  }
  if (!any)
    return absl::UnavailableError(absl::StrCat("GPU ", fault.gpu(), " of node '", options_.name,
                                               "' has no worker that is up; try again when it has"));
  return absl::OkStatus();
}

}  // namespace troupe::actors
