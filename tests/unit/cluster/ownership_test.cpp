// When the cluster plans which functions own which parts of GPUs, and what it stores of a plan.
#include "tests/unit/cluster/cluster_fixture.hpp"

namespace troupe::cluster::ownership_test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

ClusterSettings Patient() {
  ClusterSettings settings;
  settings.collect_every = std::chrono::hours(1000);
  settings.membership.suspect_after = std::chrono::minutes(30);
  settings.membership.dead_after = std::chrono::minutes(60);
  return settings;
}

class Owning : public ClusterTest {
 protected:
  // Function "f" has a copy on node "n1", and requests this part of a GPU's time.
  Owning() : ClusterTest(Patient()) {
    Begin();
    Stored();
    JoinNode("n1");
    Stored();
    Pulse();
    Deploy("f", 2);
    Stored();
    Adopted();
    Pulse();
    Request(50);
    EXPECT_THAT(Pulse(), ElementsAre("store f/1 revision"));
    EXPECT_THAT(Stored(), ElementsAre("tell members", "manager: instances-placed"));
  }
  void Request(const std::string& function, std::uint32_t quota) {
    Update(function, quota);
    Pulse();
    Stored();
  }
  std::string NodeOf(const std::string& function) {
    const auto& places = written_.at(function).places();
    return places.empty() ? "" : places.begin()->node();
  }
  void Request(std::uint32_t quota) { Update("f", quota); }
  void Update(const std::string& function, std::uint32_t quota) {
    AskFor(function, quota);
    Stored();
  }
  void AskFor(const std::string& function, std::uint32_t quota) {
    AdminAsked asked{.ask = 40};
    auto& update = *asked.request.mutable_update_function();
    update.mutable_key()->set_name(function);
    update.mutable_sharing()->set_quota_request(quota);
    update.add_settings("quota_request");
    On(std::move(asked));
  }
};

TEST_F(Owning, APlanThatChangesNothingIsNotStored) {
  EXPECT_THAT(Pulse(), IsEmpty());
  JoinNode("n2", 3);
  Stored();
  EXPECT_THAT(Pulse(), Not(Contains(StartsWith("store"))));
  EXPECT_THAT(Stored(), ElementsAre("nothing is on its way to the store"));
  Request(60);
  EXPECT_THAT(Pulse(), ElementsAre("store f/1 revision"));
}

TEST_F(Owning, AFunctionThatChangesWhileAPlanIsOnItsWayIsPlannedAfterIt) {
  Deploy("g", 3);
  Stored();
  Pulse();
  AllAdopted();
  Request("g", 20);
  EXPECT_EQ(NodeOf("g"), "n1");
  Update("f", 30);
  AskFor("g", 0);
  Pulse();   // plans for "f", while the change of "g" is on its way to the store
  Stored();  // the change
  EXPECT_THAT(Stored(), Contains("manager: instances-placed"));
  EXPECT_THAT(Pulse(), Contains("store g/1 revision"));
  EXPECT_EQ(NodeOf("g"), "");
}

class OwningOverARestart : public Owning {
 protected:
  OwningOverARestart() {
    CatalogueRecords records;
    records.cluster = "c";
    records.functions.push_back(written_.at("f"));
    EXPECT_EQ(NodeOf("f"), "n1");
    Begin(std::move(records));
    JoinNode("n1", 9);
    Stored();
    EXPECT_THAT(Pulse(), Not(Contains(StartsWith("store")))) << "the node has not said what it holds";
  }
};

TEST_F(OwningOverARestart, WhatIsOwnedStaysWhileItsNodeTakesTheModelUpAgain) {
  Adopted();
  EXPECT_THAT(Pulse(), Not(Contains(StartsWith("store"))));
  EXPECT_THAT(Pulse(std::chrono::seconds(3)), Not(Contains(StartsWith("store"))));
  EXPECT_EQ(NodeOf("f"), "n1");
}

TEST_F(OwningOverARestart, ANodeThatDoesNotTakeTheModelUpLosesItAfterTheGrace) {
  EXPECT_THAT(Pulse(std::chrono::seconds(3)), Contains("store f/1 revision"));
  EXPECT_EQ(NodeOf("f"), "");
}

TEST_F(Owning, APlanThatCouldNotBeStoredIsMadeAgain) {
  Request(60);
  EXPECT_THAT(Pulse(), ElementsAre("store f/1 revision"));
  EXPECT_THAT(Stored(absl::ResourceExhaustedError("the disk is full")), IsEmpty());
  EXPECT_THAT(Pulse(), Not(Contains(StartsWith("store")))) << "the store is left alone for a second";
  EXPECT_THAT(Pulse(std::chrono::seconds(1)), Contains("store f/1 revision"));
}

// Two nodes of a GPU each have copies of all models. "f" leaves one that is half full.
TEST_F(Owning, AMinuteAfterAChangeAGpuThatCanBeEmptiedIsEmptied) {
  JoinNode("n2", 3);
  Stored();
  Pulse();
  AllAdopted();
  for (const char* name : {"g", "h"}) {
    Deploy(name, static_cast<Ask>(*name));
    Stored();
    Pulse();
    AllAdopted();
  }
  Request("f", 70);
  Request("g", 60);
  Request("h", 30);
  EXPECT_NE(NodeOf("f"), NodeOf("g"));
  EXPECT_EQ(NodeOf("h"), NodeOf("f")) << "the place where the least is left";
  Request("f", 0);
  EXPECT_EQ(NodeOf("f"), "");
  const std::string before = NodeOf("h");
  EXPECT_THAT(Pulse(std::chrono::seconds(50)), Not(Contains(StartsWith("store"))));
  EXPECT_EQ(NodeOf("h"), before) << "another function may come meanwhile";
  EXPECT_THAT(Pulse(std::chrono::seconds(10)), Contains(StartsWith("store")));
  Stored();
  EXPECT_EQ(NodeOf("h"), NodeOf("g"));
  EXPECT_THAT(Pulse(std::chrono::seconds(60)), Not(Contains(StartsWith("store"))))
      << "there is nothing else to do";
  EXPECT_THAT(Pulse(std::chrono::seconds(60)), Not(Contains(StartsWith("store"))));
}

}  // namespace
}  // namespace troupe::cluster::ownership_test
