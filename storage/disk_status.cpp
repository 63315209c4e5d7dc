#include "storage/disk_status.hpp"

#include <cerrno>
#include <cstring>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace troupe::storage {
namespace {
constexpr char kDiskFullUrl[] = "type.troupe/disk-full";
}  // namespace

absl::Status DiskFullError(const std::string& directory, const std::string& doing) {
  absl::Status status = absl::ResourceExhaustedError(
      absl::StrCat("disk full: cannot ", doing, " ", directory, ": free some space on that file system"));
  status.SetPayload(kDiskFullUrl, absl::Cord(directory));
  return status;
}

bool IsDiskFull(const absl::Status& status) {
  return status.GetPayload(kDiskFullUrl).has_value();
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
