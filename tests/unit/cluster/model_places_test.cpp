// Which nodes a node is sent to for the bytes of a model.
#include "tests/unit/cluster/cluster_fixture.hpp"

namespace troupe::cluster {
namespace {

using ::testing::ElementsAre;

class ModelPlaces : public ClusterTest {
 protected:
  ModelPlaces() : ClusterTest(OnAllNodes()) {}
  static ClusterSettings OnAllNodes() {
    auto settings = Settings();
    settings.replicas = 100;
    return settings;
  }
  // A cluster whose nodes, n1 to nN, have all adopted the model of function f.
  void BeginWith(int nodes) {
    Begin();
    Stored();
    for (int i = 1; i <= nodes; ++i) {
      JoinNode(absl::StrCat("n", i), static_cast<Ask>(i));
      Stored();
    }
    Deploy("f", 1000);
    Stored();
    AllAdopted();
  }
  Lines Places(const std::string& asker) { return On(PlacesAsked{7, FunctionOf("f").model_digest(), asker}); }
};

TEST_F(ModelPlaces, AreTheOtherNodesThatHoldItEachTimeAnotherOneFirst) {
  BeginWith(3);
  EXPECT_THAT(Places("n4"), ElementsAre("places n1@n1 n2@n2 n3@n3"));
  EXPECT_THAT(Places("n4"), ElementsAre("places n2@n2 n3@n3 n1@n1"));
  EXPECT_THAT(Places("n1"), ElementsAre("places n2@n2 n3@n3")) << "the node that asks is not told of itself";
}

TEST_F(ModelPlaces, OfAModelThatNoNodeHoldsAreNone) {
  BeginWith(2);
  EXPECT_THAT(On(PlacesAsked{7, "another", "n1"}), ElementsAre("places"));
}

TEST_F(ModelPlaces, AreNoNodesThatAreLost) {
  BeginWith(3);
  On(MemberLost{"n2"});
  EXPECT_THAT(Places("n4"), ElementsAre("places n1@n1 n3@n3"));
}

TEST_F(ModelPlaces, AreEightAtMost) {
  BeginWith(12);
  const auto lines = Places("n1");
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(std::count(lines[0].begin(), lines[0].end(), '@'), 8);
}

}  // namespace
}  // namespace troupe::cluster
