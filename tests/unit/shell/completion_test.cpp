#include "shell/completion.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/temporary_directory.hpp"
#include "tests/unit/shell/fake_admin_client.hpp"

namespace troupe::shell {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;

std::vector<std::string> NamesFor(Kind kind) {
  switch (kind) {
    case Kind::kFunction:
      return {"digits", "digits-wide", "resnet"};
    case Kind::kServable:
      return {"digits", "ensemble"};
    case Kind::kGpu:
      return {"node-a/0", "node-b/0"};
    case Kind::kNode:
      return {"node-a", "node-b"};
    default:
      return {};
  }
}

std::vector<std::string> CompletionsOf(const std::string& line) {
  return Complete(line, NamesFor).candidates;
}

TEST(Completion, VerbsFirst) {
  EXPECT_THAT(CompletionsOf("fu"), ElementsAre("function"));
  EXPECT_THAT(CompletionsOf(""), Contains("infer"));
  EXPECT_THAT(CompletionsOf("function "),
              ElementsAre("canary", "check", "deploy", "follow", "list", "load", "move", "promote", "remove",
                          "rollback", "show", "unload", "update"));
  EXPECT_THAT(CompletionsOf("workflow r"), ElementsAre("remove", "run", "runs"));
  EXPECT_THAT(CompletionsOf("help function s"), ElementsAre("show"));
  EXPECT_THAT(CompletionsOf("nonsense "), IsEmpty());
}

TEST(Completion, NamesOfTheKindThatIsDue) {
  EXPECT_THAT(CompletionsOf("function show dig"), ElementsAre("digits", "digits-wide"));
  EXPECT_EQ(Complete("function show d", NamesFor).CommonPrefix(), "digits");
  EXPECT_THAT(CompletionsOf("infer e"), ElementsAre("ensemble"));
  EXPECT_THAT(CompletionsOf("kill gpu node-b"), ElementsAre("node-b/0"));
  EXPECT_THAT(CompletionsOf("--json node drain "), ElementsAre("node-a", "node-b"));
  EXPECT_THAT(CompletionsOf("node drain node-a "), IsEmpty()) << "the verb takes only one name";
  EXPECT_THAT(CompletionsOf("--manager x:1 function show r"), ElementsAre("resnet"));
}

TEST(Completion, OptionsOnce) {
  EXPECT_THAT(CompletionsOf("function deploy --d"), ElementsAre("--deadline"));
  EXPECT_THAT(CompletionsOf("function deploy --deadline 5s --"), Not(Contains("--deadline")));
  EXPECT_THAT(CompletionsOf("infer digits --input a --"), Contains("--input")) << "the option may come again";
  EXPECT_THAT(CompletionsOf("function deploy --tenant "), IsEmpty());
}

TEST(Completion, FilesAlsoBehindATensorsName) {
  const test::TemporaryDirectory place;
  const std::string& folder = place.path();
  std::filesystem::create_directory(folder + "/sub");
  std::ofstream(folder + "/my x.npy");
  EXPECT_THAT(CompletionsOf("infer digits --input image=" + folder + "/m"),
              ElementsAre("image=" + folder + "/my x.npy"));
  EXPECT_THAT(CompletionsOf("function deploy a " + folder + "/"),
              ElementsAre(folder + "/my x.npy", folder + "/sub/"));
}

TEST(Completion, NamesAreAskedOnceForAWhileAndNeverFail) {
  Harness troupe;
  proto::AdminReply reply;
  *reply.add_functions() = MakeFunction("digits", "1");
  troupe.cluster.Answer(proto::AdminRequest::kListFunctions, reply);
  ClusterNames names(troupe.session);
  EXPECT_THAT(names(Kind::kFunction), ElementsAre("digits"));
  EXPECT_THAT(names(Kind::kFunction), ElementsAre("digits"));
  EXPECT_EQ(troupe.cluster.asked.size(), 1U);
  EXPECT_LE(troupe.cluster.timeouts[0], std::chrono::seconds(1));
  EXPECT_FALSE(troupe.session.options().timeout.has_value())
      << "the short timeout of a completion is not that of the session";
  troupe.console.now += std::chrono::seconds(3);
  troupe.cluster.answers.clear();
  troupe.cluster.Answer(proto::AdminRequest::kListFunctions, absl::UnavailableError("away"));
  EXPECT_THAT(names(Kind::kFunction), IsEmpty());
}

}  // namespace
}  // namespace troupe::shell
