#include "gpu/import/canonical_files.hpp"

#include <fcntl.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/digest.hpp"
#include "base/status.hpp"
#include "base/units.hpp"
#include "gpu/import/model_check.hpp"

namespace troupe::gpu {
namespace {

namespace fs = std::filesystem;

absl::Status Failed(const std::string& what, const fs::path& path, int error) {
  const std::string message = absl::StrCat(what, " '", path.string(), "': ", std::strerror(error));
  if (error == ENOENT) return absl::NotFoundError(message);
  if (error == ENOSPC || error == EDQUOT) return MarkDiskFull(absl::ResourceExhaustedError(message));
  return absl::UnavailableError(message);
}

class File {
 public:
  File(const fs::path& path, int flags) : fd_(open(path.c_str(), flags | O_CLOEXEC, 0600)) {}
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  [[nodiscard]] int fd() const { return fd_; }

 private:
  int fd_;
};

absl::Status WriteBytes(int fd, const fs::path& path, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Failed("cannot write", path, errno);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return absl::OkStatus();
}

constexpr int kMake = O_WRONLY | O_CREAT | O_TRUNC;

absl::Status WriteFile(const fs::path& path, std::span<const std::byte> bytes) {
  const File file(path, kMake);
  if (file.fd() < 0) return Failed("cannot create", path, errno);
  return WriteBytes(file.fd(), path, bytes);
}

struct Contents {
  std::shared_ptr<const void> memory;
  std::span<const std::byte> bytes;
};

// Mapped: a large model needs no memory of its own.
absl::StatusOr<Contents> MapFile(const fs::path& path) {
  const File file(path, O_RDONLY | O_NONBLOCK);
  struct stat info {};
  if (file.fd() < 0 || fstat(file.fd(), &info) != 0) return Failed("cannot read", path, errno);
  if (!S_ISREG(info.st_mode))
    return absl::InvalidArgumentError(absl::StrCat("'", path.string(), "' is not a file"));
  const auto size = static_cast<std::size_t>(info.st_size);
  if (size == 0) return Contents{};
  void* const memory = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd(), 0);
  if (memory == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no room for the ", size, " bytes of '", path.string(), "': ", std::strerror(errno)));
  }
  return Contents{std::shared_ptr<const void>(memory, [size](void* mapped) { munmap(mapped, size); }),
                  {static_cast<const std::byte*>(memory), size}};
}

std::string DigestOf(std::span<const std::byte> bytes) {
  Sha256 digest;
  digest.Update(bytes);
  return digest.Finish();
}

}  // namespace

std::string SerializeModel(const proto::Model& model) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  model.SerializeToCodedStream(&coded);
  coded.Trim();
  return bytes;
}

std::string ModelDigest(const proto::Model& model) {
  return Sha256Hex(SerializeModel(model));
}

absl::StatusOr<std::string> WriteCanonical(const fs::path& folder, const proto::Model& model,
                                           std::span<const std::byte> weights) {
  TROUPE_RETURN_IF_ERROR(WriteFile(folder / kWeightsFile, weights));
  const std::string bytes = SerializeModel(model);
  const fs::path unfinished = folder / absl::StrCat(kModelFile, ".part");
  TROUPE_RETURN_IF_ERROR(WriteFile(unfinished, std::as_bytes(std::span(bytes))));
  std::error_code error;
  fs::rename(unfinished, folder / kModelFile, error);
  if (error) return Failed("cannot rename", unfinished, error.value());
  return Sha256Hex(bytes);
}

absl::StatusOr<CanonicalDescriptors> OpenCanonical(const fs::path& folder) {
  CanonicalDescriptors files;
  files.weights = open((folder / kWeightsFile).c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (files.weights < 0) return Failed("cannot create", folder / kWeightsFile, errno);
  files.model = open((folder / kModelFile).c_str(), kMake | O_CLOEXEC, 0600);
  if (files.model < 0) return Failed("cannot create", folder / kModelFile, errno);
  return files;
}

absl::StatusOr<std::string> WriteCanonical(const CanonicalDescriptors& files, const proto::Model& model,
                                           std::span<const std::byte> weights) {
  TROUPE_RETURN_IF_ERROR(WriteBytes(files.weights, kWeightsFile, weights));
  return WriteModelFile(files, model);
}

absl::StatusOr<std::string> WriteModelFile(const CanonicalDescriptors& files, const proto::Model& model) {
  const std::string bytes = SerializeModel(model);
  TROUPE_RETURN_IF_ERROR(WriteBytes(files.model, kModelFile, std::as_bytes(std::span(bytes))));
  return Sha256Hex(bytes);
}

WeightsFile::~WeightsFile() {
  if (mapped_ != nullptr) munmap(mapped_, size_);
}

absl::Status WeightsFile::Append(std::span<const std::byte> bytes) {
  if (mapped_ != nullptr) return absl::FailedPreconditionError("these weights were read already");
  TROUPE_RETURN_IF_ERROR(WriteBytes(descriptor_, kWeightsFile, bytes));
  size_ += bytes.size();
  return absl::OkStatus();
}

absl::StatusOr<std::span<const std::byte>> WeightsFile::Read() {
  if (size_ == 0) return std::span<const std::byte>();
  if (mapped_ == nullptr) {
    void* const memory = mmap(nullptr, size_, PROT_READ, MAP_SHARED, descriptor_, 0);
    if (memory == MAP_FAILED) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "the ", FormatBytes(Bytes(size_)), " of weights do not fit the address space of an import"));
    }
    mapped_ = memory;
  }
  return std::span(static_cast<const std::byte*>(mapped_), size_);
}

absl::StatusOr<CanonicalModel> ReadCanonical(const fs::path& folder, const std::string& digest,
                                             WeightsDigest check) {
  TROUPE_ASSIGN_OR_RETURN(const Contents file, MapFile(folder / kModelFile));
  CanonicalModel canonical;
  canonical.digest = DigestOf(file.bytes);
  if (!digest.empty() && canonical.digest != digest)
    return absl::DataLossError(absl::StrCat("'", (folder / kModelFile).string(), "' has digest ",
                                            canonical.digest, ", but ", digest, " was asked for"));
  if (file.bytes.size() > static_cast<std::size_t>(std::numeric_limits<int>::max()) ||
      !canonical.model.ParseFromArray(file.bytes.data(), static_cast<int>(file.bytes.size())))
    return absl::InvalidArgumentError(
        absl::StrCat("'", (folder / kModelFile).string(), "' is not a canonical model"));
  TROUPE_ASSIGN_OR_RETURN(Contents weights, MapFile(folder / kWeightsFile));
  TROUPE_RETURN_IF_ERROR(CheckModel(canonical.model, weights.bytes.size()));
  if (check == WeightsDigest::kChecked && DigestOf(weights.bytes) != canonical.model.weights_digest())
    return absl::DataLossError(absl::StrCat("'", (folder / kWeightsFile).string(),
                                            "' is not what its model describes; import it again"));
  canonical.memory = std::move(weights.memory);
  canonical.weights = weights.bytes;
  return canonical;
}

}  // namespace troupe::gpu
