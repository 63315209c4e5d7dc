// Which processes may take part in a cluster on one machine: the kernel says which user is at the other end.
#include "actors/peers/local_socket.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>

namespace troupe::actors {
namespace {

using ::testing::HasSubstr;

constexpr uid_t kStranger = 65534;

// Runs `act` in a process of another user and returns its result. Only root can do this.
int AsStranger(const std::function<int()>& act) {
  const pid_t child = fork();
  if (child == 0) _exit(setresuid(kStranger, kStranger, kStranger) == 0 ? act() : 99);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(LocalSocket, LoopbackAddressesAreKnownByTheirNumbers) {
  for (const char* host : {"localhost", "127.0.0.1", "127.8.9.10", "::1", "[::1]"})
    EXPECT_TRUE(IsLoopback(host)) << host;
  for (const char* host : {"", "0.0.0.0", "::", "128.0.0.1", "127.example.org", "127.0.0.1.example.org",
                           "::2", "10.0.0.1", "localhost.example.org"})
    EXPECT_FALSE(IsLoopback(host)) << host;
}

TEST(LocalSocket, OneNameHasOneListenerAndGoesWithIt) {
  {
    const auto first = ListenLocal("127.0.0.1", 0);
    ASSERT_TRUE(first.ok()) << first.status();
    ASSERT_NE(first->second, 0);
    EXPECT_TRUE(DialLocal("localhost", first->second).ok()) << "another spelling of the address";
    EXPECT_TRUE(absl::IsUnavailable(DialLocal("127.0.0.2", first->second).status())) << "another address";
    EXPECT_TRUE(absl::IsAlreadyExists(ListenLocal("127.0.0.1", first->second).status()));
  }
  const auto a = ListenLocal("127.0.0.1", 0), b = ListenLocal("127.0.0.1", 0);
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_NE(a->second, b->second);
}

TEST(LocalSocket, AFullQueueOfConnectionsIsAnErrorAtOnce) {
  auto listening = ListenLocal("127.0.0.1", 0);
  ASSERT_TRUE(listening.ok());
  ASSERT_EQ(listen(listening->first.get(), 0), 0);
  auto first = DialLocal("127.0.0.1", listening->second);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_TRUE(absl::IsUnavailable(DialLocal("127.0.0.1", listening->second).status()));
}

TEST(LocalSocket, TheListenerSeesAnotherUsersProcess) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can act as another user";
  const auto listening = ListenLocal("127.0.0.1", 0);
  ASSERT_TRUE(listening.ok());
  // Programs of any user may dial root; the listener's own check refuses them.
  EXPECT_EQ(AsStranger([&] { return DialLocal("127.0.0.1", listening->second).ok() ? 0 : 1; }), 0);
  const transport::UniqueFd stranger(accept(listening->first.get(), nullptr, nullptr));
  ASSERT_TRUE(stranger.valid());
  const auto status = CheckLocalUser(stranger.get());
  EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("runs as user 65534"));
  EXPECT_THAT(LocalPeer(stranger.get()), HasSubstr("user 65534"));

  const auto own = DialLocal("127.0.0.1", listening->second);
  ASSERT_TRUE(own.ok());
  const transport::UniqueFd accepted(accept(listening->first.get(), nullptr, nullptr));
  EXPECT_TRUE(CheckLocalUser(accepted.get()).ok());
}

TEST(LocalSocket, TheDiallerDoesNotTalkToAnotherUsersListener) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can act as another user";
  int port[2], done[2];
  ASSERT_EQ(pipe(port), 0);
  ASSERT_EQ(pipe(done), 0);
  const pid_t child = fork();
  if (child == 0) {
    if (setresuid(kStranger, kStranger, kStranger) != 0) _exit(1);
    const auto listening = ListenLocal("127.0.0.1", 0);
    const std::uint16_t number = listening.ok() ? listening->second : 0;
    char ignored = 0;
    const bool told = write(port[1], &number, sizeof number) == sizeof number;
    _exit(told && read(done[0], &ignored, 1) == 1 ? 0 : 1);
  }
  std::uint16_t number = 0;
  ASSERT_EQ(read(port[0], &number, sizeof number), ssize_t{sizeof number});
  const auto line = DialLocal("127.0.0.1", number);
  EXPECT_TRUE(absl::IsPermissionDenied(line.status())) << line.status();
  EXPECT_EQ(write(done[1], "x", 1), 1);
  waitpid(child, nullptr, 0);
  for (const int fd : {port[0], port[1], done[0], done[1]}) close(fd);
}

}  // namespace
}  // namespace troupe::actors
