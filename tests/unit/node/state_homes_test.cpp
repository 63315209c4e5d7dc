// A node that has a model for a function without state is not the home of the states of the model's other functions: it begins no
// run of these until the manager names it.
#include "tests/unit/node/node_fixture.hpp"

namespace troupe::node::state_homes_test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Functions "f", which keeps a state, and "g" have one model, which the node has adopted for "g".
class StateHomesTest : public NodeTest {
 protected:
  StateHomesTest() : NodeTest(Settings(1)) {
    Up(0);
    Hello(7);
    Learn({KeeperOf(Bytes(1000)), Other()});
    On(ImageLoaded{"f/1@5", absl::NotFoundError("no file"), {}});
    Adopt(Other());
    Answered(0, "prepare");
  }
  static proto::FunctionRecord Other() {
    auto function = Function("g");
    function.set_model_digest("model-f");
    return function;
  }
  proto::ClusterUpdate Known(const std::vector<proto::FunctionRecord>& functions) {
    proto::ClusterUpdate update;
    update.set_snapshot(true);
    update.set_revision(++revision_);
    for (const auto& function : functions) *update.add_functions() = function;
    return update;
  }
  void Learn(const std::vector<proto::FunctionRecord>& functions) { On(ClusterChanged{Known(functions)}); }
  Lines Ask(node::Ask ask, const std::string& function) {
    auto arrived = Arrived(ask, function);
    arrived.message.set_node_epoch(epoch_);
    arrived.message.set_model_digest("model-f");
    return On(std::move(arrived));
  }

  std::uint64_t epoch_ = 0;
  std::uint64_t revision_ = 0;
};

TEST_F(StateHomesTest, ANodeThatIsNotTheHomeBeginsNoRunOfAFunctionWithState) {
  EXPECT_THAT(Ask(1, "f"), ElementsAre("bounce 1 BOUNCE_NOT_ADOPTED"));
  EXPECT_THAT(answered_.bounced().message(), HasSubstr("not the home of the state of function 'f'"));
  EXPECT_THAT(Ask(2, "g"), Contains("order 0 swap-in packed-g")) << "the other function is served";
}

TEST_F(StateHomesTest, TheManagerNamesTheHomeWithAnAdoptionForTheFunctionWithState) {
  EXPECT_THAT(On(AdoptionAsked{1001, KeeperOf(Bytes(1000))}), Contains("adopted 1001 OK"));
  EXPECT_THAT(Ask(1, "f"), Contains("order 0 swap-in packed-g"));
}

TEST_F(StateHomesTest, AHomeThatGaveTheModelUpIsNoneUntilItIsNamedAgain) {
  On(AdoptionAsked{1001, KeeperOf(Bytes(1000))});
  On(ModelDisowned{"model-f"});
  On(AdoptionAsked{1002, Other()});
  Place(Other());
  Answered(0, "prepare");
  EXPECT_THAT(Ask(1, "f"), ElementsAre("bounce 1 BOUNCE_NOT_ADOPTED"));
  EXPECT_THAT(Ask(2, "g"), Contains("order 0 swap-in packed-g"));
}

// Another node may be the home of what is deployed again, or since the node was cut off.
TEST_F(StateHomesTest, WhatWasTheHomeOfAFunctionThatIsGoneIsNotThatOfTheNext) {
  On(AdoptionAsked{1001, KeeperOf(Bytes(1000))});
  Learn({Other()});
  auto again = KeeperOf(Bytes(1000));
  again.set_deployed_unix_ns(9);
  Learn({again, Other()});
  On(ImageLoaded{"f/1@9", absl::NotFoundError("no file"), {}});
  EXPECT_THAT(Ask(1, "f"), ElementsAre("bounce 1 BOUNCE_NOT_ADOPTED"));
  On(AdoptionAsked{1002, again});
  EXPECT_THAT(Ask(2, "f"), Contains("order 0 swap-in packed-g"));
}

TEST_F(StateHomesTest, ANodeThatJoinsAgainIsTheHomeWhenItIsNamedInItsNewEpoch) {
  const auto join = [&](std::uint64_t epoch) {
    epoch_ = epoch;
    On(Joined{epoch, Known({KeeperOf(Bytes(1000)), Other()}), false});
  };
  On(AdoptionAsked{.ask = 1001, .function = KeeperOf(Bytes(1000)), .epoch = 3});
  join(3);
  EXPECT_THAT(Ask(1, "f"), Contains("order 0 swap-in packed-g"))
      << "the order came before the answer to the join";
  join(4);
  EXPECT_THAT(Ask(2, "f"), ElementsAre("bounce 2 BOUNCE_NOT_ADOPTED"));
  On(AdoptionAsked{.ask = 1002, .function = KeeperOf(Bytes(1000)), .epoch = 4});
  EXPECT_THAT(Ask(3, "f"), IsEmpty()) << "it waits for the run before it";
}

// The state of a function that is not loaded moves here, where the model is for another one.
TEST_F(StateHomesTest, ANodeThatHasTheModelForAnotherFunctionTakesStatesOver) {
  StatesOffered offered{1, {}};
  offered.wish.set_model_digest("model-f");
  offered.wish.set_from_address("away");
  offered.wish.add_images("f/1@5");
  EXPECT_THAT(On(std::move(offered)), Contains(HasSubstr("pull")));
}

}  // namespace
}  // namespace troupe::node::state_homes_test
