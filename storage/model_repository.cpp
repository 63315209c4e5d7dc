#include "storage/model_repository.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/digest.hpp"
#include "base/status.hpp"
#include "storage/disk_status.hpp"
#include "storage/durable_file.hpp"

namespace troupe::storage {

absl::Status CheckDigest(const std::string& digest) {
  if (IsSha256Hex(digest)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("'", digest.substr(0, 80), "' is not a valid SHA-256: 64 lower-case hexadecimal digits"));
}

absl::Status CheckPartName(const std::string& name) {
  const bool good = !name.empty() && name.size() <= 128 && std::ranges::all_of(name, [](char c) {
    return absl::ascii_islower(static_cast<unsigned char>(c)) ||
           absl::ascii_isdigit(static_cast<unsigned char>(c)) || c == '-';
  });
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "'", name.substr(0, 128), "' names no part of an object: lower-case letters, digits and '-' do"));
}

absl::StatusOr<std::string> ModelRepository::Put(std::span<const std::byte> bytes,
                                                 const std::string& expected) {
  TROUPE_ASSIGN_OR_RETURN(const std::unique_ptr<ObjectWriter> writer, Create());
  TROUPE_RETURN_IF_ERROR(writer->Append(bytes));
  return writer->Commit(expected);
}

absl::StatusOr<std::string> ModelRepository::Take(const std::string& path, const std::string& expected) {
  auto digest = PutFile(path, expected);
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return DiskError(errno, "remove", path);
  return digest;
}

absl::Status ModelRepository::Lend(const std::string& digest, const std::string& path) {
  TROUPE_ASSIGN_OR_RETURN(const ObjectBytes object, Open(digest));
  TROUPE_ASSIGN_OR_RETURN(const transport::UniqueFd file, OpenFile(path, O_CREAT | O_EXCL | O_WRONLY, 0400));
  return WriteAll(file, object.bytes, path);
}

absl::StatusOr<std::string> ModelRepository::PutFile(const std::string& path, const std::string& expected) {
  TROUPE_ASSIGN_OR_RETURN(const transport::UniqueFd file, OpenFile(path, O_RDONLY));
  TROUPE_ASSIGN_OR_RETURN(const std::unique_ptr<ObjectWriter> writer, Create());
  std::vector<std::byte> chunk(MiB(1).count());
  for (;;) {
    const ssize_t got = ::read(file.get(), chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return DiskError(errno, "read", path);
    if (got == 0) return writer->Commit(expected);
    TROUPE_RETURN_IF_ERROR(writer->Append(std::span(chunk).first(static_cast<std::size_t>(got))));
  }
}

}  // namespace troupe::storage
