#include "gpu/jail/landlock.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace troupe::gpu {
namespace {

// As linux/landlock.h has them; the header of the system may be older than its kernel.
constexpr std::uint64_t kReadFile = 1U << 2;
constexpr std::uint64_t kReadFolder = 1U << 3;
constexpr std::uint64_t kRemoveFile = 1U << 5;
constexpr std::uint64_t kMakeSocket = 1U << 9;
// Rights over files: 13 of the first ABI, then refer, truncate and ioctl of devices.
constexpr std::uint64_t kFirstRights = (1U << 13) - 1;
constexpr std::uint64_t kRefer = 1U << 13;
constexpr std::uint64_t kTruncate = 1U << 14;
constexpr std::uint64_t kDeviceIoctl = 1U << 15;
constexpr std::uint64_t kBindAndConnect = 3;          // of TCP, since ABI 4
constexpr std::uint64_t kAbstractSocketsSignals = 3;  // scopes, since ABI 6
constexpr std::uint32_t kVersion = 1;
constexpr int kRuleOfPath = 1;

struct Ruleset {
  std::uint64_t files = 0;
  std::uint64_t network = 0;
  std::uint64_t scopes = 0;
};
struct [[gnu::packed]] PathRule {
  std::uint64_t allowed;
  std::int32_t folder;
};

absl::Status LandlockFailed(const char* what) {
  return absl::UnavailableError(absl::StrCat("Landlock (", what, ": ", std::strerror(errno), ")"));
}

absl::Status Allow(int ruleset, const std::string& path, std::uint64_t rights) {
  const int fd = open(path.c_str(), O_PATH | O_CLOEXEC);
  if (fd < 0) return absl::OkStatus();
  struct stat info {};
  const bool folder = fstat(fd, &info) == 0 && S_ISDIR(info.st_mode);
  const PathRule rule{folder ? rights : rights & kReadFile, fd};
  const long added = syscall(SYS_landlock_add_rule, ruleset, kRuleOfPath, &rule, 0);
  const absl::Status status = added == 0 ? absl::OkStatus() : LandlockFailed(path.c_str());
  close(fd);
  return status;
}

}  // namespace

absl::Status RestrictPaths(const LandlockRules& rules) {
  const long version = syscall(SYS_landlock_create_ruleset, nullptr, 0, kVersion);
  if (version < 1) return LandlockFailed("its version");
  Ruleset handled{kFirstRights, 0, 0};
  if (version >= 2) handled.files |= kRefer;
  if (version >= 3) handled.files |= kTruncate;
  if (version >= 4) handled.network = kBindAndConnect;
  if (version >= 5) handled.files |= kDeviceIoctl;
  if (version >= 6) handled.scopes = kAbstractSocketsSignals;
  const std::size_t size = version >= 6 ? 24 : version >= 4 ? 16 : 8;
  const int ruleset = static_cast<int>(syscall(SYS_landlock_create_ruleset, &handled, size, 0));
  if (ruleset < 0) return LandlockFailed("a set of rules");
  absl::Status status;
  for (const std::string& folder : rules.sockets)
    status.Update(Allow(ruleset, folder, kReadFolder | kMakeSocket | kRemoveFile));
  for (const std::string& path : rules.readable) status.Update(Allow(ruleset, path, kReadFile | kReadFolder));
  if (status.ok() && syscall(SYS_landlock_restrict_self, ruleset, 0) != 0)
    status = LandlockFailed("entering it");
  close(ruleset);
  return status;
}

}  // namespace troupe::gpu
