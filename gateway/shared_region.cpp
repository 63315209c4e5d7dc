#include "gateway/shared_region.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/status.hpp"
#include "gateway/text.hpp"

namespace troupe::gateway {

namespace {

constexpr std::size_t kLongestName = 255;  // of a file

// Closes a descriptor at the end of a scope, unless it was taken.
class Descriptor {
 public:
  explicit Descriptor(int descriptor) : descriptor_(descriptor) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  [[nodiscard]] int get() const { return descriptor_; }
  [[nodiscard]] int Take() { return std::exchange(descriptor_, -1); }

 private:
  int descriptor_;
};

std::string Shown(std::string_view key) {
  return Cat("'", key.substr(0, 100), "'");
}

// The file's name: the key without the slash that shm_open wants.
absl::StatusOr<std::string> NameOf(const std::string& key) {
  std::string_view name = key;
  if (name.starts_with('/')) name.remove_prefix(1);
  const bool one_file = !name.empty() && name.size() <= kLongestName && name != "." && name != ".." &&
                        name.find('/') == std::string_view::npos && name.find('\0') == std::string_view::npos;
  if (one_file) return std::string(name);
  return absl::InvalidArgumentError(
      Cat("\"key\" is ", Shown(key),
          "; it must name a shared memory object as shm_open does: one name of 1 "
          "to 255 bytes, with or without a '/' in front and no other"));
}

absl::Status Failed(int error, std::string_view what, const std::string& key) {
  const std::string text = Cat(what, " the shared memory object ", Shown(key), ": ", strerror(error));
  if (error == ENOENT) return absl::NotFoundError(Cat(text, "; create it before it is registered"));
  if (error == ELOOP) return absl::PermissionDeniedError(Cat(text, "; links are not followed"));
  if (error == EACCES || error == EPERM) {
    return absl::PermissionDeniedError(
        Cat(text,
            "; the gateway's user must be allowed to read it (and to write it, for outputs): see its mode"));
  }
  if (error == ENOSPC || error == ENOMEM || error == EDQUOT)
    return absl::ResourceExhaustedError(Cat(text, "; there is no memory for its pages"));
  return absl::FailedPreconditionError(text);
}

// What the object must be before it is opened: `descriptor` only names it (O_PATH).
absl::Status CheckObject(int descriptor, const RegionPlace& place, uid_t client) {
  struct stat info {};
  struct statfs system {};
  if (fstat(descriptor, &info) != 0 || fstatfs(descriptor, &system) != 0)
    return Failed(errno, "looking at", place.key);
  if (info.st_uid != client) {
    return absl::PermissionDeniedError(Cat("the shared memory object ", Shown(place.key), " belongs to user ",
                                           info.st_uid, ", and this client runs as user ", client,
                                           "; a client registers its own objects only"));
  }
  if (!S_ISREG(info.st_mode) || system.f_type != TMPFS_MAGIC) {
    return absl::InvalidArgumentError(Cat(Shown(place.key), " is not a shared memory object, but ",
                                          S_ISLNK(info.st_mode)   ? "a link"
                                          : S_ISREG(info.st_mode) ? "a file that is not in memory"
                                                                  : "another kind of file",
                                          "; make it with shm_open"));
  }
  // What lies within a file fits off_t, too.
  const auto size = static_cast<std::uint64_t>(info.st_size);
  if (place.offset > size || place.byte_size > size - place.offset) {
    return absl::InvalidArgumentError(Cat("a region of ", place.byte_size, " bytes at offset ", place.offset,
                                          " leaves the shared memory object ", Shown(place.key),
                                          ", which has ", size, " bytes"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<SharedRegion>> SharedRegion::Open(const std::string& folder, RegionPlace place,
                                                                 uid_t client) {
  TROUPE_ASSIGN_OR_RETURN(const std::string name, NameOf(place.key));
  if (place.byte_size == 0)
    return absl::InvalidArgumentError("\"byte_size\" is 0; a region has 1 byte at least");
  const Descriptor root(open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (root.get() < 0) return Failed(errno, "looking for", place.key);
  const Descriptor named(openat(root.get(), name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (named.get() < 0) return Failed(errno, "looking for", place.key);
  TROUPE_RETURN_IF_ERROR(CheckObject(named.get(), place, client));
  // The file that was checked, whatever its name leads to by now.
  const std::string checked = Cat("/proc/self/fd/", named.get());
  Descriptor opened(open(checked.c_str(), O_RDWR | O_CLOEXEC));
  const bool writable = opened.get() >= 0;
  if (!writable && errno != EACCES) return Failed(errno, "opening", place.key);
  Descriptor readable(writable ? -1 : open(checked.c_str(), O_RDONLY | O_CLOEXEC));
  if (!writable && readable.get() < 0) return Failed(errno, "opening", place.key);
  return std::shared_ptr<SharedRegion>(
      new SharedRegion(std::move(place), writable ? opened.Take() : readable.Take(), writable));
}

SharedRegion::~SharedRegion() {
  close(descriptor_);
}

absl::Status SharedRegion::Shrunk(std::uint64_t offset, std::uint64_t length) const {
  struct stat info {};
  const bool told = fstat(descriptor_, &info) == 0;
  return absl::FailedPreconditionError(
      Cat("the shared memory object ", Shown(place_.key), " was shrunk since it was registered: ", length,
          " bytes at its offset ", place_.offset + offset, " were asked for, and it has ",
          told ? info.st_size : 0, "; unregister the region and register what is there"));
}

absl::Status SharedRegion::Read(std::uint64_t offset, std::span<std::byte> into) const {
  std::size_t done = 0;
  while (done < into.size()) {
    const ssize_t count = pread(descriptor_, into.data() + done, into.size() - done,
                                static_cast<off_t>(place_.offset + offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Failed(errno, "reading", place_.key);
    if (count == 0) return Shrunk(offset, into.size());
    done += static_cast<std::size_t>(count);
  }
  return absl::OkStatus();
}

absl::Status SharedRegion::Write(std::uint64_t offset, std::span<const std::byte> bytes) const {
  // A write beyond the end would make the object longer again. A client that shrinks it after this look finds
  // its own object longer, and no longer than it was registered.
  struct stat info {};
  if (fstat(descriptor_, &info) != 0) return Failed(errno, "looking at", place_.key);
  if (place_.offset + offset + bytes.size() > static_cast<std::uint64_t>(info.st_size))
    return Shrunk(offset, bytes.size());
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = pwrite(descriptor_, bytes.data() + done, bytes.size() - done,
                                 static_cast<off_t>(place_.offset + offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return Failed(count < 0 ? errno : ENOSPC, "writing", place_.key);
    done += static_cast<std::size_t>(count);
  }
  return absl::OkStatus();
}

void SharedRegion::Hold(std::shared_ptr<const void> what) {
  const std::lock_guard lock(mutex_);
  held_.push_back(std::move(what));
}

}  // namespace troupe::gateway
