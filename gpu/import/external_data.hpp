// Tensor data in a file of its own beside the ONNX file. The path comes from a hostile file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "absl/status/statusor.h"

namespace troupe::gpu {

struct ExternalData {
  std::string location;  // relative to the folder
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

// A file opened before the jail, in which no path can be opened any more. Its descriptor is never closed.
struct OpenedFile {
  int fd = -1;
  std::uint64_t size = 0;  // bytes
};
// By path relative to the model's folder.
using OpenedFiles = std::map<std::string, OpenedFile>;
inline constexpr std::size_t kOpenedFiles = 256;  // at most; files beyond are not there for a jailed import
inline constexpr int kOpenedDepth = 4;            // of folders in folders

// Opens the regular files that lie inside `folder` after every symbolic link is followed, for reading.
[[nodiscard]] OpenedFiles OpenFilesOf(const std::filesystem::path& folder);

// Reads the range, from `opened` where the file is there. Else the file must be a regular file inside
// `folder` after every symbolic link is followed.
[[nodiscard]] absl::StatusOr<std::string> ReadExternalData(const std::filesystem::path& folder,
                                                           const ExternalData& data,
                                                           const OpenedFiles& opened = {});

}  // namespace troupe::gpu
