// Errors of the disk, told apart: a full disk is an ordinary event that passes, a damaged file is not.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace troupe::storage {

// ResourceExhausted with a payload, so that a caller can tell a full disk (507, try again when there is
// space) from a full queue (503, try again soon).
[[nodiscard]] absl::Status DiskFullError(const std::string& directory, const std::string& doing);
[[nodiscard]] bool IsDiskFull(const absl::Status& status);

// The status of a failed system call on `path`: ENOSPC and EDQUOT are DiskFullError, ENOENT is NotFound,
// EACCES, EPERM and EROFS are PermissionDenied, everything else is Unavailable. `doing` reads as in "cannot
// <doing> <path>".
[[nodiscard]] absl::Status DiskError(int error_number, const std::string& doing, const std::string& path);

}  // namespace troupe::storage
