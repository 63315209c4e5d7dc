// AUDIT ENTRY: what the audit is told of one change. Which requests are changes, and what their entries say:
// no entry has a secret; of an API key it has the name and the scopes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "proto/admin.pb.h"
#include "proto/cluster.pb.h"

namespace troupe::cluster {

struct AuditEntry {
  std::uint64_t change =
      0;  // counts this manager's changes; zero: an entry alone, of a member that joined or of what was not allowed
  bool begun = false;    // the change is about to be made, and its second entry will say how it ended
  std::string who{};     // "key/NAME", "certificate/NAME", "user/UID", "loopback", "member/NAME", "unknown"
  std::string from{};    // an address; empty: not known
  std::string via{};     // the gateway that passed it on; empty: none did
  std::string action{};  // "function.deploy"
  std::string what{};    // "function 'digits' version 3"
  absl::Status result{};
  std::string remark{};  // of what went well
};

// Of callers without a name.
inline constexpr char kLoopbackCaller[] = "loopback";
inline constexpr char kUnknownCaller[] = "unknown";

// `action` and `what` of a change; nothing for a question.
[[nodiscard]] std::optional<AuditEntry> ChangeOf(const proto::AdminRequest& request);
// How it ended; of a deployment or a removal also the version that it was about.
void SetOutcome(const proto::AdminReply& reply, AuditEntry& entry);
// Of a member that joined, or was refused.
[[nodiscard]] AuditEntry JoinEntry(const proto::JoinRequest& join, const absl::Status& status);
// Whether the entry names its caller, and not only an address.
[[nodiscard]] bool HasName(const AuditEntry& entry);

}  // namespace troupe::cluster
