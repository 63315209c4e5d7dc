// Which nodes a node is sent to for the bytes of a model.
#include "tests/unit/cluster/cluster_fixture.hpp"

namespace troupe::cluster {
namespace {

using ::testing::ElementsAre;

class ModelPlaces : public ClusterTest {
 protected:
  explicit ModelPlaces(FetchPolicy policy = FetchPolicy::kRelay) : ClusterTest(OnAllNodes(policy)) {}
  static ClusterSettings OnAllNodes(FetchPolicy policy) {
    auto settings = Settings();
    settings.replicas = 100;
    settings.fetch_policy = policy;
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

// A model of 256 MiB that n1 holds, and that all others are asked to adopt.
class RelayedPlaces : public ModelPlaces {
 protected:
  explicit RelayedPlaces(FetchPolicy policy = FetchPolicy::kRelay) : ModelPlaces(policy) {}
  void BeginWith(int nodes, Bytes weights = MiB(256)) {
    Begin();
    Stored();
    JoinNode("n1", 1);
    Stored();
    Deploy("f", 1000, weights);
    Stored();
    AllAdopted();
    for (int i = 2; i <= nodes; ++i) {
      JoinNode(absl::StrCat("n", i), static_cast<Ask>(i));
      Stored();
    }
    while (adoptions().size() < static_cast<std::size_t>(nodes) - 1) Pulse();
  }
  void Deploy(const std::string& name, Ask ask, Bytes weights) {
    AdminAsked asked{.ask = ask, .asker = {.who = "key/dev"}};
    asked.request.mutable_deploy()->set_name(name);
    asked.request.mutable_deploy()->set_onnx_digest("onnx");
    On(std::move(asked));
    auto imported = FunctionOf(name);
    imported.set_weights_bytes(weights.count());
    On(ModelImported{ask, std::move(imported)});
  }
};

TEST_F(RelayedPlaces, NodesThatFetchAtTheSameTimeFollowEachOther) {
  BeginWith(4);
  EXPECT_THAT(Places("n2"), ElementsAre("places n1@n1"));
  EXPECT_THAT(Places("n3"), ElementsAre("places behind n2@n2 n1@n1"));
  EXPECT_THAT(Places("n4"), ElementsAre("places behind n3@n3 n1@n1"));
}

TEST_F(RelayedPlaces, ANodeThatAdoptedTheModelIsAHolder) {
  BeginWith(4);
  Places("n2");
  Places("n3");
  AllAdopted();
  EXPECT_THAT(Places("n4"), ElementsAre("places n3@n3 n1@n1 n2@n2")) << "nothing is being fetched";
}

TEST_F(RelayedPlaces, ANodeThatIsLostIsNotFollowed) {
  BeginWith(4);
  Places("n2");
  Places("n3");
  On(MemberLost{"n3"});
  EXPECT_THAT(Places("n4"), ElementsAre("places behind n2@n2 n1@n1"));
}

TEST_F(RelayedPlaces, ANodeWhoseAdoptionFailedIsNotFollowed) {
  BeginWith(3);
  Places("n2");
  for (const auto& ask : adoptions())
    if (ask.node == "n2") Answered(ask, absl::UnavailableError("the disk is full"));
  EXPECT_THAT(Places("n3"), ElementsAre("places n1@n1"));
}

TEST_F(RelayedPlaces, ANodeThatWasNotAskedToAdoptIsNotFollowed) {
  BeginWith(3);
  EXPECT_THAT(Places("n9"), ElementsAre("places n1@n1"));
  EXPECT_THAT(Places("n2"), ElementsAre("places n1@n1")) << "n9 takes no part";
}

TEST_F(RelayedPlaces, OfASmallModelAreTheHolders) {
  BeginWith(3, MiB(15));
  EXPECT_THAT(Places("n2"), ElementsAre("places n1@n1"));
  EXPECT_THAT(Places("n3"), ElementsAre("places n1@n1"));
}

class PlacesByHolders : public RelayedPlaces {
 protected:
  PlacesByHolders() : RelayedPlaces(FetchPolicy::kHolders) {}
};

TEST_F(PlacesByHolders, AreTheHoldersHoweverManyNodesFetch) {
  BeginWith(3);
  EXPECT_THAT(Places("n2"), ElementsAre("places n1@n1"));
  EXPECT_THAT(Places("n3"), ElementsAre("places n1@n1"));
}

TEST_F(ModelPlaces, AreEightAtMost) {
  BeginWith(12);
  const auto lines = Places("n1");
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(std::count(lines[0].begin(), lines[0].end(), '@'), 8);
}

}  // namespace
}  // namespace troupe::cluster
