// The verbs of cluster, node, gpu and kill.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/shell/fake_admin_client.hpp"

namespace troupe::shell {
namespace {

using testing::HasSubstr;
using testing::Not;
using Request = proto::AdminRequest;

struct ClusterVerbTest : testing::Test {
  ClusterVerbTest() {
    troupe.cluster.Answer(Request::kClusterStatus, MakeStatusReply());
    troupe.cluster.Answer(Request::kListGpus, MakeGpuReply());
    proto::AdminReply functions;
    *functions.add_functions() = MakeFunction("digits", "2");
    troupe.cluster.Answer(Request::kListFunctions, functions);
  }
  Harness troupe;
};

TEST_F(ClusterVerbTest, StatusCountsMembers) {
  EXPECT_EQ(troupe.Run("cluster status"), ExitCode::kOk);
  EXPECT_THAT(
      troupe.out(),
      HasSubstr("cluster c0ffee, revision 7\nnodes 1  gateways 1  GPUs 1 of 2 ready  1 member away\n"));
  EXPECT_THAT(troupe.out(), HasSubstr("functions 3  workflows 1  runs 2"));
  EXPECT_THAT(troupe.out(), HasSubstr("queued 43  running 2  served 777\n"))
      << "gateways and nodes count the same requests";
  EXPECT_THAT(troupe.out(), HasSubstr("10.0.0.3:8000"));
  EXPECT_THAT(troupe.out(), Not(HasSubstr("\x1b"))) << "there are no colours in a pipe";
}

TEST_F(ClusterVerbTest, JsonHasEveryFieldUnderItsName) {
  EXPECT_EQ(troupe.Run("cluster status --json"), ExitCode::kOk);
  EXPECT_THAT(troupe.out(), HasSubstr("\"silent_ns\": \"100000000\""));
  EXPECT_THAT(troupe.out(), HasSubstr("\"code\": 0"));
}

TEST_F(ClusterVerbTest, ColoursOnlyAtATerminal) {
  troupe.console.terminal = true;
  setenv("TERM", "xterm", 1);
  unsetenv("NO_COLOR");
  EXPECT_EQ(troupe.Run("cluster status"), ExitCode::kOk);
  EXPECT_THAT(troupe.out(), HasSubstr("\x1b[32malive"));
  EXPECT_EQ(troupe.Run("cluster status --no-color"), ExitCode::kOk);
  EXPECT_THAT(troupe.out(), Not(HasSubstr("\x1b")));
}

TEST_F(ClusterVerbTest, NodeListLeavesGatewaysOut) {
  EXPECT_EQ(troupe.Run("node list"), ExitCode::kOk);
  EXPECT_THAT(troupe.out(), HasSubstr("node-b"));
  EXPECT_THAT(troupe.out(), HasSubstr("1/2 ready, 2 GiB"));
  EXPECT_THAT(troupe.out(), HasSubstr("75 %"));
  EXPECT_THAT(troupe.out(), Not(HasSubstr("gateway-a")));
  EXPECT_EQ(troupe.Run("node list --json"), ExitCode::kOk);
  EXPECT_THAT(troupe.out(), Not(HasSubstr("gateway-a")));
}

TEST_F(ClusterVerbTest, DrainAndUndo) {
  EXPECT_EQ(troupe.Run("node drain node-a"), ExitCode::kOk);
  EXPECT_EQ(troupe.cluster.asked.back().drain().name(), "node-a");
  EXPECT_TRUE(troupe.cluster.asked.back().drain().drain());
  EXPECT_EQ(troupe.Run("node drain node-a --undo"), ExitCode::kOk);
  EXPECT_FALSE(troupe.cluster.asked.back().drain().drain());
}

TEST_F(ClusterVerbTest, GpuListAndShow) {
  EXPECT_EQ(troupe.Run("gpu list"), ExitCode::kOk);
  EXPECT_THAT(troupe.out(), HasSubstr("node-a/0  virtual:0  ready  512 MiB   1 GiB"));
  EXPECT_THAT(troupe.out(), HasSubstr("node-a/1  virtual:1  unfit      0 B"));
  EXPECT_THAT(troupe.out(), HasSubstr("node-a/1 is unfit: critical error Xid 79\n"));
  EXPECT_THAT(troupe.out(),
              HasSubstr("3 MiB of 4 MiB in use; models: 1 held, 2 on disk; 12 loads, 9 sent back"));
  EXPECT_THAT(troupe.out(), HasSubstr("alpha      0.5 at node-a\n"));
  EXPECT_EQ(troupe.Run("gpu show node-a/0"), ExitCode::kOk);
  EXPECT_THAT(troupe.out(), HasSubstr("SMs       132; shares of 8, 16, 24, ..., 128, 132\n"));
  EXPECT_EQ(troupe.cluster.asked[1].list_gpus().node(), "node-a");
  EXPECT_THAT(troupe.out(), HasSubstr("digits version 2"));
  EXPECT_THAT(troupe.out(), Not(HasSubstr("problem")));
  EXPECT_THAT(troupe.out(), HasSubstr("pid 4711, restarted 1 times"));
  for (const char* text :
       {"promised to runs 64 KiB", "pool      2 MiB", "fragmentation 25 %",
        "host      1 GiB of its memory registered with the GPU, 512 MiB to come", "busy 50 %",
        "to the GPU 4 MiB", "other             resident  8 MiB", "digits version 2  running   1 MiB",
        "swapped in", "3.906 GiB/s", "no room", "alpha      0.5 at node-a\n"})
    EXPECT_THAT(troupe.out(), HasSubstr(text));
  EXPECT_EQ(troupe.Run("gpu show node-a/0 --json"), ExitCode::kOk);
  EXPECT_THAT(troupe.out(), HasSubstr("\"promised_bytes\""));
  EXPECT_EQ(troupe.Run("gpu show node-a/5"), ExitCode::kNotFound);
  EXPECT_EQ(troupe.Run("gpu show node-a/1"), ExitCode::kOk);
  EXPECT_THAT(troupe.out(), HasSubstr("problem   critical error Xid 79\n"));
  EXPECT_THAT(troupe.out(), HasSubstr("nothing is resident"));
}

TEST_F(ClusterVerbTest, KillAsksFirst) {
  EXPECT_EQ(troupe.Run("kill gpu node-a/1"), ExitCode::kRefused) << "without a terminal no one can confirm";
  troupe.console.input = {"no"};
  EXPECT_EQ(troupe.Run("kill gpu node-a/1"), ExitCode::kRefused);
  EXPECT_TRUE(troupe.cluster.asked.empty());
  troupe.console.input = {" Yes "};
  EXPECT_EQ(troupe.Run("kill gpu node-a/1"), ExitCode::kOk);
  EXPECT_THAT(troupe.err(), HasSubstr("Kill the worker of GPU node-a/1?"));
  ASSERT_EQ(troupe.cluster.asked.size(), 1U);
  EXPECT_EQ(troupe.cluster.asked[0].kill_gpu().node(), "node-a");
  EXPECT_EQ(troupe.cluster.asked[0].kill_gpu().gpu(), 1U);
  EXPECT_EQ(troupe.Run("kill gpu node-a/1 --yes"), ExitCode::kOk);
  EXPECT_EQ(troupe.err(), "");
}

}  // namespace
}  // namespace troupe::shell
