// A file mapped read-only. The mapping outlives the file's name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace troupe::storage {

// What changes whenever a file is replaced or written to.
struct FileIdentity {
  std::uint64_t inode = 0;
  std::uint64_t size = 0;
  std::int64_t modified_ns = 0;
  bool operator==(const FileIdentity&) const = default;
};
[[nodiscard]] absl::StatusOr<FileIdentity> IdentityOf(int file, const std::string& path);

class MappedFile {
 public:
  [[nodiscard]] static absl::StatusOr<std::shared_ptr<const MappedFile>> Open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  [[nodiscard]] std::span<const std::byte> bytes() const { return {data_, size_}; }
  [[nodiscard]] const FileIdentity& identity() const { return identity_; }

 private:
  MappedFile() = default;
  FileIdentity identity_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace troupe::storage
