#include "gpu/import/model_archive.hpp"

#include <filesystem>
#include <string>
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

}  // namespace

absl::StatusOr<ModelArchive> OpenModelArchive(std::span<const std::byte> file) {
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
