#include "storage/directory_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "storage/disk_status.hpp"

namespace troupe::storage {
namespace {

absl::Status Locked(const std::string& directory, const std::string& lock_path) {
  std::string holder = "another process";
  std::uint64_t pid = 0;
  if (const auto text = ReadSmallFile(lock_path, 32); text.ok() && absl::SimpleAtoi(*text, &pid)) {
    holder = absl::StrCat("pid ", pid);
  }
  return absl::FailedPreconditionError(
      absl::StrCat("directory ", directory, " is locked by ", holder, ": stop it or choose another"));
}

}  // namespace

absl::StatusOr<DirectoryLock> DirectoryLock::Acquire(const std::string& directory) {
  TROUPE_RETURN_IF_ERROR(MakeDirectories(directory));
  const std::string path = absl::StrCat(directory, "/", kFile);
  TROUPE_ASSIGN_OR_RETURN(transport::UniqueFd file, OpenFile(path, O_RDWR | O_CREAT));
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    return errno == EWOULDBLOCK ? Locked(directory, path) : DiskError(errno, "lock", path);
  }
  const std::string pid = absl::StrCat(::getpid(), "\n");
  if (::ftruncate(file.get(), 0) != 0) return DiskError(errno, "truncate", path);
  TROUPE_RETURN_IF_ERROR(WriteAll(file, std::as_bytes(std::span(pid)), path));
  return DirectoryLock(std::move(file));
}

}  // namespace troupe::storage
