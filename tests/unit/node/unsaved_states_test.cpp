// States that cannot be written back when their model is to leave its GPU, and what is decided behind a write-back: each
// test is a table of events and what the node does about them.
#include <memory>

#include "tests/unit/node/node_fixture.hpp"

namespace troupe::node::unsaved_states_test {
namespace {

using std::chrono::milliseconds;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::IsSupersetOf;
using testing::Not;

// A node with one GPU of 1 GiB and models of 100 MiB. The function "f" keeps a state, which has run once and takes 800 MiB
// there; it is written back when its model leaves.
class UnsavedStates : public NodeTest {
 protected:
  static NodeSettings One() {
    auto settings = Settings(1);
    settings.policies.eviction = "lru";
    settings.state_write_back = StateWriteBack::kEvict;
    settings.state_memory = GiB(1);
    return settings;
  }
  static proto::FunctionRecord Keeper() { return KeeperOf(MiB(400)); }
  static std::string Key() { return "f/1@5"; }
  UnsavedStates() : NodeTest(One()) {
    Up(0);
    Hello(7);
    Learn({Keeper()});
    On(ImageLoaded{Key(), absl::NotFoundError("")});
    Have(Keeper());
    for (const char* name : {"g", "h"}) Have(Function(name));
    EXPECT_THAT(Submit(1, "f"), ElementsAre("order 0 swap-in packed-f", "order 0 run packed-f"));
    Ran();
    told_.clear();
  }
  void Have(const proto::FunctionRecord& function) {
    Adopt(function);
    proto::WorkerOutcome prepared;
    prepared.mutable_prepared()->set_weights_bytes(MiB(100).count());
    Answered(0, "prepare", prepared);
  }
  Lines Learn(const std::vector<proto::FunctionRecord>& functions) {
    proto::ClusterUpdate update;
    update.set_snapshot(true);
    update.set_revision(++revision_);
    for (const auto& function : functions) *update.add_functions() = function;
    return On(ClusterChanged{update});
  }
  Lines Ran() {
    proto::WorkerOutcome swapped;
    swapped.set_end_ns(1);
    Answered(0, "swap-in", swapped);
    return Answered(0, "run");
  }
  // The worker has sent the state, and its image is being saved.
  void Written() {
    proto::WorkerOutcome outcome;
    auto& image = *outcome.mutable_state()->add_states();
    image.set_function(Key());
    image.set_runs(1);
    EXPECT_THAT(Answered(0, "write-back", outcome), Contains(HasSubstr("save image")));
    ++images_;
  }
  ImageSaved DiskIsFull() const { return {images_, absl::ResourceExhaustedError("the disk is full")}; }
  ImageSaved Safe() const {
    proto::StateImage image;
    image.set_function(Key());
    image.set_runs(1);
    return {images_, std::make_shared<proto::StateImage>(std::move(image))};
  }
  // After how long the node wants to decide again, because of this event.
  Duration Due(Event event) {
    Duration due = Duration::max();
    for (const auto& effect : Raw(std::move(event))) {
      Show(effect);
      if (const auto* wake = std::get_if<WakeMe>(&effect); wake != nullptr && wake->timer == Timer::kExpire)
        due = std::min(due, wake->after);
    }
    return due;
  }
  Lines DecideIn(Duration after) {
    now += after;
    return On(TimerFired{Timer::kExpire});
  }
  // The models that the GPU has or gets, as the node says.
  Lines Models() const {
    Lines models;
    const auto described = Described();
    for (const auto& model : described.gpus(0).models())
      models.push_back(absl::StrCat(model.digest(), " ", model.state()));
    return models;
  }

 private:
  std::uint64_t revision_ = 0;
  std::uint64_t images_ = 0;
};

// A request for `model` to the GPU that "f" and "g" fill.
class FullGpu : public UnsavedStates {
 protected:
  FullGpu() {
    now += milliseconds(1);
    EXPECT_THAT(Submit(2, "g"), ElementsAre("order 0 swap-in packed-g", "order 0 run packed-g"));
    Ran();
  }
};

TEST_F(FullGpu, AnotherModelLeavesForTheRequestMeanwhile) {
  EXPECT_THAT(Submit(3, "h"), ElementsAre("order 0 write-back packed-f"));
  Written();
  EXPECT_THAT(On(DiskIsFull()),
              ElementsAre("order 0 evict packed-g", "order 0 swap-in packed-h", "order 0 run packed-h"));
  EXPECT_THAT(told_, Contains("state-not-saved"));
  Answered(0, "evict");
  EXPECT_THAT(Ran(), Contains("answer 3 OK"));
  EXPECT_THAT(Submit(4, "f"), ElementsAre("order 0 run packed-f")) << "the state is there, as it was";
  Answered(0, "run");
}

TEST_F(FullGpu, AStateThatStaysCountsOnItsGpu) {
  Submit(3, "h");
  Written();
  On(DiskIsFull());
  Answered(0, "evict");
  Ran();
  // 100 MiB each of f and h, and 800 of the state: nothing else has room beside them but in the place of h.
  EXPECT_THAT(Submit(4, "g"),
              ElementsAre("order 0 evict packed-h", "order 0 swap-in packed-g", "order 0 run packed-g"));
}

// The run of "g" is under way: nothing but "f" can make room for "h".
class NothingElse : public UnsavedStates {
 protected:
  NothingElse() {
    now += milliseconds(1);
    Submit(2, "g");
  }
};

TEST_F(NothingElse, TheWriteBackIsTriedAgainAfterAWhileAndTheRequestGoesOn) {
  EXPECT_THAT(Submit(3, "h"), ElementsAre("order 0 write-back packed-f"));
  Written();
  EXPECT_THAT(On(DiskIsFull()), IsEmpty()) << "nothing is tried again at once";
  EXPECT_THAT(On(TimerFired{Timer::kExpire}), IsEmpty());
  EXPECT_THAT(DecideIn(milliseconds(250)), ElementsAre("order 0 write-back packed-f"));
  Written();
  EXPECT_THAT(On(Safe()), IsSupersetOf({"keep image of run 1", "order 0 evict packed-f"}));
  EXPECT_THAT(Answered(0, "evict"), ElementsAre("order 0 swap-in packed-h", "order 0 run packed-h"));
}

TEST_F(NothingElse, EachFailureInARowDoublesThePauseAndTheRequestEndsWithTheReason) {
  Submit(3, "h");
  std::vector<Duration> pauses;
  for (int i = 0; i < 17; ++i) {
    Written();
    pauses.push_back(Due(DiskIsFull()));
    const auto lines = DecideIn(pauses.back());
    // The request has ended with the last one, and nothing needs the room any more.
    EXPECT_EQ(lines.size(), i < 16 ? 1U : 0U) << "after failure " << i;
  }
  EXPECT_EQ(pauses[0], milliseconds(250));
  EXPECT_EQ(pauses[1], milliseconds(500));
  EXPECT_EQ(pauses[4], milliseconds(4000));
  EXPECT_EQ(pauses[15], milliseconds(8000));
  EXPECT_EQ(answered_.served().code(), static_cast<int>(absl::StatusCode::kUnavailable));
  EXPECT_THAT(answered_.served().message(),
              HasSubstr("found no room on a GPU in 17 tries (the last: the disk is full)"));
}

TEST_F(NothingElse, WhatIsTakenOffTheNodeMeanwhileGoesAtOnce) {
  Submit(3, "h");
  Written();
  On(DiskIsFull());
  EXPECT_THAT(Models(), Contains("model-f resident"));
  Learn({});
  EXPECT_THAT(On(ModelDisowned{"model-f"}), Contains("order 0 evict packed-f"));
}

// What comes ahead of requests waits behind a write-back as well.
TEST_F(NothingElse, AModelThatIsDisownedBehindAWriteBackIsNotAwaited) {
  EXPECT_THAT(Submit(3, "h"), ElementsAre("order 0 write-back packed-f"));
  auto owner = Function("o");
  Adopt(owner);
  auto& place = *owner.add_places();
  place.set_node("node");
  Learn({Keeper(), owner});
  ASSERT_THAT(Models(), Contains("model-o loading"));
  On(ModelDisowned{"model-o"});
  Written();
  On(Safe());
  Answered(0, "evict");
  EXPECT_THAT(Models(), Not(Contains("model-o loading")));
}

// The functions "x" and "y" keep a small state each with one model.
class OneModel : public FullGpu {
 protected:
  static proto::FunctionRecord KeeperOfX(const char* name) {
    auto keeper = KeeperOf(MiB(1));
    keeper.mutable_key()->set_name(name);
    keeper.set_model_digest("model-x");
    return keeper;
  }
  OneModel() {
    Learn({Keeper(), KeeperOfX("x"), KeeperOfX("y")});
    for (const char* key : {"x/1@5", "y/1@5"}) On(ImageLoaded{key, absl::NotFoundError("")});
    Have(KeeperOfX("x"));
  }
  Lines SubmitToX(Ask ask, const char* name) {
    auto arrived = Arrived(ask, name);
    arrived.message.set_model_digest("model-x");
    return On(std::move(arrived));
  }
};

// The request that was to bring the model is not ordered, so the one behind it must not count on the model.
TEST_F(OneModel, ARunBehindALoadThatIsNotOrderedIsPlannedAnew) {
  EXPECT_THAT(SubmitToX(3, "x"), ElementsAre("order 0 write-back packed-f"));
  EXPECT_THAT(SubmitToX(4, "y"), IsEmpty()) << "it waits behind the other one";
  ASSERT_THAT(Models(), Contains("model-x loading"));
  Learn({Keeper(), KeeperOfX("y")});
  Written();
  On(Safe());
  EXPECT_THAT(Answered(0, "evict"), IsSupersetOf({"order 0 swap-in packed-x", "order 0 run packed-x"}));
  EXPECT_THAT(Models(), Contains("model-x loading")) << "the node knows of the weights that come";
  EXPECT_THAT(Ran(), Contains("answer 4 OK"));
}

}  // namespace
}  // namespace troupe::node::unsaved_states_test
