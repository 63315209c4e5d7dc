// AUDIT LINE: one change that was asked for: who, what, from where, and how it ended. As a line of a file it
// is one JSON object, so that jq and log shippers read it. A manager writes two lines of each change: one before it
// makes the change, whose result is "begun", and one before it answers. Both have the same number of the change.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace troupe::storage {

struct AuditLine {
  std::uint64_t number = 0;  // counts the lines of one log: a gap shows that lines are missing
  std::uint64_t change = 0;  // counts the changes of one process of a manager; zero: this line stands alone
  std::int64_t unix_ns = 0;
  std::string who;      // "key/NAME", "certificate/NAME", "user/UID", "loopback", "member/NAME", "unknown"
  std::string from;     // an address; empty: not known
  std::string via;      // the gateway that passed it on; empty: none did
  std::string action;   // "function.deploy"
  std::string what;     // "function 'digits' version 3"
  std::string result;   // "ok", or the name of the error's code: "NOT_FOUND"
  std::string message;  // of an error
};

inline constexpr std::string_view kAuditDone = "ok";
inline constexpr std::string_view kAuditBegun = "begun";
// Fills in how it ended.
void SetResult(const absl::Status& status, AuditLine& line);

// One JSON object and a newline. Texts are cut at 1 KiB; control characters and what is not UTF-8 become '?'.
[[nodiscard]] std::string FormatAuditLine(const AuditLine& line);
// DataLoss when it is not one.
[[nodiscard]] absl::StatusOr<AuditLine> ParseAuditLine(std::string_view text);

struct AuditQuery {
  std::size_t last = 50;
  std::string who;   // the whole caller, or what stands before '/' ("key"); empty: all
  std::string what;  // a part of `action` or of `what`; empty: all
};
[[nodiscard]] bool Matches(const AuditLine& line, const AuditQuery& query);

}  // namespace troupe::storage
