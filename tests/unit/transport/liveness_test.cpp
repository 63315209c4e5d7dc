#include "transport/liveness.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstring>

#include "tests/unit/transport/test_support.hpp"

namespace troupe::transport {
namespace {

SpawnOptions Shell(const std::string& script) {
  SpawnOptions options;
  options.arguments = {"/bin/sh", "-c", script};
  return options;
}

std::string ReadAll(int fd) {
  std::string text;
  char buffer[256];
  for (ssize_t got = 0; (got = read(fd, buffer, sizeof(buffer))) > 0;)
    text.append(buffer, static_cast<std::size_t>(got));
  return text;
}

TEST(SpawnProcess, SaysHowAProcessEnded) {
  auto child = SpawnProcess(Shell("exit 3"));
  ASSERT_TRUE(child.ok()) << child.status();
  auto end = child->Wait(kLong);
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_FALSE(end->clean());
  EXPECT_EQ(end->ToString(), "exit code 3");
  EXPECT_TRUE(child->IsDead());
  EXPECT_TRUE(absl::IsNotFound(child->Signal(SIGTERM)));
  EXPECT_TRUE(absl::IsFailedPrecondition(child->Wait(kLong).status())) << "a process is reaped once";
}

TEST(SpawnProcess, KillIsSeenThroughThePidfd) {
  SpawnOptions sleeper;
  sleeper.arguments = {"/bin/sleep", "1000"};
  auto child = SpawnProcess(sleeper);
  ASSERT_TRUE(child.ok()) << child.status();
  EXPECT_FALSE(child->IsDead());
  EXPECT_TRUE(absl::IsDeadlineExceeded(child->Wait(Duration::zero()).status()));
  auto other = ProcessHandle::Open(child->pid());
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(getsid(child->pid()), child->pid()) << "the child has a session of its own";
  ASSERT_TRUE(child->Signal(SIGKILL).ok());
  auto end = child->Wait(kLong);
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(end->ToString(), "signal 9 (Killed)");
  EXPECT_TRUE(other->IsDead());
  EXPECT_TRUE(absl::IsNotFound(ProcessHandle::Open(child->pid()).status()));
}

TEST(SpawnProcess, PassesEnvironmentAndExactlyTheGivenDescriptors) {
  int pipes[2];
  ASSERT_EQ(pipe2(pipes, O_CLOEXEC), 0);
  UniqueFd reading(pipes[0]);
  UniqueFd writing(pipes[1]);
  UniqueFd leak(open("/dev/null", O_RDONLY));  // not close-on-exec: still not to be seen in the child
  SpawnOptions options = Shell("echo \"$COLOUR\"; exec ls /proc/self/fd");
  options.environment = {{"COLOUR", "blue"}};
  options.descriptors = {{leak.get(), 5}, {leak.get(), 20}};
  options.log = writing.get();
  auto child = SpawnProcess(options);
  ASSERT_TRUE(child.ok()) << child.status();
  writing.Reset();
  EXPECT_EQ(ReadAll(reading.get()), "blue\n0\n1\n2\n20\n3\n5\n") << "3 is the folder that ls reads";
  EXPECT_TRUE(child->Wait(kLong)->clean());
}

TEST(SpawnProcess, SwapsDescriptorsThatCross) {
  int first[2];
  int second[2];
  ASSERT_EQ(pipe2(first, O_CLOEXEC), 0);
  ASSERT_EQ(pipe2(second, O_CLOEXEC), 0);
  SpawnOptions options =
      Shell("echo one >&" + std::to_string(second[1]) + "; echo two >&" + std::to_string(first[1]));
  options.descriptors = {{first[1], second[1]}, {second[1], first[1]}};
  auto child = SpawnProcess(options);
  ASSERT_TRUE(child.ok()) << child.status();
  close(first[1]);
  close(second[1]);
  EXPECT_EQ(ReadAll(first[0]), "one\n");
  EXPECT_EQ(ReadAll(second[0]), "two\n");
  EXPECT_TRUE(child->Wait(kLong)->clean());
  close(first[0]);
  close(second[0]);
}

TEST(SpawnProcess, LogsWhereItIsTold) {
  const TemporaryDirectory directory;
  UniqueFd log(open((directory / "log").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  SpawnOptions options = Shell("echo out; echo err >&2");
  options.log = log.get();
  auto child = SpawnProcess(options);
  ASSERT_TRUE(child.ok()) << child.status();
  EXPECT_TRUE(child->Wait(kLong)->clean());
  lseek(log.get(), 0, SEEK_SET);
  EXPECT_EQ(ReadAll(log.get()), "out\nerr\n");
}

TEST(SpawnProcess, RefusesBadRequests) {
  EXPECT_TRUE(absl::IsInvalidArgument(SpawnProcess({}).status()));
  SpawnOptions missing;
  missing.arguments = {"/no/such/program"};
  EXPECT_TRUE(absl::IsNotFound(SpawnProcess(missing).status()));
  SpawnOptions twice = Shell("true");
  twice.descriptors = {{0, 5}, {0, 5}};
  EXPECT_TRUE(absl::IsInvalidArgument(SpawnProcess(twice).status()));
  twice.descriptors = {{0, 2}};
  EXPECT_TRUE(absl::IsInvalidArgument(SpawnProcess(twice).status()));
  twice.descriptors = {{999, 5}};
  EXPECT_FALSE(SpawnProcess(twice).ok());
}

}  // namespace
}  // namespace troupe::transport
