#include "cluster/admin/audit.hpp"

#include <utility>

#include "absl/strings/str_cat.h"
#include "cluster/parts.hpp"

namespace troupe::cluster {

void Audit::Write(AuditEntry entry, Audited then) {
  if (!parts_.settings.audited) return Go(then, absl::OkStatus());
  const auto ticket = ++last_;
  waiting_.emplace(ticket, Waiting{absl::StrCat(entry.action, " of ", entry.what), std::move(then)});
  parts_.out.Add(WriteAudit{ticket, std::move(entry)});
}

void Audit::On(const AuditWritten& event) {
  auto waiting = waiting_.extract(event.ticket);
  if (waiting.empty()) return;
  // An entry that could not be written is tried again. An answer does not wait for that, since its change is made and
  // durable.
  if (!event.status.ok())
    parts_.out.Tell("manager", "audit-behind",
                    absl::StrCat(waiting.mapped().what, ": ", event.status.message()));
  Go(waiting.mapped().then, event.status);
}

void Audit::Go(Audited& then, const absl::Status& written) {
  if (const auto* join = std::get_if<JoinAudited>(&then)) parts_.members.Welcome(join->ask, join->epoch);
  if (const auto* change = std::get_if<ChangeAudited>(&then)) parts_.admin.Begun(*change, written);
  if (auto* answer = std::get_if<cluster::Answer<proto::AdminReply>>(&then))
    parts_.out.Add(std::move(*answer));
}

}  // namespace troupe::cluster
