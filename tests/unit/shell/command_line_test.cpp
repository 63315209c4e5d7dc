#include "shell/command_line.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/shell/fake_admin_client.hpp"

namespace troupe::shell {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(CommandLine, HelpListsEveryVerbAndTheExitCodes) {
  Harness troupe;
  EXPECT_EQ(troupe.Run("--help"), ExitCode::kOk);
  for (const auto& verb : Verbs()) EXPECT_THAT(troupe.out(), HasSubstr(verb.words()));
  EXPECT_THAT(troupe.out(), HasSubstr("Exit codes"));
  EXPECT_EQ(troupe.Run("help function deploy"), ExitCode::kOk);
  EXPECT_THAT(troupe.out(), HasSubstr("--deadline"));
  EXPECT_EQ(troupe.Run("--version"), ExitCode::kOk);
  EXPECT_THAT(troupe.out(), StartsWith("troupe "));
  EXPECT_THAT(troupe.out(), HasSubstr("\nformats: metadata "));
  EXPECT_EQ(troupe.Run(""), ExitCode::kUsage);
  EXPECT_EQ(troupe.cluster.clients, 0) << "no cluster was asked";
}

TEST(CommandLine, OtherShellsAreToldWhatMayComeNext) {
  Harness troupe;
  EXPECT_EQ(troupe.Run("__complete 'func'"), ExitCode::kOk);
  EXPECT_EQ(troupe.out(), "function\n");
  EXPECT_EQ(troupe.Run("__complete 'function dep'"), ExitCode::kOk);
  EXPECT_EQ(troupe.out(), "deploy\n");
  EXPECT_EQ(troupe.Run("__complete"), ExitCode::kOk);
  EXPECT_THAT(troupe.out(), AllOf(HasSubstr("simulate\n"), HasSubstr("shell\n"), Not(HasSubstr("quit\n"))));
  EXPECT_EQ(troupe.Run("__complete 'frobnicate '"), ExitCode::kOk);
  EXPECT_EQ(troupe.out(), "");
}

TEST(CommandLine, EveryVerbHasHelpOfItsOwn) {
  Harness troupe;
  for (const auto& verb : Verbs()) {
    EXPECT_EQ(troupe.Run(verb.words() + " --help"), ExitCode::kOk);
    for (const auto& argument : verb.arguments)
      EXPECT_THAT(troupe.out(), HasSubstr(argument.name)) << verb.words();
  }
}

TEST(CommandLine, WhatIsWrongIsOneLineWithACodeOfItsOwn) {
  Harness troupe;
  for (
      const auto& [line, message] : std::vector<std::pair<std::string, std::string>>{
          {"frobnicate", "no such command"},
          {"function", "show, remove, load, unload, move, update, canary, promote, rollback, follow; see"},
          {"--json", "say what: cluster, "},
          {"frobnicate", "simulate, chaos-sim, experiment, audit, store, shell, help; see 'troupe --help'"},
          {"functoin list", "did you mean 'function'?"},
          {"function lits", "no such command: 'function lits'; did you mean 'list'?"},
          {"deploy", "did you mean 'function deploy'?"},
          {"help foo", "no such command: 'foo'"},
          {"function frob --help", "no such command: 'function frob'"},
          {"--json simulate", "troupe simulate ..."},
          {"--frob", "--frob"},
          {"function frob", "no such command"},
          {"function show", "NAME"},
          {"function deploy a", "FILE"},
          {"function deploy a b --version abc",
           "'abc' is not a valid version; they are whole numbers from 1 up"},
          {"function show a --version 01", "is not a valid version"},
          {"workflow show a --version 0", "is not a valid version"},
          {"infer a --version -1", "is not a valid version"},
          {"function deploy a b --deadline 50", "'50' is not a valid time"},
          {"function deploy a b --percentile x", "not a whole number"},
          {"gpu show node", "names no GPU"},
          {"kill gpu node/-1", "names no GPU"},
          {"node list extra", "extra"},
          {"node list --frob", "'--frob' is not an option of it; see 'troupe node list --help'"},
          {"function deploy a b --dedline 50ms",
           "'--dedline' is not an option of it; did you mean '--deadline'? see 'troupe function deploy --help'"},
          {"node list --jsn", "did you mean '--json'?"},
          {"functon list", "did you mean 'function'? see 'troupe --help'"},
          {"node list --timeout 0s", "not a valid time"},
          {"node list --manager nowhere", "not a valid address"},
          {"node list --manager host:99999", "not a valid address"},
          {"function show \xFF", "UTF-8"}}) {
    EXPECT_EQ(troupe.Run(line), ExitCode::kUsage) << line;
    EXPECT_THAT(troupe.err(), StartsWith("troupe: " + line.substr(0, 3)));
    EXPECT_THAT(troupe.err(), HasSubstr(message));
    EXPECT_EQ(std::count(troupe.last_err.begin(), troupe.last_err.end(), '\n'), 1) << troupe.err();
  }
  EXPECT_TRUE(troupe.cluster.asked.empty());
}

TEST(CommandLine, HelpOfAGroupNamesItsVerbs) {
  Harness troupe;
  for (const auto* line : {"help function", "function --help"}) {
    EXPECT_EQ(troupe.Run(line), ExitCode::kOk) << troupe.err();
    EXPECT_THAT(troupe.out(), HasSubstr("deploy"));
  }
}

TEST(CommandLine, GlobalOptionsStandAnywhereAndTheEnvironmentIsTheDefault) {
  Harness troupe;
  troupe.manager_variable = "10.0.0.9:7400";
  EXPECT_EQ(troupe.Run("node list"), ExitCode::kOk);
  EXPECT_EQ(troupe.cluster.manager, "10.0.0.9:7400");
  EXPECT_EQ(troupe.Run("--manager a:1 node list"), ExitCode::kOk);
  EXPECT_EQ(troupe.cluster.manager, "a:1");
  EXPECT_EQ(troupe.Run("node list --manager b:2 --timeout 3s"), ExitCode::kOk);
  EXPECT_EQ(troupe.cluster.manager, "b:2");
  EXPECT_EQ(troupe.cluster.timeouts.back(), std::chrono::seconds(3));
  troupe.manager_variable = "nonsense";
  EXPECT_EQ(troupe.Run("node list"), ExitCode::kUsage);
  EXPECT_THAT(troupe.err(), HasSubstr("TROUPE_MANAGER"));
}

TEST(CommandLine, ANameMayBeThatOfACommand) {
  Harness troupe;
  EXPECT_EQ(troupe.Run("function remove list"), ExitCode::kOk);
  EXPECT_EQ(troupe.cluster.asked.back().remove().key().name(), "list");
  EXPECT_EQ(troupe.Run("function remove function"), ExitCode::kOk);
  EXPECT_EQ(troupe.cluster.asked.back().remove().key().name(), "function");
}

TEST(CommandLine, ExitCodesFollowTheStatus) {
  for (const auto& [status, code] : std::vector<std::pair<absl::Status, ExitCode>>{
           {absl::InvalidArgumentError("no"), ExitCode::kUsage},
           {absl::FailedPreconditionError("no"), ExitCode::kRefused},
           {absl::ResourceExhaustedError("no"), ExitCode::kRefused},
           {absl::NotFoundError("no"), ExitCode::kNotFound},
           {absl::UnavailableError("no"), ExitCode::kUnreachable},
           {absl::DeadlineExceededError("no"), ExitCode::kTimedOut}}) {
    Harness troupe;
    troupe.cluster.Answer(proto::AdminRequest::kClusterStatus, status);
    EXPECT_EQ(troupe.Run("cluster status"), code);
    EXPECT_EQ(troupe.err(), "troupe: cluster status: no\n");
    EXPECT_EQ(troupe.out(), "");
    EXPECT_EQ(troupe.Run("cluster status --json"), code);
    EXPECT_THAT(troupe.out(), HasSubstr("\"message\": \"no\""));
  }
}

TEST(CommandLine, ARefusalInsideOfTheReplyIsOneToo) {
  Harness troupe;
  proto::AdminReply reply;
  reply.set_code(static_cast<int>(absl::StatusCode::kNotFound));
  reply.set_message("there is no node 'x'");
  troupe.cluster.Answer(proto::AdminRequest::kDrain, reply);
  EXPECT_EQ(troupe.Run("node drain x"), ExitCode::kNotFound);
}

TEST(CommandLine, AManagerThatIsNotThereIsExplained) {
  Harness troupe;
  troupe.cluster.Answer(proto::AdminRequest::kClusterStatus,
                        absl::UnavailableError("no manager at 127.0.0.1:7400"));
  EXPECT_EQ(troupe.Run("cluster status"), ExitCode::kUnreachable);
  EXPECT_THAT(troupe.err(), HasSubstr("--manager HOST:PORT"));
}

}  // namespace
}  // namespace troupe::shell
