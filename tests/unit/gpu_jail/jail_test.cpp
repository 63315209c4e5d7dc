// A payload in each jail tries to get out; the test names every attempt that succeeds.
#include "gpu/jail/jail.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "gpu/jail/forbidden_calls.hpp"
#include "gpu/jail/landlock.hpp"
#include "tests/temporary_directory.hpp"
#include "tests/unit/gpu_jail/escapes.hpp"

namespace troupe::gpu::test {
namespace {

using Enter = std::function<bool(const std::string& folder)>;

constexpr int kHeld = 70;
constexpr int kGotThrough = 71;
constexpr int kNotJailed = 72;

class JailTest : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(place_ / "sockets");
    if (kJailRelaxed) GTEST_SKIP() << "a program with a sanitizer has limits only";
    std::ofstream(place_ / "file") << "secret";
    out_.parent = getpid();
    out_.folder = place_;
    out_.abstract_name = "troupe-jail-test-" + std::to_string(getpid());
    out_.pidfd = static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0));
    out_.secret = &secret_;
    listener_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, out_.abstract_name.data(), out_.abstract_name.size());
    const auto length =
        static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + out_.abstract_name.size());
    ASSERT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), length), 0);
    ASSERT_EQ(listen(listener_, 8), 0);
  }
  void TearDown() override {
    if (listener_ >= 0) close(listener_);
    if (out_.pidfd >= 0) close(out_.pidfd);
  }

  // The exit code of a child that enters a jail and then does this; 128 + N when signal N ended it.
  static int InJail(const std::string& folder, const Enter& enter, const std::function<int()>& then) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      if (!enter(folder)) _exit(kNotJailed);
      _exit(then());
    }
    int status = 0;
    (void)waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }

  [[nodiscard]] std::vector<std::string> WaysOut(const Enter& enter, std::vector<Escape> tried) const {
    std::vector<std::string> ways;
    for (const Escape& escape : tried) {
      const int end = InJail(out_.folder + "/sockets", enter,
                             [&] { return escape.got_through(out_) ? kGotThrough : kHeld; });
      // Only the filter's own signal and a refusal show that the jail holds: a crash proves nothing.
      if (end != kHeld && end != 128 + SIGSYS) ways.push_back(escape.name + " (" + std::to_string(end) + ")");
    }
    return ways;
  }

  const troupe::test::TemporaryDirectory directory_;
  const std::filesystem::path place_ = directory_.path();
  long secret_ = 0;
  Outside out_;
  int listener_ = -1;
};

bool EnterImport(const std::string& folder) {
  const std::string file = folder + "/../output";
  const int output = open(file.c_str(), O_CREAT | O_RDWR, 0600);
  if (output < 0 || dup3(output, kOutput, 0) < 0) return false;
  const auto report = EnterImportJail({});
  return report.ok() && report->holds();
}

bool EnterWorker(const std::string& folder) {
  const auto report = EnterWorkerJail(folder, {});
  return report.ok() && report->holds();
}

bool EnterDriver(const std::string&) {
  const auto report = GiveUpCapabilities().ok() ? EnterDriverJail() : absl::InternalError("");
  return report.ok() && report->holds();
}

// docs/security.md says how many different escapes are tried. Without that number in the tests, an escape that is
// deleted by mistake would not show.
std::set<std::string> NamesOf(const std::vector<Escape>& escapes) {
  std::set<std::string> names;
  for (const Escape& escape : escapes) names.insert(escape.name);
  return names;
}

TEST_F(JailTest, NothingLeavesTheImportJail) {
  auto tried = Escapes();
  for (Escape& escape : ImportEscapes()) tried.push_back(std::move(escape));
  EXPECT_THAT(NamesOf(tried), testing::SizeIs(87));
  EXPECT_THAT(WaysOut(EnterImport, tried), testing::IsEmpty());
  EXPECT_EQ(secret_, 0);
}

TEST_F(JailTest, NothingLeavesTheWorkerJail) {
  EXPECT_THAT(NamesOf(Escapes()), testing::SizeIs(78));
  EXPECT_THAT(WaysOut(EnterWorker, Escapes()), testing::IsEmpty());
  EXPECT_EQ(secret_, 0);
}

// A GPU's driver needs files, so this list names only other forbidden things: other processes, programs,
// namespaces.
TEST_F(JailTest, AWorkerWithADriverReachesNoProcess) {
  std::vector<Escape> tried;
  for (Escape& escape : Escapes())
    for (const char* name : {"ptrace attach",
                             "process_vm_writev",
                             "process_vm_readv",
                             "pidfd_open and pidfd_getfd",
                             "pidfd_getfd of an inherited pidfd",
                             "execve",
                             "memfd and fexecve",
                             "fork",
                             "clone3",
                             "unshare a user namespace",
                             "mount",
                             "chroot",
                             "setns by a pidfd",
                             "io_uring_setup",
                             "userfaultfd",
                             "bpf",
                             "perf_event_open",
                             "keyctl",
                             "capset",
                             "setresuid another",
                             "mknod",
                             "kexec_load",
                             "reboot",
                             "init_module",
                             "swapon",
                             "personality",
                             "open_by_handle_at",
                             "system call of the x32 ABI"})
      if (escape.name == name) tried.push_back(escape);
  ASSERT_EQ(tried.size(), 28U);
  EXPECT_THAT(WaysOut(EnterDriver, tried), testing::IsEmpty());
}

// The payload really tries: outside of a jail the same attempts succeed.
TEST_F(JailTest, ThePayloadGetsThroughWithoutAJail) {
  const auto none = [](const std::string&) { return true; };
  std::vector<Escape> harmless;
  for (Escape& escape : Escapes())
    for (const char* name :
         {"open /etc/passwd", "execve", "fork", "socket inet", "connect to an abstract socket", "symlink",
          "memfd and fexecve", "pidfd_open and pidfd_getfd", "process_vm_readv"})
      if (escape.name == name) harmless.push_back(escape);
  EXPECT_THAT(WaysOut(none, harmless), testing::SizeIs(testing::Ge(6)));
}

TEST_F(JailTest, AnImportComputesAndWritesWhatIsOpen) {
  const int end = InJail(place_ / "sockets", EnterImport, [] {
    std::vector<double> numbers(1 << 20, 1.5);
    double sum = 0;
    for (const double number : numbers) sum += number;
    const bool wrote = pwrite(kOutput, &sum, sizeof(sum), 0) == sizeof(sum);
    const bool refused = open("/dev/null", O_RDONLY) < 0 && errno == EACCES;
    return wrote && refused && sum > 1e6 ? kHeld : 1;
  });
  EXPECT_EQ(end, kHeld);
}

TEST_F(JailTest, AWorkerHasThreadsMemoryAndSockets) {
  const std::string folder = place_ / "sockets";
  const int end = InJail(folder, EnterWorker, [&] {
    bool ran = false;
    std::thread([&] { ran = true; }).join();
    const int memory = memfd_create("x", MFD_CLOEXEC);
    const int again = open(("/proc/self/fd/" + std::to_string(memory)).c_str(), O_RDONLY | O_CLOEXEC);
    const int listener = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = folder + "/s";
    std::memcpy(address.sun_path, path.data(), path.size());
    const bool bound = bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
    return ran && memory >= 0 && again >= 0 && bound && unlink(path.c_str()) == 0 ? kHeld : 1;
  });
  EXPECT_EQ(end, kHeld);
}

// Libraries try calls that are on no list, and fall back when these do not exist.
TEST_F(JailTest, AWorkerOutlivesCallsThatLibrariesDoWithout) {
  const int end = InJail(place_ / "sockets", EnterWorker, [] {
    // The calls by number: none of them is on the list, and the last one does not exist in any kernel.
    for (const int call : {SYS_mbind, SYS_get_mempolicy, SYS_set_mempolicy, SYS_openat2, SYS_close_range,
                           SYS_timer_create, SYS_setpriority, SYS_inotify_init1, SYS_seccomp, 999})
      if (syscall(call, 0, 0, 0, 0, 0, 0) >= 0 || errno != ENOSYS) return 1;
    const sched_param none{};
    const bool first = sched_setscheduler(0, SCHED_FIFO, &none) < 0;
    const bool last = sched_setscheduler(0, SCHED_IDLE, &none) == 0;
    const bool others = sched_setscheduler(getppid(), SCHED_IDLE, &none) < 0;
    const bool tiles = syscall(SYS_arch_prctl, 0x1021, nullptr) < 0 && errno != ENOSYS;
    const bool network = socket(AF_INET, SOCK_STREAM, 0) < 0 && errno == EACCES;
    return first && last && others && tiles && network ? kHeld : 2;
  });
  EXPECT_EQ(end, kHeld);
}

int tell_to = -1;

TEST_F(JailTest, AWorkerThatIsEndedSaysForWhichCall) {
  int told[2];
  ASSERT_EQ(pipe2(told, O_CLOEXEC), 0);
  tell_to = told[1];
  const auto enter = [](const std::string& folder) {
    TellOfForbiddenCalls([](std::string_view name) { (void)!write(tell_to, name.data(), name.size()); });
    return EnterWorker(folder);
  };
  const int end = InJail(place_ / "sockets", enter, [] {
    std::thread([] { (void)syscall(SYS_bpf, 0, nullptr, 0); }).join();
    return kGotThrough;
  });
  close(told[1]);
  EXPECT_EQ(end, 128 + SIGSYS);
  char text[64] = {};
  EXPECT_EQ(read(told[0], text, sizeof(text) - 1), 3);
  EXPECT_STREQ(text, "bpf");
  close(told[0]);
}

TEST_F(JailTest, AnIntruderCannotOutliveAForbiddenCall) {
  const auto enter = [](const std::string& folder) {
    TellOfForbiddenCalls([](std::string_view) {});
    return EnterWorker(folder);
  };
  const int end = InJail(place_ / "sockets", enter, [] {
    if (signal(SIGSYS, SIG_IGN) != SIG_ERR || signal(SIGSYS, [](int) {}) != SIG_ERR) return 1;
    sigset_t all;
    (void)sigfillset(&all);
    (void)sigprocmask(SIG_BLOCK, &all, nullptr);
    (void)syscall(SYS_ptrace, 0, 0, nullptr, nullptr);
    return kGotThrough;
  });
  EXPECT_EQ(end, 128 + SIGSYS);
}

TEST_F(JailTest, ItsParentSeesNoPrivileges) {
  int told[2];
  int wait[2];
  ASSERT_EQ(pipe(told), 0);
  ASSERT_EQ(pipe(wait), 0);
  const pid_t child = fork();
  if (child == 0) {
    close(wait[1]);
    const bool jailed = EnterImport(place_ / "sockets");
    (void)!write(told[1], jailed ? "j" : "n", 1);
    char byte = 0;
    (void)!read(wait[0], &byte, 1);
    _exit(0);
  }
  char answer = 0;
  ASSERT_EQ(read(told[0], &answer, 1), 1);
  EXPECT_EQ(answer, 'j');
  std::ifstream file("/proc/" + std::to_string(child) + "/status");
  const std::string status((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_THAT(status, testing::HasSubstr("Seccomp:\t2"));
  EXPECT_THAT(status, testing::HasSubstr("NoNewPrivs:\t1"));
  for (const char* set : {"CapInh", "CapPrm", "CapEff", "CapAmb"})
    EXPECT_THAT(status, testing::HasSubstr(std::string(set) + ":\t0000000000000000"));
  if (geteuid() == 0) {
    EXPECT_THAT(status, testing::HasSubstr("CapBnd:\t0000000000000000"));
    EXPECT_THAT(status, testing::Not(testing::HasSubstr("Uid:\t0")));
  }
  close(wait[1]);
  (void)waitpid(child, nullptr, 0);
  for (const int fd : {told[0], told[1], wait[0]}) close(fd);
}

TEST_F(JailTest, InheritedDescriptorsAreClosed) {
  const auto enter = [](const std::string& folder) {
    if (dup3(open((folder + "/../file").c_str(), O_RDONLY), 8, 0) != 8) return false;
    CloseInherited();
    return true;
  };
  EXPECT_EQ(InJail(place_ / "sockets", enter, [] { return fcntl(8, F_GETFD) < 0 ? kHeld : kGotThrough; }),
            kHeld);
}

}  // namespace
}  // namespace troupe::gpu::test
