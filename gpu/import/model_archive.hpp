// MODEL ARCHIVE: an ONNX file and the files of its weights in one upload: a tar archive, read where it lies.
#pragma once

#include <cstddef>
#include <span>

#include "absl/status/statusor.h"
#include "gpu/import/external_data.hpp"

namespace troupe::gpu {

struct ModelArchive {
  std::span<const std::byte> onnx;
  OpenedFiles files;  // by path relative to the ONNX file's folder
};

inline constexpr std::size_t kArchiveEntries = 4096;  // files, folders and links

// The bytes are hostile, and outlive what is returned. A file that is no archive is the ONNX file itself. InvalidArgument for a
// damaged archive, for a compressed file, for an archive without or with several .onnx files, and for a name that is there twice.
[[nodiscard]] absl::StatusOr<ModelArchive> OpenModelArchive(std::span<const std::byte> file);

}  // namespace troupe::gpu
