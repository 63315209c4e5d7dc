// Keeps two processes out of one directory. The lock is the kernel's (flock), so it ends with its holder,
// however it dies.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "storage/durable_file.hpp"

namespace troupe::storage {

class DirectoryLock {
 public:
  static constexpr const char* kFile = "troupe.lock";

  // Makes the directory when absent, and locks its file kFile, which names the holder's pid for people.
  // FailedPrecondition names the process that holds it. PermissionDenied: not writable.
  [[nodiscard]] static absl::StatusOr<DirectoryLock> Acquire(const std::string& directory);

 private:
  explicit DirectoryLock(transport::UniqueFd file) : file_(std::move(file)) {}
  transport::UniqueFd file_;
};

}  // namespace troupe::storage
