// Which node runs what keeps a state: the home of the model, and no other node that has the model. Each test is a table of events
// and what the cluster does about them.
#include "tests/unit/cluster/cluster_fixture.hpp"

namespace troupe::cluster::state_homes_test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::Not;

class StateHomes : public ClusterTest {
 protected:
  // Node "n1" has the model of function "g", which keeps nothing.
  StateHomes() : ClusterTest(TwoCopies()) {
    Begin();
    Stored();
    JoinNode("n1");
    Stored();
    Deploy("g", 2);
    Stored();
    Adopted();
  }
  static ClusterSettings TwoCopies() {
    ClusterSettings settings;
    settings.replicas = 2;
    return settings;
  }
  void DeployKeeper() {
    Deploy("f", 3, State::kKept, 0, "g");
    Stored();
  }
  Lines Load(bool loaded) {
    AdminAsked asked{.ask = 8};
    auto& wish = *asked.request.mutable_load();
    wish.mutable_key()->set_name("f");
    wish.set_load(loaded);
    On(std::move(asked));
    return Stored();
  }
  static std::string Digest() { return FunctionOf("g").model_digest(); }
};

TEST_F(StateHomes, AHomeThatHasTheModelForAnotherFunctionIsAskedToAdoptItForTheState) {
  DeployKeeper();
  EXPECT_THAT(Stored(), Contains("adopt f at n1")) << "as soon as the store names it as the home";
  EXPECT_EQ(home_.nodes(0), "n1");
  EXPECT_THAT(Adopted(), ElementsAre("n1: model-adopted"));
  EXPECT_THAT(Pulse(), Not(Contains(HasSubstr("adopt")))) << "it is told once";
}

TEST_F(StateHomes, AHomeThatCouldNotAdoptItForTheStateIsAskedAgain) {
  DeployKeeper();
  Stored();
  Answered(adoptions().back(), absl::UnavailableError("not now"));
  Lines lines;
  for (int i = 0; i < 100 && lines.empty(); ++i) {
    Hears("n1", 1);
    for (auto& line : Pulse())
      if (line.starts_with("adopt")) lines.push_back(std::move(line));
  }
  EXPECT_THAT(lines, ElementsAre("adopt f at n1"));
}

TEST_F(StateHomes, AHomeThatJoinsAgainIsToldAgain) {
  DeployKeeper();
  Stored();
  Adopted();
  disk_ = "c";
  JoinNode("n1", 9, "virtual", {Digest()});
  EXPECT_THAT(Stored(), Contains("adopt f at n1"));
}

TEST_F(StateHomes, AFunctionThatIsLoadedAgainIsRunAtItsHome) {
  DeployKeeper();
  Stored();
  Adopted();
  EXPECT_THAT(Load(false), Not(Contains("adopt f at n1")));
  Pulse();
  EXPECT_THAT(Load(true), Contains("adopt f at n1"));
}

// The node drops its copy of the model with the states, which the other function had, too.
TEST_F(StateHomes, ACopyThatANodeDropsWithTheStatesOfAnUnloadedFunctionIsAskedForAgain) {
  DeployKeeper();
  Stored();
  Adopted();
  Load(false);
  Pulse();
  JoinNode("n2", 7);
  Stored();
  Pulse();
  Adopted();
  AdminAsked asked{.ask = 6};
  asked.request.mutable_move_function()->mutable_key()->set_name("f");
  asked.request.mutable_move_function()->set_node("n2");
  EXPECT_THAT(On(std::move(asked)), IsSupersetOf({"give up f/1@100000000000 at n1", "adopt g at n1"}));
}

}  // namespace
}  // namespace troupe::cluster::state_homes_test
