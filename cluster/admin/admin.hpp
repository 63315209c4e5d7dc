// ADMIN: requests of the administration: which part of the cluster carries each out, and that the answer to a
// change passes the audit on its way.
#pragma once

#include <cstdint>
#include <map>

#include "cluster/admin/audit.hpp"
#include "cluster/admin/audit_entry.hpp"
#include "cluster/events.hpp"

namespace troupe::cluster {

struct Parts;

class Admin {
 public:
  explicit Admin(Parts& parts) : parts_(parts) {}

  void On(AdminAsked& event);
  // The first entry of a change is durable, or `written` says why it is not.
  void Begun(const ChangeAudited& change, const absl::Status& written);
  // The answer to a change is given when its second entry is durable.
  void Reply(Ask ask, proto::AdminReply reply);

 private:
  void Carry(Ask ask, const proto::AdminRequest& request);
  void Answer(Ask ask, const proto::AdminRequest& request);

  Parts& parts_;
  std::map<Ask, AuditEntry> audited_;  // changes that were not answered
  std::uint64_t changes_ = 0;
};

}  // namespace troupe::cluster
