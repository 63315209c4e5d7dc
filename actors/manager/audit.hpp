// AUDIT: which requests of the administration are changes, and what their lines in the audit say. No line has
// a secret: of an API key it has the name and the scopes.
#pragma once

#include <optional>
#include <string>

#include "proto/access.pb.h"
#include "proto/admin.pb.h"
#include "proto/cluster.pb.h"
#include "storage/audit_line.hpp"

namespace troupe::actors {

// `action` and `what` of a change; nothing for a question.
[[nodiscard]] std::optional<storage::AuditLine> ChangeOf(const proto::AdminRequest& request);
// How it ended; of a deployment or a removal also the version that it was about.
void SetOutcome(const proto::AdminReply& reply, storage::AuditLine& line);
// Of a member that joined, or was refused.
[[nodiscard]] storage::AuditLine JoinLine(const proto::JoinRequest& join, const absl::Status& status);
// Who asked. A caller without a name on the gateway's own machine is "loopback", any other is "unknown".
void SetCaller(const proto::Caller& caller, storage::AuditLine& line);
// Whether the line names its caller, and not only an address.
[[nodiscard]] bool HasName(const storage::AuditLine& line);

}  // namespace troupe::actors
