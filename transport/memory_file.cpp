#include "transport/memory_file.hpp"

#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"

namespace troupe::transport {
namespace {

constexpr Bytes kPageSize = KiB(4);
constexpr Bytes kHugePage = MiB(2);
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

UniqueFd MakeFile(const std::string& name, Bytes& size, bool& huge_pages) {
  if (huge_pages) {
    const Bytes rounded = AlignUp(size, kHugePage);
    UniqueFd fd(memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB | MFD_HUGE_2MB));
    // Reserving the pages here, not at first touch: a missing huge page would be a SIGBUS later.
    if (fd.valid() && ftruncate(fd.get(), static_cast<off_t>(rounded.count())) == 0 &&
        fallocate(fd.get(), 0, 0, static_cast<off_t>(rounded.count())) == 0) {
      size = rounded;
      return fd;
    }
  }
  huge_pages = false;
  size = AlignUp(size, kPageSize);
  UniqueFd fd(memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (fd.valid() && ftruncate(fd.get(), static_cast<off_t>(size.count())) != 0) {
    const int error = errno;
    fd.Reset();
    errno = error;
  }
  return fd;
}

}  // namespace

UniqueFd& UniqueFd::operator=(UniqueFd&& other) noexcept {
  if (this != &other) {
    Reset();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

void UniqueFd::Reset() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

absl::StatusOr<UniqueFd> UniqueFd::Duplicate() const {
  UniqueFd copy(fcntl(fd_, F_DUPFD_CLOEXEC, 0));
  if (!copy.valid()) return ErrnoStatus(errno, absl::StrCat("duplicating descriptor ", fd_));
  return copy;
}

absl::Status ErrnoStatus(int error, const std::string& what) {
  return absl::ErrnoToStatus(error, what);
}

absl::StatusOr<MemoryFile> MemoryFile::Create(const std::string& name, Bytes size, Options options) {
  constexpr std::uint64_t kLargest = std::uint64_t{1} << 46;
  if (size == Bytes(0) || size.count() > kLargest) {
    return absl::InvalidArgumentError(
        absl::StrCat("shared memory '", name, "' of ", size.count(), " bytes: must be 1 byte to 64 TiB"));
  }
  MemoryFile file;
  file.huge_pages_ = options.huge_pages;
  file.fd_ = MakeFile(name, size, file.huge_pages_);
  if (!file.fd_.valid()) {
    return ErrnoStatus(errno, absl::StrCat("making shared memory '", name, "' of ", FormatBytes(size)));
  }
  file.size_ = size;
  TROUPE_RETURN_IF_ERROR(file.Map(Access::kReadWrite));
  // Refused reserved ones, the kernel may still put large pages together itself; it says no where it may not.
  if (options.huge_pages && !file.huge_pages_) (void)madvise(file.data_, size.count(), MADV_HUGEPAGE);
  const int seals = kSeals | (options.only_creator_writes ? F_SEAL_FUTURE_WRITE : 0) | F_SEAL_SEAL;
  // A process that opens it anew, by way of /proc, cannot write either.
  if (options.gives_back && fchmod(file.fd(), S_IRUSR) != 0) {
    return ErrnoStatus(errno, absl::StrCat("taking the right to write shared memory '", name, "'"));
  }
  if (fcntl(file.fd(), F_ADD_SEALS, seals) != 0) {
    return ErrnoStatus(errno, absl::StrCat("sealing shared memory '", name, "'"));
  }
  return file;
}

absl::StatusOr<UniqueFd> MemoryFile::ReadOnly() const {
  UniqueFd copy(open(absl::StrCat("/proc/self/fd/", fd()).c_str(), O_RDONLY | O_CLOEXEC));
  if (!copy.valid()) return ErrnoStatus(errno, "opening shared memory for reading only");
  return copy;
}

absl::Status MemoryFile::GiveBack(std::uint64_t offset, std::uint64_t length) {
  if (!Contains(offset, length)) return absl::OutOfRangeError("pages to give back leave the shared memory");
  if (fallocate(fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                static_cast<off_t>(length)) != 0) {
    return ErrnoStatus(errno, absl::StrCat("giving back ", length, " bytes of shared memory"));
  }
  return absl::OkStatus();
}

absl::StatusOr<MemoryFile> MemoryFile::Open(UniqueFd fd, Access access) {
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, "reading the size of received shared memory");
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (!S_ISREG(info.st_mode) || seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return absl::InvalidArgumentError(
        "received descriptor is not a memory file sealed against shrinking; its sender is not a process of Troupe");
  }
  if (info.st_size <= 0) return absl::InvalidArgumentError("received shared memory is empty");
  MemoryFile file;
  file.fd_ = std::move(fd);
  file.size_ = Bytes(static_cast<std::uint64_t>(info.st_size));
  file.huge_pages_ = info.st_blksize > static_cast<blksize_t>(kPageSize.count());
  TROUPE_RETURN_IF_ERROR(file.Map(access));
  return file;
}

// A duplicate would share the rights of the descriptor that it was made of: the file is opened anew.
absl::StatusOr<UniqueFd> MemoryFile::ReadOnlyDescriptor() const {
  const std::string path = absl::StrCat("/proc/self/fd/", fd());
  UniqueFd descriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!descriptor.valid()) return ErrnoStatus(errno, absl::StrCat("opening ", path, " for reading"));
  return descriptor;
}

absl::Status MemoryFile::Map(Access access) {
  writable_ = access == Access::kReadWrite;
  const int protection = PROT_READ | (writable_ ? PROT_WRITE : 0);
  void* address = mmap(nullptr, size_.count(), protection, MAP_SHARED, fd(), 0);
  if (address == MAP_FAILED) {
    return ErrnoStatus(errno, absl::StrCat("mapping ", FormatBytes(size_), " of shared memory",
                                           writable_ ? " for writing" : " for reading"));
  }
  data_ = static_cast<std::byte*>(address);
  return absl::OkStatus();
}

MemoryFile::MemoryFile(MemoryFile&& other) noexcept
    : fd_(std::move(other.fd_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, Bytes())),
      writable_(other.writable_),
      huge_pages_(other.huge_pages_) {}

MemoryFile& MemoryFile::operator=(MemoryFile&& other) noexcept {
  if (this != &other) {
    this->~MemoryFile();
    new (this) MemoryFile(std::move(other));
  }
  return *this;
}

MemoryFile::~MemoryFile() {
  if (data_ != nullptr) munmap(data_, size_.count());
}

}  // namespace troupe::transport
