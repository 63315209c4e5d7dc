// The operator's command that starts machines: its arguments and input, and how its end is judged.
#include "actors/seams/command_provisioner.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"

namespace troupe::actors {
namespace {

using testing::HasSubstr;

class CommandProvisionerTest : public ::testing::Test {
 protected:
  CommandProvisionerTest() {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    directory_ = ::testing::TempDir() + absl::StrCat("provisioner-", info->name());
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
  }
  ~CommandProvisionerTest() override { std::filesystem::remove_all(directory_); }

  static absl::Status Carry(CommandProvisioner& provisioner, ProvisionOrder order) {
    std::promise<absl::Status> promise;
    provisioner.Carry(std::move(order),
                      [&promise](absl::Status status) { promise.set_value(std::move(status)); });
    return promise.get_future().get();
  }
  [[nodiscard]] std::string Path(const std::string& name) const { return directory_ + "/" + name; }
  [[nodiscard]] std::string Text(const std::string& name) const {
    std::ifstream file(Path(name));
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::string directory_;
};

TEST_F(CommandProvisionerTest, TheCommandHasTheOrderAsArgumentsAndOnItsStandardInput) {
  CommandProvisioner provisioner(absl::StrCat("tee '", Path("json"), "' >/dev/null; printf '%s\\n' x >'",
                                              Path("ran"), "'; printf '<%s>'"));
  EXPECT_TRUE(Carry(provisioner, {"replace", "node 1; exit 7", "{\"action\":\"replace\"}\n"}).ok())
      << "the name of a node was run as a command";
  EXPECT_EQ(Text("json"), "{\"action\":\"replace\"}\n");
  CommandProvisioner writes(absl::StrCat("printf '<%s>' >'", Path("arguments"), "'"));
  EXPECT_TRUE(Carry(writes, {"replace", "node 1", "{}"}).ok());
  EXPECT_EQ(Text("arguments"), "<replace><node 1>");
  EXPECT_TRUE(Carry(writes, {"add", "", "{}"}).ok());
  EXPECT_EQ(Text("arguments"), "<add>");
}

TEST_F(CommandProvisionerTest, AFailureIsToldWithItsLastWords) {
  CommandProvisioner provisioner("sh -c 'echo the quota is used up >&2; exit 3' ");
  const auto status = Carry(provisioner, {"add", "", "{}"});
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("exit code 3"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("the quota is used up"));
  CommandProvisioner missing(Path("no-such-program"));
  EXPECT_THAT(std::string(Carry(missing, {"add", "", "{}"}).message()), HasSubstr("exit code 127"));
}

TEST_F(CommandProvisionerTest, WhatDoesNotEndIsKilledWithAllThatItStarted) {
  CommandProvisioner provisioner(absl::StrCat("mkfifo '", Path("never"), "'; cat '", Path("never"),
                                              "' & cat '", Path("never"), "'; echo"),
                                 std::chrono::milliseconds(200));
  const auto status = Carry(provisioner, {"add", "", "{}"});
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("within 200 ms"));
}

TEST_F(CommandProvisionerTest, ItsEndEndsACommandThatRuns) {
  for (const char* name : {"begun", "never"}) ASSERT_EQ(mkfifo(Path(name).c_str(), 0600), 0);
  std::promise<absl::Status> promise;
  {
    CommandProvisioner provisioner(
        absl::StrCat("echo >'", Path("begun"), "'; cat '", Path("never"), "'; echo"));
    provisioner.Carry({"add", "", "{}"},
                      [&promise](absl::Status status) { promise.set_value(std::move(status)); });
    EXPECT_EQ(Text("begun"), "\n") << "the command does not run";
  }
  EXPECT_TRUE(absl::IsCancelled(promise.get_future().get()));
}

}  // namespace
}  // namespace troupe::actors
