// Errors of the disk, told apart: a full disk is an ordinary event that passes, a damaged file is not.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace troupe::storage {

// ResourceExhausted with the payload of base/status.hpp: IsDiskFull(status). Reads as "cannot <doing>
// <directory>".
[[nodiscard]] absl::Status DiskFullError(const std::string& directory, const std::string& doing);

// The status of a failed system call on `path`: ENOSPC and EDQUOT are DiskFullError, ENOENT is NotFound,
// EACCES, EPERM and EROFS are PermissionDenied, everything else is Unavailable. `doing` reads as in "cannot
// <doing> <path>".
[[nodiscard]] absl::Status DiskError(int error_number, const std::string& doing, const std::string& path);

}  // namespace troupe::storage
