// Shared memory as a file descriptor: what is mapped by more than one process, and the descriptor that
// carries it there.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "base/units.hpp"

namespace troupe::transport {

// Owns a file descriptor and closes it. Any thread, one at a time.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept;
  ~UniqueFd() { Reset(); }
  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool valid() const { return fd_ >= 0; }
  // Gives the descriptor away; the caller closes it.
  [[nodiscard]] int Release() { return std::exchange(fd_, -1); }
  void Reset();
  // A second descriptor of the same open file (close-on-exec).
  [[nodiscard]] absl::StatusOr<UniqueFd> Duplicate() const;

 private:
  int fd_ = -1;
};

// "what: reason" with the canonical code that fits `error` (an errno value).
[[nodiscard]] absl::Status ErrnoStatus(int error, const std::string& what);

// A memfd, mapped whole for as long as this object lives.
//   made (Create) or received (Open) -> mapped -> unmapped and closed by the destructor.
// The file is sealed against shrinking, so that a peer cannot turn a read of ours into a SIGBUS; Open refuses
// a file without that seal. This object owns the mapping; the bytes are shared with every process that maps
// the file. Thread: the object is immutable after it was made; what is in the bytes needs its own
// synchronisation.
class MemoryFile {
 public:
  enum class Access { kReadOnly, kReadWrite };
  struct Options {
    // Asks for huge pages; falls back to normal ones where the system has none (huge_pages() says which).
    bool huge_pages = false;
    // Every mapping made after this one is read-only: the kernel refuses others (F_SEAL_FUTURE_WRITE).
    bool only_creator_writes = false;
    // The creator may return pages (GiveBack), which the seal above forbids: instead of it readers get
    // ReadOnly(), a descriptor whose mappings the kernel refuses to make writable.
    bool gives_back = false;
  };

  // Zero-filled. The size is rounded up to whole pages. ResourceExhausted when the system has no memory for
  // it.
  static absl::StatusOr<MemoryFile> Create(const std::string& name, Bytes size, Options options);
  static absl::StatusOr<MemoryFile> Create(const std::string& name, Bytes size) {
    return Create(name, size, Options());
  }
  // Maps a received descriptor at the size that the kernel reports. InvalidArgument for a descriptor that is
  // not a sealed memory file.
  static absl::StatusOr<MemoryFile> Open(UniqueFd fd, Access access);

  MemoryFile() = default;
  MemoryFile(MemoryFile&& other) noexcept;
  MemoryFile& operator=(MemoryFile&& other) noexcept;
  ~MemoryFile();

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] Bytes size() const { return size_; }
  [[nodiscard]] std::span<std::byte> bytes() const { return {data_, size_.count()}; }
  [[nodiscard]] int fd() const { return fd_.get(); }
  // A descriptor of the same memory that can only be read, to be given away.
  [[nodiscard]] absl::StatusOr<UniqueFd> ReadOnlyDescriptor() const;
  [[nodiscard]] bool writable() const { return writable_; }
  [[nodiscard]] bool huge_pages() const { return huge_pages_; }
  // A descriptor of the same file that cannot be mapped for writing.
  [[nodiscard]] absl::StatusOr<UniqueFd> ReadOnly() const;
  // Returns whole pages to the system: they read as zeros, and cost nothing until they are written again.
  absl::Status GiveBack(std::uint64_t offset, std::uint64_t length);
  // True when [offset, offset + length) lies inside, also when the sum would overflow.
  [[nodiscard]] bool Contains(std::uint64_t offset, std::uint64_t length) const {
    return offset <= size_.count() && length <= size_.count() - offset;
  }

 private:
  absl::Status Map(Access access);

  UniqueFd fd_;
  std::byte* data_ = nullptr;
  Bytes size_;
  bool writable_ = false;
  bool huge_pages_ = false;
};

}  // namespace troupe::transport
