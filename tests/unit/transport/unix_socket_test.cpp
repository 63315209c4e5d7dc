#include "transport/unix_socket.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <thread>

#include "tests/unit/transport/test_support.hpp"

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
    _exit(listener.ok() ? 0 : 1);  // without its destructor: the path stays
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
  EXPECT_NE(stat(path.c_str(), &info), 0) << "removed with the listener";
}

TEST(UnixSocket, RefusesBadPaths) {
  const TemporaryDirectory directory;
  const std::string longest = directory / std::string(200, 'x');
  EXPECT_TRUE(absl::IsInvalidArgument(UnixListener::Listen(longest).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ConnectUnix(longest, kNow).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ConnectUnix("", kNow).status()));
  EXPECT_TRUE(absl::IsNotFound(ConnectUnix(directory / "nobody", kNow).status()));
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

}  // namespace
}  // namespace troupe::transport
