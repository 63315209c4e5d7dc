#include "actors/manager/audit_lines.hpp"

#include <utility>

#include "actors/peers/local_socket.hpp"

namespace troupe::actors {

storage::AuditLine LineOf(cluster::AuditEntry entry, std::int64_t unix_now) {
  storage::AuditLine line;
  line.unix_ns = unix_now;
  line.who = std::move(entry.who);
  line.from = std::move(entry.from);
  line.via = std::move(entry.via);
  line.action = std::move(entry.action);
  line.what = std::move(entry.what);
  line.change = entry.change;
  if (entry.begun) {
    line.result = storage::kAuditBegun;
    return line;
  }
  storage::SetResult(entry.result, line);
  if (entry.result.ok()) line.message = std::move(entry.remark);
  return line;
}

cluster::Asker AskerOf(const proto::Caller& caller, std::string via) {
  cluster::Asker asker{caller.name(), caller.address(), std::move(via)};
  if (asker.who.empty())
    asker.who = IsLoopback(asker.from) ? cluster::kLoopbackCaller : cluster::kUnknownCaller;
  return asker;
}

}  // namespace troupe::actors
