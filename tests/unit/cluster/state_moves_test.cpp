// States that move from a node that drains to another one: what the manager decides, whatever fails in between. Each test is a
// table of events and what the cluster does about them.
#include "cluster/function_state.hpp"
#include "tests/unit/cluster/cluster_fixture.hpp"

namespace troupe::cluster::moves_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::IsSupersetOf;
using testing::Not;

class StateMoves : public ClusterTest {
 protected:
  // Function "f" keeps its state on node "n1"; "n2" is there, too.
  StateMoves() {
    Begin();
    Stored();
    JoinNode("n1");
    Stored();
    Deploy("f", 2, State::kKept);
    Stored();
    EXPECT_THAT(Stored(), ElementsAre("adopt f at n1"));
    Adopted();
    JoinNode("n2");
    Stored();
    Pulse();
    key_ = StateKey(written_.at("f"));
  }
  std::string Digest() { return FunctionOf("f").model_digest(); }
  Lines SetDrain(const std::string& node, bool drain) {
    AdminAsked asked{.ask = 5};
    asked.request.mutable_drain()->set_name(node);
    asked.request.mutable_drain()->set_drain(drain);
    return On(asked);
  }
  Lines Order(const std::string& name, const std::string& node) {
    AdminAsked asked{.ask = 6};
    asked.request.mutable_move_function()->mutable_key()->set_name(name);
    asked.request.mutable_move_function()->set_node(node);
    return On(asked);
  }
  // Time passes until something happens; members are heard.
  Lines Later(Duration most = seconds(10)) {
    for (Duration passed{}; passed < most; passed += milliseconds(50)) {
      for (const auto& [node, epoch] : heard_) Hears(node, epoch);
      auto lines = Pulse();
      if (!lines.empty()) return lines;
    }
    return {};
  }
  // What happens when something that begins so happens; `seen_`: what did before.
  Lines Await(const std::string& begin) {
    for (int i = 0; i < 200; ++i) {
      auto lines = Later(milliseconds(50));
      for (const auto& line : lines)
        if (line.starts_with(begin)) return {line};
      seen_.insert(seen_.end(), lines.begin(), lines.end());
    }
    return {};
  }
  // The node is asked to give up the state.
  void Begun() {
    EXPECT_THAT(SetDrain("n1", true),
                ElementsAre("n1: member-draining", "tell members", "give up " + key_ + " at n1",
                            "disown at n1", "store drained/n1"));
    EXPECT_THAT(Stored(), ElementsAre("drain n1"));
  }
  // The node has given up a state and a sequence, which "n2" is asked to take over.
  void Given() {
    Begun();
    EXPECT_THAT(GivenUp({key_, key_ + "#chat"}),
                ElementsAre("take over " + key_ + " " + key_ + "#chat at n2 from n1"));
  }
  CatalogueRecords Restored(const std::string& home) {
    CatalogueRecords records;
    records.cluster = "c";
    records.last_epoch = 2;
    records.functions.push_back(written_.at("f"));
    proto::PlacementRecord placed;
    placed.set_model_digest(Digest());
    placed.add_nodes(home);
    records.homes.push_back(placed);
    return records;
  }

  std::string key_;
  Lines seen_;
  std::map<std::string, std::uint64_t> heard_{{"n1", 1}, {"n2", 2}};
};

TEST_F(StateMoves, ADrainMovesThemAndTheStoreSaysWhen) {
  Given();
  EXPECT_THAT(TakenOver(), ElementsAre("store state-home/" + Digest()));
  EXPECT_THAT(Later(seconds(1)), IsEmpty()) << "no node has the state before the store has the new home";
  EXPECT_THAT(Stored(), ElementsAre("manager: state-moved", "adopt f at n2"));
  EXPECT_THAT(Hears("n1", 1), ElementsAre("forget at n1", "heard"));
  EXPECT_THAT(Adopted(), ElementsAre("n2: model-adopted"));
  EXPECT_THAT(Later(), IsEmpty());
}

TEST_F(StateMoves, NothingMovesWhereThereIsNoOtherNode) {
  On(MemberLost{"n2"});
  heard_.erase("n2");
  EXPECT_THAT(SetDrain("n1", true), Contains("manager: state-unreachable"));
  Stored();
  EXPECT_THAT(Later(), IsEmpty());
  JoinNode("n2", 7);
  EXPECT_THAT(Stored(), Contains("give up " + key_ + " at n1")) << "now there is one";
}

TEST_F(StateMoves, ANodeThatIsAskedToAdoptGivesUpNothing) {
  Deploy("g", 3, State::kKept);
  Stored();
  Stored();
  const auto asked = adoption_;
  const auto home = asked->node;
  SetDrain(home, true);
  Stored();
  EXPECT_THAT(Later(seconds(1)), Not(Contains(HasSubstr("g/1")))) << "the adoption would undo it";
  On(AdoptionAnswered{asked->digest, asked->node, asked->epoch, "g", absl::OkStatus()});
  Lines lines;
  for (int i = 0; i < 100; ++i)
    for (auto& line : Later(milliseconds(50))) lines.push_back(std::move(line));
  EXPECT_THAT(lines, Contains(HasSubstr("give up g/1")));
}

TEST_F(StateMoves, AfterTheManagersStartAHomeHasTheTimeToComeBack) {
  CatalogueRecords records{.cluster = "c"};
  records.functions = {written_.at("f")};
  records.homes.emplace_back().set_model_digest(Digest());
  records.homes.back().add_nodes("n1");
  Begin(records);
  for (int i = 1; i < 16; ++i) EXPECT_THAT(Pulse(), IsEmpty()) << "a member has 800 ms";
  EXPECT_THAT(Pulse(), ElementsAre("manager: state-unreachable"));
  EXPECT_THAT(Pulse(), IsEmpty()) << "it is told once";
  AdminAsked status{.ask = 6};
  status.request.mutable_cluster_status();
  On(status);
  EXPECT_EQ(reply_.status().states_unreachable(), 1u);
}

// --- what fails before the store is asked: the state stays where it is ---

TEST_F(StateMoves, WhatTheNodeCannotGiveUpStaysAndIsTriedAgain) {
  Begun();
  EXPECT_THAT(GivenUp(absl::DataLossError("damaged")), ElementsAre("manager: state-not-moved"));
  EXPECT_THAT(Later(milliseconds(1900)), ElementsAre("manager: state-unreachable"));
  EXPECT_THAT(Later(), ElementsAre("give up " + key_ + " at n1"));
  EXPECT_THAT(GivenUp(absl::DataLossError("damaged")), IsEmpty()) << "it is told once";
}

TEST_F(StateMoves, ANodeThatServesAgainKeepsWhatDidNotMove) {
  Given();
  SetDrain("n1", false);
  Stored();
  EXPECT_THAT(Later(seconds(1)), IsEmpty())
      << "n1 has given it up, so it must not begin a run of its own accord";
  EXPECT_THAT(TakenOver(absl::UnavailableError("cut off")), ElementsAre("manager: state-not-moved"));
  EXPECT_THAT(Pulse(), ElementsAre("adopt f at n1"));
  EXPECT_THAT(Hears("n2", 2), ElementsAre("forget at n2", "heard"));
}

TEST_F(StateMoves, ANodeThatCannotTakeItIsNotTheNextOneToBeAsked) {
  JoinNode("n3", 7);
  Stored();
  heard_["n3"] = 3;
  SetDrain("n1", true);
  Stored();
  GivenUp({key_});
  const auto first = take_over_->node;
  EXPECT_THAT(TakenOver(absl::ResourceExhaustedError("full")), ElementsAre("manager: state-not-moved"));
  const auto lines = Await("give up");
  GivenUp({key_});
  EXPECT_NE(take_over_->node, first);
}

TEST_F(StateMoves, ANodeThatJoinsAnewWhileItGivesUpIsAskedAgain) {
  Begun();
  EXPECT_THAT(JoinNode("n1", 7), Contains("manager: state-not-moved"));
  EXPECT_THAT(GivenUp({key_}), IsEmpty()) << "what its life before said is not believed";
  Stored();
  heard_["n1"] = 3;
  const auto lines = Await("give up");
  EXPECT_THAT(GivenUp({key_}), ElementsAre("take over " + key_ + " at n2 from n1"));
}

TEST_F(StateMoves, ANodeThatJoinsAnewWhileAnotherTakesOverKeepsItsState) {
  Given();
  EXPECT_THAT(JoinNode("n1", 7), Contains("manager: state-not-moved"));
  EXPECT_THAT(TakenOver(), IsEmpty()) << "n1 may have begun to serve it again";
}

TEST_F(StateMoves, ANodeThatJoinsAnewWhileItTakesOverIsAskedAgain) {
  Given();
  EXPECT_THAT(JoinNode("n2", 7), Contains("manager: state-not-moved"));
  EXPECT_THAT(TakenOver(), IsEmpty());
}

TEST_F(StateMoves, WhatTheOtherNodeHasIsEnoughWhenTheFirstOneIsLost) {
  Given();
  On(MemberLost{"n1"});
  EXPECT_THAT(TakenOver(), ElementsAre("store state-home/" + Digest()));
  EXPECT_THAT(Stored(), ElementsAre("manager: state-moved", "adopt f at n2"));
  EXPECT_THAT(Later(seconds(1)), IsEmpty());
  JoinNode("n1", 7);
  Stored();
  EXPECT_THAT(Hears("n1", 3), Contains("forget at n1")) << "it is told when it is back";
}

TEST_F(StateMoves, ANodeThatIsLostBeforeItIsAskedIsAskedNothing) {
  Begun();
  On(MemberLost{"n2"});
  EXPECT_THAT(GivenUp({key_}), ElementsAre("manager: state-not-moved"));
}

TEST_F(StateMoves, AFunctionThatIsRemovedMeanwhileMovesNowhere) {
  Given();
  RemoveFunction("f", 6);
  Stored();
  Pulse();
  EXPECT_THAT(TakenOver(), Not(Contains(HasSubstr("store"))));
}

// The old home would wait for ever to hear of a state that is gone.
TEST_F(StateMoves, WhereAFunctionIsRemovedMeanwhileTheHomeIsAskedForThoseThatAreLeft) {
  Deploy("f", 7, State::kKept);
  Stored();
  const auto second = StateKey(written_.at("f"));
  EXPECT_THAT(SetDrain("n1", true), Contains("give up " + key_ + " " + second + " at n1"));
  Stored();
  RemoveFunction("f", 8);
  EXPECT_THAT(Stored(), AllOf(Contains("answer 8 OK"), Contains("give up " + key_ + " at n1")));
  EXPECT_THAT(GivenUp({key_}), Contains("take over " + key_ + " at n2 from n1"));
}

TEST_F(StateMoves, WhereAllFunctionsAreRemovedMeanwhileTheMoveEnds) {
  Begun();
  RemoveFunction("f", 6);
  Stored();
  Stored();
  Deploy("f", 7, State::kKept);
  Stored();
  EXPECT_THAT(Stored(), Contains("adopt f at n2")) << "it begins anew";
}

// --- the store ---

TEST_F(StateMoves, AHomeThatMayBeStoredIsStoredAgainAndNeverGivenBack) {
  Given();
  TakenOver();
  EXPECT_THAT(Stored(absl::UnavailableError("the disk is full")), ElementsAre("manager: state-not-moved"));
  SetDrain("n1", false);
  Stored();
  JoinNode("n1", 7);
  Stored();
  heard_["n1"] = 3;
  const auto lines = Await("store");
  EXPECT_THAT(seen_, Not(Contains(HasSubstr("adopt")))) << "the store may have the new home";
  EXPECT_THAT(lines, ElementsAre("store state-home/" + Digest()));
  EXPECT_THAT(Stored(), ElementsAre("manager: state-moved", "adopt f at n2"));
}

TEST_F(StateMoves, ANodeThatJoinsAnewWhileTheHomeIsStoredHasItAllTheSame) {
  Given();
  TakenOver();
  disk_ = "c";
  JoinNode("n2", 7);
  EXPECT_THAT(Stored(), Contains("manager: state-moved"));
  Stored();
  EXPECT_THAT(adoption_->node, "n2");
}

// The old home forgets nothing before the new one is stored.
TEST_F(StateMoves, ANodeThatLosesItsDiskWhileTheHomeIsStoredIsNoHome) {
  Given();
  TakenOver();
  EXPECT_THAT(Stored(absl::UnavailableError("the disk is full")), ElementsAre("manager: state-not-moved"));
  JoinNode("n2", 7);
  EXPECT_EQ(home_.nodes(0), "n1");
  Stored();
  heard_["n2"] = 3;
  EXPECT_THAT(Await("store"), ElementsAre("store state-home/" + Digest()));
  EXPECT_EQ(home_.nodes(0), "n1");
  Stored();
  EXPECT_THAT(seen_, Not(Contains("adopt f at n2")));
}

// --- the manager is started again ---

TEST_F(StateMoves, AManagerThatEndedBeforeTheStoreHadItBeginsAnew) {
  Given();
  TakenOver();
  auto records = Restored("n1");
  records.drained.push_back("n1");
  Begin(std::move(records));
  Stored();
  JoinNode("n1", 7);
  Stored();
  JoinNode("n2", 8);
  EXPECT_THAT(Stored(), Contains("give up " + key_ + " at n1"));
}

TEST_F(StateMoves, AManagerThatEndedAfterTheStoreHadItAsksTheNewHome) {
  Given();
  TakenOver();
  Begin(Restored("n2"));
  Stored();
  JoinNode("n1", 7);
  EXPECT_THAT(Stored(), Not(Contains(HasSubstr("adopt"))));
  JoinNode("n2", 8);
  EXPECT_THAT(Stored(), Contains("adopt f at n2"));
}

TEST_F(StateMoves, AHomeThatComesBackWithAnEmptyDiskHasLostTheState) {
  EXPECT_THAT(JoinNode("n1", 8), Contains("manager: state-lost"));
  disk_ = "c";
  EXPECT_THAT(JoinNode("n1", 9), Not(Contains("manager: state-lost")));
}

// --- as an operator ordered ---

TEST_F(StateMoves, AnOperatorMovesAStateAndHearsWhenItIsThere) {
  EXPECT_THAT(Order("f", "n2"), ElementsAre("give up " + key_ + " at n1", "disown at n1"));
  EXPECT_THAT(GivenUp({key_}), ElementsAre("take over " + key_ + " at n2 from n1"));
  EXPECT_THAT(TakenOver(), ElementsAre("store state-home/" + Digest()));
  EXPECT_THAT(Stored(), IsSupersetOf({"manager: state-moved", "answer 6 OK", "adopt f at n2"}));
  EXPECT_EQ(reply_.functions(0).record().key().name(), "f");
  EXPECT_EQ(reply_.functions(0).state_home(), "n2");
  Adopted();
  EXPECT_THAT(Order("f", "n2"), ElementsAre("answer 6 OK")) << "it is there already";
}

TEST_F(StateMoves, AnOperatorHearsWhyAStateStays) {
  Order("f", "n2");
  EXPECT_THAT(GivenUp(absl::InternalError("torn")), ElementsAre("answer 6 INTERNAL"));
  EXPECT_THAT(reply_.message(), AllOf(HasSubstr("stays on node 'n1'"), HasSubstr("torn")));
  EXPECT_THAT(Pulse(), ElementsAre("adopt f at n1"));
  Adopted();
  EXPECT_THAT(Later(), IsEmpty()) << "it is not tried again by itself";
}

TEST_F(StateMoves, AnOrderThatCannotBeCarriedOutIsRefused) {
  EXPECT_THAT(Order("g", "n2"), ElementsAre("answer 6 NOT_FOUND"));
  EXPECT_THAT(Order("f", "n9"), ElementsAre("answer 6 NOT_FOUND"));
  EXPECT_THAT(reply_.message(), HasSubstr("troupe node list"));
  SetDrain("n2", true);
  Stored();
  EXPECT_THAT(Order("f", "n2"), ElementsAre("answer 6 FAILED_PRECONDITION"));
  SetDrain("n2", false);
  Stored();
  Order("f", "n2");
  EXPECT_THAT(Order("f", "n2"), ElementsAre("answer 6 UNAVAILABLE")) << "it moves already";
}

TEST_F(StateMoves, AFunctionWithoutStateIsNotMoved) {
  Deploy("g", 7);
  Stored();
  EXPECT_THAT(Order("g", "n2"), ElementsAre("answer 6 INVALID_ARGUMENT"));
}

}  // namespace
}  // namespace troupe::cluster::moves_test
