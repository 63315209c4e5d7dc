// Files and directories that survive a power failure: the few system calls, with their errors told.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/memory_file.hpp"

namespace troupe::storage {

// open(2) with O_CLOEXEC; `mode` for files that it creates.
[[nodiscard]] absl::StatusOr<transport::UniqueFd> OpenFile(const std::string& path, int flags,
                                                           unsigned mode = 0600);
// Writes all of it; `path` only for the error.
[[nodiscard]] absl::Status WriteAll(const transport::UniqueFd& file, std::span<const std::byte> bytes,
                                    const std::string& path);
[[nodiscard]] absl::Status SyncFile(const transport::UniqueFd& file, const std::string& path);
// Makes the names in a directory durable.
[[nodiscard]] absl::Status SyncDirectory(const std::string& path);
// Makes `path` and its parents, durably; fine when it is there.
[[nodiscard]] absl::Status MakeDirectories(const std::string& path);
// Puts `text` there as a whole or not at all, durably.
[[nodiscard]] absl::Status ReplaceFile(const std::string& path, const std::string& text);
// Removes what ReplaceFile had not put in its place when its process ended. No file of the directory is being written.
[[nodiscard]] absl::Status RemoveUnfinished(const std::string& directory);
// NotFound when it is not there. `limit`: InvalidArgument when the file is longer.
[[nodiscard]] absl::StatusOr<std::string> ReadSmallFile(const std::string& path, std::size_t limit);

}  // namespace troupe::storage
