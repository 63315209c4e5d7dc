#include "gpu/import/model_archive.hpp"

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "base/tar.hpp"

namespace troupe::gpu {
namespace {

namespace fs = std::filesystem;

absl::StatusOr<fs::path> ModelIn(const std::vector<TarFile>& files) {
  std::vector<fs::path> models;
  for (const TarFile& file : files) {
    fs::path path = fs::path(file.name).lexically_normal();
    if (path.extension() == ".onnx") models.push_back(std::move(path));
  }
  if (models.size() == 1) return models.front();
  if (models.empty())
    return absl::InvalidArgumentError(
        absl::StrCat("the archive has ", files.size(), " files, and none that ends in .onnx"));
  return absl::InvalidArgumentError(absl::StrCat("the archive has the ONNX files '", models[0].string(),
                                                 "' and '", models[1].string(),
                                                 "'; one is taken, with the files of its weights"));
}

struct Packing {
  std::string_view begins;
  const char* what;
  const char* unpack;
};
// None of these could begin an ONNX file, or a tar archive.
constexpr Packing kPackings[] = {
    {"\x1f\x8b", "compressed with gzip", "gunzip, or tar -xzf"},
    {"BZh", "compressed with bzip2", "bunzip2, or tar -xjf"},
    {{"\xfd\x37zXZ\0", 6}, "compressed with xz", "unxz, or tar -xJf"},
    {"\x28\xb5\x2f\xfd", "compressed with zstd", "unzstd, or tar --zstd -xf"},
    {"PK\x03\x04", "a zip archive, as PyTorch's .pt and numpy's .npz are too", "unzip"},
};

absl::Status CheckNotPacked(std::span<const std::byte> file) {
  const std::string_view bytes(reinterpret_cast<const char*>(file.data()), file.size());
  for (const Packing& packing : kPackings)
    if (bytes.starts_with(packing.begins))
      return absl::InvalidArgumentError(absl::StrCat(
          "the file is ", packing.what, "; unpack it (", packing.unpack,
          ") and give the ONNX file, or a plain tar archive (tar -cf) of it and of its weights"));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelArchive> OpenModelArchive(std::span<const std::byte> file) {
  TROUPE_RETURN_IF_ERROR(CheckNotPacked(file));
  if (!IsTar(file)) return ModelArchive{file, {}};
  TROUPE_ASSIGN_OR_RETURN(const auto files, ListTar(file, kArchiveEntries));
  TROUPE_ASSIGN_OR_RETURN(const fs::path model, ModelIn(files));
  ModelArchive archive;
  for (const TarFile& each : files) {
    const auto bytes = file.subspan(each.offset, each.size);
    const fs::path path = fs::path(each.name).lexically_normal();
    if (path == model) archive.onnx = bytes;
    if (!archive.files.try_emplace(path.lexically_relative(model.parent_path()).string(), bytes).second)
      return absl::InvalidArgumentError(absl::StrCat("the archive has the file '", each.name, "' twice"));
  }
  return archive;
}

}  // namespace troupe::gpu
