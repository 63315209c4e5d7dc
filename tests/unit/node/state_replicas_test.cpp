// Images of states on other nodes than their home: each test is a table of events and what the node does about them, as the home
// or as the node that has the copies.
#include <memory>

#include "tests/unit/node/node_fixture.hpp"

namespace troupe::node::state_replicas_test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::IsSupersetOf;
using testing::Not;

constexpr char kState[] = "f/1@5";
constexpr char kChat[] = "f/1@5#chat";
constexpr char kModel[] = "model-f";

// A node with one GPU, in its epoch 3. Function "f" keeps a state with copies on one other node.
class StateReplicasTest : public NodeTest {
 protected:
  static NodeSettings With() {
    auto settings = Settings(1);
    settings.state_write_back = StateWriteBack::kRun;
    settings.state_memory = MiB(100);
    settings.sequences.of_function = 10;
    return settings;
  }
  static proto::FunctionRecord Keeper() {
    auto keeper = KeeperOf(Bytes(1000));
    keeper.set_state_replicas(1);
    return keeper;
  }
  explicit StateReplicasTest(NodeSettings settings = With()) : NodeTest(std::move(settings)) {
    Up(0);
    Hello(7);
    Join(3);
  }
  Lines Join(std::uint64_t epoch, bool lapsed = false) {
    epoch_ = epoch;
    proto::ClusterUpdate update;
    update.set_snapshot(true);
    update.set_revision(++revision_);
    *update.add_functions() = Keeper();
    return On(Joined{epoch, update, lapsed});
  }
  static ImagePtr Image(const std::string& key, std::uint64_t runs) {
    proto::StateImage image;
    image.set_function(key);
    image.set_runs(runs);
    return std::make_shared<proto::StateImage>(std::move(image));
  }
  Lines Loaded(std::uint64_t runs, const std::vector<std::string>& sequences = {}) {
    return On(ImageLoaded{kState,
                          runs == 0 ? absl::StatusOr<ImagePtr>(absl::NotFoundError(""))
                                    : absl::StatusOr<ImagePtr>(Image(kState, runs)),
                          sequences});
  }
  // The other nodes; "+": in step.
  static proto::StateReplicas Named(const std::vector<std::string>& nodes) {
    proto::StateReplicas named;
    named.set_model_digest(kModel);
    named.set_term(1);
    named.set_home_address("home");
    for (auto node : nodes) {
      auto& replica = *named.add_replicas();
      replica.set_in_step(node.ends_with('+'));
      if (replica.in_step()) node.pop_back();
      replica.set_node(node);
      replica.set_address(node);
      replica.set_epoch(9);
    }
    return named;
  }
  Lines Name(node::Ask ask, const std::vector<std::string>& nodes) {
    return On(ReplicasNamed{ask, Named(nodes)});
  }
  Lines Copied(std::uint64_t number, absl::Status status = {}) {
    return On(CopyEnded{number, std::move(status)});
  }
  void Serve() {
    Adopt(Keeper());
    Answered(0, "prepare");
  }
  Lines Ask(node::Ask ask) {
    auto arrived = Arrived(ask, "f");
    arrived.message.set_node_epoch(epoch_);
    return On(std::move(arrived));
  }
  Lines AskChat(node::Ask ask) {
    auto arrived = Arrived(ask, "f");
    arrived.message.set_node_epoch(epoch_);
    arrived.message.mutable_sequence()->set_id("chat");
    return On(std::move(arrived));
  }
  static proto::WorkerOutcome Written(std::uint64_t runs, const std::string& image = kState) {
    proto::WorkerOutcome outcome;
    *outcome.mutable_state()->add_states() = *Image(image, runs);
    return outcome;
  }
  // A request's run has ended, and its state is durable here.
  Lines Run(node::Ask ask, std::uint64_t runs) {
    Ask(ask);
    proto::WorkerOutcome well;
    well.set_end_ns(1);
    Answered(0, "swap-in", well);
    Answered(0, "run");
    Answered(0, "write-back", Written(runs));
    return On(ImageSaved{++batch_, Image(kState, runs)});
  }
  // The home, with "r" in step: the copies so far have the numbers 1 to 3.
  void InStep() {
    Loaded(3, {"chat"});
    Serve();
    EXPECT_THAT(Name(1, {"r"}), ElementsAre("copy 1 nothing at r"));
    EXPECT_THAT(Copied(1), ElementsAre("copy 2 f/1@5 at r", "copy 3 f/1@5#chat at r"));
    EXPECT_THAT(Copied(2), IsEmpty());
    EXPECT_THAT(Copied(3), ElementsAre("in step 1 OK r"));
    EXPECT_THAT(Name(2, {"r+"}), IsEmpty());
  }
  Lines GiveUp(node::Ask ask) {
    StatesWanted wanted{ask, {}};
    wanted.wish.set_model_digest(kModel);
    wanted.wish.add_functions(kState);
    return On(std::move(wanted));
  }
  Lines Offer(node::Ask ask, const std::string& image, bool ended = false, std::uint64_t epoch = 3,
              std::uint64_t term = 1) {
    CopyOffered offered{ask, {}};
    offered.wish.set_model_digest(kModel);
    offered.wish.set_term(term);
    offered.wish.set_epoch(epoch);
    offered.wish.set_from_address("home");
    offered.wish.set_image(image);
    offered.wish.set_ended(ended);
    return On(std::move(offered));
  }
  Lines Pulled(node::Ask copy, absl::Status status = {}) {
    return On(ImagesPulled{kModel, std::move(status), copy});
  }

  std::uint64_t epoch_ = 0;
  std::uint64_t revision_ = 0;
  std::uint64_t batch_ = 0;
};

// --- the home ---

TEST_F(StateReplicasTest, ANodeIsFilledAndComesIntoStep) {
  InStep();
}

TEST_F(StateReplicasTest, ARunIsAnsweredWhenItsImageIsOnTheOtherNode) {
  InStep();
  EXPECT_THAT(Run(5, 4), ElementsAre("copy 4 f/1@5 at r"));
  EXPECT_THAT(Copied(4), Contains("answer 5 OK"));
}

// The worker dies while the image of its run waits for its copy, and the run's image after that waits for its own. The copy of the
// first one comes then: what it leaves must not go over the second one.
TEST_F(StateReplicasTest, ARunThatWasMadeAgainKeepsItsImage) {
  InStep();
  Run(5, 4);
  On(LostWorker(0));
  Up(0);
  proto::WorkerOutcome well;
  well.set_end_ns(1);
  Answered(0, "prepare");
  Answered(0, "swap-in", well);
  Answered(0, "run");
  EXPECT_THAT(Answered(0, "write-back", Written(4)), Contains(HasSubstr("save image")));
  EXPECT_THAT(On(ImageSaved{++batch_, Image(kState, 4)}), IsEmpty()) << "the copy before is under way";
  EXPECT_THAT(Copied(4), ElementsAre("copy 5 f/1@5 at r"));
  const auto lines = Copied(5);
  EXPECT_THAT(lines, Not(Contains("restore image")));
  EXPECT_THAT(lines, Contains("answer 5 OK"));
}

// The run has not been made again yet, and begins with what was kept.
TEST_F(StateReplicasTest, ARunThatIsToBeMadeAgainFindsWhatItBeganWith) {
  InStep();
  Run(5, 4);
  On(LostWorker(0));
  EXPECT_THAT(Copied(4), Contains("restore image"));
}

TEST_F(StateReplicasTest, ANodeWhoseCopyFailedIsWaitedForUntilTheStoreHasItOutOfStep) {
  InStep();
  Run(5, 4);
  EXPECT_THAT(Copied(4, absl::UnavailableError("gone")), ElementsAre("in step 2 OK"));
  const auto lines = Name(3, {"r"});
  EXPECT_THAT(lines, Contains("answer 5 OK"));
  EXPECT_THAT(lines, Contains("copy 5 nothing at r")) << "it is filled anew";
}

TEST_F(StateReplicasTest, ANodeThatIsFilledIsWaitedForButItsFailureIsNot) {
  Loaded(3);
  Serve();
  Name(1, {"r"});
  Copied(1);
  EXPECT_THAT(Run(5, 4), Not(Contains(HasSubstr("answer")))) << "it has to have this when it comes into step";
  EXPECT_THAT(Copied(2, absl::UnavailableError("gone")), Contains("answer 5 OK"));
}

TEST_F(StateReplicasTest, AHomeThatStartsAgainWaitsForNodesInStep) {
  Loaded(3);
  AdoptionAsked asked{1000, Keeper(), Named({"r+"}), epoch_};
  EXPECT_THAT(On(asked), IsSupersetOf({"copy 1 f/1@5 at r", "fetch model-f"}));
  Place(Keeper());
  Answered(0, "prepare");
  EXPECT_THAT(Run(5, 4), IsEmpty()) << "the older copy is under way";
  EXPECT_THAT(Copied(1), ElementsAre("copy 2 f/1@5 at r"));
  EXPECT_THAT(Copied(2), Contains("answer 5 OK"));
}

TEST_F(StateReplicasTest, ANodeThatIsNamedNoLongerDropsWhatItHas) {
  InStep();
  EXPECT_THAT(Name(3, {"s"}),
              ElementsAre("in step 2 CANCELLED", "copy 4 nothing at s", "copy 5 nothing at r"));
}

TEST_F(StateReplicasTest, AnEndedSequenceEndsThere) {
  InStep();
  On(TimerFired{Timer::kSequences});
  now += std::chrono::hours(24);
  EXPECT_THAT(On(TimerFired{Timer::kSequences}),
              IsSupersetOf({"end 4 f/1@5#chat at r", "forget image of chat"}));
}

TEST_F(StateReplicasTest, StatesAreGivenUpWhenTheNewestImagesAreOnTheOtherNode) {
  InStep();
  EXPECT_THAT(Run(5, 4), ElementsAre("copy 4 f/1@5 at r"));
  EXPECT_THAT(GiveUp(6), ElementsAre("drop model-f"));
  EXPECT_THAT(Copied(4), IsSupersetOf({"answer 5 OK", "order 0 write-back packed-f"}));
  Answered(0, "write-back", Written(4));
  EXPECT_THAT(On(ImageSaved{++batch_, Image(kState, 4)}), Contains("copy 5 f/1@5 at r"));
  EXPECT_THAT(Answered(0, "evict"), IsEmpty()) << "copy 5 is under way";
  EXPECT_THAT(Copied(5), ElementsAre("given up 6 OK f/1@5 f/1@5#chat, copied to r"));
}

TEST_F(StateReplicasTest, ANodeWhoseCopyFailedIsNoNextHome) {
  InStep();
  On(TimerFired{Timer::kSequences});
  now += std::chrono::hours(24);
  On(TimerFired{Timer::kSequences});
  EXPECT_THAT(GiveUp(6), Not(Contains(HasSubstr("given up")))) << "copy 4 is under way";
  EXPECT_THAT(Copied(4, absl::UnavailableError("gone")), Contains("given up 6 OK f/1@5"));
}

TEST_F(StateReplicasTest, AHomeThatWasCutOffForItsLeaseDoesNothingOfItsOwnAccord) {
  InStep();
  Run(5, 4);
  const auto lines = Join(4, true);
  EXPECT_THAT(lines, Contains("answer 5 UNAVAILABLE"));
  EXPECT_THAT(lines, Contains("in step 2 UNAVAILABLE"));
  EXPECT_THAT(Ask(6), ElementsAre("bounce 6 BOUNCE_NOT_ADOPTED"));
  EXPECT_THAT(Copied(4), IsEmpty());
}

TEST_F(StateReplicasTest, AHomeThatWasCutOffGoesOnWhenTheOrderComesBeforeTheAnswerToItsJoin) {
  InStep();
  AdoptionAsked asked{9, Keeper(), Named({"r+"}), 4};
  EXPECT_THAT(On(asked), ElementsAre("adopted 9 OK"));
  EXPECT_THAT(Join(4, true), Not(Contains(HasSubstr("drop"))));
  EXPECT_THAT(Run(5, 4), ElementsAre("copy 4 f/1@5 at r"));
  EXPECT_THAT(Copied(4), Contains("answer 5 OK"));
  EXPECT_THAT(Join(5, true), Contains("in step 2 UNAVAILABLE")) << "the order was of another epoch";
  EXPECT_THAT(On(asked), ElementsAre("adopted 9 FAILED_PRECONDITION"));
}

TEST_F(StateReplicasTest, AHomeThatJoinsAnewInTimeGoesOn) {
  InStep();
  Run(5, 4);
  ReportAsked report{8, {}};
  report.wish.set_joining(true);
  On(report);
  EXPECT_THAT(report_.adopted(), IsEmpty()) << "the manager says anew whether this is the home";
  Join(4);
  EXPECT_THAT(On(AdoptionAsked{9, Keeper(), Named({"r+"}), epoch_}), ElementsAre("adopted 9 OK"));
  EXPECT_THAT(Copied(4), Contains("answer 5 OK"));
}

// A run was on the GPU of the home that was cut off, and the next home fills that node meanwhile.
TEST_F(StateReplicasTest, ARunOfAnEarlierHomeWritesOverNoCopy) {
  InStep();
  Ask(5);
  proto::WorkerOutcome well;
  well.set_end_ns(1);
  Answered(0, "swap-in", well);
  Join(4, true);
  EXPECT_THAT(Offer(6, "", false, 4, 2), Contains("copied 6 OK"));
  EXPECT_THAT(Offer(7, kState, false, 4, 2), Contains("pull from home: f/1@5"));
  Pulled(7);
  Answered(0, "run");
  const auto lines = Answered(0, "write-back", Written(4));
  EXPECT_THAT(lines, Not(Contains(HasSubstr("save image"))));
  EXPECT_THAT(lines, Contains("answer 5 UNAVAILABLE"));
  EXPECT_THAT(answered_.served().message(), HasSubstr("another node may be the home of this state"));
}

TEST_F(StateReplicasTest, AnImageThatWasBeingWrittenWhenTheCopiesCameIsNotKept) {
  InStep();
  Ask(5);
  proto::WorkerOutcome well;
  well.set_end_ns(1);
  Answered(0, "swap-in", well);
  Answered(0, "run");
  EXPECT_THAT(Answered(0, "write-back", Written(4)), Contains(HasSubstr("save image")));
  Join(4, true);
  EXPECT_THAT(Offer(6, "", false, 4, 2), Contains("copied 6 OK"));
  const auto lines = On(ImageSaved{++batch_, Image(kState, 4)});
  EXPECT_THAT(lines, Not(Contains(HasSubstr("keep image"))));
  EXPECT_THAT(lines, Contains("answer 5 UNAVAILABLE"));
}

// States are written back when their model leaves.
class EvictingHome : public StateReplicasTest {
 protected:
  static NodeSettings Evicting() {
    auto settings = With();
    settings.state_write_back = StateWriteBack::kEvict;
    return settings;
  }
  EvictingHome() : StateReplicasTest(Evicting()) {}
};

TEST_F(EvictingHome, WhatLeavesTheGpuBehindTheCopiesOfTheNextHomeIsNotKept) {
  InStep();
  Ask(5);
  proto::WorkerOutcome well;
  well.set_end_ns(1);
  Answered(0, "swap-in", well);
  EXPECT_THAT(Answered(0, "run"), Contains("answer 5 OK"));
  EXPECT_THAT(Join(4, true), Contains("order 0 write-back packed-f"));
  EXPECT_THAT(Answered(0, "write-back", Written(4)), Contains(HasSubstr("save image")));
  EXPECT_THAT(Offer(6, "", false, 4, 2), Contains("copied 6 OK"));
  const auto lines = On(ImageSaved{++batch_, Image(kState, 4)});
  EXPECT_THAT(lines, Not(Contains(HasSubstr("keep image"))));
  EXPECT_THAT(lines, Contains("order 0 evict packed-f"));
}

// --- the node with the copies ---

TEST_F(StateReplicasTest, ACopyIsDurableBeforeTheHomeHears) {
  Loaded(0);
  EXPECT_THAT(Offer(1, ""), Contains("copied 1 OK"));
  EXPECT_THAT(Offer(2, kState), ElementsAre("pull from home: f/1@5"));
  EXPECT_THAT(Offer(3, kChat), ElementsAre("pull from home: f/1@5#chat"));
  EXPECT_THAT(Pulled(2), ElementsAre("copied 2 OK"));
  EXPECT_THAT(Pulled(3, absl::DataLossError("torn")), ElementsAre("copied 3 DATA_LOSS"));
}

TEST_F(StateReplicasTest, CopiesAreRefusedOfAnotherLifeAnEarlierHomeAndTwiceAtOnce) {
  Loaded(0);
  EXPECT_THAT(Offer(1, kState, false, 2), ElementsAre("copied 1 FAILED_PRECONDITION"));
  EXPECT_THAT(Offer(2, kState, false, 3, 5), ElementsAre("pull from home: f/1@5"));
  EXPECT_THAT(Offer(3, kState, false, 3, 5), ElementsAre("copied 3 UNAVAILABLE"));
  EXPECT_THAT(Offer(4, "", false, 3, 5), ElementsAre("copied 4 UNAVAILABLE"));
  EXPECT_THAT(Offer(5, kChat, false, 3, 4), ElementsAre("copied 5 FAILED_PRECONDITION"));
  EXPECT_THAT(Offer(6, "g/1@5", false, 3, 5), ElementsAre("copied 6 UNAVAILABLE"));
}

TEST_F(StateReplicasTest, TheNodeThatBecomesTheHomeReadsItsCopies) {
  Loaded(0);
  Offer(1, kState);
  Pulled(1);
  Offer(2, kChat);
  Pulled(2);
  auto named = Named({});
  named.set_term(2);
  EXPECT_THAT(On(AdoptionAsked{1000, Keeper(), named, epoch_}), ElementsAre("load image", "fetch model-f"));
  Loaded(7, {"chat"});
  Place(Keeper());
  EXPECT_THAT(Offer(3, kState), ElementsAre("copied 3 FAILED_PRECONDITION"));
}

TEST_F(StateReplicasTest, ANodeThatIsTheHomeByItsCopiesAloneReadsThemToGiveThemUp) {
  Loaded(0);
  Offer(1, kState);
  Pulled(1);
  EXPECT_THAT(GiveUp(6), Contains("load image"));
  EXPECT_THAT(Loaded(7), Contains("given up 6 OK f/1@5"));
}

// It has given the states up, and keeps copies of them for the next home: what it has in memory grows old.
TEST_F(StateReplicasTest, AHomeThatGaveTheStatesUpReadsWhatCameSince) {
  InStep();
  EXPECT_THAT(AskChat(5), ElementsAre("load image of chat"));
  On(ImageLoaded{kChat, Image(kChat, 2), {}});
  proto::WorkerOutcome well;
  well.set_end_ns(1);
  Answered(0, "swap-in", well);
  Answered(0, "run");
  Answered(0, "write-back", Written(3, kChat));
  EXPECT_THAT(On(ImageSaved{++batch_, Image(kChat, 3)}), ElementsAre("copy 4 f/1@5#chat at r"));
  GiveUp(6);
  Copied(4);
  Answered(0, "write-back", Written(3, kChat));
  On(ImageSaved{++batch_, Image(kChat, 3)});
  Answered(0, "evict");
  EXPECT_THAT(Copied(5), Contains("given up 6 OK f/1@5 f/1@5#chat, copied to r"));
  EXPECT_THAT(Offer(7, kChat, false, 3, 2), Contains("pull from home: f/1@5#chat"));
  EXPECT_THAT(Pulled(7), Contains("unload image of chat"));
  auto named = Named({});
  named.set_term(3);
  EXPECT_THAT(On(AdoptionAsked{1000, Keeper(), named, epoch_}), Contains("load image"));
  Loaded(3, {"chat"});
  Place(Keeper());
  Answered(0, "prepare");
  EXPECT_THAT(AskChat(8), ElementsAre("load image of chat"));
}

// A daemon that was started again adopts its models before it hears which functions there are.
TEST_F(StateReplicasTest, AHomeThatHasHeardOfNoFunctionsCopiesNothingAndSaysSo) {
  proto::ClusterUpdate none;
  none.set_snapshot(true);
  none.set_revision(++revision_);
  On(Joined{4, none, false});
  EXPECT_THAT(Name(2, {"r"}), Contains("copy 1 nothing at r"));
  EXPECT_THAT(Copied(1), Not(Contains(HasSubstr("in step")))) << "what it has is not known yet";
  Join(4);
  Loaded(4);
  EXPECT_THAT(Name(3, {"r"}), Contains("copy 2 nothing at r"));
  EXPECT_THAT(Copied(2), ElementsAre("copy 3 f/1@5 at r"));
  EXPECT_THAT(Copied(3), ElementsAre("in step 3 OK r"));
}

// Else the other node would be in step without them, and the state begin anew there.
TEST_F(StateReplicasTest, ANodeThatIsTheHomeByItsCopiesAloneReadsThemBeforeItCopiesThem) {
  Loaded(0);
  Offer(1, kState);
  Pulled(1);
  EXPECT_THAT(Name(2, {"r"}), IsSupersetOf({"load image", "copy 1 nothing at r"}));
  EXPECT_THAT(Copied(1), Not(Contains(HasSubstr("in step")))) << "what it has is not known yet";
  Loaded(4);
  EXPECT_THAT(Name(3, {"r"}), Contains("copy 2 nothing at r"));
  EXPECT_THAT(Copied(2), ElementsAre("copy 3 f/1@5 at r"));
  EXPECT_THAT(Copied(3), ElementsAre("in step 3 OK r"));
}

TEST_F(StateReplicasTest, ACopyThatIsUnderWayEndsBeforeTheFilesAreRead) {
  Loaded(0);
  Offer(1, kState);
  EXPECT_THAT(On(AdoptionAsked{1000, Keeper(), Named({}), epoch_}), ElementsAre("fetch model-f"));
  EXPECT_THAT(Pulled(1), ElementsAre("copied 1 FAILED_PRECONDITION", "load image"));
}

TEST_F(StateReplicasTest, AnImageThatEndedIsDropped) {
  Loaded(0);
  Offer(1, kChat);
  Pulled(1);
  EXPECT_THAT(Offer(2, kChat, true), ElementsAre("forget image of chat", "copied 2 OK"));
}

TEST_F(StateReplicasTest, ASequenceOfAnotherHomeDoesNotEndHere) {
  Loaded(0);
  Offer(1, kChat);
  Pulled(1);
  now += std::chrono::hours(24);
  EXPECT_THAT(On(TimerFired{Timer::kSequences}), IsEmpty());
}

// A move that the manager has given up: the states stay at their home, which offers copies again.
TEST_F(StateReplicasTest, ANodeThatForgetsWhatItTookOverTakesCopiesAgain) {
  Loaded(0);
  StatesOffered offered{1, {}};
  offered.wish.set_model_digest(kModel);
  offered.wish.set_from_address("home");
  offered.wish.add_images(kState);
  On(std::move(offered));
  On(ImagesPulled{kModel, absl::OkStatus()});
  EXPECT_THAT(Loaded(3), Contains("taken over 1 OK"));
  EXPECT_THAT(Offer(2, kState), Contains("copied 2 FAILED_PRECONDITION")) << "it may be the home next";
  EXPECT_THAT(On(StatesElsewhere{kModel, 1}), Contains("forget image"));
  EXPECT_THAT(Offer(3, kState), Not(Contains("copied 3 FAILED_PRECONDITION")));
}

}  // namespace
}  // namespace troupe::node::state_replicas_test
