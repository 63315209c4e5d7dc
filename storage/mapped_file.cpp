#include "storage/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>

#include "base/status.hpp"
#include "storage/disk_status.hpp"
#include "storage/durable_file.hpp"

namespace troupe::storage {

absl::StatusOr<FileIdentity> IdentityOf(int file, const std::string& path) {
  struct stat info {};
  if (::fstat(file, &info) != 0) return DiskError(errno, "examine", path);
  if (!S_ISREG(info.st_mode)) return DiskError(EINVAL, "map", path);
  constexpr std::int64_t kSecond = 1'000'000'000;
  return FileIdentity{info.st_ino, static_cast<std::uint64_t>(info.st_size),
                      info.st_mtim.tv_sec * kSecond + info.st_mtim.tv_nsec};
}

absl::StatusOr<std::shared_ptr<const MappedFile>> MappedFile::Open(const std::string& path) {
  TROUPE_ASSIGN_OR_RETURN(const transport::UniqueFd file, OpenFile(path, O_RDONLY | O_NOFOLLOW));
  std::shared_ptr<MappedFile> mapped(new MappedFile());
  TROUPE_ASSIGN_OR_RETURN(mapped->identity_, IdentityOf(file.get(), path));
  if (mapped->identity_.size == 0) return mapped;
  const auto size = static_cast<std::size_t>(mapped->identity_.size);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (data == MAP_FAILED) return DiskError(errno, "map", path);
  mapped->data_ = static_cast<const std::byte*>(data);
  mapped->size_ = size;
  return mapped;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace troupe::storage
