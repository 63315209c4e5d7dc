// States that a node gives up to another one, or takes over from it: each test is a table of events and what the node does
// about them.
#include <memory>

#include "tests/unit/node/node_fixture.hpp"

namespace troupe::node::handovers_test {
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

// A node with one GPU. Function "f" keeps a state; the node's disk has `on_disk`.
class HandoversTest : public NodeTest {
 protected:
  static NodeSettings With(StateWriteBack write_back, std::uint64_t most_sequences = 10) {
    auto settings = Settings(1);
    settings.state_write_back = write_back;
    settings.state_memory = MiB(100);
    settings.sequences.of_function = most_sequences;
    return settings;
  }
  static proto::FunctionRecord Keeper() { return KeeperOf(Bytes(1000)); }
  explicit HandoversTest(NodeSettings settings = With(StateWriteBack::kRun)) : NodeTest(std::move(settings)) {
    Up(0);
    Hello(7);
  }
  void Declare() {
    proto::ClusterUpdate update;
    update.set_snapshot(true);
    update.set_revision(++revision_);
    *update.add_functions() = Keeper();
    On(ClusterChanged{update});
  }
  void Undeclare() {
    proto::ClusterUpdate update;
    update.set_snapshot(true);
    update.set_revision(++revision_);
    On(ClusterChanged{update});
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
  // The function is served here.
  void Serve() {
    Adopt(Keeper());
    Answered(0, "prepare");
  }
  Lines GiveUp(node::Ask ask) {
    StatesWanted wanted{ask, {}};
    wanted.wish.set_model_digest(kModel);
    wanted.wish.add_functions(kState);
    return On(std::move(wanted));
  }
  Lines TakeOver(node::Ask ask, const std::vector<std::string>& images) {
    StatesOffered offered{ask, {}};
    offered.wish.set_model_digest(kModel);
    offered.wish.set_from_address("away");
    for (const auto& image : images) offered.wish.add_images(image);
    return On(std::move(offered));
  }
  Lines Part(node::Ask ask, const std::string& image) {
    ImageAsked asked{ask, {}};
    asked.wish.set_image(image);
    return On(std::move(asked));
  }
  Lines Pulled(absl::Status status = {}) { return On(ImagesPulled{kModel, std::move(status)}); }
  static proto::WorkerOutcome StateOf(std::uint64_t runs) {
    proto::WorkerOutcome outcome;
    *outcome.mutable_state()->add_states() = *Image(kState, runs);
    return outcome;
  }
  // A request's swap-in and run are answered.
  Lines Ran() {
    proto::WorkerOutcome well;
    well.set_end_ns(1);
    Answered(0, "swap-in", well);
    return Answered(0, "run");
  }

  std::uint64_t revision_ = 0;
};

// --- giving up ---

TEST_F(HandoversTest, WhatIsAtRestIsGivenUpAtOnce) {
  Declare();
  Loaded(3, {"chat", "talk"});
  EXPECT_THAT(GiveUp(1), ElementsAre("given up 1 OK f/1@5 f/1@5#chat f/1@5#talk"));
}

TEST_F(HandoversTest, AStateWithoutRunsHasNoImage) {
  Declare();
  Loaded(0);
  EXPECT_THAT(GiveUp(1), ElementsAre("given up 1 OK"));
}

TEST_F(HandoversTest, ARunIsEndedAndWrittenBackBefore) {
  Declare();
  Loaded(3);
  Serve();
  EXPECT_THAT(Submit(1, "f"), ElementsAre("order 0 swap-in packed-f", "order 0 run packed-f"));
  EXPECT_THAT(Submit(2, "f"), IsEmpty()) << "it waits for the first one";
  EXPECT_THAT(GiveUp(3), Contains("bounce 2 BOUNCE_NOT_ADOPTED")) << "another node may have it";
  EXPECT_THAT(Ran(), Contains("order 0 write-back packed-f"));
  Answered(0, "write-back", StateOf(4));
  const auto lines = On(ImageSaved{1, Image(kState, 4)});
  EXPECT_THAT(lines, IsSupersetOf({"keep image of run 4", "answer 1 OK"}));
  EXPECT_THAT(lines, Not(Contains(HasSubstr("given up")))) << "the GPU has it yet";
  Answered(0, "write-back", StateOf(4));
  On(ImageSaved{2, Image(kState, 4)});
  EXPECT_THAT(Answered(0, "evict"), Contains("given up 3 OK f/1@5"));
  EXPECT_THAT(Submit(4, "f"), ElementsAre("bounce 4 BOUNCE_NOT_ADOPTED"));
}

TEST_F(HandoversTest, WhatTheDiskHasIsReadBefore) {
  Declare();
  EXPECT_THAT(GiveUp(1), IsEmpty());
  EXPECT_THAT(Loaded(3), ElementsAre("keep image of run 3", "given up 1 OK f/1@5"));
}

TEST_F(HandoversTest, AFunctionThatTheNodeHasNotHeardOfIsWaitedFor) {
  EXPECT_THAT(GiveUp(1), IsEmpty());
  Declare();
  EXPECT_THAT(Loaded(3), ElementsAre("keep image of run 3", "given up 1 OK f/1@5"));
}

TEST_F(HandoversTest, AStateThatCannotBeReadIsNotGivenUp) {
  Declare();
  On(ImageLoaded{kState, absl::DataLossError("damaged"), {}});
  EXPECT_THAT(GiveUp(1), ElementsAre("given up 1 DATA_LOSS"));
}

TEST_F(HandoversTest, WhoAsksTwiceIsAnsweredTwice) {
  Declare();
  GiveUp(1);
  GiveUp(2);
  EXPECT_THAT(Loaded(3), ElementsAre("keep image of run 3", "given up 1 OK f/1@5", "given up 2 OK f/1@5"));
}

TEST_F(HandoversTest, AnAdoptionMakesItThisNodesAgain) {
  Declare();
  Loaded(3);
  Serve();
  GiveUp(1);
  EXPECT_THAT(Part(2, kState), ElementsAre("read f/1@5 for 2"));
  EXPECT_THAT(Part(3, "g/1@5"), ElementsAre("part 3 FAILED_PRECONDITION"));
  On(AdoptionAsked{4, Keeper()});
  EXPECT_THAT(Part(5, kState), ElementsAre("part 5 FAILED_PRECONDITION"))
      << "runs may change it while it is read";
}

TEST_F(HandoversTest, AnAdoptionEndsWhatIsBeingGivenUp) {
  Declare();
  GiveUp(1);
  EXPECT_THAT(On(AdoptionAsked{2, Keeper()}), ElementsAre("given up 1 CANCELLED", "fetch model-f"));
  EXPECT_THAT(Loaded(3), ElementsAre("keep image of run 3"));
}

class GivenByEviction : public HandoversTest {
 protected:
  GivenByEviction() : HandoversTest(With(StateWriteBack::kEvict)) {}
};

TEST_F(GivenByEviction, WhatOnlyTheGpuHasIsWrittenBackBefore) {
  Declare();
  Loaded(0);
  Serve();
  Submit(1, "f");
  EXPECT_THAT(Ran(), Contains("answer 1 OK"));
  EXPECT_THAT(GiveUp(2), Contains("order 0 write-back packed-f"));
  EXPECT_THAT(Answered(0, "write-back", StateOf(1)), ElementsAre("save image 1 of run 1"));
  EXPECT_THAT(On(ImageSaved{1, Image(kState, 1)}), Contains("order 0 evict packed-f"));
  EXPECT_THAT(Answered(0, "evict"), Contains("given up 2 OK f/1@5"));
}

// A daemon that was started again while its node drains: nothing asks it to adopt the model that its worker has.
class GivenBehindAWorker : public HandoversTest {
 protected:
  GivenBehindAWorker() : HandoversTest(With(StateWriteBack::kEvict)) { Up(0, {{"packed-f", MiB(100)}}); }
};

TEST_F(GivenBehindAWorker, WhatAWorkerHasOfAnEarlierDaemonIsWrittenBackBefore) {
  Declare();
  Loaded(3, {"chat"});
  EXPECT_THAT(GiveUp(1), IsEmpty()) << "the worker may have runs that the files lack";
  now += std::chrono::seconds(10);
  EXPECT_THAT(On(TimerFired{Timer::kOrphans}), ElementsAre("order 0 write-back packed-f"));
  proto::WorkerOutcome outcome = StateOf(5);
  *outcome.mutable_state()->add_states() = *Image("f/1@5#talk", 2);
  Answered(0, "write-back", outcome);
  On(ImageSaved{1, Image(kState, 5)});
  EXPECT_THAT(On(ImageSaved{1, Image("f/1@5#talk", 2)}),
              ElementsAre("keep image of run 5", "order 0 evict packed-f",
                          "given up 1 OK f/1@5 f/1@5#chat f/1@5#talk"));
}

// --- taking over ---

TEST_F(HandoversTest, AStateIsTakenOverWhenItWasReadFromTheDisk) {
  Declare();
  Loaded(0);
  EXPECT_THAT(TakeOver(1, {kState, kChat}), ElementsAre("forget image", "pull from away: f/1@5 f/1@5#chat"));
  EXPECT_THAT(Pulled(), ElementsAre("load image"));
  EXPECT_THAT(Loaded(3, {"chat"}), ElementsAre("keep image of run 3", "taken over 1 OK"));
  EXPECT_THAT(GiveUp(2), ElementsAre("given up 2 OK f/1@5 f/1@5#chat")) << "it is this node's now";
}

TEST_F(HandoversTest, WhatANodeHadBeforeIsDropped) {
  Declare();
  Loaded(2, {"old", "chat"});
  EXPECT_THAT(TakeOver(1, {kState}), ElementsAre("forget image of old", "forget image of chat",
                                                 "forget image", "pull from away: f/1@5"));
  Pulled();
  Loaded(3);
  EXPECT_THAT(GiveUp(2), ElementsAre("given up 2 OK f/1@5"));
}

TEST_F(HandoversTest, NothingIsTakenOverWhenAnImageDoesNotCome) {
  Declare();
  Loaded(0);
  TakeOver(1, {kState, kChat});
  EXPECT_THAT(Pulled(absl::UnavailableError("cut off")),
              ElementsAre("forget image", "forget image of chat", "taken over 1 UNAVAILABLE"));
  EXPECT_THAT(TakeOver(2, {kState}), Contains("pull from away: f/1@5")) << "it can be tried again";
}

TEST_F(HandoversTest, NothingIsTakenOverTwiceAtATime) {
  Declare();
  Loaded(0);
  TakeOver(1, {kState});
  EXPECT_THAT(TakeOver(2, {kState}), ElementsAre("taken over 2 UNAVAILABLE"));
}

TEST_F(HandoversTest, ANodeThatServesTheFunctionTakesNoOtherState) {
  Declare();
  Loaded(3);
  Serve();
  EXPECT_THAT(TakeOver(1, {kState}), ElementsAre("taken over 1 FAILED_PRECONDITION"));
}

TEST_F(HandoversTest, WhatTheNodeDoesNotKnowYetIsRefused) {
  EXPECT_THAT(TakeOver(1, {kState}), ElementsAre("taken over 1 UNAVAILABLE")) << "the function";
  Declare();
  EXPECT_THAT(TakeOver(2, {kState}), ElementsAre("taken over 2 UNAVAILABLE")) << "what its disk has";
}

TEST_F(HandoversTest, ANameThatIsNoSequencesIsRefused) {
  Declare();
  Loaded(0);
  EXPECT_THAT(TakeOver(1, {"f/1@5#../../etc"}), ElementsAre("taken over 1 INVALID_ARGUMENT"));
}

TEST_F(HandoversTest, AFunctionThatWentMeanwhileLeavesNothing) {
  Declare();
  Loaded(0);
  TakeOver(1, {kState, kChat});
  Undeclare();
  EXPECT_THAT(Pulled(absl::OkStatus()),
              ElementsAre("forget image", "forget image of chat", "taken over 1 OK"));
}

class FewSequences : public HandoversTest {
 protected:
  FewSequences() : HandoversTest(With(StateWriteBack::kRun, 1)) {}
};

TEST_F(FewSequences, ANodeTakesNoMoreSequencesThanItMayHave) {
  Declare();
  Loaded(0);
  EXPECT_THAT(TakeOver(1, {kState, kChat, "f/1@5#talk"}), ElementsAre("taken over 1 RESOURCE_EXHAUSTED"));
  EXPECT_THAT(taken_over_.message(), HasSubstr("option function-sequences"));
}

// --- elsewhere ---

TEST_F(HandoversTest, WhatIsElsewhereIsForgotten) {
  Declare();
  Loaded(3, {"chat"});
  GiveUp(1);
  EXPECT_THAT(On(StatesElsewhere{kModel}), ElementsAre("forget image of chat", "forget image"));
  EXPECT_THAT(Part(2, kState), ElementsAre("part 2 FAILED_PRECONDITION"));
}

TEST_F(HandoversTest, ANodeThatServesTheFunctionForgetsNothing) {
  Declare();
  Loaded(3);
  Serve();
  EXPECT_THAT(On(StatesElsewhere{kModel}), IsEmpty());
}

}  // namespace
}  // namespace troupe::node::handovers_test
