// ADMIN: requests of the administration: which part of the cluster carries each out, and that the answer to a
// change passes the audit on its way.
#pragma once

#include <map>

#include "cluster/admin/audit_entry.hpp"
#include "cluster/events.hpp"

namespace troupe::cluster {

struct Parts;

class Admin {
 public:
  explicit Admin(Parts& parts) : parts_(parts) {}

  void On(AdminAsked& event);
  // The answer to a change is given when its entry in the audit is durable.
  void Reply(Ask ask, proto::AdminReply reply);

 private:
  void Carry(Ask ask, const proto::AdminRequest& request);
  void Answer(Ask ask, const proto::AdminRequest& request);

  Parts& parts_;
  std::map<Ask, AuditEntry> audited_;  // changes that were not answered
};

}  // namespace troupe::cluster
