// What a node does when something is lost: a worker, a router, its own process, or what a worker held. Each
// test is a table of events and what the node does about them.
#include "tests/unit/node/node_fixture.hpp"

namespace troupe::node::recovery_test {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;

// Both workers are up, router 7 said hello, and function "f" is adopted and prepared on both.
class Recovery : public NodeTest {
 protected:
  explicit Recovery(NodeSettings settings = Settings(2)) : NodeTest(std::move(settings)) {
    EXPECT_THAT(Up(0), IsEmpty());
    EXPECT_THAT(Up(1), IsEmpty());
    Hello(7);
    EXPECT_THAT(Adopt("f"), ElementsAre("order 0 prepare packed-f", "order 1 prepare packed-f"));
    EXPECT_THAT(Answered(0, "prepare"), ElementsAre("adopted 1000 OK"));
    EXPECT_THAT(Answered(1, "prepare"), IsEmpty());
  }
  // Request `ask` is on a GPU, with its model on the way.
  GpuIndex Begin(Ask ask) {
    const auto lines = Submit(ask, "f");
    const GpuIndex gpu = !lines.empty() && lines[0] == "order 0 swap-in packed-f" ? 0 : 1;
    EXPECT_THAT(lines, ElementsAre(absl::StrCat("order ", gpu, " swap-in packed-f"),
                                   absl::StrCat("order ", gpu, " run packed-f")));
    return gpu;
  }
};

// --- a lost worker ---

TEST_F(Recovery, ARequestWhoseWorkerIsLostRunsOnTheOtherOneAndIsAnsweredOnce) {
  const auto gpu = Begin(1);
  const auto other = 1 - gpu;
  const auto to = [&](const char* kind) { return absl::StrCat("order ", other, " ", kind, " packed-f"); };
  EXPECT_THAT(Report(gpu, proto::ExecutorReport::DOWN), ElementsAre(to("swap-in"), to("run")));
  // The executor's answers for the dead worker come behind its report, and no longer belong to a dispatch.
  EXPECT_THAT(Answered(gpu, "swap-in", Failed(absl::StatusCode::kUnavailable)), IsEmpty());
  EXPECT_THAT(Answered(gpu, "run", Failed(absl::StatusCode::kUnavailable)), IsEmpty());
  EXPECT_THAT(Answered(other, "swap-in"), IsEmpty());
  EXPECT_THAT(Answered(other, "run"), ElementsAre("answer 1 OK"));
}

TEST_F(Recovery, ARequestThatLosesThreeWorkersIsGivenUp) {
  auto gpu = Begin(1);
  for (int lost = 1; lost <= 2; ++lost) {
    EXPECT_EQ(Report(gpu, proto::ExecutorReport::DOWN).size(), 2u) << lost;
    Up(gpu);
    gpu = 1 - gpu;
  }
  EXPECT_THAT(Report(gpu, proto::ExecutorReport::DOWN), ElementsAre("answer 1 UNAVAILABLE"));
}

TEST_F(Recovery, WhatWasCancelledWhileItsWorkerDiedIsNotRunAgain) {
  const auto gpu = Begin(1);
  EXPECT_THAT(On(RequestCancelled{{7, 1}}), ElementsAre(absl::StrCat("order ", gpu, " cancel")));
  EXPECT_THAT(Report(gpu, proto::ExecutorReport::DOWN), ElementsAre("answer 1 CANCELLED"));
}

TEST_F(Recovery, AModelIsPreparedAgainByTheWorkerThatComes) {
  Report(0, proto::ExecutorReport::DOWN);
  EXPECT_THAT(Up(0), ElementsAre("order 0 prepare packed-f"));
}

TEST_F(Recovery, AnAdoptionDoesNotWaitForAWorkerThatDiedWhileItPrepared) {
  EXPECT_THAT(Adopt("g", 1001), ElementsAre("order 0 prepare packed-g", "order 1 prepare packed-g"));
  EXPECT_THAT(Answered(0, "prepare", Failed(absl::StatusCode::kUnavailable)), ElementsAre("adopted 1001 OK"));
}

TEST_F(Recovery, AnAdoptionDoesNotWaitForAPlanThatALostWorkerNeverBegan) {
  EXPECT_THAT(Adopt("g", 1001), ElementsAre("order 0 prepare packed-g", "order 1 prepare packed-g"));
  EXPECT_THAT(Adopt("h", 1002), IsEmpty()) << "a worker makes one plan at a time";
  EXPECT_THAT(Report(0, proto::ExecutorReport::DOWN), ElementsAre("adopted 1002 OK"));
}

// A run keeps the old host copy of "h" in its place when the model is given up and held again.
TEST_F(Recovery, AModelThatIsHeldAgainIsAdoptedWhenItIsPlacedAndNotByAPlanOfBefore) {
  Adopt("g", 1001);
  Adopt("h", 1002);
  EXPECT_THAT(Answered(0, "prepare"), ElementsAre("adopted 1001 OK", "order 0 prepare packed-h"));
  EXPECT_THAT(Answered(0, "prepare"), ElementsAre("adopted 1002 OK")) << "GPU 1 has not begun it";
  EXPECT_THAT(Submit(1, "h"), ElementsAre("order 0 swap-in packed-h", "order 0 run packed-h"));
  EXPECT_THAT(On(ModelDisowned{"model-h"}), IsEmpty());
  EXPECT_THAT(On(AdoptionAsked{1003, Function("h")}), IsEmpty());
  EXPECT_THAT(Report(1, proto::ExecutorReport::DOWN), testing::Not(testing::Contains("adopted 1003 OK")));
  Answered(0, "swap-in");
  EXPECT_THAT(Answered(0, "run"), testing::IsSupersetOf({"drop model-h", "place model-h"}));
}

TEST_F(Recovery, WithoutAFitGpuRequestsGoElsewhere) {
  const auto gpu = Begin(1);
  EXPECT_EQ(Report(gpu, proto::ExecutorReport::UNFIT).size(), 2u) << "the other GPU takes the request";
  EXPECT_THAT(Report(1 - gpu, proto::ExecutorReport::UNFIT), ElementsAre("bounce 1 BOUNCE_NO_GPU"));
  EXPECT_THAT(Submit(2, "f"), ElementsAre("bounce 2 BOUNCE_NO_CREDIT")) << "the node grants no credit";
}

TEST_F(Recovery, OutputsInALostWorkersMemoryAreNotReleased) {
  const auto gpu = Begin(1);
  Answered(gpu, "swap-in");
  proto::WorkerOutcome ran;
  ran.mutable_run()->add_outputs()->mutable_data()->mutable_arena()->set_slice(3);
  EXPECT_THAT(Answered(gpu, "run", ran), ElementsAre("answer 1 OK"));
  Report(gpu, proto::ExecutorReport::DOWN);
  Up(gpu);
  EXPECT_THAT(On(OutputsRead{{7, 1}}), IsEmpty()) << "the new worker knows nothing of that slice";
}

// --- models of a dead worker come back by themselves ---

class Refilled : public Recovery {
 protected:
  static NodeSettings WithRefill() {
    auto settings = Settings(2);
    settings.refill = RefillRule::kHotFirst;
    return settings;
  }
  Refilled() : Recovery(WithRefill()) {}
};

TEST_F(Refilled, AModelThatWasIdleOnALostWorkerComesToTheOtherOne) {
  const auto gpu = Begin(1);
  Answered(gpu, "swap-in");
  EXPECT_THAT(Answered(gpu, "run"), ElementsAre("answer 1 OK"));
  EXPECT_THAT(Report(gpu, proto::ExecutorReport::DOWN),
              ElementsAre(absl::StrCat("order ", 1 - gpu, " swap-in packed-f"),
                          absl::StrCat("order ", 1 - gpu, " run packed-f")));
}

TEST_F(Refilled, WhatRanWhenItsWorkerDiedComesByItsRequestAlone) {
  const auto gpu = Begin(1);
  EXPECT_EQ(Report(gpu, proto::ExecutorReport::DOWN).size(), 2u)
      << "the model comes back once, for the request";
  Answered(1 - gpu, "swap-in");
  EXPECT_THAT(Answered(1 - gpu, "run"), ElementsAre("answer 1 OK"))
      << "the model does not come a second time";
}

// --- weights outlive their worker ---

class Kept : public Recovery {
 protected:
  static NodeSettings Keeping() {
    auto settings = Settings(2);
    settings.refill = RefillRule::kHotFirst;
    settings.keep_weights = KeepWeights::kOn;
    return settings;
  }
  Kept() : Recovery(Keeping()) {
    gpu_ = Begin(1);
    Answered(gpu_, "swap-in");
    EXPECT_THAT(Answered(gpu_, "run"), ElementsAre("answer 1 OK"));
  }
  [[nodiscard]] std::string To(GpuIndex gpu, const char* kind) const {
    return absl::StrCat("order ", gpu, " ", kind, " packed-f");
  }
  GpuIndex gpu_ = 0;
};

TEST_F(Kept, WhatTheNextWorkerHasIsResidentAndNothingIsBrought) {
  EXPECT_THAT(Report(gpu_, proto::ExecutorReport::DOWN), IsEmpty()) << "the next worker may have it";
  EXPECT_THAT(Up(gpu_, {{"packed-f", MiB(100)}}), ElementsAre(To(gpu_, "prepare")));
  EXPECT_THAT(Submit(2, "f"), ElementsAre(To(gpu_, "run")));
  EXPECT_THAT(Answered(gpu_, "run"), ElementsAre("answer 2 OK"));
  now += seconds(10);
  EXPECT_THAT(On(TimerFired{Timer::kRefill}), IsEmpty());
}

// A size beyond every GPU would fail the function's requests for good.
TEST_F(Kept, ASizeThatADeadWorkerWroteDownIsNotBelieved) {
  takes_over_ = true;
  Report(gpu_, proto::ExecutorReport::DOWN);
  EXPECT_THAT(Up(gpu_, {{"packed-f", GiB(4)}}), ElementsAre(To(gpu_, "prepare")));
  EXPECT_THAT(Submit(2, "f"), ElementsAre(To(gpu_, "run")));
  EXPECT_THAT(Answered(gpu_, "run"), ElementsAre("answer 2 OK"));
}

TEST_F(Kept, ARequestDoesNotWaitForTheNextWorker) {
  EXPECT_THAT(Report(gpu_, proto::ExecutorReport::DOWN), IsEmpty());
  EXPECT_THAT(Submit(2, "f"), ElementsAre(To(1 - gpu_, "swap-in"), To(1 - gpu_, "run")));
}

TEST_F(Kept, WhatTheNextWorkerHasNotIsBrought) {
  EXPECT_THAT(Report(gpu_, proto::ExecutorReport::DOWN), IsEmpty());
  Report(gpu_, proto::ExecutorReport::STARTING);
  EXPECT_THAT(Report(gpu_, proto::ExecutorReport::READY), testing::Contains(testing::HasSubstr("swap-in")));
}

TEST_F(Kept, AWorkerThatDoesNotComeIsNotWaitedForForLong) {
  EXPECT_THAT(Report(gpu_, proto::ExecutorReport::DOWN), IsEmpty());
  now += seconds(2);
  EXPECT_THAT(On(TimerFired{Timer::kRefill}), ElementsAre(To(1 - gpu_, "swap-in"), To(1 - gpu_, "run")));
}

TEST_F(Kept, AnUnfitGpuIsNotWaitedFor) {
  EXPECT_THAT(Report(gpu_, proto::ExecutorReport::UNFIT),
              ElementsAre(To(1 - gpu_, "swap-in"), To(1 - gpu_, "run")));
}

TEST_F(Kept, AModelThatIsFoundToBeSpoiledIsBroughtAndItsRequestIsAnswered) {
  Report(gpu_, proto::ExecutorReport::DOWN);
  Up(gpu_, {{"packed-f", MiB(100)}});
  EXPECT_THAT(Submit(2, "f"), ElementsAre(To(gpu_, "run")));
  auto differs = Failed(absl::StatusCode::kNotFound);
  differs.set_message("the weights of model packed-f are not those of the host copy");
  const auto again = Answered(gpu_, "run", differs);
  ASSERT_EQ(again.size(), 2u);
  const GpuIndex to = again[0] == To(gpu_, "swap-in") ? gpu_ : 1 - gpu_;
  EXPECT_THAT(again, ElementsAre(To(to, "swap-in"), To(to, "run")));
  Answered(to, "swap-in");
  EXPECT_THAT(Answered(to, "run"), ElementsAre("answer 2 OK"));
}

TEST_F(Kept, AModelThatThisNodeDoesNotKnowIsEvictedAfterAWhile) {
  Report(gpu_, proto::ExecutorReport::DOWN);
  EXPECT_THAT(Up(gpu_, {{"packed-f", MiB(100)}, {"packed-strange", MiB(50)}}),
              ElementsAre(To(gpu_, "prepare")));
  now += seconds(4);
  EXPECT_THAT(On(TimerFired{Timer::kOrphans}),
              ElementsAre(absl::StrCat("order ", gpu_, " evict packed-strange")));
}

// --- a lost router ---

TEST_F(Recovery, ALostRoutersRequestsAreCancelledAndItsOutputsReleased) {
  const auto gpu = Begin(1);
  Answered(gpu, "swap-in");
  proto::WorkerOutcome ran;
  ran.mutable_run()->add_outputs()->mutable_data()->mutable_arena()->set_slice(3);
  EXPECT_THAT(Answered(gpu, "run", ran), ElementsAre("answer 1 OK"));
  EXPECT_THAT(Submit(2, "f"), ElementsAre(absl::StrCat("order ", gpu, " run packed-f")));
  EXPECT_THAT(On(RouterLost{7}),
              ElementsAre(absl::StrCat("order ", gpu, " cancel"), absl::StrCat("order ", gpu, " release")));
  EXPECT_THAT(Answered(gpu, "run", Failed(absl::StatusCode::kCancelled)), ElementsAre("answer 2 CANCELLED"));
  EXPECT_THAT(Submit(3, "f"), ElementsAre("bounce 3 BOUNCE_NO_CREDIT"))
      << "the router has not said hello again";
}

TEST_F(Recovery, ARequestOfALostRouterThatAwaitsItsInputsEnds) {
  RequestArrived arrived;
  arrived.ask = 4;
  arrived.message.mutable_id()->set_router(7);
  arrived.message.mutable_id()->set_sequence(4);
  *arrived.message.mutable_function() = Function("f").key();
  arrived.message.set_model_digest("model-f");
  arrived.inputs_elsewhere = true;
  EXPECT_THAT(On(std::move(arrived)), ElementsAre("bring 4"));
  EXPECT_THAT(On(RouterLost{7}), ElementsAre("forget 4", "answer 4 CANCELLED"));
  EXPECT_THAT(On(InputsArrived{{7, 4}, absl::UnavailableError("too late")}), IsEmpty());
}

// One runtime, which serves one tenant at a time; functions "f" of tenant a and "g" of tenant b.
class OneRuntime : public NodeTest {
 protected:
  static NodeSettings Isolated() {
    auto settings = Settings(1);
    settings.isolation = {.mode = proto::ISOLATION_TENANT, .runtimes = 1};
    settings.scheduler.isolated = true;
    return settings;
  }
  explicit OneRuntime(NodeSettings settings = Isolated()) : NodeTest(std::move(settings)) {
    Up(0);
    Hello(7);
    Hello(8);
    AdoptFor("a", "f");
    AdoptFor("b", "g");
  }
  void AdoptFor(const std::string& tenant, const std::string& name) {
    auto function = Function(name);
    function.set_tenant(tenant);
    const auto copy = absl::StrCat(function.model_digest(), "@tenant/", tenant);
    On(AdoptionAsked{1000, function});
    On(CopyFetched{copy, absl::OkStatus()});
    proto::HostCopy host;
    host.set_digest(Packed(name));
    host.mutable_weights()->set_length(MiB(100).count());
    EXPECT_THAT(On(CopyPlaced{.copy = copy, .host = host}), ElementsAre("adopted 1000 OK"));
  }
  Lines UpFor(const std::string& tenant, const std::map<std::string, Bytes>& has = {}) {
    auto up = Reported(0, proto::ExecutorReport::READY, has);
    auto& worker = *up.report.mutable_worker();
    worker.set_isolation_key(absl::StrCat("tenant/", tenant));
    for (const auto& [digest, bytes] : has) worker.set_free_bytes(worker.free_bytes() - bytes.count());
    return On(up);
  }
};

TEST_F(OneRuntime, IsGivenToAnotherTenantWhenTheRouterIsLostThatHadNotReadItsOutputs) {
  EXPECT_THAT(Submit(1, "f", 7), ElementsAre("assign 0 tenant/a"));
  EXPECT_THAT(UpFor("a"), testing::IsSupersetOf({"order 0 swap-in packed-f", "order 0 run packed-f"}));
  Answered(0, "prepare");
  Answered(0, "swap-in");
  proto::WorkerOutcome ran;
  ran.mutable_run()->add_outputs()->mutable_data()->mutable_arena()->set_slice(3);
  EXPECT_THAT(Answered(0, "run", ran), ElementsAre("answer 1 OK"));
  EXPECT_THAT(Submit(2, "g", 8), IsEmpty()) << "the outputs lie in this worker's memory";
  EXPECT_THAT(On(RouterLost{7}), ElementsAre("order 0 release", "assign 0 tenant/b"));
}

// A worker of tenant a that outlived an earlier daemon. What it has of states is nowhere else.
class OneRuntimeOfAnEarlierDaemon : public OneRuntime {
 protected:
  static NodeSettings UntilEvicted() {
    auto settings = Isolated();
    settings.state_write_back = StateWriteBack::kEvict;
    return settings;
  }
  OneRuntimeOfAnEarlierDaemon() : OneRuntime(UntilEvicted()) {}
  static proto::WorkerOutcome OneState() {
    proto::WorkerOutcome outcome;
    auto& image = *outcome.mutable_state()->add_states();
    image.set_function("f/1@5");
    image.set_runs(3);
    return outcome;
  }
  Lines Saved() {
    return On(ImageSaved{1, std::make_shared<proto::StateImage>(OneState().state().states(0))});
  }
};

TEST_F(OneRuntimeOfAnEarlierDaemon, IsGivenToAnotherTenantWhenItsStatesAreSafe) {
  UpFor("a", {{"packed-f", MiB(100)}});
  EXPECT_THAT(Submit(1, "g", 8), ElementsAre("order 0 write-back packed-f"));
  EXPECT_THAT(Answered(0, "write-back", OneState()), ElementsAre("save image 1 of run 3"));
  EXPECT_THAT(Saved(), ElementsAre("order 0 evict packed-f"));
  EXPECT_THAT(Answered(0, "evict"), ElementsAre("assign 0 tenant/b"));
}

TEST_F(OneRuntimeOfAnEarlierDaemon, IsGivenToAnotherTenantWhenWhatIsNotKnownHasLeft) {
  UpFor("a", {{"packed-gone", MiB(100)}});
  EXPECT_THAT(Submit(1, "g", 8), IsEmpty()) << "the function of what it has may keep a state there";
  now += seconds(3);
  EXPECT_THAT(On(TimerFired{Timer::kOrphans}), ElementsAre("order 0 write-back packed-gone"));
  EXPECT_THAT(Answered(0, "write-back", OneState()), ElementsAre("save image 1 of run 3"));
  EXPECT_THAT(Saved(), ElementsAre("order 0 evict packed-gone"));
  EXPECT_THAT(Answered(0, "evict"), ElementsAre("assign 0 tenant/b"));
}

// Tenant c has a function that keeps a state with the model of tenant a's.
TEST_F(OneRuntimeOfAnEarlierDaemon, IsAskedForItsStatesWhenARequestOpensItsTenantsCopy) {
  auto keeper = KeeperOf(MiB(1));
  keeper.mutable_key()->set_name("h");
  keeper.set_tenant("c");
  proto::ClusterUpdate update;
  update.set_snapshot(true);
  update.set_revision(1);
  *update.add_functions() = keeper;
  On(ClusterChanged{update});
  On(ImageLoaded{"h/1@5", absl::NotFoundError("")});
  UpFor("c", {{"packed-f", MiB(100)}});
  auto asked = Arrived(1, "h");
  asked.message.set_model_digest("model-f");
  EXPECT_THAT(On(std::move(asked)), testing::Contains("order 0 write-back packed-f"));
}

TEST_F(OneRuntime, WithStatesWrittenBackWithEachRunNothingIsWaitedFor) {
  UpFor("a", {{"packed-gone", MiB(100)}});
  EXPECT_THAT(Submit(1, "g", 8), ElementsAre("assign 0 tenant/b"));
}

// --- a restart ---

class Restarted : public NodeTest {
 protected:
  static NodeSettings Remembering() {
    auto settings = Settings(1);
    *settings.remembered.add_functions() = Function("f");
    settings.keeps_adopted = true;
    return settings;
  }
  Restarted() : NodeTest(Remembering()) { EXPECT_THAT(Up(0), IsEmpty()); }
};

TEST_F(Restarted, WithoutAManagerItServesWhatItHadAdopted) {
  EXPECT_THAT(On(TimerFired{Timer::kRemember}), ElementsAre("fetch model-f"));
  EXPECT_THAT(Place(Function("f")), ElementsAre("order 0 prepare packed-f"));
  EXPECT_THAT(Answered(0, "prepare"), IsEmpty()) << "no manager asked for it";
  Hello(7);
  EXPECT_THAT(Submit(1, "f"), ElementsAre("order 0 swap-in packed-f", "order 0 run packed-f"));
}

TEST_F(Restarted, AManagerThatIsThereSaysWhatIsToBeHere) {
  On(Joined{.epoch = 5, .state = {}});
  EXPECT_THAT(On(TimerFired{Timer::kRemember}), IsEmpty());
}

TEST_F(Restarted, WhatIsNotAdoptedYetWhenAManagerComesGoes) {
  EXPECT_THAT(On(TimerFired{Timer::kRemember}), ElementsAre("fetch model-f"));
  On(Joined{.epoch = 5, .state = {}});
  EXPECT_THAT(On(CopyFetched{"model-f", absl::OkStatus()}), IsEmpty()) << "the copy is not placed";
}

TEST_F(Restarted, WhatAnotherLifeOfTheNodeWasSentIsBounced) {
  On(Joined{.epoch = 5, .state = {}});
  Hello(7);
  EXPECT_THAT(Submit(1, "f"), ElementsAre("bounce 1 BOUNCE_STALE_EPOCH")) << "the request names epoch 0";
}

// --- a worker that comes back with models ---

class Orphaned : public NodeTest {
 protected:
  Orphaned() : NodeTest(Settings(1)) {}
};

TEST_F(Orphaned, ModelsThatTheNodeDoesNotKnowAreEvictedAfterAWhile) {
  EXPECT_THAT(Up(0, {{"packed-gone", MiB(100)}}), IsEmpty());
  now += seconds(1);
  EXPECT_THAT(On(TimerFired{Timer::kOrphans}), IsEmpty()) << "the manager may still tell of the model";
  now += seconds(2);
  EXPECT_THAT(On(TimerFired{Timer::kOrphans}), ElementsAre("order 0 evict packed-gone"));
  EXPECT_THAT(Answered(0, "evict", Failed(absl::StatusCode::kFailedPrecondition)), IsEmpty());
  now += seconds(3);
  EXPECT_THAT(On(TimerFired{Timer::kOrphans}), ElementsAre("order 0 evict packed-gone")) << "again";
  EXPECT_THAT(Answered(0, "evict"), IsEmpty());
  now += seconds(3);
  EXPECT_THAT(On(TimerFired{Timer::kOrphans}), IsEmpty());
}

TEST_F(Orphaned, AModelThatIsAdoptedMeanwhileIsThereAlready) {
  Up(0, {{"packed-f", MiB(100)}});
  EXPECT_THAT(Adopt("f"), ElementsAre("order 0 prepare packed-f"));
  Answered(0, "prepare");
  Hello(7);
  EXPECT_THAT(Submit(1, "f"), ElementsAre("order 0 run packed-f")) << "nothing is swapped in";
  now += seconds(3);
  EXPECT_THAT(On(TimerFired{Timer::kOrphans}), IsEmpty());
}

// --- states ---

class Stateful : public NodeTest {
 protected:
  static NodeSettings One(StateWriteBack write_back) {
    auto settings = Settings(1);
    settings.state_write_back = write_back;
    return settings;
  }
  static proto::FunctionRecord Counter() {
    auto function = Function("f");
    function.add_state()->set_input("in");
    function.mutable_state(0)->set_output("out");
    auto& input = *function.add_inputs();
    input.set_name("in");
    input.set_type(proto::FP32);
    input.add_shape(4);
    function.set_deployed_unix_ns(5);
    return function;
  }
  static std::string Key() { return "f/1@5"; }
  enum class Known { kNo, kYes };
  explicit Stateful(StateWriteBack write_back = StateWriteBack::kRun, Known known = Known::kYes)
      : NodeTest(One(write_back)) {
    if (known == Known::kNo) return;
    Up(0);
    Hello(7);
    proto::ClusterUpdate update;
    update.set_snapshot(true);
    update.set_revision(1);
    *update.add_functions() = Counter();
    EXPECT_THAT(On(ClusterChanged{update}), ElementsAre("load image"));
    EXPECT_THAT(On(ImageLoaded{Key(), absl::NotFoundError("")}), IsEmpty());
    EXPECT_THAT(Adopt(Counter()), ElementsAre("order 0 prepare packed-f"));
    Answered(0, "prepare");
  }
  static proto::WorkerOutcome StateOf(std::uint64_t runs) {
    proto::WorkerOutcome outcome;
    auto& image = *outcome.mutable_state()->add_states();
    image.set_function(Key());
    image.set_runs(runs);
    return outcome;
  }
  static ImagePtr Image(std::uint64_t runs) {
    return std::make_shared<proto::StateImage>(StateOf(runs).state().states(0));
  }
  void Run(Ask ask) {
    EXPECT_THAT(Submit(ask, "f"), ElementsAre("order 0 swap-in packed-f", "order 0 run packed-f"));
    proto::WorkerOutcome swapped;
    swapped.set_end_ns(1);
    EXPECT_THAT(Answered(0, "swap-in", swapped), IsEmpty());
  }
};

// A worker of an earlier daemon has the only image of a state, and the cluster has not said yet which functions there are.
class FoundAtAWorker : public Stateful {
 protected:
  FoundAtAWorker() : Stateful(StateWriteBack::kEvict, Known::kNo) {
    Adopt(Counter());
    Up(0, {{"packed-f", MiB(100)}});
  }
  Lines Learn() {
    proto::ClusterUpdate update;
    update.set_snapshot(true);
    update.set_revision(1);
    *update.add_functions() = Counter();
    return On(ClusterChanged{update});
  }
};

TEST_F(FoundAtAWorker, ItIsReadWhenTheFunctionIsKnown) {
  EXPECT_THAT(Learn(), testing::IsSupersetOf({"load image", "order 0 write-back packed-f"}));
}

TEST_F(FoundAtAWorker, AModelThatLeavesBeforeThatIsWrittenBack) {
  EXPECT_THAT(On(ModelDisowned{"model-f"}), testing::Contains("order 0 write-back packed-f"));
  EXPECT_THAT(Answered(0, "write-back", StateOf(3)), ElementsAre("save image 1 of run 3"));
  EXPECT_THAT(On(ImageSaved{1, Image(3)}), testing::Contains("order 0 evict packed-f"));
}

TEST_F(FoundAtAWorker, WhatCouldNotBeKeptIsWrittenBackOnceMoreBeforeItsModelLeaves) {
  Learn();
  EXPECT_THAT(Answered(0, "write-back", StateOf(3)), ElementsAre("save image 1 of run 3"));
  On(ImageSaved{1, absl::ResourceExhaustedError("the disk is full")});
  EXPECT_THAT(told_, testing::Contains("state-not-saved"));
  EXPECT_THAT(On(ModelDisowned{"model-f"}), testing::Contains("order 0 write-back packed-f"));
  EXPECT_THAT(Answered(0, "write-back", StateOf(3)), ElementsAre("save image 2 of run 3"));
  EXPECT_THAT(On(ImageSaved{2, Image(3)}),
              testing::IsSupersetOf({"keep image of run 3", "order 0 evict packed-f"}));
}

TEST_F(Stateful, ARunIsAnsweredWhenItsStateIsSafe) {
  Run(1);
  EXPECT_THAT(Answered(0, "run"), ElementsAre("order 0 write-back packed-f"));
  EXPECT_THAT(Answered(0, "write-back", StateOf(1)), ElementsAre("save image 1 of run 1"));
  EXPECT_THAT(On(ImageSaved{1, Image(1)}), ElementsAre("keep image of run 1", "answer 1 OK"));
}

TEST_F(Stateful, AWorkerThatDiesBeforeThatTakesTheRunWithIt) {
  Run(1);
  Answered(0, "run");
  Answered(0, "write-back", StateOf(1));
  EXPECT_THAT(Report(0, proto::ExecutorReport::DOWN), IsEmpty());
  EXPECT_THAT(On(ImageSaved{1, Image(1)}), ElementsAre("restore image"))
      << "the request runs again, on zeros";
  EXPECT_THAT(Up(0),
              ElementsAre("order 0 swap-in packed-f", "order 0 run packed-f", "order 0 prepare packed-f"));
  EXPECT_EQ(OrderOf(0, "swap-in").swap_in().states(0).runs(), 0u);
}

TEST_F(Stateful, AModelThatIsTakenOffTheNodeWhileItsStateIsWrittenGoesWithItsLastRun) {
  Run(1);
  Answered(0, "run");
  Answered(0, "write-back", StateOf(1));
  EXPECT_THAT(On(ModelDisowned{"model-f"}), ElementsAre("drop model-f"));
  EXPECT_THAT(On(ImageSaved{1, Image(1)}),
              ElementsAre("keep image of run 1", "answer 1 OK", "order 0 write-back packed-f"));
  EXPECT_THAT(Answered(0, "write-back", StateOf(1)), ElementsAre("save image 2 of run 1"));
  EXPECT_THAT(On(ImageSaved{2, Image(1)}), ElementsAre("keep image of run 1", "order 0 evict packed-f"));
  EXPECT_THAT(Answered(0, "evict"), IsEmpty());
}

TEST_F(Stateful, AnImageThatCannotBeSavedFailsTheRun) {
  Run(1);
  Answered(0, "run");
  Answered(0, "write-back", StateOf(1));
  EXPECT_THAT(On(ImageSaved{1, absl::ResourceExhaustedError("the disk is full")}),
              ElementsAre("restore image", "answer 1 UNAVAILABLE"));
}

class StatefulUntilEvicted : public Stateful {
 protected:
  StatefulUntilEvicted() : Stateful(StateWriteBack::kEvict) {}
};

TEST_F(StatefulUntilEvicted, AModelStaysUntilTheStatesOfAnOutlivingWorkerWereRead) {
  Report(0, proto::ExecutorReport::DOWN);
  Up(0, {{"packed-f", MiB(100)}});
  const auto lines = On(ModelDisowned{"model-f"});
  EXPECT_THAT(lines, testing::Contains("order 0 write-back packed-f"));
  EXPECT_THAT(lines, testing::Not(testing::Contains("order 0 evict packed-f")));
}

TEST_F(StatefulUntilEvicted, AnOutlivingWorkersNewerStateIsTakenBeforeTheNextRun) {
  Run(1);
  EXPECT_THAT(Answered(0, "run"), ElementsAre("answer 1 OK")) << "only the GPU has the function's state";
  // The daemon's link to the worker was lost, and is there again with the same worker.
  Report(0, proto::ExecutorReport::DOWN);
  EXPECT_THAT(Up(0, {{"packed-f", MiB(100)}}),
              ElementsAre("order 0 write-back packed-f", "order 0 gather packed-f of all",
                          "order 0 prepare packed-f"));
  EXPECT_THAT(Submit(2, "f"), IsEmpty()) << "the state may still come";
  EXPECT_THAT(Answered(0, "write-back", StateOf(1)), ElementsAre("save image 1 of run 1"));
  EXPECT_THAT(On(ImageSaved{1, Image(1)}),
              ElementsAre("keep image of run 1", "order 0 swap-in packed-f", "order 0 run packed-f"));
  EXPECT_EQ(OrderOf(0, "swap-in").swap_in().states(0).runs(), 1u);
}

}  // namespace
}  // namespace troupe::node::recovery_test
