#include "storage/durable_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "storage/disk_status.hpp"

namespace troupe::storage {

namespace {

constexpr char kUnfinished[] = ".tmp";  // ends the name of a file until it is whole

}  // namespace

absl::StatusOr<transport::UniqueFd> OpenFile(const std::string& path, int flags, unsigned mode) {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC, mode);
  if (fd < 0) return DiskError(errno, "open", path);
  return transport::UniqueFd(fd);
}

absl::Status WriteAll(const transport::UniqueFd& file, std::span<const std::byte> bytes,
                      const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return DiskError(errno, "write to", path);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status SyncFile(const transport::UniqueFd& file, const std::string& path) {
  return ::fsync(file.get()) == 0 ? absl::OkStatus() : DiskError(errno, "sync", path);
}

absl::Status SyncDirectory(const std::string& path) {
  TROUPE_ASSIGN_OR_RETURN(const transport::UniqueFd directory, OpenFile(path, O_RDONLY | O_DIRECTORY));
  return SyncFile(directory, path);
}

absl::Status MakeDirectories(const std::string& path) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  if (::mkdir(path.c_str(), 0700) != 0) {
    if (errno == EEXIST) {
      return std::filesystem::is_directory(path) ? absl::OkStatus() : DiskError(ENOTDIR, "use", path);
    }
    if (errno != ENOENT || parent.empty() || parent == path) return DiskError(errno, "make", path);
    TROUPE_RETURN_IF_ERROR(MakeDirectories(parent.string()));
    if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return DiskError(errno, "make", path);
  }
  return SyncDirectory(parent.empty() ? "." : parent.string());
}

absl::Status RemoveUnfinished(const std::string& directory) {
  std::error_code failed;
  for (std::filesystem::directory_iterator at(directory, failed), end; !failed && at != end;
       at.increment(failed)) {
    const std::string path = at->path().string();
    if (path.ends_with(kUnfinished) && ::unlink(path.c_str()) != 0 && errno != ENOENT)
      return DiskError(errno, "remove", path);
  }
  return failed ? DiskError(failed.value(), "list", directory) : absl::OkStatus();
}

absl::Status ReplaceFile(const std::string& path, const std::string& text) {
  const std::string temporary = absl::StrCat(path, kUnfinished);
  {
    TROUPE_ASSIGN_OR_RETURN(const transport::UniqueFd file,
                            OpenFile(temporary, O_WRONLY | O_CREAT | O_TRUNC));
    TROUPE_RETURN_IF_ERROR(WriteAll(file, std::as_bytes(std::span(text)), temporary));
    TROUPE_RETURN_IF_ERROR(SyncFile(file, temporary));
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) return DiskError(errno, "replace", path);
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  return SyncDirectory(parent.empty() ? "." : parent.string());
}

absl::StatusOr<std::string> ReadSmallFile(const std::string& path, std::size_t limit) {
  TROUPE_ASSIGN_OR_RETURN(const transport::UniqueFd file, OpenFile(path, O_RDONLY));
  std::string text(limit + 1, '\0');
  std::size_t length = 0;
  while (length < text.size()) {
    const ssize_t got = ::read(file.get(), text.data() + length, text.size() - length);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return DiskError(errno, "read", path);
    if (got == 0) break;
    length += static_cast<std::size_t>(got);
  }
  if (length > limit) {
    return absl::InvalidArgumentError(absl::StrCat(path, " has more than the ", limit, " bytes it may have"));
  }
  text.resize(length);
  return text;
}

}  // namespace troupe::storage
