// Small helpers around absl::Status: every expected failure says what was asked, what was found and what to
// do.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define TROUPE_CONCAT_INNER(a, b) a##b
#define TROUPE_CONCAT(a, b) TROUPE_CONCAT_INNER(a, b)

namespace troupe {

// A write that failed because a disk is full carries this payload, whatever its code: it is told apart from
// overload all the way to the client (HTTP 507).
inline constexpr char kDiskFullPayload[] = "troupe/disk-full";
[[nodiscard]] inline absl::Status MarkDiskFull(absl::Status status) {
  status.SetPayload(kDiskFullPayload, absl::Cord());
  return status;
}
[[nodiscard]] inline bool IsDiskFull(const absl::Status& status) {
  return status.GetPayload(kDiskFullPayload).has_value();
}

}  // namespace troupe

// Returns from the enclosing function when `expression` is not OK.
#define TROUPE_RETURN_IF_ERROR(expression)                                              \
  do {                                                                                  \
    if (absl::Status status_here = (expression); !status_here.ok()) return status_here; \
  } while (false)

// Binds the value of a StatusOr to `declaration`, or returns its error.
#define TROUPE_ASSIGN_OR_RETURN(declaration, expression) \
  TROUPE_ASSIGN_OR_RETURN_INNER(TROUPE_CONCAT(status_or_, __LINE__), declaration, expression)
#define TROUPE_ASSIGN_OR_RETURN_INNER(holder, declaration, expression) \
  auto holder = (expression);                                          \
  if (!holder.ok()) return std::move(holder).status();                 \
  declaration = std::move(holder).value()
