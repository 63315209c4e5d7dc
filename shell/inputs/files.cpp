#include "shell/inputs/files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "base/status.hpp"
#include "shell/inputs/json_tensor.hpp"
#include "shell/inputs/npy.hpp"
#include "shell/inputs/onnx_tensor.hpp"
#include "shell/inputs/tensor.hpp"
#include "shell/text/cat.hpp"

namespace troupe::shell {

namespace {

absl::Status FileError(const std::string& path, std::string_view what) {
  return absl::InvalidArgumentError(Cat("'", path, "' ", what, ": ", std::strerror(errno)));
}

// Beside the file, until it is whole.
std::string PartOf(const std::string& path) {
  return Cat(path, ".part");
}

absl::StatusOr<proto::Tensor> ParseByName(const std::string& path, const std::string& content,
                                          const proto::TensorSpec& declared) {
  if (absl::EndsWith(path, ".npy")) return ParseNpy(content);
  if (absl::EndsWith(path, ".pb")) return ParseOnnxTensor(content);
  return ParseJsonTensor(content, declared);
}

}  // namespace

absl::StatusOr<std::string> FindOnnxFile(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) return path;
  std::vector<std::string> found;
  for (auto entry = std::filesystem::directory_iterator(path, error);
       !error && entry != std::filesystem::directory_iterator(); entry.increment(error))
    if (entry->path().extension() == ".onnx") found.push_back(entry->path().filename().string());
  if (error) return absl::InvalidArgumentError(Cat("'", path, "' cannot be read: ", error.message()));
  if (found.size() == 1) return (std::filesystem::path(path) / found[0]).string();
  if (found.empty()) return absl::InvalidArgumentError(Cat("'", path, "' is a folder without an .onnx file"));
  std::ranges::sort(found);
  const auto others = found.size() > 2 ? Cat(" and ", found.size() - 2, " more") : std::string();
  return absl::InvalidArgumentError(
      Cat("'", path, "' is a folder with ", found[0], ", ", found[1], others, "; say which of them"));
}

absl::StatusOr<std::string> ReadFile(const std::string& path, Bytes most) {
  // Without O_NONBLOCK, a pipe without a writer would hold the shell here.
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return FileError(path, "cannot be read");
  const absl::Cleanup close_it = [file] { close(file); };
  struct stat about = {};
  if (fstat(file, &about) != 0) return FileError(path, "cannot be read");
  if (!S_ISREG(about.st_mode)) return absl::InvalidArgumentError(Cat("'", path, "' is not a regular file"));
  const Bytes size(static_cast<std::uint64_t>(about.st_size));
  if (size > most) {
    return absl::InvalidArgumentError(
        Cat("'", path, "' has ", FormatBytes(size), "; at most ", FormatBytes(most), " are taken"));
  }
  std::string content(size.count(), '\0');
  std::size_t have = 0;
  while (have < content.size()) {
    const ssize_t got = read(file, content.data() + have, content.size() - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FileError(path, "cannot be read");
    if (got == 0) break;
    have += static_cast<std::size_t>(got);
  }
  content.resize(have);
  return content;
}

absl::Status CheckWritable(const std::string& path) {
  struct stat about = {};
  if (stat(path.c_str(), &about) == 0 && S_ISDIR(about.st_mode))
    return absl::InvalidArgumentError(Cat("'", path, "' is a directory; name a file"));
  const std::string part = PartOf(path);
  const int file = open(part.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0) return FileError(path, "cannot be written");
  close(file);
  std::remove(part.c_str());
  return absl::OkStatus();
}

absl::Status WriteFile(const std::string& path, const std::string& content) {
  const std::string part = PartOf(path);
  std::FILE* file = std::fopen(part.c_str(), "wb");
  if (file == nullptr) return FileError(path, "cannot be written");
  const bool written = std::fwrite(content.data(), 1, content.size(), file) == content.size();
  const int error = errno;
  if (std::fclose(file) == 0 && written && std::rename(part.c_str(), path.c_str()) == 0)
    return absl::OkStatus();
  if (!written) errno = error;
  const auto status = FileError(path, "cannot be written");
  std::remove(part.c_str());
  return status;
}

absl::StatusOr<proto::Tensor> ReadTensorFile(const std::string& path, const proto::TensorSpec& declared) {
  if (!absl::EndsWith(path, ".npy") && !absl::EndsWith(path, ".pb") && !absl::EndsWith(path, ".json")) {
    return absl::InvalidArgumentError(
        Cat("'", path, "' is neither .npy, .pb nor .json; save the tensor as one of these"));
  }
  TROUPE_ASSIGN_OR_RETURN(const auto content, ReadFile(path, Bytes(kMostFileBytes)));
  auto tensor = ParseByName(path, content, declared);
  auto status = tensor.status();
  if (status.ok()) status = CheckAgainst(declared, tensor->spec());
  if (!status.ok()) {
    return absl::InvalidArgumentError(
        Cat("input '", declared.name(), "' from '", path, "': ", status.message()));
  }
  tensor->mutable_spec()->set_name(declared.name());
  return tensor;
}

}  // namespace troupe::shell
