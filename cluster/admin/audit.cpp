#include "cluster/admin/audit.hpp"

#include <utility>

#include "absl/strings/str_cat.h"
#include "cluster/parts.hpp"

namespace troupe::cluster {

void Audit::Write(AuditEntry entry, Audited then) {
  if (!parts_.settings.audited) return Answer(then);
  const auto ticket = ++last_;
  waiting_.emplace(ticket, Waiting{absl::StrCat(entry.action, " of ", entry.what), std::move(then)});
  parts_.out.Add(WriteAudit{ticket, std::move(entry)});
}

void Audit::On(const AuditWritten& event) {
  auto waiting = waiting_.extract(event.ticket);
  if (waiting.empty()) return;
  // The change is made and durable, and its entry is tried again: its answer would not help by waiting.
  if (!event.status.ok())
    parts_.out.Tell("manager", "audit-behind",
                    absl::StrCat(waiting.mapped().what, ": ", event.status.message()));
  Answer(waiting.mapped().then);
}

void Audit::Answer(Audited& then) {
  if (const auto* join = std::get_if<JoinAudited>(&then)) parts_.members.Welcome(join->ask, join->epoch);
  if (auto* answer = std::get_if<cluster::Answer<proto::AdminReply>>(&then))
    parts_.out.Add(std::move(*answer));
}

}  // namespace troupe::cluster
