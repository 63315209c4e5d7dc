#include "shell/child_program.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::shell {
namespace {

absl::StatusOr<ChildOutcome> Sh(const std::string& script) {
  return RunChild("/bin/sh", {"-c", script});
}

TEST(ChildProgram, WhatItPrintsAndItsExitCode) {
  const auto child = Sh("echo answer; echo complaint >&2; exit 3");
  ASSERT_TRUE(child.ok());
  EXPECT_EQ(child->out, "answer\n");
  EXPECT_EQ(child->err, "complaint\n");
  EXPECT_EQ(child->exit, 3);
}

TEST(ChildProgram, ASignalThatEndsItIsItsExitCode) {
  const auto child = Sh("kill -9 $$");
  ASSERT_TRUE(child.ok());
  EXPECT_EQ(child->exit, 128 + 9);
}

TEST(ChildProgram, ItIsReadToItsEndAndNoMoreThanAMebibyteIsKept) {
  const auto child = Sh("head -c 3000000 /dev/zero; head -c 3000000 /dev/zero >&2; echo end >&2");
  ASSERT_TRUE(child.ok());
  EXPECT_EQ(child->exit, 0);
  EXPECT_EQ(child->out.size(), 1u << 20);
  EXPECT_EQ(child->err.size(), 1u << 20);
}

TEST(ChildProgram, ItReadsNothingOfOurs) {
  const auto child = Sh("cat");
  ASSERT_TRUE(child.ok());
  EXPECT_EQ(child->out, "");
}

TEST(ChildProgram, AProgramThatIsNotThere) {
  const auto child = RunChild("/nowhere/program", {});
  EXPECT_TRUE(absl::IsInternal(child.status()));
  EXPECT_THAT(std::string(child.status().message()), testing::HasSubstr("/nowhere/program"));
  EXPECT_EQ(FindHelper("no-such-helper"), "");
}

}  // namespace
}  // namespace troupe::shell
