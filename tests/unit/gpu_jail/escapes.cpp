#include "tests/unit/gpu_jail/escapes.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/capability.h>
#include <linux/netlink.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/swap.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace troupe::gpu::test {
namespace {

bool Opens(const std::string& path, int flags) {
  return open(path.c_str(), flags | O_CLOEXEC, 0600) >= 0;
}
std::string ProcOf(const Outside& out, const char* file) {
  return "/proc/" + std::to_string(out.parent) + "/" + file;
}
// System calls are made directly, so that no wrapper of the C library falls back to another call.
template <class... Arguments>
bool Calls(long number, Arguments... arguments) {
  return syscall(number, arguments...) >= 0;
}

bool ConnectsToAbstract(const Outside& out) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, out.abstract_name.data(), out.abstract_name.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + out.abstract_name.size());
  return fd >= 0 && connect(fd, reinterpret_cast<sockaddr*>(&address), length) == 0;
}

bool MovesMemory(const Outside& out, long number) {
  long word = 1;
  iovec here{&word, sizeof(word)};
  iovec there{out.secret, sizeof(word)};
  return syscall(number, out.parent, &here, 1UL, &there, 1UL, 0UL) == sizeof(word);
}

bool WritesMemoryByProc(const Outside& out) {
  const int fd = open(ProcOf(out, "mem").c_str(), O_RDWR | O_CLOEXEC);
  long word = 1;
  return fd >= 0 && pwrite(fd, &word, sizeof(word), reinterpret_cast<off_t>(out.secret)) == sizeof(word);
}

bool StealsDescriptor(const Outside& out) {
  const long process = syscall(SYS_pidfd_open, out.parent, 0);
  return process >= 0 && Calls(SYS_pidfd_getfd, process, 0, 0);
}

// A bomb would start a hundred thousand processes; one is too many already.
bool Forks(const Outside&) {
  const pid_t child = static_cast<pid_t>(syscall(SYS_fork));
  if (child == 0) _exit(0);
  return child > 0;
}

bool ClonesWithNamespaces(const Outside&) {
  const long child = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, nullptr, nullptr, nullptr, 0UL);
  if (child == 0) _exit(0);
  return child > 0;
}

bool ClonesByStructure(const Outside&) {
  std::uint64_t arguments[11] = {};
  arguments[4] = SIGCHLD;
  const long child = syscall(SYS_clone3, arguments, sizeof(arguments));
  if (child == 0) _exit(0);
  return child > 0;
}

bool LoadsFilterProgram(const Outside&) {
  bpf_attr attributes{};
  attributes.map_type = BPF_MAP_TYPE_ARRAY;
  attributes.key_size = attributes.value_size = 4;
  attributes.max_entries = 1;
  return Calls(SYS_bpf, BPF_MAP_CREATE, &attributes, sizeof(attributes));
}

bool CountsEvents(const Outside& out) {
  perf_event_attr attributes{};
  attributes.size = sizeof(attributes);
  attributes.type = PERF_TYPE_SOFTWARE;
  return Calls(SYS_perf_event_open, &attributes, out.parent, -1, -1, 0UL);
}

bool TakesCapabilities(const Outside&) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct all[2];
  std::memset(all, 0xff, sizeof(all));
  all[1].effective = all[1].permitted = all[1].inheritable = 0x1ff;
  return Calls(SYS_capset, &header, all);
}

bool MakesRing(const Outside&) {
  char parameters[120] = {};
  return Calls(SYS_io_uring_setup, 8U, parameters);
}

bool StartsProgram(const char* path) {
  char* const none[] = {nullptr};
  return execve(path, none, none) == 0;
}

bool StartsFromMemory(const Outside&) {
  const int fd = memfd_create("program", 0);
  const char script[] = "#!/bin/sh\nexit 0\n";
  char* const none[] = {nullptr};
  return fd >= 0 && write(fd, script, sizeof(script) - 1) > 0 && fexecve(fd, none, none) == 0;
}

// The fields of struct file_handle, whose array has no size.
struct Handle {
  unsigned bytes = 0;
  int type = 0;
  char rest[128] = {};
};

bool MakesHandle(const Outside&) {
  Handle handle;
  handle.bytes = sizeof(handle.rest);
  int mounted = 0;
  return Calls(SYS_name_to_handle_at, AT_FDCWD, "/", &handle, &mounted, 0);
}

bool OpensHandle(const Outside&) {
  Handle handle;
  handle.bytes = 8;
  // Only the permission is tried: the error for an outdated handle would come after it.
  return syscall(SYS_open_by_handle_at, AT_FDCWD, &handle, O_RDONLY) >= 0 || errno == ESTALE;
}

bool RaisesLimit(const Outside&) {
  const rlimit wish{RLIM_INFINITY, RLIM_INFINITY};
  return Calls(SYS_prlimit64, 0, RLIMIT_CORE, &wish, nullptr);
}

}  // namespace

std::vector<Escape> Escapes() {
  return {
      {"open /etc/passwd", [](const Outside&) { return Opens("/etc/passwd", O_RDONLY); }},
      {"open /etc/shadow", [](const Outside&) { return Opens("/etc/shadow", O_RDONLY); }},
      {"open by openat2",
       [](const Outside&) {
         std::uint64_t how[3] = {};
         return Calls(SYS_openat2, AT_FDCWD, "/etc/passwd", how, sizeof(how));
       }},
      {"read the parent's environment",
       [](const Outside& out) { return Opens(ProcOf(out, "environ"), O_RDONLY); }},
      {"read the parent's descriptors",
       [](const Outside& out) { return Opens(ProcOf(out, "fd/0"), O_RDONLY); }},
      {"write /proc/PARENT/mem", WritesMemoryByProc},
      {"ptrace attach",
       [](const Outside& out) { return Calls(SYS_ptrace, PTRACE_SEIZE, out.parent, 0UL, 0UL); }},
      {"be traced by the parent", [](const Outside&) { return Calls(SYS_ptrace, PTRACE_TRACEME, 0, 0, 0); }},
      {"process_vm_writev", [](const Outside& out) { return MovesMemory(out, SYS_process_vm_writev); }},
      {"process_vm_readv", [](const Outside& out) { return MovesMemory(out, SYS_process_vm_readv); }},
      {"pidfd_open and pidfd_getfd", StealsDescriptor},
      {"pidfd_getfd of an inherited pidfd",
       [](const Outside& out) { return Calls(SYS_pidfd_getfd, out.pidfd, 0, 0); }},
      {"kill the parent", [](const Outside& out) { return Calls(SYS_kill, out.parent, SIGURG); }},
      {"kill every process", [](const Outside&) { return Calls(SYS_kill, -1, 0); }},
      {"tgkill the parent",
       [](const Outside& out) { return Calls(SYS_tgkill, out.parent, out.parent, SIGURG); }},
      {"signal by an inherited pidfd",
       [](const Outside& out) { return Calls(SYS_pidfd_send_signal, out.pidfd, SIGURG, nullptr, 0); }},
      {"queue a signal to the parent",
       [](const Outside& out) {
         siginfo_t info{};
         info.si_code = SI_QUEUE;
         return Calls(SYS_rt_sigqueueinfo, out.parent, SIGURG, &info);
       }},
      {"make a shared descriptor block",
       [](const Outside& out) { return fcntl(out.pidfd, F_SETFL, 0) == 0; }},
      {"kcmp", [](const Outside& out) { return Calls(SYS_kcmp, getpid(), out.parent, 0, 0UL, 0UL); }},
      {"unshare a user namespace", [](const Outside&) { return Calls(SYS_unshare, CLONE_NEWUSER); }},
      {"unshare a mount namespace", [](const Outside&) { return Calls(SYS_unshare, CLONE_NEWNS); }},
      {"setns by a pidfd", [](const Outside& out) { return Calls(SYS_setns, out.pidfd, CLONE_NEWNET); }},
      {"clone with namespaces", ClonesWithNamespaces},
      {"clone3", ClonesByStructure},
      {"fork", Forks},
      // These calls name things that do not exist: that error comes after the permission, and a failing test
      // harms no machine.
      {"mount",
       [](const Outside& out) {
         return mount("x", out.folder.c_str(), "no-such-system", 0, nullptr) == 0 || errno == ENODEV;
       }},
      {"fsopen", [](const Outside&) { return Calls(SYS_fsopen, "tmpfs", 0U); }},
      {"open_tree", [](const Outside&) { return Calls(SYS_open_tree, AT_FDCWD, "/", 1U); }},
      {"umount",
       [](const Outside& out) { return umount2(out.folder.c_str(), MNT_DETACH) == 0 || errno == EINVAL; }},
      {"pivot_root",
       [](const Outside&) { return Calls(SYS_pivot_root, ".", ".") || errno == EBUSY || errno == EINVAL; }},
      {"chroot", [](const Outside&) { return Calls(SYS_chroot, "/"); }},
      {"io_uring_setup", MakesRing},
      {"userfaultfd", [](const Outside&) { return Calls(SYS_userfaultfd, O_CLOEXEC | 1); }},
      {"bpf", LoadsFilterProgram},
      {"perf_event_open", CountsEvents},
      {"keyctl", [](const Outside&) { return Calls(SYS_keyctl, 0, -3, 1); }},
      {"add_key", [](const Outside&) { return Calls(SYS_add_key, "user", "x", "y", 1UL, -3); }},
      {"socket inet", [](const Outside&) { return socket(AF_INET, SOCK_STREAM, 0) >= 0; }},
      {"socket inet6 datagram", [](const Outside&) { return socket(AF_INET6, SOCK_DGRAM, 0) >= 0; }},
      {"socket netlink", [](const Outside&) { return socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE) >= 0; }},
      {"socket packet", [](const Outside&) { return socket(AF_PACKET, SOCK_RAW, 0) >= 0; }},
      {"socket vsock", [](const Outside&) { return socket(AF_VSOCK, SOCK_STREAM, 0) >= 0; }},
      {"connect to an abstract socket", ConnectsToAbstract},
      {"execve", [](const Outside&) { return StartsProgram("/bin/true"); }},
      {"memfd and fexecve", StartsFromMemory},
      {"setuid root", [](const Outside&) { return Calls(SYS_setuid, 0); }},
      {"setresuid another", [](const Outside&) { return Calls(SYS_setresuid, 12345, 12345, 12345); }},
      {"capset", TakesCapabilities},
      {"become dumpable",
       [](const Outside&) { return Calls(SYS_prctl, PR_SET_DUMPABLE, 1UL, 0UL, 0UL, 0UL); }},
      {"allow a tracer",
       [](const Outside& out) {
         return Calls(SYS_prctl, PR_SET_PTRACER, static_cast<long>(out.parent), 0L, 0L, 0L);
       }},
      {"become a reaper",
       [](const Outside&) { return Calls(SYS_prctl, PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); }},
      {"personality", [](const Outside&) { return Calls(SYS_personality, ADDR_NO_RANDOMIZE); }},
      {"raise a limit", RaisesLimit},
      {"limit the parent",
       [](const Outside& out) {
         rlimit seen{};
         return Calls(SYS_prlimit64, out.parent, RLIMIT_NOFILE, nullptr, &seen);
       }},
      {"name_to_handle_at", MakesHandle},
      {"open_by_handle_at", OpensHandle},
      {"kexec_load",
       [](const Outside&) { return Calls(SYS_kexec_load, 0UL, 0UL, nullptr, 0xffUL) || errno == EINVAL; }},
      {"init_module",
       [](const Outside&) {
         return Calls(SYS_init_module, "", 0UL, "") || errno == ENOEXEC || errno == EFAULT;
       }},
      {"delete_module",
       [](const Outside&) { return Calls(SYS_delete_module, "no-such", 0) || errno == ENOENT; }},
      {"reboot", [](const Outside&) { return Calls(SYS_reboot, 0, 0, 0, nullptr) || errno == EINVAL; }},
      {"swapon", [](const Outside&) { return swapon("/no-such", 0) == 0 || errno == ENOENT; }},
      {"mknod",
       [](const Outside& out) {
         return mknod((out.folder + "/device").c_str(), S_IFCHR | 0600, 0x103) == 0;
       }},
      {"symlink",
       [](const Outside& out) { return symlink("/etc/passwd", (out.folder + "/link").c_str()) == 0; }},
      {"hard link",
       [](const Outside& out) { return link("/etc/passwd", (out.folder + "/hard").c_str()) == 0; }},
      {"rename",
       [](const Outside& out) {
         return rename((out.folder + "/file").c_str(), (out.folder + "/new").c_str()) == 0;
       }},
      {"write outside",
       [](const Outside&) { return Opens("/tmp/jail-test-outside", O_WRONLY | O_CREAT | O_TMPFILE); }},
      {"make a folder", [](const Outside& out) { return mkdir((out.folder + "/made").c_str(), 0700) == 0; }},
      {"write a file of the folder",
       [](const Outside& out) { return Opens(out.folder + "/file", O_WRONLY); }},
      {"read a file of the folder", [](const Outside& out) { return Opens(out.folder + "/file", O_RDONLY); }},
      {"inotify", [](const Outside&) { return Calls(SYS_inotify_init1, 0); }},
      {"fanotify", [](const Outside&) { return Calls(SYS_fanotify_init, 0U, 0U); }},
      {"System V memory", [](const Outside&) { return Calls(SYS_shmget, 0, 4096UL, 0600); }},
      {"message queue",
       [](const Outside&) { return Calls(SYS_mq_open, "x", O_CREAT | O_RDWR, 0600, nullptr); }},
      {"set the clock",
       [](const Outside&) {
         timespec now{};
         clock_gettime(CLOCK_REALTIME, &now);
         return Calls(SYS_clock_settime, CLOCK_REALTIME, &now);
       }},
      {"sethostname",
       [](const Outside&) {
         utsname names{};
         return uname(&names) == 0 && Calls(SYS_sethostname, names.nodename, std::strlen(names.nodename));
       }},
      {"iopl", [](const Outside&) { return Calls(SYS_iopl, 3); }},
      {"syslog", [](const Outside&) { return Calls(SYS_syslog, 10, nullptr, 0); }},
      {"system call of the x32 ABI", [](const Outside&) { return Calls(0x40000000L | SYS_getpid); }},
  };
}

std::vector<Escape> ImportEscapes() {
  return {
      {"socket unix", [](const Outside&) { return socket(AF_UNIX, SOCK_STREAM, 0) >= 0; }},
      {"socketpair",
       [](const Outside&) {
         int pair[2];
         return socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0;
       }},
      {"memfd_create", [](const Outside&) { return memfd_create("x", 0) >= 0; }},
      {"thread",
       [](const Outside&) {
         return Calls(SYS_clone, CLONE_THREAD | CLONE_VM | CLONE_SIGHAND, nullptr, nullptr, nullptr, 0UL);
       }},
      {"list the root folder", [](const Outside&) { return Opens("/", O_RDONLY | O_DIRECTORY); }},
      {"stat",
       [](const Outside&) {
         struct stat info {};
         return stat("/etc/passwd", &info) == 0;
       }},
      {"duplicate a descriptor", [](const Outside&) { return dup(2) >= 0; }},
      {"huge allocation",
       [](const Outside&) {
         return mmap(nullptr, 8UL << 30, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                     -1, 0) != MAP_FAILED;
       }},
      {"huge file",
       [](const Outside&) {
         (void)signal(SIGXFSZ, SIG_IGN);
         return pwrite(kOutput, "x", 1, 1L << 40) == 1;
       }},
  };
}

}  // namespace troupe::gpu::test
