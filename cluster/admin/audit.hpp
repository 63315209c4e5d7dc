// AUDIT: each change has an entry in the audit before it is made, and one before it is answered; each join has
// one before it is answered.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>

#include "cluster/admin/audit_entry.hpp"
#include "cluster/effects.hpp"
#include "cluster/events.hpp"

namespace troupe::cluster {

struct Parts;

// The answer that waits for an entry.
struct JoinAudited {
  Ask ask = 0;
  std::uint64_t epoch = 0;
};
// The change that waits for its first entry.
struct ChangeAudited {
  Ask ask = 0;
  proto::AdminRequest request{};
};
using Audited = std::variant<std::monostate, JoinAudited, ChangeAudited, Answer<proto::AdminReply>>;

class Audit {
 public:
  explicit Audit(Parts& parts) : parts_(parts) {}

  // An answer is given when the entry is durable, or known to be late; at once without an audit. A change is made
  // when its entry is durable.
  void Write(AuditEntry entry, Audited then);
  void On(const AuditWritten& event);

 private:
  struct Waiting {
    std::string what{};  // the change
    Audited then{};
  };
  void Go(Audited& then, const absl::Status& written);

  Parts& parts_;
  std::map<std::uint64_t, Waiting> waiting_;  // by ticket
  std::uint64_t last_ = 0;
};

}  // namespace troupe::cluster
