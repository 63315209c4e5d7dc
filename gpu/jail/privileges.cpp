#include "gpu/jail/privileges.hpp"

#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"

namespace troupe::gpu {
namespace {

constexpr std::uint32_t kNobody = 65534;
constexpr int kSpaces =
    CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWPID | CLONE_NEWCGROUP;

absl::Status Failed(const std::string& what) {
  return absl::UnavailableError(absl::StrCat(what, " (", std::strerror(errno), ")"));
}

bool WriteText(const char* path, const std::string& text) {
  const int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool written = write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  close(fd);
  return written;
}

// The process keeps its own numbers inside its user namespace.
bool MapSelf(uid_t user, gid_t group) {
  return WriteText("/proc/self/setgroups", "deny") &&
         WriteText("/proc/self/uid_map", absl::StrCat(user, " ", user, " 1")) &&
         WriteText("/proc/self/gid_map", absl::StrCat(group, " ", group, " 1"));
}

// The old root goes out of sight with its last mount; what is open stays open.
bool EmptyRoot() {
  constexpr unsigned long kFlags = MS_NOSUID | MS_NODEV | MS_NOEXEC;
  return mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount("jail", "/tmp", "tmpfs", kFlags, "size=4k,nr_inodes=2,mode=0555") == 0 && chdir("/tmp") == 0 &&
         syscall(SYS_pivot_root, ".", ".") == 0 && umount2(".", MNT_DETACH) == 0 && chdir("/") == 0 &&
         mount(nullptr, "/", nullptr, MS_REMOUNT | MS_RDONLY | kFlags, nullptr) == 0;
}

}  // namespace

absl::Status EnterEmptyNamespaces(bool user_namespace) {
  const uid_t user = geteuid();
  const gid_t group = getegid();
  // A process that has changed its user may write its own maps again only after this.
  if (user_namespace) (void)prctl(PR_SET_DUMPABLE, 1);
  if (unshare(kSpaces | (user_namespace ? CLONE_NEWUSER : 0)) != 0) return Failed("namespaces");
  if (user_namespace && !MapSelf(user, group)) return Failed("the map of a user namespace");
  return EmptyRoot() ? absl::OkStatus() : Failed("an empty root folder");
}

absl::Status TakeOwnUser() {
  if (geteuid() != 0) return absl::OkStatus();
  const std::uint32_t own = kFirstJailUser + static_cast<std::uint32_t>(getpid());
  for (const std::uint32_t user : {own, kNobody}) {
    // A user namespace that maps root alone forbids setgroups; it then has no groups to lose but its own.
    (void)setgroups(0, nullptr);
    if (setresgid(user, user, user) == 0 && setresuid(user, user, user) == 0) return absl::OkStatus();
  }
  return Failed("a user of its own");
}

void DropBoundingSet() {
  for (int capability = 0; prctl(PR_CAPBSET_READ, capability) >= 0; ++capability)
    (void)prctl(PR_CAPBSET_DROP, capability);
}

absl::Status DropCapabilities() {
  (void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  const __user_cap_data_struct none[2] = {};
  return syscall(SYS_capset, &header, none) == 0 ? absl::OkStatus() : Failed("giving up capabilities");
}

absl::Status ForbidNewPrivileges() {
  const bool done = prctl(PR_SET_DUMPABLE, 0) == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;
  return done ? absl::OkStatus() : Failed("no_new_privs");
}

absl::Status Limit(int resource, std::uint64_t value, const std::string& what, std::uint64_t grace) {
  const auto kind = static_cast<__rlimit_resource>(resource);
  rlimit limit{};
  if (getrlimit(kind, &limit) == 0) {
    limit.rlim_max = std::min<rlim_t>(limit.rlim_max, value + grace);
    limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, value);
    if (setrlimit(kind, &limit) == 0) return absl::OkStatus();
  }
  return absl::InternalError(absl::StrCat("cannot limit ", what, ": ", std::strerror(errno)));
}

}  // namespace troupe::gpu
