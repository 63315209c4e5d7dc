#include "storage/appended_file.hpp"

#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "storage/disk_status.hpp"

namespace troupe::storage {

absl::StatusOr<std::string> AppendedFile::Read(Bytes offset, Bytes length) const {
  std::string bytes(length.count(), '\0');
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = ::pread(file_.get(), bytes.data() + done, bytes.size() - done,
                                static_cast<off_t>(offset.count() + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return DiskError(errno, "read", path_);
    if (got == 0)
      return absl::OutOfRangeError(absl::StrCat("only ", offset.count() + done, " bytes of '", path_,
                                                "' have been written, and ", length.count(), " from byte ",
                                                offset.count(), " on were asked for"));
    done += static_cast<std::size_t>(got);
  }
  return bytes;
}

}  // namespace troupe::storage
