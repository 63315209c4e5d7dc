#include "gpu/import/external_data.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.hpp"

namespace troupe::gpu {
namespace {

namespace fs = std::filesystem;

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_;
};

absl::Status Outside(const ExternalData& data) {
  return absl::InvalidArgumentError(absl::StrCat(
      "external data '", data.location, "' lies outside the model's folder; put it beside the ONNX file"));
}

absl::Status Unreadable(const ExternalData& data, const std::error_code& error) {
  return absl::InvalidArgumentError(absl::StrCat(
      "the model keeps weights in a file of its own, '", data.location, "', which cannot be read (",
      error.message(),
      "): deploy it with `troupe function deploy`, which sends such files along, or save the model as one "
      "file"));
}

absl::Status NotThere(const ExternalData& data) {
  return absl::InvalidArgumentError(
      absl::StrCat("the model keeps weights in a file of its own, '", data.location,
                   "', which is not in the archive: put it there beside the ONNX file, under this name"));
}

absl::Status CheckLocation(const fs::path& folder, const ExternalData& data, const OpenedFiles& opened) {
  if (folder.empty() && opened.empty())
    return absl::InvalidArgumentError(
        absl::StrCat("external data '", data.location,
                     "' cannot be read: this model came without a folder; save it as one file"));
  if (data.location.empty() || absl::StrContains(data.location, '\0'))
    return absl::InvalidArgumentError("external data has no usable location");
  const fs::path location(data.location);
  if (location.is_absolute()) return Outside(data);
  for (const fs::path& part : location)
    if (part == "..") return Outside(data);
  return absl::OkStatus();
}

bool Inside(const fs::path& folder, const fs::path& file) {
  const std::string prefix = folder == "/" ? "/" : folder.string() + "/";
  return absl::StartsWith(file.string(), prefix);
}

absl::Status CheckSize(std::uint64_t size, const ExternalData& data) {
  if (data.offset <= size && data.length <= size - data.offset) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("external data '", data.location, "' has ", size,
                                                 " bytes, but ", data.length, " at offset ", data.offset,
                                                 " are needed"));
}

// The file may be swapped between a check and an open, so the check that counts is made on the open
// descriptor.
absl::Status CheckOpened(int fd, const fs::path& folder, const ExternalData& data) {
  std::error_code error;
  const fs::path opened = fs::read_symlink(absl::StrCat("/proc/self/fd/", fd), error);
  if (error || !Inside(folder, opened)) return Outside(data);
  struct stat info {};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))
    return absl::InvalidArgumentError(
        absl::StrCat("external data '", data.location, "' is not a regular file"));
  return CheckSize(static_cast<std::uint64_t>(info.st_size), data);
}

// A kernel reads elements of up to 8 bytes where they lie, so that they have to begin at a multiple of that.
constexpr std::uintptr_t kElementAlignment = 8;

TensorBytes RangeOf(OpenedFile file, const ExternalData& data) {
  const auto range = file.subspan(data.offset, data.length);
  if (reinterpret_cast<std::uintptr_t>(range.data()) % kElementAlignment != 0)
    return HoldBytes(range.data(), range.size());
  return std::make_shared<const std::string_view>(reinterpret_cast<const char*>(range.data()), range.size());
}

absl::StatusOr<TensorBytes> ReadRange(int fd, const ExternalData& data) {
  std::string bytes(data.length, '\0');
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t n =
        pread(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(data.offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      return absl::InvalidArgumentError(
          absl::StrCat("external data '", data.location, "' ended while it was read"));
    done += static_cast<std::size_t>(n);
  }
  return HoldBytes(std::move(bytes));
}

std::optional<OpenedFile> MapWhole(int fd, std::size_t size) {
  if (size == 0) return OpenedFile();
  void* const memory = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (memory == MAP_FAILED) return std::nullopt;
  return OpenedFile(static_cast<const std::byte*>(memory), size);
}

}  // namespace

OpenedFiles OpenFilesOf(const fs::path& folder) {
  OpenedFiles opened;
  std::error_code error;
  const fs::path root = fs::canonical(folder, error);
  if (error) return opened;
  for (fs::recursive_directory_iterator it(root, fs::directory_options::skip_permission_denied, error), end;
       !error && it != end && opened.size() < kOpenedFiles; it.increment(error)) {
    if (it.depth() + 1 >= kOpenedDepth) it.disable_recursion_pending();
    std::error_code unreadable;
    if (!it->is_regular_file(unreadable) || unreadable) continue;
    const fs::path path = fs::canonical(it->path(), unreadable);
    if (unreadable || !Inside(root, path)) continue;
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY);
    struct stat info {};
    if (fd < 0) continue;
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) {
      if (const auto bytes = MapWhole(fd, static_cast<std::size_t>(info.st_size)))
        opened.emplace(it->path().lexically_relative(root).string(), *bytes);
    }
    close(fd);
  }
  return opened;
}

absl::StatusOr<TensorBytes> ReadExternalData(const fs::path& folder, const ExternalData& data,
                                             const OpenedFiles& opened) {
  TROUPE_RETURN_IF_ERROR(CheckLocation(folder, data, opened));
  if (const auto at = opened.find(fs::path(data.location).lexically_normal().string()); at != opened.end()) {
    TROUPE_RETURN_IF_ERROR(CheckSize(at->second.size(), data));
    return RangeOf(at->second, data);
  }
  if (folder.empty()) return NotThere(data);
  std::error_code error;
  const fs::path root = fs::canonical(folder, error);
  if (error) return Unreadable(data, error);
  const fs::path path = fs::canonical(root / data.location, error);
  if (error) return Unreadable(data, error);
  if (!Inside(root, path)) return Outside(data);
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY));
  if (file.get() < 0)
    return absl::InvalidArgumentError(
        absl::StrCat("external data '", data.location, "' cannot be opened: ", std::strerror(errno)));
  TROUPE_RETURN_IF_ERROR(CheckOpened(file.get(), root, data));
  return ReadRange(file.get(), data);
}

}  // namespace troupe::gpu
