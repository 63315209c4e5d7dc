// The sequences of a function with state: each test is a table of events and what the node does about them. The sizes are
// such that a GPU has room for two states beside the model, unless a test says otherwise.
#include <memory>
#include <optional>

#include "node/state/sequence_table.hpp"
#include "node/state/stay.hpp"
#include "tests/unit/node/node_fixture.hpp"

namespace troupe::node::sequences_test {
namespace {

using std::chrono::hours;
using std::chrono::seconds;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::IsSupersetOf;
using testing::Not;

constexpr Bytes kImage = MiB(200);

struct Wish {
  const char* id;
  bool start = false;
  bool end = false;
};

class SequencesTest : public NodeTest {
 protected:
  static NodeSettings With(StateWriteBack write_back, std::uint32_t gpus, std::size_t in_memory,
                           SequenceLimits limits = {}) {
    auto settings = Settings(gpus);
    settings.state_write_back = write_back;
    // The function's own state has a place, too.
    settings.state_memory = kImage * (in_memory + 1);
    settings.sequences = limits;
    return settings;
  }
  static proto::FunctionRecord Chat() { return KeeperOf(kImage); }
  static std::string Key(const std::string& id) { return "f/1@5#" + id; }

  explicit SequencesTest(NodeSettings settings = With(StateWriteBack::kRun, 1, 10),
                         const std::vector<std::string>& on_disk = {})
      : NodeTest(settings), gpus_(static_cast<GpuIndex>(settings.gpus.size())) {
    for (GpuIndex gpu = 0; gpu < gpus_; ++gpu) Up(gpu);
    Hello(7);
    Declare();
    Loaded(on_disk);
    Adopt(Chat());
    for (GpuIndex gpu = 0; gpu < gpus_; ++gpu) Answered(gpu, "prepare");
    told_.clear();
  }
  void Declare() {
    proto::ClusterUpdate update;
    update.set_snapshot(true);
    update.set_revision(++revision_);
    *update.add_functions() = Chat();
    On(ClusterChanged{update});
  }
  // It was removed and is deployed again: the manager names this node as the home again.
  void DeclareAgain() {
    Declare();
    On(AdoptionAsked{1001, Chat()});
  }
  Lines Undeclare() {
    proto::ClusterUpdate update;
    update.set_snapshot(true);
    update.set_revision(++revision_);
    return On(ClusterChanged{update});
  }
  Lines Loaded(const std::vector<std::string>& on_disk) {
    return On(ImageLoaded{"f/1@5", absl::NotFoundError(""), on_disk});
  }

  Lines Ask(node::Ask ask, const Wish& wish) {
    auto arrived = Arrived(ask, "f");
    auto& sequence = *arrived.message.mutable_sequence();
    sequence.set_id(wish.id);
    sequence.set_start(wish.start);
    sequence.set_end(wish.end);
    return On(std::move(arrived));
  }
  static proto::WorkerOutcome StateOf(const std::string& id, std::uint64_t runs) {
    proto::WorkerOutcome outcome;
    auto& image = *outcome.mutable_state()->add_states();
    image.set_function(Key(id));
    image.set_runs(runs);
    return outcome;
  }
  static ImagePtr Image(const std::string& id, std::uint64_t runs) {
    return std::make_shared<proto::StateImage>(StateOf(id, runs).state().states(0));
  }
  // The swap-in of a request's state, and its run, are answered well.
  Lines Ran(GpuIndex gpu, bool swapped = true) {
    proto::WorkerOutcome well;
    well.set_end_ns(1);
    if (swapped) Answered(gpu, "swap-in", well);
    return Answered(gpu, "run");
  }
  // With every run written back: until the answer.
  Lines Safe(GpuIndex gpu, const std::string& id, std::uint64_t runs) {
    Answered(gpu, "write-back", StateOf(id, runs));
    return On(ImageSaved{++saved_images_, Image(id, runs)});
  }
  // One request, answered well; on GPU 0.
  Lines Serve(node::Ask ask, const Wish& wish, std::uint64_t runs) {
    now += seconds(1);
    const bool swaps = !Ask(ask, wish).empty() && Brings(0);
    Ran(0, swaps);
    return wish.end ? Lines() : Safe(0, wish.id, runs);
  }
  // The newest swap-in of the GPU brings a state, once.
  bool Brings(GpuIndex gpu) {
    const auto sequence = OrderOf(gpu, "swap-in").sequence();
    return std::exchange(swapped_[gpu], sequence) != sequence;
  }
  std::uint64_t RunsBrought(GpuIndex gpu) { return OrderOf(gpu, "swap-in").swap_in().states(0).runs(); }
  std::string Refusal() { return answered_.served().message(); }

  const GpuIndex gpus_;
  std::uint64_t revision_ = 0;
  std::uint64_t saved_images_ = 0;
  std::map<GpuIndex, std::uint64_t> swapped_;
};

// --- which state a request uses ---

TEST_F(SequencesTest, EachGoesOnFromWhatItsOwnLastRequestLeft) {
  EXPECT_THAT(Ask(1, {"a", true}), ElementsAre("order 0 swap-in packed-f", "order 0 run packed-f"));
  EXPECT_EQ(OrderOf(0, "swap-in").swap_in().states(0).function(), Key("a"));
  EXPECT_EQ(RunsBrought(0), 0u) << "it begins with zeros";
  EXPECT_EQ(OrderOf(0, "run").run().stateful(), Key("a"));
  EXPECT_THAT(Ran(0), ElementsAre("order 0 write-back packed-f of a"));
  EXPECT_THAT(Safe(0, "a", 1), ElementsAre("keep image of run 1", "answer 1 OK"));
  EXPECT_THAT(Ask(2, {"b", true}), ElementsAre("order 0 swap-in packed-f", "order 0 run packed-f"));
  Ran(0);
  Safe(0, "b", 1);
  EXPECT_THAT(Ask(3, {"a"}), ElementsAre("order 0 run packed-f")) << "its state is on the GPU";
  EXPECT_EQ(OrderOf(0, "run").run().stateful(), Key("a"));
  Ran(0, false);
  EXPECT_THAT(Safe(0, "a", 2), Contains("answer 3 OK"));
  EXPECT_THAT(Submit(4, "f"), Contains("order 0 run packed-f")) << "the function's own state is another one";
  EXPECT_EQ(OrderOf(0, "run").run().stateful(), "f/1@5");
}

TEST_F(SequencesTest, RequestsOfOneGoOneAfterTheOtherAndBesideThoseOfOthers) {
  Serve(1, {"a", true}, 1);
  Serve(2, {"b", true}, 1);
  EXPECT_THAT(Ask(3, {"a"}), ElementsAre("order 0 run packed-f"));
  EXPECT_THAT(Ask(4, {"a"}), IsEmpty()) << "the one before it is under way";
  EXPECT_THAT(Ask(5, {"b"}), ElementsAre("order 0 run packed-f"));
  EXPECT_EQ(OrderOf(0, "run").run().stateful(), Key("b"));
}

TEST_F(SequencesTest, WhatWasNeverStartedIsRefusedByName) {
  EXPECT_THAT(Ask(1, {"a"}), ElementsAre("answer 1 INVALID_ARGUMENT"));
  EXPECT_THAT(Refusal(), HasSubstr("no sequence 'a' of function 'f' version 1"));
  EXPECT_THAT(Refusal(), HasSubstr("sequence_start"));
  EXPECT_THAT(Ask(2, {"../x", true}), ElementsAre("answer 2 INVALID_ARGUMENT"));
}

TEST_F(SequencesTest, AFunctionWithoutStateHasNone) {
  Adopt("g");
  auto arrived = Arrived(1, "g");
  arrived.message.mutable_sequence()->set_id("a");
  EXPECT_THAT(On(std::move(arrived)), ElementsAre("answer 1 INVALID_ARGUMENT"));
  EXPECT_THAT(Refusal(), HasSubstr("keeps no state"));
}

TEST_F(SequencesTest, AStartBeginsAnewWhateverWasThere) {
  Serve(1, {"a", true}, 1);
  EXPECT_THAT(Ask(2, {"a", true}),
              ElementsAre("forget image of a", "order 0 swap-in packed-f", "order 0 run packed-f"));
  EXPECT_EQ(RunsBrought(0), 0u);
  Ran(0);
  EXPECT_THAT(Safe(0, "a", 1), Contains("answer 2 OK"));
  EXPECT_THAT(Ask(3, {"a"}), ElementsAre("order 0 run packed-f"));
}

TEST_F(SequencesTest, AStartThatFailsLeavesNoSequence) {
  Serve(1, {"a", true}, 1);
  Ask(2, {"a", true});
  proto::WorkerOutcome well;
  well.set_end_ns(1);
  Answered(0, "swap-in", well);
  EXPECT_THAT(Answered(0, "run", Failed(absl::StatusCode::kInternal)),
              IsSupersetOf({"answer 2 INTERNAL", "order 0 drop packed-f of a"}));
  EXPECT_THAT(Ask(3, {"a"}), ElementsAre("answer 3 INVALID_ARGUMENT"));
}

TEST_F(SequencesTest, ARunThatFailsLeavesTheStateAsItWas) {
  Serve(1, {"a", true}, 1);
  Ask(2, {"a"});
  EXPECT_THAT(Answered(0, "run", Failed(absl::StatusCode::kInternal)), ElementsAre("answer 2 INTERNAL"));
  EXPECT_THAT(Ask(3, {"a"}), ElementsAre("order 0 run packed-f"));
  Ran(0, false);
  EXPECT_THAT(Safe(0, "a", 2), Contains("answer 3 OK"));
}

TEST_F(SequencesTest, AnEndDropsTheStateWhenItIsAnswered) {
  Serve(1, {"a", true}, 1);
  Ask(2, {"a", false, true});
  EXPECT_THAT(Ran(0, false), ElementsAre("answer 2 OK", "forget image of a", "order 0 drop packed-f of a"))
      << "what ends is not written back";
  EXPECT_THAT(Ask(3, {"a"}), ElementsAre("answer 3 INVALID_ARGUMENT"));
  EXPECT_THAT(Ask(4, {"a", true}), Contains("order 0 swap-in packed-f"));
  EXPECT_EQ(RunsBrought(0), 0u);
}

TEST_F(SequencesTest, AnEndThatFailsEndsNothing) {
  Serve(1, {"a", true}, 1);
  Ask(2, {"a", false, true});
  EXPECT_THAT(Answered(0, "run", Failed(absl::StatusCode::kInternal)), ElementsAre("answer 2 INTERNAL"));
  EXPECT_THAT(Ask(3, {"a"}), ElementsAre("order 0 run packed-f"));
}

TEST_F(SequencesTest, RequestsBehindAnEndAreRefusedUpToTheNextStart) {
  Serve(1, {"a", true}, 1);
  Ask(2, {"a", false, true});
  EXPECT_THAT(Ask(3, {"a"}), IsEmpty()) << "the end may fail";
  EXPECT_THAT(Ask(4, {"a"}), IsEmpty());
  EXPECT_THAT(Ask(5, {"a", true}), IsEmpty());
  EXPECT_THAT(Ask(6, {"a"}), IsEmpty());
  EXPECT_THAT(Ran(0, false), ElementsAre("answer 2 OK", "forget image of a", "order 0 drop packed-f of a",
                                         "answer 3 INVALID_ARGUMENT", "answer 4 INVALID_ARGUMENT",
                                         "order 0 swap-in packed-f", "order 0 run packed-f"));
  Ran(0);
  EXPECT_THAT(Safe(0, "a", 1), IsSupersetOf({"answer 5 OK", "order 0 run packed-f"}));
}

TEST_F(SequencesTest, AStartThatIsCancelledBeforeItRanTakesItsFollowersWithIt) {
  Serve(1, {"a", true}, 1);
  Serve(2, {"a", false, true}, 2);
  Serve(3, {"b", true}, 1);
  Ask(4, {"b"});  // keeps a later one of b waiting
  Ask(5, {"a", true});
  EXPECT_THAT(Ask(6, {"a"}), IsEmpty());
  EXPECT_THAT(On(RequestCancelled{{7, 5}}), ElementsAre("order 0 cancel")) << "it is on the GPU";
  proto::WorkerOutcome well;
  well.set_end_ns(1);
  Answered(0, "swap-in", well);
  EXPECT_THAT(Answered(0, "run", Failed(absl::StatusCode::kCancelled)),
              IsSupersetOf({"answer 5 CANCELLED", "answer 6 INVALID_ARGUMENT"}));
}

// --- where states are ---

class OnTwoGpus : public SequencesTest {
 protected:
  OnTwoGpus() : SequencesTest(With(StateWriteBack::kRun, 2, 10)) {}
};

TEST_F(OnTwoGpus, TwoMayLieOnTwoGpusAndEachRunsWhereItsStateIs) {
  std::map<std::string, GpuIndex> at;
  node::Ask ask = 0;
  // Requests of many sequences at once: the GPUs share them.
  for (const char* id : {"a", "b", "c", "d"}) {
    for (const auto& line : Ask(++ask, {id, true})) {
      if (line == "order 0 run packed-f") at[id] = 0;
      if (line == "order 1 run packed-f") at[id] = 1;
    }
  }
  EXPECT_THAT(at, Contains(testing::Pair(testing::_, 0u)));
  EXPECT_THAT(at, Contains(testing::Pair(testing::_, 1u)));
}

class SmallGpu : public SequencesTest {
 protected:
  explicit SmallGpu(StateWriteBack write_back = StateWriteBack::kRun)
      : SequencesTest(With(write_back, 1, 10)) {}
};

// 1 GiB: the model's 100 MiB, and 400 MiB for each state.
TEST_F(SmallGpu, TheLongestUnusedStateLeavesForAnotherOne) {
  Serve(1, {"a", true}, 1);
  Serve(2, {"b", true}, 1);
  Serve(3, {"a"}, 2);
  EXPECT_THAT(Ask(4, {"c", true}),
              ElementsAre("order 0 drop packed-f of b", "order 0 swap-in packed-f", "order 0 run packed-f"))
      << "the host has its image";
  Ran(0);
  Safe(0, "c", 1);
  EXPECT_THAT(Ask(5, {"b"}),
              ElementsAre("order 0 drop packed-f of a", "order 0 swap-in packed-f", "order 0 run packed-f"));
  EXPECT_EQ(RunsBrought(0), 1u) << "it comes back as it was";
}

TEST_F(SmallGpu, AStateWithARunUnderWayStays) {
  Serve(1, {"a", true}, 1);
  Serve(2, {"b", true}, 1);
  Ask(3, {"a"});
  EXPECT_THAT(Ask(4, {"c", true}), Contains("order 0 drop packed-f of b"));
  EXPECT_THAT(Ask(5, {"b"}), IsEmpty()) << "two runs have the room";
}

TEST_F(SmallGpu, AWorkerThatDiesTakesNothingThatWasAcknowledged) {
  Serve(1, {"a", true}, 1);
  Serve(2, {"b", true}, 1);
  Ask(3, {"a"});
  Report(0, proto::ExecutorReport::DOWN);
  EXPECT_THAT(Up(0), IsSupersetOf({"order 0 swap-in packed-f", "order 0 run packed-f"}));
  EXPECT_EQ(RunsBrought(0), 1u);
  Ran(0);
  EXPECT_THAT(Safe(0, "a", 2), Contains("answer 3 OK"));
  EXPECT_THAT(Ask(4, {"b"}), Contains("order 0 swap-in packed-f"));
  EXPECT_EQ(RunsBrought(0), 1u);
}

class SmallGpuUntilEvicted : public SmallGpu {
 protected:
  SmallGpuUntilEvicted() : SmallGpu(StateWriteBack::kEvict) {}
  void Run(node::Ask ask, const Wish& wish) {
    const bool swaps = !Ask(ask, wish).empty() && Brings(0);
    EXPECT_THAT(Ran(0, swaps), Contains(absl::StrCat("answer ", ask, " OK")));
  }
};

TEST_F(SmallGpuUntilEvicted, AStateThatLeavesIsWrittenBackFirst) {
  Run(1, {"a", true});
  Run(2, {"b", true});
  EXPECT_THAT(Ask(3, {"c", true}), ElementsAre("order 0 write-back packed-f of a"))
      << "the room is not free yet";
  EXPECT_THAT(Ask(4, {"a"}), IsEmpty()) << "no run begins on what is leaving";
  EXPECT_THAT(Answered(0, "write-back", StateOf("a", 1)), ElementsAre("save image 1 of run 1"));
  EXPECT_THAT(On(ImageSaved{1, Image("a", 1)}),
              IsSupersetOf({"keep image of run 1", "order 0 drop packed-f of a", "order 0 swap-in packed-f",
                            "order 0 run packed-f"}));
}

TEST_F(SmallGpuUntilEvicted, AStateThatCannotBeWrittenBackStays) {
  Run(1, {"a", true});
  Run(2, {"b", true});
  Ask(3, {"c", true});
  Answered(0, "write-back", StateOf("a", 1));
  EXPECT_THAT(On(ImageSaved{1, absl::ResourceExhaustedError("the disk is full")}),
              ElementsAre("order 0 write-back packed-f of b"))
      << "another one leaves meanwhile";
  EXPECT_THAT(told_, Contains("state-not-saved"));
  Answered(0, "write-back", StateOf("b", 1));
  EXPECT_THAT(On(ImageSaved{2, Image("b", 1)}),
              ElementsAre("keep image of run 1", "order 0 drop packed-f of b", "order 0 swap-in packed-f",
                          "order 0 run packed-f"));
  Ran(0);
  EXPECT_THAT(Ask(4, {"a"}), ElementsAre("order 0 run packed-f")) << "it is still there";
}

// Both are in use or cannot be written back: the request waits until it may be tried again.
TEST_F(SmallGpuUntilEvicted, AStateThatStayedIsWrittenBackAfterAWhile) {
  Run(1, {"a", true});
  Ask(2, {"b", true});
  EXPECT_THAT(Ask(3, {"c", true}), ElementsAre("order 0 write-back packed-f of a"));
  Answered(0, "write-back", StateOf("a", 1));
  EXPECT_THAT(On(ImageSaved{1, absl::ResourceExhaustedError("the disk is full")}), IsEmpty());
  EXPECT_THAT(On(TimerFired{Timer::kExpire}), IsEmpty());
  now += Stay::kFirst;
  EXPECT_THAT(On(TimerFired{Timer::kExpire}), ElementsAre("order 0 write-back packed-f of a"));
  Answered(0, "write-back", StateOf("a", 1));
  EXPECT_THAT(On(ImageSaved{2, Image("a", 1)}),
              ElementsAre("keep image of run 1", "order 0 drop packed-f of a", "order 0 swap-in packed-f",
                          "order 0 run packed-f"));
}

TEST_F(SmallGpuUntilEvicted, WhatOnlyADeadWorkerHadHasEnded) {
  Run(1, {"a", true});
  Report(0, proto::ExecutorReport::DOWN);
  EXPECT_THAT(told_, Contains("state-lost"));
  Up(0);
  EXPECT_THAT(Ask(2, {"a"}), ElementsAre("answer 2 INVALID_ARGUMENT"));
  EXPECT_THAT(Refusal(), HasSubstr("whose worker died"));
}

TEST_F(SmallGpuUntilEvicted, ARequestOnADeadWorkerIsRefusedWhenItsSequenceHasEnded) {
  Run(1, {"a", true});
  Ask(2, {"a"});
  Ask(3, {"a", true});
  EXPECT_THAT(Report(0, proto::ExecutorReport::DOWN), ElementsAre("answer 2 INVALID_ARGUMENT"));
  EXPECT_THAT(Up(0), IsSupersetOf({"order 0 swap-in packed-f", "order 0 run packed-f"}))
      << "the start goes on";
}

TEST_F(SmallGpuUntilEvicted, WhatAnOutlivingWorkerHasIsGatheredAndDropped) {
  Run(1, {"a", true});
  Report(0, proto::ExecutorReport::DOWN);
  told_.clear();
  EXPECT_THAT(Up(0, {{"packed-f", MiB(100)}}), Contains("order 0 gather packed-f of all"));
  EXPECT_THAT(Ask(2, {"a"}), IsEmpty()) << "it may still come";
  EXPECT_THAT(Answered(0, "gather", StateOf("a", 1)), Contains("save image 1 of run 1"));
  EXPECT_THAT(On(ImageSaved{1, Image("a", 1)}), IsSupersetOf({"order 0 drop packed-f of all"}));
}

// The worker had the model before its functions were known.
TEST_F(SmallGpuUntilEvicted, WhatBeganSinceIsKeptWhenAModelOfAnEarlierDaemonLeaves) {
  Undeclare();
  Report(0, proto::ExecutorReport::DOWN);
  Up(0, {{"packed-f", MiB(100)}});
  DeclareAgain();
  Loaded({});
  Answered(0, "write-back", Failed(absl::StatusCode::kNotFound));
  Answered(0, "gather");
  Ask(2, {"b", true});
  EXPECT_THAT(Ran(0), Contains("answer 2 OK"));
  EXPECT_THAT(On(ModelDisowned{"model-f"}), Contains("order 0 write-back packed-f"));
  EXPECT_THAT(Answered(0, "write-back", StateOf("b", 1)), Contains("save image 1 of run 1"));
  EXPECT_THAT(On(ImageSaved{1, Image("b", 1)}), Contains("keep image of run 1"));
}

// --- memory, disk and limits ---

class LittleMemory : public SequencesTest {
 protected:
  // One image of a sequence fits beside the function's own.
  explicit LittleMemory(const std::vector<std::string>& on_disk = {}, SequenceLimits limits = {})
      : SequencesTest(With(StateWriteBack::kRun, 1, 1, limits), on_disk) {}
};

TEST_F(LittleMemory, TheLongestUnusedGoesToTheDiskAndComesBack) {
  Serve(1, {"a", true}, 1);
  EXPECT_THAT(Ask(2, {"b", true}), ElementsAre("order 0 drop packed-f of a", "unload image of a",
                                               "order 0 swap-in packed-f", "order 0 run packed-f"));
  Ran(0);
  EXPECT_THAT(Ask(3, {"a"}), IsEmpty()) << "b is in use, and has the room";
  EXPECT_THAT(Safe(0, "b", 1), IsSupersetOf({"answer 2 OK", "order 0 drop packed-f of b", "unload image of b",
                                             "load image of a"}));
  EXPECT_THAT(On(ImageLoaded{Key("a"), Image("a", 1), {}}),
              ElementsAre("keep image of run 1", "order 0 swap-in packed-f", "order 0 run packed-f"));
  EXPECT_EQ(RunsBrought(0), 1u);
}

TEST_F(LittleMemory, ARequestThatEndsBeforeItsInputsComeLeavesItsRoomToOthers) {
  const auto wait_for_inputs = [this](node::Ask ask) {
    auto arrived = Arrived(ask, "f");
    arrived.message.mutable_sequence()->set_id("a");
    arrived.inputs_elsewhere = true;
    return On(std::move(arrived));
  };
  Serve(1, {"a", true}, 1);
  EXPECT_THAT(wait_for_inputs(2), ElementsAre("bring 2"));
  EXPECT_THAT(Ask(3, {"b", true}), IsEmpty()) << "a is in use, and has the room";
  EXPECT_THAT(On(RequestCancelled{{7, 2}}),
              ElementsAre("forget 2", "answer 2 CANCELLED", "order 0 drop packed-f of a", "unload image of a",
                          "order 0 swap-in packed-f", "order 0 run packed-f"));
  Ran(0);
  Safe(0, "b", 1);
  EXPECT_THAT(wait_for_inputs(4), Contains("load image of a"));
  On(ImageLoaded{Key("a"), Image("a", 1), {}});
  EXPECT_THAT(Ask(5, {"b"}), IsEmpty());
  EXPECT_THAT(On(InputsArrived{{7, 4}, absl::UnavailableError("the host is gone")}),
              IsSupersetOf({"bounce 4 BOUNCE_NO_INPUTS", "load image of b"}));
}

// Its file has the image of a run that does not count, and the one before it is in memory alone.
TEST_F(LittleMemory, ASequenceWhoseRunIsBeingSavedStaysInMemoryUntilItsFileIsRightAgain) {
  Serve(1, {"a", true}, 1);
  EXPECT_THAT(Ask(2, {"a"}), ElementsAre("order 0 run packed-f"));
  Ran(0, false);
  EXPECT_THAT(Answered(0, "write-back", StateOf("a", 2)), ElementsAre("save image 2 of run 2"));
  EXPECT_THAT(Ask(3, {"b", true}), IsEmpty()) << "a is in use, and has the room";
  On(RequestCancelled{{7, 2}});
  EXPECT_THAT(Report(0, proto::ExecutorReport::DOWN),
              AllOf(Contains("answer 2 CANCELLED"), Not(Contains("unload image of a"))));
  EXPECT_THAT(On(ImageSaved{++saved_images_, Image("a", 2)}),
              IsSupersetOf({"restore image", "unload image of a"}));
}

TEST_F(LittleMemory, AFileThatCannotBeReadForAReasonThatMayPassIsReadAgain) {
  Serve(1, {"a", true}, 1);
  Serve(2, {"b", true}, 1);
  Ask(3, {"a"});
  EXPECT_THAT(On(ImageLoaded{Key("a"), absl::UnavailableError("too many open files"), {}}), IsEmpty());
  EXPECT_THAT(told_, AllOf(Contains("state-unreadable"), Not(Contains("state-damaged"))));
  EXPECT_THAT(On(TimerFired{Timer::kStates}), ElementsAre("load image of a"));
  EXPECT_THAT(On(ImageLoaded{Key("a"), Image("a", 1), {}}), Contains("order 0 run packed-f"));
  EXPECT_EQ(RunsBrought(0), 1u);
}

TEST_F(SequencesTest, AFunctionsOwnStateThatCannotBeReadNowIsReadAgain) {
  Undeclare();
  DeclareAgain();
  EXPECT_THAT(On(ImageLoaded{"f/1@5", absl::ResourceExhaustedError("no room"), {}}), IsEmpty());
  EXPECT_THAT(told_, Contains("state-unreadable"));
  EXPECT_THAT(On(TimerFired{Timer::kStates}), ElementsAre("load image"));
  Loaded({"a"});
  EXPECT_THAT(Ask(1, {"a"}), ElementsAre("load image of a"));
}

TEST_F(LittleMemory, WhatCannotBeReadHasEnded) {
  Serve(1, {"a", true}, 1);
  Serve(2, {"b", true}, 1);
  Ask(3, {"a"});
  EXPECT_THAT(On(ImageLoaded{Key("a"), absl::DataLossError("it is damaged"), {}}),
              Contains("answer 3 INVALID_ARGUMENT"));
  EXPECT_THAT(Refusal(), HasSubstr("it is damaged"));
  EXPECT_THAT(told_, Contains("state-damaged"));
}

class OnDisk : public LittleMemory {
 protected:
  OnDisk() : LittleMemory({"a", "b"}) {}
};

TEST_F(OnDisk, ARestartedDaemonFindsThem) {
  EXPECT_THAT(Ask(1, {"a"}), ElementsAre("load image of a"));
  EXPECT_THAT(On(ImageLoaded{Key("a"), Image("a", 4), {}}), Contains("order 0 swap-in packed-f"));
  EXPECT_EQ(RunsBrought(0), 4u);
  EXPECT_THAT(Ask(2, {"c"}), ElementsAre("answer 2 INVALID_ARGUMENT"));
}

TEST_F(OnDisk, OneThatWasReadForARequestThatHasEndedLeavesItsRoomToAnother) {
  EXPECT_THAT(Ask(1, {"a"}), ElementsAre("load image of a"));
  EXPECT_THAT(On(RequestCancelled{{7, 1}}), ElementsAre("answer 1 CANCELLED"));
  EXPECT_THAT(Ask(2, {"b"}), IsEmpty()) << "a is being read into the room";
  EXPECT_THAT(On(ImageLoaded{Key("a"), Image("a", 1), {}}),
              ElementsAre("keep image of run 1", "unload image of a", "load image of b"));
  EXPECT_THAT(On(ImageLoaded{Key("b"), Image("b", 1), {}}),
              ElementsAre("keep image of run 1", "order 0 swap-in packed-f", "order 0 run packed-f"));
}

TEST_F(OnDisk, WithTheirFunctionAllGo) {
  Ask(1, {"a"});
  On(ImageLoaded{Key("a"), Image("a", 4), {}});
  EXPECT_THAT(Undeclare(), IsSupersetOf({"forget image of a", "forget image of b", "forget image"}));
}

TEST_F(OnDisk, WhatAnOutlivingWorkerHasIsDroppedForTheFilesHaveItAll) {
  Report(0, proto::ExecutorReport::DOWN);
  EXPECT_THAT(Up(0, {{"packed-f", MiB(100)}}), Contains("order 0 drop packed-f of all"));
}

TEST_F(OnDisk, AFunctionThatGoesBeforeItsFilesAreListedLeavesNone) {
  Undeclare();
  EXPECT_THAT(Loaded({"a", "b"}), ElementsAre("forget image of a", "forget image of b"));
}

class NotListedYet : public SequencesTest {};

TEST_F(NotListedYet, RequestsWaitUntilItIsKnownWhichThereAre) {
  Undeclare();
  DeclareAgain();
  EXPECT_THAT(Ask(1, {"a"}), IsEmpty());
  EXPECT_THAT(Ask(2, {"b"}), IsEmpty());
  EXPECT_THAT(Ask(3, {"c", true}), IsEmpty());
  EXPECT_THAT(Loaded({"a"}),
              IsSupersetOf({"load image of a", "answer 2 INVALID_ARGUMENT", "order 0 swap-in packed-f"}));
}

class Limited : public SequencesTest {
 protected:
  Limited()
      : SequencesTest(With(StateWriteBack::kRun, 1, 10, {.most = 3, .of_function = 2, .idle = hours(1)})) {}
};

TEST_F(Limited, OfOneFunctionThereAreOnlySoMany) {
  Serve(1, {"a", true}, 1);
  Serve(2, {"b", true}, 1);
  EXPECT_THAT(Ask(3, {"c", true}), ElementsAre("answer 3 RESOURCE_EXHAUSTED"));
  EXPECT_THAT(Refusal(), HasSubstr("option function-sequences"));
  Serve(4, {"a", false, true}, 2);
  EXPECT_THAT(Ask(5, {"c", true}), Contains("order 0 run packed-f"));
}

TEST_F(Limited, OneThatIsUnusedForTooLongEndsAndItsLateRequestIsToldSo) {
  Serve(1, {"a", true}, 1);
  now += std::chrono::minutes(40);
  Serve(2, {"b", true}, 1);
  now += std::chrono::minutes(20);
  EXPECT_THAT(On(TimerFired{Timer::kSequences}),
              ElementsAre("forget image of a", "order 0 drop packed-f of a"));
  EXPECT_THAT(told_, Contains("sequences-ended"));
  EXPECT_THAT(Ask(3, {"a"}), ElementsAre("answer 3 INVALID_ARGUMENT"));
  EXPECT_THAT(Refusal(), HasSubstr("unused for 3600 s"));
  EXPECT_THAT(Ask(4, {"b"}), Contains("order 0 run packed-f"));
  now += hours(2);
  EXPECT_THAT(On(TimerFired{Timer::kSequences}), IsEmpty()) << "a request of b is under way";
}

TEST_F(Limited, NothingIsLeftOfThemInTheNode) {
  const auto before = Numbered();
  Serve(1, {"a", true}, 1);
  Serve(2, {"b", true}, 1);
  EXPECT_GT(Numbered(), before);
  Serve(3, {"a", false, true}, 2);
  now += hours(2);
  On(TimerFired{Timer::kSequences});
  EXPECT_EQ(Numbered(), before);
}

// The memory for states is full of those of functions.
class NoMemory : public SequencesTest {
 protected:
  NoMemory() : SequencesTest(With(StateWriteBack::kRun, 1, 0)) {}
};

TEST_F(NoMemory, ASequenceThatCanNeverHaveRoomIsRefused) {
  EXPECT_THAT(Ask(1, {"a", true}), Contains("answer 1 RESOURCE_EXHAUSTED"));
  EXPECT_THAT(Refusal(), HasSubstr("state-memory"));
}

// --- the table ---

TEST(SequenceTableTest, IsInTheOrderOfUse) {
  Names names;
  SequenceTable table;
  const auto owner = names.State("f");
  for (const char* id : {"a", "b", "c"}) table.Add(owner, id, Time(seconds(1)));
  const auto warm = [&](const char* id) { table.Warm(*table.Find(owner, id), names.State(id)); };
  warm("b");
  warm("a");
  table.Use(*table.Find(owner, "b"), Time(seconds(5)));
  table.Use(*table.Find(owner, "c"), Time(seconds(3)));
  const auto ids = [](const std::list<Sequence>& list) {
    std::string all;
    for (const auto& sequence : list) all += sequence.id;
    return all;
  };
  EXPECT_EQ(ids(table.warm()), "ab");
  EXPECT_EQ(table.ByKey(names.State("b"))->id, "b");
  table.Cool(*table.Find(owner, "b"));
  table.Cool(*table.Find(owner, "a"));
  EXPECT_EQ(ids(table.cold()), "acb");
  EXPECT_EQ(table.ByKey(names.State("b")), nullptr);
  EXPECT_EQ(table.CountOf(owner), 3u);
  table.Remove(*table.Find(owner, "c"));
  EXPECT_EQ(table.Find(owner, "c"), nullptr);
  EXPECT_EQ(table.CountOf(owner), 2u);
  EXPECT_EQ(table.size(), 2u);
}

}  // namespace
}  // namespace troupe::node::sequences_test
