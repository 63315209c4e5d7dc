// The `code` and `message` of a reply between processes, as a status and back. The code is absl's canonical
// one; a status that a full disk caused (IsDiskFull) has kDiskFullCodes added to it, so that an answer of
// HTTP says 507 whichever process has the disk.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/status.hpp"

namespace troupe {

inline constexpr int kDiskFullCodes = 1000;

[[nodiscard]] inline int WireCode(const absl::Status& status) {
  return static_cast<int>(status.code()) + (IsDiskFull(status) ? kDiskFullCodes : 0);
}

// A code that is not a canonical one reads as UNKNOWN.
[[nodiscard]] inline absl::Status FromWire(int code, absl::string_view message) {
  const bool disk_full = code > kDiskFullCodes;
  absl::Status status(static_cast<absl::StatusCode>(disk_full ? code - kDiskFullCodes : code), message);
  return disk_full ? MarkDiskFull(std::move(status)) : status;
}

// Fills the `code` and the `message` of a reply.
template <class Reply>
void SetStatus(const absl::Status& status, Reply& reply) {
  reply.set_code(WireCode(status));
  reply.set_message(std::string(status.message()));
}
template <class Reply>
[[nodiscard]] absl::Status StatusIn(const Reply& reply) {
  return FromWire(reply.code(), reply.message());
}
// Of a reply that may not have come: then why it has not.
template <class Reply>
[[nodiscard]] absl::Status StatusIn(const absl::StatusOr<Reply>& reply) {
  return reply.ok() ? StatusIn(*reply) : reply.status();
}
// The reply, or the error that it carries.
template <class Reply>
[[nodiscard]] absl::StatusOr<Reply> Checked(absl::StatusOr<Reply> reply) {
  if (const auto status = StatusIn(reply); !status.ok()) return status;
  return reply;
}

}  // namespace troupe
