// Functions with state that are removed and deployed again: a node serves only the deployment that it knows, since each
// deployment has a state of its own. Each test lists the events that the node hears, and the effects that each of them has.
#include "tests/unit/node/node_fixture.hpp"

namespace troupe::node::redeployed_states_test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

// A node with one GPU serves function "f", which keeps a state, and knows its deployment of time 5.
class RedeployedStates : public NodeTest {
 protected:
  RedeployedStates() : NodeTest(Settings(1)) {
    Up(0);
    Hello(7);
    Learn(Deployment(5));
    On(ImageLoaded{"f/1@5", absl::NotFoundError("no file"), {}});
    Adopt(Deployment(5));
    Answered(0, "prepare");
  }
  static proto::FunctionRecord Deployment(std::int64_t time, const std::string& model = "model-f") {
    auto function = KeeperOf(Bytes(1000));
    function.set_deployed_unix_ns(time);
    function.set_model_digest(model);
    return function;
  }
  void Learn(const proto::FunctionRecord& function) {
    proto::ClusterUpdate update;
    update.set_snapshot(true);
    update.set_revision(++revision_);
    *update.add_functions() = function;
    On(ClusterChanged{update});
  }
  // A router that knows this deployment asks.
  Lines Ask(node::Ask ask, const proto::FunctionRecord& deployment) {
    auto arrived = Arrived(ask, "f");
    arrived.message.set_model_digest(deployment.model_digest());
    arrived.message.set_deployed_unix_ns(deployment.deployed_unix_ns());
    return On(std::move(arrived));
  }

 private:
  std::uint64_t revision_ = 0;
};

TEST_F(RedeployedStates, ANodeThatHasNotHeardOfADeploymentDoesNotServeItFromTheStateBefore) {
  EXPECT_THAT(Ask(1, Deployment(9)), ElementsAre("bounce 1 BOUNCE_NOT_ADOPTED"));
  EXPECT_THAT(answered_.bounced().message(), HasSubstr("knows another deployment of function 'f' version 1"));
  EXPECT_THAT(Ask(2, Deployment(5)), Contains("order 0 swap-in packed-f"));
}

TEST_F(RedeployedStates, ARouterThatHasNotHeardOfADeploymentDoesNotAddToItsState) {
  Learn(Deployment(9));
  On(ImageLoaded{"f/1@9", absl::NotFoundError("no file"), {}});
  EXPECT_THAT(Ask(1, Deployment(5)), ElementsAre("bounce 1 BOUNCE_NOT_ADOPTED"));
  EXPECT_THAT(Ask(2, Deployment(9)), Contains("order 0 swap-in packed-f"));
}

// Its model was adopted before the news of the deployment came.
TEST_F(RedeployedStates, ADeploymentWithAnotherModelDoesNotRunOnTheStateBefore) {
  const auto again = Deployment(9, "model-g");
  On(AdoptionAsked{1000, again});
  Place(again);
  EXPECT_THAT(Ask(1, again), Contains("bounce 1 BOUNCE_NOT_ADOPTED"));
  EXPECT_THAT(answered_.bounced().message(), HasSubstr("has not heard of the state of function 'f' yet"));
}

// A router of an earlier release does not say which deployment it knows.
TEST_F(RedeployedStates, ARequestThatNamesNoDeploymentIsServed) {
  EXPECT_THAT(Ask(1, Deployment(0)), Contains("order 0 swap-in packed-f"));
}

}  // namespace
}  // namespace troupe::node::redeployed_states_test
