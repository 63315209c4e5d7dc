#include "transport/unix_socket.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <thread>

#include "tests/unit/transport/test_support.hpp"
#include "transport/steady_clock.hpp"
#include "transport/unix_acceptor.hpp"

namespace troupe::transport {
namespace {

constexpr Duration kNow = Duration::zero();

TEST(UnixSocket, CarriesBytesAndDescriptors) {
  const TemporaryDirectory directory;
  auto listener = UnixListener::Listen(directory / "socket");
  ASSERT_TRUE(listener.ok()) << listener.status();
  auto client = ConnectUnix(listener->path(), kLong);
  ASSERT_TRUE(client.ok()) << client.status();
  auto server = listener->Accept(kLong);
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_EQ(server->peer_pid(), getpid());
  auto memory = MemoryFile::Create("sent", KiB(4));
  memory->data()[0] = std::byte{42};
  std::vector<int> descriptors(SocketLimits::kDescriptors, memory->fd());
  ASSERT_TRUE(client->Send("hello", descriptors, kLong).ok());
  ASSERT_TRUE(client->Send(std::string(SocketLimits::kMessage.count(), 'x'), {}, kLong).ok());
  auto message = server->Receive(kLong);
  ASSERT_TRUE(message.ok()) << message.status();
  EXPECT_EQ(message->bytes, "hello");
  ASSERT_EQ(message->descriptors.size(), descriptors.size());
  for (UniqueFd& fd : message->descriptors) {
    EXPECT_EQ(fcntl(fd.get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    auto opened = MemoryFile::Open(std::move(fd), MemoryFile::Access::kReadOnly);
    ASSERT_TRUE(opened.ok()) << opened.status();
    EXPECT_EQ(opened->data()[0], std::byte{42});
  }
  EXPECT_EQ(server->Receive(kLong)->bytes.size(), SocketLimits::kMessage.count());
}

TEST(UnixSocket, BoundsWhatIsSentAndReceived) {
  auto pair = UnixConnection::Pair();
  auto& [left, right] = *pair;
  const std::vector<int> many(SocketLimits::kDescriptors + 1, left.fd());
  EXPECT_TRUE(absl::IsInvalidArgument(left.Send("x", many, kNow)));
  EXPECT_TRUE(absl::IsInvalidArgument(left.Send("", {}, kNow)));
  EXPECT_TRUE(
      absl::IsInvalidArgument(left.Send(std::string(SocketLimits::kMessage.count() + 1, 'x'), {}, kNow)));
  const std::string large(SocketLimits::kMessage.count() + 100, 'x');
  ASSERT_GT(send(left.fd(), large.data(), large.size(), 0), 0);
  EXPECT_TRUE(absl::IsDataLoss(right.Receive(kNow).status()));
}

TEST(UnixSocket, TimesOutAndNoticesTheEnd) {
  auto pair = UnixConnection::Pair();
  EXPECT_TRUE(absl::IsDeadlineExceeded(pair->first.Receive(std::chrono::milliseconds(1)).status()));
  absl::Status status;
  for (int i = 0; i < 10000 && status.ok(); ++i) status = pair->first.Send(std::string(60000, 'x'), {}, kNow);
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  pair->second = UnixConnection();
  EXPECT_TRUE(absl::IsUnavailable(pair->first.Send("x", {}, kNow)));
  auto other = UnixConnection::Pair();
  other->second = UnixConnection();
  EXPECT_TRUE(absl::IsUnavailable(other->first.Receive(kLong).status()));
}

TEST(UnixSocket, ReplacesWhatADeadProcessLeft) {
  const TemporaryDirectory directory;
  const std::string path = directory / "socket";
  const pid_t child = fork();
  if (child == 0) {
    auto listener = UnixListener::Listen(path);
    _exit(listener.ok() ? 0 : 1);  // the destructor does not run, so the path stays
  }
  int status = 1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  struct stat info {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
  EXPECT_TRUE(absl::IsNotFound(ConnectUnix(path, kLong).status()));
  {
    auto listener = UnixListener::Listen(path);
    ASSERT_TRUE(listener.ok()) << listener.status();
    EXPECT_TRUE(absl::IsAlreadyExists(UnixListener::Listen(path).status()));
    EXPECT_TRUE(ConnectUnix(path, kLong).ok());
  }
  EXPECT_NE(stat(path.c_str(), &info), 0) << "the listener removes its path";
}

TEST(UnixSocket, RefusesBadPaths) {
  const TemporaryDirectory directory;
  const std::string longest = directory / std::string(200, 'x');
  EXPECT_TRUE(absl::IsInvalidArgument(UnixListener::Listen(longest).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ConnectUnix(longest, kNow).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ConnectUnix("", kNow).status()));
  EXPECT_TRUE(absl::IsNotFound(ConnectUnix(directory / "absent", kNow).status()));
  EXPECT_FALSE(UnixListener::Listen(directory / "no/such/folder").ok());
  std::ofstream(directory / "file") << "precious";
  EXPECT_TRUE(absl::IsAlreadyExists(UnixListener::Listen(directory / "file").status()));
  EXPECT_TRUE(std::filesystem::exists(directory / "file"));
}

TEST(UnixSocket, AcceptTimesOut) {
  const TemporaryDirectory directory;
  auto listener = UnixListener::Listen(directory / "socket");
  EXPECT_TRUE(absl::IsDeadlineExceeded(listener->Accept(std::chrono::milliseconds(1)).status()));
}

std::size_t OpenDescriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

TEST(UnixSocket, DescriptorsThatAreNotWantedAreClosed) {
  auto pair = UnixConnection::Pair();
  auto& [left, right] = *pair;
  const auto before = OpenDescriptors();
  const std::vector<int> descriptors(SocketLimits::kDescriptors, left.fd());
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(left.Send("x", descriptors, kNow).ok());
    EXPECT_TRUE(right.Receive(kNow).ok());
  }
  // The message has more descriptors than a message may carry, as another program may send it.
  std::vector<int> many(100, left.fd());
  std::vector<char> control(CMSG_SPACE(many.size() * sizeof(int)));
  char byte = 'x';
  iovec data{&byte, 1};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  cmsghdr* rights = CMSG_FIRSTHDR(&header);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(many.size() * sizeof(int));
  std::memcpy(CMSG_DATA(rights), many.data(), many.size() * sizeof(int));
  ASSERT_EQ(sendmsg(left.fd(), &header, MSG_NOSIGNAL), 1);
  EXPECT_TRUE(absl::IsDataLoss(right.Receive(kNow).status()));
  EXPECT_EQ(OpenDescriptors(), before);
}

// Only root can act as another user: that user's process is the child.
TEST(UnixAcceptor, AnotherUserIsRefusedAndCounted) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can act as another user";
  const TemporaryDirectory directory;
  auto refusals = std::make_shared<SocketRefusals>();
  auto acceptor = UnixAcceptor::Listen(directory / "socket", refusals);
  ASSERT_TRUE(acceptor.ok()) << acceptor.status();
  ASSERT_EQ(chmod(directory.path().c_str(), 0777), 0);
  ASSERT_EQ(chmod(acceptor->path().c_str(), 0777), 0);
  const pid_t child = fork();
  if (child == 0) {
    if (setresuid(65534, 65534, 65534) != 0) _exit(1);
    // A process of another user may connect to root's socket; root itself refuses it.
    _exit(ConnectUnix(acceptor->path(), kLong).ok() ? 0 : 2);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(WEXITSTATUS(status), 0);
  EXPECT_FALSE(acceptor->Accept(SteadyNow()).has_value());
  EXPECT_EQ(refusals->count(SocketRefusal::kOtherUser), 1u);
}

TEST(UnixAcceptor, PausesWhileTheSystemHasNoDescriptors) {
  const TemporaryDirectory directory;
  auto refusals = std::make_shared<SocketRefusals>();
  auto acceptor = UnixAcceptor::Listen(directory / "socket", refusals);
  ASSERT_TRUE(acceptor.ok()) << acceptor.status();
  auto client = ConnectUnix(acceptor->path(), kLong);
  ASSERT_TRUE(client.ok()) << client.status();
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit none{0, limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const Time now = SteadyNow();
  EXPECT_FALSE(acceptor->Accept(now).has_value());
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(refusals->count(SocketRefusal::kNoDescriptors), 1u);
  EXPECT_EQ(acceptor->fd(now), -1);
  const Time later = acceptor->wakes(now);
  EXPECT_EQ(later, now + UnixAcceptor::kPause);
  EXPECT_GE(acceptor->fd(later), 0);
  EXPECT_EQ(acceptor->wakes(later), Time::max());
  EXPECT_TRUE(acceptor->Accept(later).has_value()) << "the connection was not lost";
}

}  // namespace
}  // namespace troupe::transport
