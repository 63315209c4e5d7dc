// Deployments of functions that keep state, whose home is stored before a node is asked to adopt them. The
// developer hears of the outcome, whatever happens in between.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>

#include "tests/actors/state_world.hpp"

namespace troupe::actors {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class Homes : public ::testing::Test {
 protected:
  using Slot = std::shared_ptr<std::optional<proto::AdminReply>>;

  Slot Ask(const proto::AdminRequest& request) {
    auto slot = std::make_shared<std::optional<proto::AdminReply>>();
    world_.system().spawn([this, request, slot](caf::event_based_actor* self) {
      self->request(world_.manager(), caf::infinite, request).then([slot](proto::AdminReply& reply) {
        *slot = std::move(reply);
      });
    });
    world_.Run(milliseconds(10));
    return slot;
  }
  Slot Deploy(bool with_state = true) {
    proto::StateTensor state;
    state.set_input("s");
    state.set_output("t");
    proto::AdminRequest request;
    auto& deploy = *request.mutable_deploy();
    deploy.set_name("sum");
    deploy.set_onnx_digest(world_.MakeModel("sum", MiB(10), {"x"}, {state}));
    if (with_state) *deploy.add_state() = state;
    deploy.mutable_slo()->set_deadline_ns(1'000'000'000);
    return Ask(request);
  }
  // Runs until the function's record is stored and its home is not yet.
  Slot DeployUntilItsHomeIsStored() {
    world_.store().Hold();
    auto slot = Deploy();
    EXPECT_EQ(world_.store().held(), 1u) << "only the function's record waits for the disk";
    EXPECT_TRUE(world_.store().CompleteNext());
    world_.Run(milliseconds(10));
    EXPECT_EQ(world_.store().held(), 1u) << "only the home waits for the disk";
    EXPECT_FALSE(slot->has_value());
    return slot;
  }
  // The function stays, and the remark says what happened.
  static void ExpectRemark(const Slot& slot, const std::string& remark) {
    ASSERT_TRUE(slot->has_value()) << "the deployment was never answered";
    EXPECT_EQ((*slot)->code(), 0);
    EXPECT_NE((*slot)->message().find(remark), std::string::npos) << (*slot)->message();
  }

  StateWorld world_{1};
};

TEST_F(Homes, ADeploymentWhoseHomeCannotBeStoredIsAnsweredAndTriedAgain) {
  const auto deployed = DeployUntilItsHomeIsStored();
  world_.store().FailNext(absl::ResourceExhaustedError("disk full"));
  const auto commits = world_.store().commits();
  world_.store().Release();
  world_.Run(milliseconds(10));
  ExpectRemark(deployed, "could not be stored (disk full)");
  world_.Run(seconds(20));
  EXPECT_EQ(world_.Count("sum"), 1) << "the adoption was not tried again";
  EXPECT_LE(world_.store().commits(), commits + 3) << "the adoption was tried again and again";
}

TEST_F(Homes, ADeploymentWhoseHomeIsLostWhileItIsStoredIsAnswered) {
  const auto deployed = DeployUntilItsHomeIsStored();
  world_.KillNode("node-1");
  world_.Run(milliseconds(100));
  world_.store().Release();
  world_.Run(milliseconds(10));
  ExpectRemark(deployed, "'node-1', which is to keep its state, was lost");
  world_.RestartNode("node-1", StateWorld::Kept::kDisk);
  world_.Run(seconds(5));
  EXPECT_EQ(world_.Count("sum"), 1);
}

TEST_F(Homes, AFunctionThatIsRemovedWhileItsHomeIsStoredCanBeDeployedAgain) {
  world_.KillNode("node-1");
  world_.Run(seconds(1));
  ASSERT_TRUE(Deploy()->has_value()) << "no node could adopt it";
  world_.store().Hold();
  proto::AdminRequest remove;
  remove.mutable_remove()->mutable_key()->set_name("sum");
  const auto removed = Ask(remove);
  world_.RestartNode("node-1", StateWorld::Kept::kDisk);
  // Runs until just before the node takes its join for lost and joins once more.
  world_.RunUntil([&] { return world_.store().held() == 3; }, milliseconds(200));
  ASSERT_EQ(world_.store().held(), 3u) << "the removal, the node's epoch, and behind it the home";
  world_.store().Release();
  world_.Run(seconds(1));
  ASSERT_TRUE(removed->has_value());
  EXPECT_EQ((*removed)->code(), 0) << (*removed)->message();
  const auto again = Deploy(false);  // without a home the manager does not look at what is asked for
  world_.Run(seconds(5));
  ASSERT_TRUE(again->has_value()) << "the deployment was never answered";
  EXPECT_EQ((*again)->code(), 0) << (*again)->message();
  EXPECT_EQ((*again)->functions(0).adopted_by_size(), 1);
}

}  // namespace
}  // namespace troupe::actors
