// The shell without a terminal: lines from a pipe.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/shell/fake_admin_client.hpp"

namespace troupe::shell {
namespace {

TEST(Script, RunsLinesOverOneConnection) {
  Harness troupe;
  troupe.console.input = {"# a comment", "", "function remove 'a b'", "node drain n"};
  EXPECT_EQ(troupe.Run("shell"), ExitCode::kOk);
  ASSERT_EQ(troupe.cluster.asked.size(), 2U);
  EXPECT_EQ(troupe.cluster.asked[0].remove().key().name(), "a b");
  EXPECT_EQ(troupe.cluster.clients, 1);
}

TEST(Script, StopsAtTheFirstFailure) {
  Harness troupe;
  troupe.cluster.Answer(proto::AdminRequest::kRemove, absl::NotFoundError("no such function"));
  troupe.console.input = {"function remove a", "node drain n"};
  EXPECT_EQ(troupe.Run("shell"), ExitCode::kNotFound);
  EXPECT_EQ(troupe.cluster.asked.back().request_case(), proto::AdminRequest::kRemove);
  troupe.console.input = {"function remove 'a"};
  EXPECT_EQ(troupe.Run("shell"), ExitCode::kUsage);
}

TEST(Script, LinesAreAsInTheDocumentation) {
  Harness troupe;
  troupe.console.input = {"troupe node drain n"};
  EXPECT_EQ(troupe.Run("shell"), ExitCode::kOk) << troupe.err();
  EXPECT_EQ(troupe.cluster.asked.at(0).drain().name(), "n");
}

TEST(Script, WhatAnotherProgramDoesIsNotDoneHere) {
  for (const auto* line : {"experiment list", "troupe store check", "help simulate"}) {
    Harness troupe;
    troupe.console.input = {line};
    EXPECT_EQ(troupe.Run("shell"), ExitCode::kUsage);
    EXPECT_THAT(troupe.err(), testing::HasSubstr("run it outside of the shell: troupe ")) << line;
  }
}

TEST(Script, OptionsOfTheShellHoldForItsLines) {
  Harness troupe;
  troupe.console.input = {"node list", "exit", "node list"};
  EXPECT_EQ(troupe.Run("shell --json --manager x:1"), ExitCode::kOk);
  EXPECT_EQ(troupe.cluster.manager, "x:1");
  EXPECT_EQ(troupe.cluster.asked.size(), 1U);
  EXPECT_EQ(troupe.last_out.front(), '{');
  troupe.console.input = {"shell"};
  EXPECT_EQ(troupe.Run("shell"), ExitCode::kUsage) << "there is no shell inside a shell";
}

}  // namespace
}  // namespace troupe::shell
