#include "storage/disk_status.hpp"

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"

namespace troupe::storage {
absl::Status DiskFullError(const std::string& directory, const std::string& doing) {
  return MarkDiskFull(absl::ResourceExhaustedError(
      absl::StrCat("disk full: cannot ", doing, " ", directory, ": free some space on that file system")));
}

absl::Status DiskError(int error_number, const std::string& doing, const std::string& path) {
  const std::string message = absl::StrCat("cannot ", doing, " ", path, ": ",
                                           std::strerror(error_number));  // NOLINT(concurrency-mt-unsafe)
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:
      return DiskFullError(path, doing);
    case ENOENT:
      return absl::NotFoundError(message);
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::PermissionDeniedError(absl::StrCat(message, ": give this user the right to write there"));
    default:
      return absl::UnavailableError(message);
  }
}

}  // namespace troupe::storage
