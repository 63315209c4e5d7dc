// AUDIT: each change, and each join, has an entry in the audit before it is answered.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "cluster/admin/audit_entry.hpp"
#include "cluster/events.hpp"

namespace troupe::cluster {

struct Parts;

class Audit {
 public:
  explicit Audit(Parts& parts) : parts_(parts) {}

  // `then` when the entry is durable, or known to be late; at once without an audit.
  void Write(AuditEntry entry, std::function<void()> then);
  void On(const AuditWritten& event);

 private:
  struct Waiting {
    std::string what{};  // the change
    std::function<void()> then{};
  };

  Parts& parts_;
  std::map<std::uint64_t, Waiting> waiting_;  // by ticket
  std::uint64_t last_ = 0;
};

}  // namespace troupe::cluster
