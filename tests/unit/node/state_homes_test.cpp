// A node that has a model for a function without state is not the home of the states of the model's other functions: it begins no
// run of these until the manager names it.
#include "tests/unit/node/node_fixture.hpp"

namespace troupe::node::state_homes_test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

// Functions "f", which keeps a state, and "g" have one model, which the node has adopted for "g".
class StateHomesTest : public NodeTest {
 protected:
  StateHomesTest() : NodeTest(Settings(1)) {
    Up(0);
    Hello(7);
    proto::ClusterUpdate update;
    update.set_snapshot(true);
    update.set_revision(1);
    *update.add_functions() = KeeperOf(Bytes(1000));
    *update.add_functions() = Other();
    On(ClusterChanged{update});
    On(ImageLoaded{"f/1@5", absl::NotFoundError("no file"), {}});
    Adopt(Other());
    Answered(0, "prepare");
  }
  static proto::FunctionRecord Other() {
    auto function = Function("g");
    function.set_model_digest("model-f");
    return function;
  }
  Lines Ask(node::Ask ask, const std::string& function) {
    auto arrived = Arrived(ask, function);
    arrived.message.set_model_digest("model-f");
    return On(std::move(arrived));
  }
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

}  // namespace
}  // namespace troupe::node::state_homes_test
