// Files and directories that survive a power failure: the few system calls, with their errors told.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace troupe::storage {

// Owns a file descriptor.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() { Close(); }
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) {
      Close();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool valid() const { return fd_ >= 0; }
  void Close();

 private:
  int fd_ = -1;
};

// open(2) with O_CLOEXEC; `mode` for files that it creates.
[[nodiscard]] absl::StatusOr<FileDescriptor> OpenFile(const std::string& path, int flags,
                                                      unsigned mode = 0600);
// Writes all of it; `path` only for the error.
[[nodiscard]] absl::Status WriteAll(const FileDescriptor& file, std::span<const std::byte> bytes,
                                    const std::string& path);
[[nodiscard]] absl::Status SyncFile(const FileDescriptor& file, const std::string& path);
// Makes the names in a directory durable.
[[nodiscard]] absl::Status SyncDirectory(const std::string& path);
// Makes `path` and its parents, durably; fine when it is there.
[[nodiscard]] absl::Status MakeDirectories(const std::string& path);
// Puts `text` there as a whole or not at all, durably.
[[nodiscard]] absl::Status ReplaceFile(const std::string& path, const std::string& text);
// NotFound when it is not there. `limit`: InvalidArgument when the file is longer.
[[nodiscard]] absl::StatusOr<std::string> ReadSmallFile(const std::string& path, std::size_t limit);

}  // namespace troupe::storage
