// Tensor data in a file of its own beside the ONNX file. The path comes from a hostile file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "absl/status/statusor.h"

namespace troupe::gpu {

struct ExternalData {
  std::string location;  // relative to the folder
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

// Reads the range. The file must be a regular file inside `folder` after every symbolic link is followed.
[[nodiscard]] absl::StatusOr<std::string> ReadExternalData(const std::filesystem::path& folder,
                                                           const ExternalData& data);

}  // namespace troupe::gpu
