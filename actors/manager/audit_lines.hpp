// AUDIT LINES: entries of the audit as its log keeps them, and who a request was made for.
#pragma once

#include <cstdint>
#include <string>

#include "cluster/admin/audit_entry.hpp"
#include "cluster/events.hpp"
#include "proto/access.pb.h"
#include "storage/audit_line.hpp"

namespace troupe::actors {

[[nodiscard]] storage::AuditLine LineOf(cluster::AuditEntry entry, std::int64_t unix_now);
// A caller without a name on the gateway's own machine is "loopback", any other is "unknown".
[[nodiscard]] cluster::Asker AskerOf(const proto::Caller& caller, std::string via = {});

}  // namespace troupe::actors
