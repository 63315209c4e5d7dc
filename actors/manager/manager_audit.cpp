// The cluster manager: each change, and each join, has a line in the audit before it is answered.
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/manager/audit.hpp"
#include "actors/manager/cluster_manager_actor.hpp"

namespace troupe::actors {

void ClusterManager::WriteDown(storage::AuditLine line, std::function<void()> then) {
  if (options_.audit == nullptr) return then();
  line.unix_ns = options_.unix_now();
  auto written =
      continuations_.Make<bool>(this, [this, what = absl::StrCat(line.action, " of ", line.what),
                                       then = std::move(then)](const absl::StatusOr<bool>& durable) {
        // The change is made and durable, and its line is tried again: its answer would not help by waiting.
        if (!durable.ok())
          Tell("manager", "audit-behind", absl::StrCat(what, ": ", durable.status().message()));
        then();
      });
  options_.audit->Append(std::move(line), [written](absl::Status status) {
    written(status.ok() ? absl::StatusOr<bool>(true) : absl::StatusOr<bool>(std::move(status)));
  });
}

AdminPromise ClusterManager::Audited(const AdminReplyPromise& promise, storage::AuditLine line) {
  return AdminPromise([this, promise, line = std::move(line)](proto::AdminReply reply) {
    auto ended = line;
    SetOutcome(reply, ended);
    WriteDown(std::move(ended), [promise, reply = std::move(reply)]() mutable {
      auto answered = promise;
      Deliver(answered, std::move(reply));
    });
  });
}

// What a gateway says of its client is believed: it has asked for the key. Of others only what the connection
// says counts.
void ClusterManager::SetSender(const proto::AdminRequest& request, const Peer& peer,
                               storage::AuditLine& line) {
  const auto& sender = current_sender();
  const auto process = sender == nullptr ? node() : sender->node();
  if (process == node() && request.has_caller()) return SetCaller(request.caller(), line);
  for (const auto& [name, gateway] : links_.gateways()) {
    if (gateway.node() != process) continue;
    line.via = name;
    return SetCaller(request.caller(), line);
  }
  SetCaller(CallerOf(peer), line);
}

}  // namespace troupe::actors
