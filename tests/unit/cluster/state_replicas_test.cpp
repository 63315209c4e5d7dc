// Which nodes have copies of states, and which of them replaces a home that is gone: what the manager decides. Each test is a
// table of events and what the cluster does about them.
#include "cluster/function_state.hpp"
#include "tests/unit/cluster/cluster_fixture.hpp"

namespace troupe::cluster::replicas_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class StateReplicas : public ClusterTest {
 protected:
  // Function "f" keeps its state on node "n1", with a copy on "n2".
  StateReplicas() {
    Begin();
    Stored();
    JoinNode("n1");
    Stored();
    Deploy("f", 2, State::kKept, 1);
    Stored();
    EXPECT_THAT(Stored(), Contains("adopt f at n1"));
    Adopted();
    JoinNode("n2", 7);
    lines_ = Stored();
    Pulse();
    key_ = StateKey(written_.at("f"));
  }
  std::string Digest() { return FunctionOf("f").model_digest(); }
  std::string Store() { return "store state-home/" + Digest(); }
  // Time passes; members are heard.
  Lines Later(Duration most) {
    Lines all;
    for (Duration passed{}; passed < most; passed += milliseconds(50)) {
      for (const auto& [node, epoch] : heard_) Hears(node, epoch);
      for (auto& line : Pulse()) all.push_back(std::move(line));
    }
    return all;
  }
  Lines Drain(const std::string& node) {
    AdminAsked asked{.ask = 5};
    asked.request.mutable_drain()->set_name(node);
    asked.request.mutable_drain()->set_drain(true);
    Lines all = On(asked);
    for (auto& line : Stored()) all.push_back(std::move(line));
    for (auto& line : Later(milliseconds(100))) all.push_back(std::move(line));
    return all;
  }
  // Models with too few copies of their states, as the manager's status says.
  std::uint64_t Short() {
    AdminAsked asked{.ask = 6};
    asked.request.mutable_cluster_status();
    On(asked);
    return reply_.status().states_short();
  }
  void ComeInStep() {
    EXPECT_THAT(InStep({"n2"}), ElementsAre(Store()));
    EXPECT_THAT(Stored(), ElementsAre("manager: state-in-step", "name to n1: n2+"));
  }

  Lines lines_;
  std::string key_;
  std::map<std::string, std::uint64_t> heard_{{"n1", 1}, {"n2", 2}};
};

TEST_F(StateReplicas, TheHomeIsToldOfAnotherNodeAndSaysWhenItIsInStep) {
  EXPECT_THAT(lines_, Contains("name to n1: n2"));
  EXPECT_EQ(named_->wish.term(), 1u);
  EXPECT_EQ(named_->wish.home_address(), "n1");
  EXPECT_EQ(named_->wish.replicas(0).epoch(), 2u);
  ComeInStep();
  EXPECT_THAT(Later(seconds(1)), IsEmpty());
}

TEST_F(StateReplicas, TheStatusCountsModelsWithTooFewCopies) {
  EXPECT_EQ(Short(), 1u) << "no node is in step";
  ComeInStep();
  EXPECT_EQ(Short(), 0u);
  On(MemberLost{"n2"});
  EXPECT_EQ(Short(), 1u) << "the store has it in step, and it is gone";
}

TEST_F(StateReplicas, ANodeWhoseCopyFailedIsOutOfStepBeforeTheHomeIsToldSo) {
  ComeInStep();
  EXPECT_THAT(InStep({}), ElementsAre(Store()));
  EXPECT_THAT(Later(seconds(1)), IsEmpty()) << "the store may still name it";
  EXPECT_THAT(Stored(), ElementsAre("name to n1: n2"));
}

TEST_F(StateReplicas, WhatCouldNotBeStoredIsStoredAgainBeforeTheHomeHears) {
  ComeInStep();
  InStep({});
  EXPECT_THAT(Stored(absl::UnavailableError("disk")), IsEmpty());
  EXPECT_THAT(Later(seconds(3)), ElementsAre(Store()));
  EXPECT_THAT(Stored(), ElementsAre("name to n1: n2"));
}

TEST_F(StateReplicas, ANodeInStepReplacesAHomeThatIsGoneForItsLease) {
  ComeInStep();
  heard_.erase("n1");
  On(MemberLost{"n1"});
  EXPECT_THAT(Later(seconds(9)), Not(Contains(Store()))) << "the home may still run the function";
  EXPECT_THAT(Later(seconds(2)), Contains(Store()));
  EXPECT_THAT(Stored(), ElementsAre("manager: state-restored", "name to n2: n1+", "adopt f at n2"));
  EXPECT_EQ(adoption_->replicas->term(), 2u);
  EXPECT_THAT(Adopted(), ElementsAre("n2: model-adopted"));
  EXPECT_THAT(Later(milliseconds(100)), ElementsAre(Store()))
      << "the old home is out of step: the new one is there";
  EXPECT_THAT(home_.in_step(), IsEmpty());
  EXPECT_THAT(Stored(), ElementsAre("name to n2:"));
}

// The new home was gone already, and the manager had not noticed.
TEST_F(StateReplicas, ANewHomeThatIsNotHeardBeforeItsDiskIsLostIsReplacedByTheOldOne) {
  ComeInStep();
  heard_.erase("n1");
  On(MemberLost{"n1"});
  Later(seconds(11));
  heard_.clear();
  Stored();
  EXPECT_EQ(home_.nodes(0), "n2");
  EXPECT_THAT(home_.in_step(), ElementsAre("n1"));
  EXPECT_THAT(Later(milliseconds(200)), IsEmpty());
  disk_ = "c";
  JoinNode("n1", 8);
  heard_["n1"] = 3;
  Stored();
  EXPECT_THAT(Hears("n1", 3), ElementsAre("heard")) << "it forgets nothing";
  disk_ = "";
  JoinNode("n2", 9);
  EXPECT_TRUE(home_.home_is_empty());
  EXPECT_THAT(Stored(), Contains(Store()));
  EXPECT_EQ(home_.nodes(0), "n1");
  EXPECT_EQ(home_.term(), 3u);
}

TEST_F(StateReplicas, ANewHomeThatLosesItsDiskWhileItIsRestoredThereIsNone) {
  ComeInStep();
  heard_.erase("n1");
  On(MemberLost{"n1"});
  EXPECT_THAT(Later(seconds(11)), Contains(Store()));
  JoinNode("n2", 8);
  EXPECT_EQ(home_.nodes(0), "n1") << "its disk has the states yet";
  EXPECT_EQ(home_.term(), 3u) << "the store may have had the other home";
}

// A third node has copies, too.
class ThreeNodes : public StateReplicas {
 protected:
  ThreeNodes() {
    Deploy("f", 2, State::kKept, 2);
    Stored();
    JoinNode("n3", 9);
    heard_["n3"] = 3;
    Stored();
    Later(milliseconds(100));
    EXPECT_THAT(InStep({"n2", "n3"}), ElementsAre(Store()));
    Stored();
    heard_.erase("n1");
    On(MemberLost{"n1"});
    EXPECT_THAT(Later(seconds(11)), Contains(Store()));
    EXPECT_EQ(home_.nodes(0), "n2");
  }
  // The store has the new home that it was asked for, who joined, and then what it is asked for instead.
  void TurnBack() {
    while (Stored() != Lines{"nothing is on its way to the store"}) {
    }
  }
};

TEST_F(ThreeNodes, TheThirdOneReplacesTheHomeWhenTheSecondLosesItsDiskMeanwhile) {
  JoinNode("n2", 8);
  EXPECT_EQ(home_.nodes(0), "n1");
  EXPECT_EQ(home_.term(), 3u);
  EXPECT_THAT(home_.in_step(), ElementsAre("n3"));
  TurnBack();
  EXPECT_THAT(Later(seconds(11)), Contains(Store()));
  EXPECT_EQ(home_.nodes(0), "n3");
  EXPECT_EQ(home_.term(), 4u);
}

TEST_F(ThreeNodes, NothingIsLostWhenTheFirstTwoLoseTheirDisksMeanwhile) {
  JoinNode("n1", 7);
  EXPECT_THAT(home_.in_step(), IsEmpty()) << "the old home has none";
  JoinNode("n2", 8);
  EXPECT_EQ(home_.nodes(0), "n1");
  EXPECT_TRUE(home_.home_is_empty());
  EXPECT_THAT(home_.in_step(), ElementsAre("n3"));
  TurnBack();
  Later(seconds(1));
  EXPECT_EQ(home_.nodes(0), "n3");
}

TEST_F(ThreeNodes, AThirdOneThatLosesItsDiskReplacesNothing) {
  JoinNode("n2", 8);
  JoinNode("n3", 10);
  EXPECT_EQ(home_.nodes(0), "n1");
  EXPECT_THAT(home_.in_step(), IsEmpty());
  TurnBack();
  EXPECT_THAT(Later(seconds(30)), Not(Contains(Store()))) << "the first one may come back with all of it";
}

// It may have been asked to adopt it before, by a manager that did not hear its answer.
TEST_F(StateReplicas, ANodeThatJoinsDropsModelsWhoseHomeIsAnotherNode) {
  ComeInStep();
  disk_ = "c";
  EXPECT_THAT(JoinNode("n2", 8), Contains("disown at n2"));
  EXPECT_THAT(JoinNode("n1", 9), Not(Contains(HasSubstr("disown"))));
}

TEST_F(StateReplicas, ANodeThatIsNotInStepReplacesNothing) {
  heard_.erase("n1");
  On(MemberLost{"n1"});
  EXPECT_THAT(Later(seconds(30)), Not(Contains(HasSubstr("store"))));
}

TEST_F(StateReplicas, AHomeThatIsBackBeforeItsLeaseIsOverStaysTheHome) {
  ComeInStep();
  heard_.erase("n1");
  On(MemberLost{"n1"});
  Later(seconds(5));
  disk_ = "c";
  JoinNode("n1", 8);
  EXPECT_THAT(Stored(), Contains("adopt f at n1"));
  EXPECT_EQ(adoption_->replicas->term(), 1u);
  EXPECT_TRUE(adoption_->replicas->replicas(0).in_step());
  heard_["n1"] = 3;
  EXPECT_THAT(Later(seconds(20)), Not(Contains(Store())));
}

TEST_F(StateReplicas, AHomeThatComesBackLaterForgetsAndIsFilled) {
  ComeInStep();
  heard_.erase("n1");
  On(MemberLost{"n1"});
  Later(seconds(11));
  Stored();
  Adopted();
  EXPECT_THAT(Later(milliseconds(100)), ElementsAre(Store())) << "it is out of step";
  Stored();
  JoinNode("n1", 8);
  EXPECT_THAT(Stored(), Contains("name to n2: n1"));
  EXPECT_THAT(Hears("n1", 3), ElementsAre("forget at n1", "heard"));
}

TEST_F(StateReplicas, ADeadReplicaIsReplacedWhenTheHomeIsHeardAfterIt) {
  ComeInStep();
  JoinNode("n3", 9);
  Stored();
  heard_["n3"] = 3;
  heard_.erase("n2");
  EXPECT_THAT(On(MemberLost{"n2"}), AllOf(Contains("name to n1: n2+ n3"), Not(Contains(Store()))))
      << "the home may be gone, too, and its disk with it";
  EXPECT_THAT(Later(seconds(1)), Contains(Store())) << "it is out of step";
  EXPECT_THAT(Stored(), ElementsAre("name to n1: n3"));
}

TEST_F(StateReplicas, AReplicaThatIsLostWithItsHomeReplacesItWhenItIsBack) {
  ComeInStep();
  heard_.clear();
  On(MemberLost{"n2"});
  On(MemberLost{"n1"});
  Later(seconds(11));
  disk_ = "c";
  JoinNode("n2", 9);
  heard_ = {{"n2", 3}};
  EXPECT_THAT(Stored(), Contains(Store()));
  EXPECT_EQ(home_.nodes(0), "n2");
}

TEST_F(StateReplicas, AReplicaThatDrainsKeepsItsCopiesUntilAnotherNodeIsInStep) {
  ComeInStep();
  JoinNode("n3", 9);
  Stored();
  heard_["n3"] = 3;
  EXPECT_THAT(Drain("n2"), AllOf(Contains("name to n1: n2+ n3"), Not(Contains(Store()))));
  EXPECT_THAT(InStep({"n2", "n3"}), ElementsAre(Store()));
  Stored();
  EXPECT_THAT(Pulse(), ElementsAre(Store()));
  EXPECT_THAT(home_.in_step(), ElementsAre("n3"));
}

TEST_F(StateReplicas, AHomeThatDrainsIsReplacedByANodeInStepWhichTakesNothingOver) {
  ComeInStep();
  JoinNode("n3", 9);
  Stored();
  heard_["n3"] = 3;
  EXPECT_THAT(Drain("n1"), Contains("give up " + key_ + " at n1"));
  EXPECT_THAT(GivenUp({key_}, {"n2"}), ElementsAre(Store()));
  EXPECT_EQ(home_.nodes(0), "n2");
  EXPECT_EQ(home_.term(), 2u);
  EXPECT_THAT(home_.in_step(), ElementsAre("n1")) << "it has all that it has given up";
  EXPECT_THAT(Stored(), ElementsAre("manager: state-moved", "name to n2: n1+ n3", "adopt f at n2"));
  EXPECT_THAT(Hears("n1", 1), ElementsAre("heard")) << "it forgets nothing";
}

// The new home was gone already, and the manager had not noticed.
TEST_F(StateReplicas, ANewHomeThatHasLostItsDiskIsReplacedByTheOneThatGaveTheStatesUp) {
  ComeInStep();
  Drain("n1");
  GivenUp({key_}, {"n2"});
  Stored();
  JoinNode("n2", 8);
  EXPECT_TRUE(home_.home_is_empty());
  EXPECT_THAT(home_.in_step(), ElementsAre("n1"));
  heard_["n2"] = 3;
  Stored();
  Stored();
  EXPECT_EQ(home_.nodes(0), "n1");
  EXPECT_EQ(home_.term(), 3u);
}

TEST_F(StateReplicas, ANewHomeThatLosesItsDiskWhileItIsStoredIsNone) {
  ComeInStep();
  Drain("n1");
  EXPECT_THAT(GivenUp({key_}, {"n2"}), ElementsAre(Store()));
  JoinNode("n2", 8);
  EXPECT_EQ(home_.nodes(0), "n1") << "before it has joined";
  EXPECT_EQ(home_.term(), 3u) << "the store may have had the other home";
  heard_["n2"] = 3;
  EXPECT_THAT(Stored(), ElementsAre(Store())) << "the one with the join may fail";
  Stored();
  EXPECT_THAT(Stored(), Contains("manager: state-not-moved"));
  EXPECT_EQ(home_.nodes(0), "n1");
  EXPECT_EQ(home_.term(), 3u);
}

TEST_F(StateReplicas, AnOldHomeThatLosesItsDiskWhileTheNewOneIsStoredIsNotInStep) {
  ComeInStep();
  Drain("n1");
  EXPECT_THAT(GivenUp({key_}, {"n2"}), ElementsAre(Store()));
  JoinNode("n1", 8);
  EXPECT_EQ(home_.nodes(0), "n2");
  EXPECT_THAT(home_.in_step(), IsEmpty());
  EXPECT_FALSE(home_.home_is_empty());
}

TEST_F(StateReplicas, AHomeThatDrainsStaysTheHomeWhenACopyIsNotTheNewest) {
  ComeInStep();
  EXPECT_THAT(Drain("n1"), Contains(HasSubstr("give up")));
  EXPECT_THAT(GivenUp({key_}), ElementsAre("manager: state-not-moved"));
  EXPECT_THAT(Later(seconds(5)), Contains(HasSubstr("give up"))) << "it is tried again";
}

TEST_F(StateReplicas, ANodeThatTakesTheStatesOverDoesNotComeInStepMeanwhile) {
  EXPECT_THAT(Drain("n1"), Contains(HasSubstr("give up")));
  EXPECT_THAT(InStep({"n2"}), IsEmpty());
  EXPECT_THAT(GivenUp({key_}, {"n2"}), ElementsAre("take over " + key_ + " at n2 from n1"));
}

TEST_F(StateReplicas, ANodeInStepThatDrainsIsBetterThanNone) {
  ComeInStep();
  heard_.erase("n1");
  On(MemberLost{"n1"});
  EXPECT_THAT(Drain("n2"), Not(Contains(Store())));
  EXPECT_THAT(Later(seconds(11)), Contains(Store()));
  EXPECT_EQ(home_.nodes(0), "n2");
}

TEST_F(StateReplicas, AManagerThatStartsAgainKnowsWhoIsInStep) {
  CatalogueRecords records;
  records.cluster = "c";
  records.last_epoch = 2;
  records.functions.push_back(written_.at("f"));
  proto::PlacementRecord placed;
  placed.set_model_digest(Digest());
  placed.add_nodes("n1");
  placed.add_in_step("n2");
  placed.set_term(4);
  records.homes.push_back(placed);
  Begin(std::move(records));
  Stored();
  disk_ = "c";
  JoinNode("n2", 7);
  Stored();
  heard_ = {{"n2", 3}};
  EXPECT_THAT(Later(seconds(12)), Contains(Store()));
  EXPECT_THAT(Stored(), Contains("adopt f at n2"));
  EXPECT_EQ(adoption_->replicas->term(), 5u);
}

// Its nodes come back one after the other: the home is heard before the others had the time to join.
TEST_F(StateReplicas, AManagerThatStartsAgainAwaitsTheNodesInStep) {
  CatalogueRecords records;
  records.cluster = "c";
  records.last_epoch = 2;
  records.functions.push_back(written_.at("f"));
  proto::PlacementRecord placed;
  placed.set_model_digest(Digest());
  placed.add_nodes("n1");
  placed.add_in_step("n2");
  records.homes.push_back(placed);
  Begin(std::move(records));
  Stored();
  disk_ = "c";
  JoinNode("n1", 7);
  Stored();
  heard_ = {{"n1", 3}};
  EXPECT_THAT(Later(milliseconds(600)), Not(Contains(Store())));
  EXPECT_THAT(Later(seconds(1)), Contains(Store())) << "it has not come back";
}

TEST_F(StateReplicas, ANodeInStepThatIsNotStoredYetReplacesAHomeWithAnEmptyDisk) {
  EXPECT_THAT(InStep({"n2"}), ElementsAre(Store()));
  JoinNode("n1", 8);
  EXPECT_TRUE(home_.home_is_empty());
  EXPECT_THAT(home_.in_step(), ElementsAre("n2"));
  heard_["n1"] = 3;
  Stored();
  Stored();
  EXPECT_EQ(home_.nodes(0), "n2") << "the home has waited for it since it said so";
}

TEST_F(StateReplicas, AHomeThatWentBeforeItHeardHasWaitedForItsCopies) {
  ComeInStep();
  EXPECT_THAT(InStep({}), ElementsAre(Store()));
  On(MemberLost{"n1"});
  EXPECT_THAT(Stored(), ElementsAre(Store()));
  EXPECT_THAT(home_.in_step(), ElementsAre("n2"));
  JoinNode("n1", 8);
  EXPECT_TRUE(home_.home_is_empty());
  heard_["n1"] = 3;
  Stored();
  Stored();
  EXPECT_EQ(home_.nodes(0), "n2");
}

TEST_F(StateReplicas, ANodeThatComesBackWithAnEmptyDiskIsOutOfStepBeforeItHasJoined) {
  ComeInStep();
  EXPECT_THAT(JoinNode("n2", 8),
              Contains(AllOf(HasSubstr("store"), HasSubstr("state-home/"), HasSubstr("epoch"))))
      << "in one commit";
  EXPECT_THAT(home_.in_step(), IsEmpty());
  heard_["n2"] = 3;
  Stored();
  Stored();
  EXPECT_THAT(Later(milliseconds(100)), Contains("name to n1: n2")) << "it is filled anew";
}

TEST_F(StateReplicas, AHomeThatComesBackWithAnEmptyDiskIsReplaced) {
  ComeInStep();
  EXPECT_THAT(JoinNode("n1", 8), Not(Contains("adopt f at n1")));
  EXPECT_TRUE(home_.home_is_empty());
  heard_["n1"] = 3;
  EXPECT_THAT(Stored(), Contains(Store())) << "the node is known to have joined";
  EXPECT_EQ(home_.nodes(0), "n2");
  EXPECT_FALSE(home_.home_is_empty());
  EXPECT_THAT(Stored(), AllOf(Contains("manager: state-restored"), Contains("adopt f at n2")));
}

TEST_F(StateReplicas, AManagerThatStartsAgainKnowsThatTheHomeIsEmpty) {
  ComeInStep();
  JoinNode("n1", 8);
  CatalogueRecords records;
  records.cluster = "c";
  records.last_epoch = 3;
  records.functions.push_back(written_.at("f"));
  records.homes.push_back(home_);
  Begin(std::move(records));
  Stored();
  disk_ = "c";
  EXPECT_THAT(JoinNode("n1", 7), Not(Contains("adopt f at n1")));
  EXPECT_THAT(Stored(), Not(Contains("adopt f at n1")));
  JoinNode("n2", 8);
  heard_ = {{"n1", 4}, {"n2", 5}};
  EXPECT_THAT(Stored(), Contains(Store()));
  EXPECT_THAT(Stored(), Contains("adopt f at n2"));
}

// The node in step has all that was acknowledged, and the home has nothing to give up.
TEST_F(StateReplicas, WhatIsOrderedToMoveFromAnEmptyHomeStaysWhereItsCopiesAre) {
  ComeInStep();
  On(MemberLost{"n2"});
  heard_.erase("n2");
  JoinNode("n1", 8);
  Stored();
  JoinNode("n3", 9);
  Stored();
  const auto before = home_.SerializeAsString();
  AdminAsked asked{.ask = 6};
  asked.request.mutable_move_function()->mutable_key()->set_name("f");
  asked.request.mutable_move_function()->set_node("n3");
  EXPECT_THAT(On(std::move(asked)), ElementsAre("answer 6 UNAVAILABLE"));
  EXPECT_THAT(reply_.message(), HasSubstr("came back with an empty disk"));
  heard_ = {{"n1", 3}, {"n3", 4}};
  EXPECT_THAT(Drain("n1"), Not(Contains(HasSubstr("give up"))));
  EXPECT_EQ(home_.SerializeAsString(), before);
  EXPECT_THAT(home_.in_step(), ElementsAre("n2"));
}

// A node that has not heard of the removal keeps copies for the homes before, and takes nothing of an earlier term.
TEST_F(StateReplicas, AHomeOfADeploymentThatComesAgainHasALaterTermThanAnyBefore) {
  ComeInStep();
  JoinNode("n1", 8);  // with an empty disk, so that the other node becomes the home
  heard_["n1"] = 3;
  Stored();
  Stored();
  Adopted();
  const auto before = home_.term();
  EXPECT_EQ(home_.nodes(0), "n2");
  RemoveFunction("f", 9);
  Stored();
  Stored();
  Later(milliseconds(100));
  Deploy("f", 10, State::kKept, 1);
  Stored();
  Stored();
  EXPECT_GT(home_.term(), before);

  const auto second = home_.term();
  CatalogueRecords records;
  records.cluster = "c";
  records.last_epoch = 3;
  records.last_term = second;
  Begin(std::move(records));
  Stored();
  JoinNode("n1", 11);
  Stored();
  Deploy("f", 12, State::kKept, 1);
  Stored();
  Stored();
  EXPECT_GT(home_.term(), second) << "over a restart of the manager, too";
}

TEST_F(StateReplicas, StatesThatEveryDiskLostBeginAnew) {
  ComeInStep();
  JoinNode("n2", 8);
  JoinNode("n1", 9);
  heard_ = {{"n1", 4}, {"n2", 3}};
  EXPECT_THAT(Stored(), Contains(Store()));
  EXPECT_EQ(home_.nodes(0), "n1");
  EXPECT_FALSE(home_.home_is_empty());
  Stored();
  EXPECT_THAT(Stored(), AllOf(Contains("manager: state-lost"), Contains("adopt f at n1")));
}

TEST_F(StateReplicas, ANodeThatComesBackWithItsDiskStaysInStep) {
  ComeInStep();
  disk_ = "c";
  JoinNode("n2", 8);
  EXPECT_THAT(Stored(), Contains("name to n1: n2+"));
  EXPECT_EQ(named_->wish.replicas(0).epoch(), 3u);
}

TEST(StateReplicasOfARecord, GoWithAStateAndAreFewAtMost) {
  auto record = FunctionOf("f");
  record.set_state_replicas(1);
  EXPECT_THAT(std::string(ValidateState(record).message()), HasSubstr("keeps no state"));
  record.add_state()->set_input("x");
  record.mutable_state(0)->set_output("y");
  record.mutable_inputs(0)->set_shape(0, 4);
  record.mutable_outputs(0)->set_shape(0, 4);
  EXPECT_TRUE(ValidateState(record).ok());
  record.set_state_replicas(4);
  EXPECT_THAT(std::string(ValidateState(record).message()), HasSubstr("from 0 to 3"));
}

}  // namespace
}  // namespace troupe::cluster::replicas_test
