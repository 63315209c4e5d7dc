// Tensor data in a file of its own beside the ONNX file. The path comes from a hostile file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "gpu/import/graph.hpp"

namespace troupe::gpu {

struct ExternalData {
  std::string location;  // relative to the folder
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

// A file mapped before the jail, in which no path can be opened any more, or a part of one. It is never unmapped.
using OpenedFile = std::span<const std::byte>;
// By path relative to the model's folder.
using OpenedFiles = std::map<std::string, OpenedFile>;
inline constexpr std::size_t kOpenedFiles = 256;  // at most; files beyond are not there for a jailed import
inline constexpr int kOpenedDepth = 4;            // of folders in folders

// Maps the regular files that lie inside `folder` after every symbolic link is followed, for reading.
[[nodiscard]] OpenedFiles OpenFilesOf(const std::filesystem::path& folder);

// The range: where it lies in `opened` when the file is there. Else the file must be a regular file inside `folder` after
// every symbolic link is followed, and the bytes are read. Without a folder there are the opened files only.
[[nodiscard]] absl::StatusOr<TensorBytes> ReadExternalData(const std::filesystem::path& folder,
                                                           const ExternalData& data,
                                                           const OpenedFiles& opened = {});

}  // namespace troupe::gpu
