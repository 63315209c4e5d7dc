#include "transport/host_id.hpp"

#include <sys/random.h>
#include <sys/stat.h>

#include <cerrno>
#include <fstream>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"

namespace troupe::transport {
namespace {

// Which file system a directory lies on, as the kernel numbers them; nothing when it cannot be asked.
std::optional<std::string> FileSystemOf(const char* directory) {
  struct stat found {};
  if (stat(directory, &found) != 0) return std::nullopt;
  return absl::StrCat(absl::Hex(found.st_dev));
}

std::string ReadHostId() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  const auto root = FileSystemOf("/");
  const auto run = FileSystemOf("/run");
  // Nothing is known to be shared with any other process then: an identity of this process's own.
  if (boot.empty() || !root || !run) return absl::StrCat("unknown-", UniqueId());
  return absl::StrCat(boot, "/", *root, ".", *run);
}

}  // namespace

const std::string& HostId() {
  static const std::string id = ReadHostId();
  return id;
}

std::uint64_t UniqueId() {
  std::uint64_t id = 0;
  while (id == 0) {
    const ssize_t got = getrandom(&id, sizeof(id), 0);
    TROUPE_CHECK(got == sizeof(id) || (got < 0 && errno == EINTR), "the kernel gives random numbers");
  }
  return id;
}

}  // namespace troupe::transport
