// More nodes have a host copy of a model whose load needs them, in a whole cluster.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "tests/actors/world.hpp"

namespace troupe::actors {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Four nodes of one GPU, whose runs take ten milliseconds.
class Replicas : public ::testing::Test {
 protected:
  Replicas() : world_(4, 1) { EXPECT_TRUE(world_.Deploy("hot", MiB(10), milliseconds(100)).ok()); }
  void TearDown() override { world_.ShutDown(); }

  // Requests at an even pace.
  void Load(Duration gap, Duration length) {
    for (const Time end = world_.Now() + length; world_.Now() < end;) {
      world_.Infer("hot", ++calls_);
      world_.Run(gap);
    }
  }
  std::size_t Holders() {
    proto::AdminRequest list;
    list.mutable_list_functions();
    const auto reply = world_.Ask(list);
    EXPECT_TRUE(reply.ok()) << reply.status();
    for (const auto& function : reply->functions())
      if (function.record().key().name() == "hot")
        return static_cast<std::size_t>(function.adopted_by_size());
    return 0;
  }
  // How many of the answers from there on came in time, and from how many nodes.
  struct Served {
    std::size_t requests = 0, in_time = 0, failed = 0;
    std::set<std::string> nodes{};
  };
  Served From(std::size_t first) {
    Served served;
    for (auto i = first; i < world_.answers.size(); ++i) {
      const auto& answer = world_.answers[i];
      ++served.requests;
      served.in_time += answer.took <= milliseconds(100) ? 1 : 0;
      served.failed += answer.reply.code() == 0 ? 0 : 1;
      served.nodes.insert(answer.reply.node());
    }
    return served;
  }

  World world_;
  std::uint64_t calls_ = 0;
};

TEST_F(Replicas, AFunctionWhoseLoadIsMoreThanItsNodesCanServeGetsMore) {
  ASSERT_EQ(Holders(), 2U);
  Load(milliseconds(4), seconds(12));  // two and a half GPUs' work
  EXPECT_EQ(Holders(), 4U);
  const auto settled = world_.answers.size();
  Load(milliseconds(4), seconds(12));
  world_.Run(seconds(5));
  const auto served = From(settled);
  EXPECT_EQ(served.failed, 0U);
  EXPECT_GE(served.nodes.size(), 3U) << "two nodes cannot serve as much";
  EXPECT_GE(static_cast<double>(served.in_time), 0.99 * static_cast<double>(served.requests));
  EXPECT_EQ(world_.answers.size(), calls_);
}

TEST_F(Replicas, ItGivesThemUpWhenTheLoadIsGoneAndNoRequestFails) {
  Load(milliseconds(4), seconds(12));
  ASSERT_EQ(Holders(), 4U);
  Load(milliseconds(100), seconds(150));
  world_.Run(seconds(5));
  EXPECT_EQ(Holders(), 2U);
  EXPECT_EQ(From(0).failed, 0U);
  EXPECT_EQ(world_.answers.size(), calls_);
}

TEST_F(Replicas, ANodeThatDiesInTheMiddleIsMadeUpFor) {
  Load(milliseconds(4), seconds(12));
  world_.KillNode("node-2");
  Load(milliseconds(5), seconds(10));
  world_.Run(seconds(15));
  EXPECT_EQ(Holders(), 3U) << "all nodes that are left";
  EXPECT_EQ(From(0).failed, 0U);
  EXPECT_EQ(world_.answers.size(), calls_);
}

}  // namespace
}  // namespace troupe::actors
