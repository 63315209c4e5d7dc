// Which requests may share a runtime, and how runtimes come to serve a key.
#include "node/runtimes/isolation.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>

#include "base/random.hpp"
#include "node/scheduling/swap_scheduler.hpp"
#include "proto/isolation.hpp"
#include "tests/draws.hpp"
#include "tests/unit/node/fake_worker.hpp"
#include "tests/unit/node/numbered.hpp"

namespace troupe::node::isolation_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;

proto::FunctionRecord Function(const std::string& name, const std::string& tenant,
                               proto::Isolation isolation) {
  proto::FunctionRecord function;
  function.mutable_key()->set_name(name);
  function.set_tenant(tenant);
  function.set_isolation(isolation);
  return function;
}

TEST(Isolation, AKeySaysWhichFunctionsShareARuntime) {
  struct Case {
    proto::Isolation says, mode;
    const char *tenant, *workflow, *key;
  };
  const Case cases[] = {
      {proto::ISOLATION_DEFAULT, proto::ISOLATION_SHARED, "acme", "w", ""},
      {proto::ISOLATION_SHARED, proto::ISOLATION_FUNCTION, "acme", "w", ""},
      {proto::ISOLATION_DEFAULT, proto::ISOLATION_TENANT, "acme", "w", "tenant/acme"},
      {proto::ISOLATION_TENANT, proto::ISOLATION_SHARED, "acme", "", "tenant/acme"},
      {proto::ISOLATION_TENANT, proto::ISOLATION_SHARED, "", "", "tenant/-"},
      {proto::ISOLATION_WORKFLOW, proto::ISOLATION_SHARED, "acme", "w", "workflow/w"},
      {proto::ISOLATION_WORKFLOW, proto::ISOLATION_SHARED, "acme", "", "function/f"},
      {proto::ISOLATION_DEFAULT, proto::ISOLATION_FUNCTION, "acme", "w", "function/f"},
      {static_cast<proto::Isolation>(99), proto::ISOLATION_SHARED, "acme", "w", "function/f"},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(IsolationKey(Function("f", c.tenant, c.says), c.mode, c.workflow), c.key)
        << c.says << " on a node of " << c.mode;
  }
}

TEST(Isolation, CopiesAndRuntimesHaveNamesThatCanBeReadBack) {
  EXPECT_EQ(CopyName("abc", ""), "abc");
  EXPECT_EQ(CopyName("abc", "tenant/x"), "abc@tenant/x");
  EXPECT_EQ(DigestOf("abc@tenant/x"), "abc");
  EXPECT_EQ(KeyOf("abc@tenant/x"), "tenant/x");
  EXPECT_EQ(KeyOf("abc"), "");
  for (const bool isolated : {false, true}) {
    for (const Serves& serves : {Serves{true, ""}, Serves{true, "tenant/x"}, Serves{!isolated, ""}})
      EXPECT_EQ(*ParseRuntimeName(RuntimeName(serves, isolated), isolated), serves);
  }
  for (const char* wrong : {"shard", "tenant", "tenant/", "tenant-x"})
    EXPECT_TRUE(absl::IsInvalidArgument(ParseRuntimeName(wrong, true).status())) << wrong;
  EXPECT_FALSE(ParseRuntimeName(kSharedRuntime, false).ok());
  for (const char* mode : {"shared", "tenant", "workflow", "function"})
    EXPECT_EQ(Name(*ParseIsolation(mode)), mode);
  EXPECT_FALSE(ParseIsolation("private").ok());
}

// One GPU with runtimes that serve no key yet, and models "m@tenant/a" and so on of 20 MiB.
class Runtimes : public testing::Test {
 protected:
  explicit Runtimes(std::uint32_t devices = 1, SchedulerLimits limits = {.isolated = true})
      : scheduler(limits, *FindSchedulerPolicies({})) {
    for (GpuIndex i = 0; i < devices * 2; ++i) {
      scheduler.AddRuntime(i, MiB(50), i / 2);
      Warm(i);
    }
    for (const char* tenant : {"a", "b", "c"})
      scheduler.DescribeModel(ModelNamed(Model(tenant)), MiB(20), MiB(1));
    scheduler.DescribeModel(ModelNamed("m"), MiB(20), MiB(1));
  }
  static std::string Model(const std::string& tenant) { return "m@tenant/" + tenant; }
  void Warm(GpuIndex gpu) {
    scheduler.Apply(WorkerReady{.gpu = gpu, .memory = MiB(50), .free = MiB(50), .assigned = false}, now);
  }
  void Ready(GpuIndex gpu, const std::string& key) {
    scheduler.Apply(WorkerReady{.gpu = gpu, .memory = MiB(50), .free = MiB(50), .key = key}, now);
  }
  RequestId Submit(const std::string& model) {
    NodeRequest request;
    request.id = {1, next++};
    request.function = FunctionNamed("f-" + model);
    request.model = ModelNamed(model);
    request.deadline = deadline;
    EXPECT_TRUE(scheduler.Submit(request, now).accepted);
    return request.id;
  }
  // The orders of a decision as "GPU:KEY", with "!" behind those that kill a worker.
  std::vector<std::string> Decide() {
    Decision decision = scheduler.Decide(now);
    for (Dispatch& dispatch : decision.dispatches) dispatches.push_back(std::move(dispatch));
    scheduler.Check();
    std::vector<std::string> orders;
    for (const Assignment& order : decision.assignments) {
      orders.push_back(std::to_string(order.gpu) + ":" + RuntimeName({order.assigned, order.key}, true) +
                       (order.fresh ? "!" : ""));
    }
    return orders;
  }
  void Serve(const Dispatch& dispatch) {
    scheduler.Apply(SwapInDone{.gpu = dispatch.gpu, .model = dispatch.model}, now);
    scheduler.Apply(RunDone{.gpu = dispatch.gpu, .request = dispatch.request, .took = milliseconds(1)}, now);
  }
  // A request of this tenant gets a runtime, in whichever way.
  void Use(const std::string& tenant) {
    Submit(Model(tenant));
    Decide();
    for (const auto& [index, gpu] : scheduler.gpus().gpus())
      if (gpu.coming == "tenant/" + tenant) Ready(index, "tenant/" + tenant);
    Decide();
    ASSERT_FALSE(dispatches.empty());
    ASSERT_EQ(dispatches.back().model, Model(tenant));
    Serve(dispatches.back());
  }
  // Runtime 0 has answers that are not read, runtime 1 is started for tenant b, and a request of tenant c waits.
  void WaitBesideUnreadAnswersAndAStart() {
    Use("a");
    scheduler.Unread(0, 1);
    Submit(Model("b"));
    EXPECT_THAT(Decide(), ElementsAre("1:tenant/b"));
    Submit(Model("c"));
  }

  SwapScheduler scheduler;
  std::vector<Dispatch> dispatches;
  std::uint64_t next = 1;
  Time now{seconds(100)};
  Time deadline = Time::max();
};

TEST_F(Runtimes, AWarmOneIsAssignedAndServesItsKeyAlone) {
  Submit(Model("a"));
  EXPECT_THAT(Decide(), ElementsAre("0:tenant/a"));
  EXPECT_THAT(dispatches, IsEmpty()) << "the runtime's worker does not know of it yet";
  EXPECT_THAT(Decide(), IsEmpty()) << "a runtime is coming";
  Submit(Model("b"));
  EXPECT_THAT(Decide(), ElementsAre("1:tenant/b"));
  Ready(0, "tenant/a");
  EXPECT_THAT(Decide(), IsEmpty());
  ASSERT_EQ(dispatches.size(), 1u);
  EXPECT_EQ(dispatches[0].gpu, 0u);
  Ready(1, "tenant/b");
  EXPECT_THAT(Decide(), IsEmpty());
  ASSERT_EQ(dispatches.size(), 2u);
  EXPECT_EQ(dispatches[1].gpu, 1u);
  EXPECT_EQ(dispatches[1].model, Model("b"));
}

TEST_F(Runtimes, SharedFunctionsHaveOneOfTheirOwn) {
  Use("a");
  Submit("m");
  EXPECT_THAT(Decide(), ElementsAre("1:shared"));
  Ready(1, "");
  Decide();
  EXPECT_EQ(dispatches.back().gpu, 1u);
}

TEST_F(Runtimes, TheColdestIdleOneIsTakenAway) {
  Use("a");
  now += milliseconds(5);
  Use("b");
  now += milliseconds(5);
  Submit(Model("c"));
  EXPECT_THAT(Decide(), ElementsAre("0:tenant/c!"))
      << "the runtime of a has been idle for longer than that of b";
  EXPECT_THAT(scheduler.gpus().at(0).residents, IsEmpty());
  Ready(0, "tenant/c");
  Decide();
  EXPECT_EQ(dispatches.back().model, Model("c"));
  EXPECT_EQ(scheduler.counts().assigned, 2u);
  EXPECT_EQ(scheduler.counts().taken, 1u);
}

TEST_F(Runtimes, ARuntimeThatRunsOrWhoseAnswersAreNotReadStays) {
  Use("a");
  Use("b");
  Submit(Model("a"));
  Decide();  // the request runs
  scheduler.Unread(1, 1);
  Submit(Model("c"));
  EXPECT_THAT(Decide(), IsEmpty());
  scheduler.Unread(1, -1);
  EXPECT_THAT(Decide(), ElementsAre("1:tenant/c!"));
}

// Workflows that have them may wait for the very runtime that cannot be taken for them.
TEST_F(Runtimes, AnswersThatAreNotReadKeepARuntimeForASecondOnly) {
  Use("a");
  Use("b");
  scheduler.Unread(0, 2);
  scheduler.Unread(1, 1);
  Submit(Model("c"));
  Decision decision = scheduler.Decide(now);
  EXPECT_THAT(decision.assignments, IsEmpty());
  EXPECT_EQ(decision.due, now + seconds(1)) << "nothing else would have it decide again";
  now = decision.due;
  EXPECT_THAT(Decide(), ElementsAre("1:tenant/c!")) << "the fewest answers are lost";
  Ready(1, "tenant/c");
  Decide();
  EXPECT_EQ(dispatches.back().model, Model("c"));
}

// Their reader may be what it is started for.
TEST_F(Runtimes, AnswersThatAreNotReadAreNotLostWhileARuntimeOfTheGpuIsStarted) {
  WaitBesideUnreadAnswersAndAStart();
  now += seconds(30);
  EXPECT_THAT(Decide(), IsEmpty());
  Ready(1, "tenant/b");
  EXPECT_THAT(Decide(), IsEmpty()) << "the request that it was started for runs there";
  now += seconds(1);
  EXPECT_THAT(Decide(), ElementsAre("0:tenant/c!"));
}

// One runtime after the other may be started beside them.
TEST_F(Runtimes, AStartBesideAnswersThatAreNotReadKeepsThemForAMinute) {
  WaitBesideUnreadAnswersAndAStart();
  const Decision decision = scheduler.Decide(now);
  EXPECT_THAT(decision.assignments, IsEmpty());
  EXPECT_EQ(decision.due, now + minutes(1) + seconds(1)) << "nothing else would have it decide again";
  now = decision.due;
  EXPECT_THAT(Decide(), ElementsAre("0:tenant/c!"));
}

TEST_F(Runtimes, ARuntimeWhoseWorkerDiesOnTheWayIsSoughtElsewhere) {
  Submit(Model("a"));
  EXPECT_THAT(Decide(), ElementsAre("0:tenant/a"));
  scheduler.Apply(WorkerLost{0, "killed"}, now);
  EXPECT_THAT(Decide(), ElementsAre("1:tenant/a"));
  Warm(0);
  EXPECT_THAT(Decide(), IsEmpty()) << "a runtime is coming";
  Ready(1, "tenant/a");
  Decide();
  EXPECT_EQ(dispatches.back().gpu, 1u);
}

TEST_F(Runtimes, NoRuntimeIsTakenWhileOneIsBeingStarted) {
  Use("a");
  Use("b");
  scheduler.Apply(WorkerLost{0, "killed"}, now);
  Submit(Model("a"));
  EXPECT_THAT(Decide(), IsEmpty()) << "the runtime of b is idle, and that of a is about to be replaced";
  EXPECT_EQ(scheduler.NextDue(), now + seconds(1));
  now += seconds(1);
  EXPECT_THAT(Decide(), ElementsAre("1:tenant/a!")) << "the wait has lasted long enough";
}

TEST_F(Runtimes, AKeyThatOthersKeepOutIsServedInTheEnd) {
  Use("a");
  Use("b");
  std::vector<Dispatch> running;
  deadline = now;
  const RequestId poor = Submit(Model("c"));
  bool served = false;
  for (int i = 0; i < 200 && !served; ++i) {
    // Both tenants keep their runtimes busy, and each always has requests that wait.
    for (const char* tenant : {"a", "b"}) {
      NodeRequest request;
      request.id = {2, next++};
      request.function = FunctionNamed(tenant);
      request.model = ModelNamed(Model(tenant));
      request.deadline = now + seconds(1);
      ASSERT_TRUE(scheduler.Submit(request, now).accepted);
    }
    now += milliseconds(1);
    for (const std::string& order : Decide()) {
      EXPECT_THAT(order, testing::EndsWith("!"));
      Ready(static_cast<GpuIndex>(order[0] - '0'), order.substr(2, order.size() - 3));
    }
    Decide();
    for (const Dispatch& dispatch : std::exchange(dispatches, {})) running.push_back(dispatch);
    if (running.empty()) continue;
    const Dispatch done = running.front();
    running.erase(running.begin());
    Serve(done);
    served = done.request == poor;
  }
  EXPECT_TRUE(served);
}

TEST_F(Runtimes, ARuntimeThatWasIdleForLongLosesItsKey) {
  Use("a");
  EXPECT_EQ(scheduler.NextIdle(minutes(10)), now + minutes(10));
  now += minutes(9);
  scheduler.GiveBack(now, minutes(10));
  EXPECT_THAT(Decide(), IsEmpty());
  now += minutes(1);
  scheduler.GiveBack(now, minutes(10));
  EXPECT_THAT(Decide(), ElementsAre("0:!"));
  EXPECT_EQ(scheduler.NextIdle(minutes(10)), Time::max());
  Warm(0);
  Submit(Model("b"));
  EXPECT_THAT(Decide(), ElementsAre("0:tenant/b"));
}

struct FewPasses : Runtimes {
  FewPasses() : Runtimes(1, {.swap_ahead = 3, .max_passed = 1, .isolated = true}) {}
};

// A runtime is kept for a request until it has drained; more urgent requests for the runtime beside it come
// without end, and would take all places that the two share.
TEST_F(FewPasses, APlaceIsLeftForTheRequestThatARuntimeIsKeptFor) {
  scheduler.DescribeModel(ModelNamed("large@tenant/b"), MiB(40), MiB(1));
  Use("a");
  Use("b");
  const auto submit = [&](const std::string& model, Time due) {
    deadline = due;
    return Submit(model);
  };
  dispatches.clear();
  submit(Model("b"), now);
  Decide();
  ASSERT_EQ(dispatches.size(), 1u);
  const RequestId kept =
      submit("large@tenant/b", now + milliseconds(1));  // the two models do not fit together
  for (int i = 0; i < 2; ++i) submit(Model("a"), now + seconds(1));
  Decide();
  ASSERT_EQ(dispatches.size(), 3u)
      << "the device's three places are taken, and the large request was passed twice";
  Serve(dispatches[0]);  // the runtime is free for the large request, and so is one place
  submit(Model("a"), now);
  Decide();
  ASSERT_EQ(dispatches.size(), 4u);
  EXPECT_EQ(dispatches[3].request, kept) << "a more urgent request got the place";
}

struct TwoGpus : Runtimes {
  TwoGpus() : Runtimes(2) {}
};

TEST_F(TwoGpus, ABusyKeyTakesOneRuntimeOfEachGpuAndNoMore) {
  for (int i = 0; i < 8; ++i) Submit(Model("a"));
  EXPECT_THAT(Decide(), ElementsAre("0:tenant/a"));
  Ready(0, "tenant/a");
  EXPECT_THAT(Decide(), ElementsAre("2:tenant/a"));
  Ready(2, "tenant/a");
  EXPECT_THAT(Decide(), IsEmpty()) << "the rest of both GPUs is for others";
  std::set<GpuIndex> used;
  for (const Dispatch& dispatch : dispatches) used.insert(dispatch.gpu);
  EXPECT_THAT(used, ElementsAre(0u, 2u));
}

TEST_F(TwoGpus, ASecondRuntimeIsTakenOnlyFromWhoDoesNotNeedIt) {
  Use("a");
  Use("b");
  Use("c");
  Submit("m");
  Decide();
  for (const auto& [index, gpu] : scheduler.gpus().gpus())
    if (gpu.coming) Ready(index, "");
  Decide();
  Serve(dispatches.back());  // all four runtimes serve a key
  for (int i = 0; i < 8; ++i) Submit(Model("a"));
  EXPECT_THAT(Decide(), IsEmpty()) << "the other runtimes have been idle for a moment only";
  now += seconds(2);
  const auto orders = Decide();
  ASSERT_EQ(orders.size(), 1u);
  EXPECT_THAT(orders[0], testing::EndsWith(":tenant/a!"));
}

struct SharedRuntime : Runtimes {
  SharedRuntime() : Runtimes(1, {}) {}
};

TEST_F(SharedRuntime, AnIsolatedFunctionIsServedOnANodeThatIsolatesNoOther) {
  Ready(0, "");
  Ready(1, "");
  Submit("m");
  EXPECT_THAT(Decide(), IsEmpty());
  now += milliseconds(1);
  Serve(dispatches.back());
  const GpuIndex idle = 1 - dispatches.back().gpu;
  Submit(Model("a"));
  EXPECT_THAT(Decide(), ElementsAre(std::to_string(idle) + ":tenant/a!"));
  Ready(idle, "tenant/a");
  Decide();
  Serve(dispatches.back());
  now += minutes(10);
  scheduler.GiveBack(now, minutes(10));
  EXPECT_THAT(Decide(), ElementsAre(std::to_string(idle) + ":shared!")) << "the runtime is shared again";
}

// Random arrivals of three or six keys on runtimes of one or two GPUs, whose workers come late, die and
// forget. Models are copied between the two GPUs; a third of the models have a function with state.
class RandomWorld {
 public:
  RandomWorld(std::uint64_t seed, const PolicyNames& names)
      : random_(seed),
        scheduler_({.swap_ahead = 1 + static_cast<std::uint32_t>(seed % 3), .seed = seed, .isolated = true},
                   *FindSchedulerPolicies(names), {}, *Topology::Parse("switch:0-1,link:0-1=50GB")) {
    host_.write_back_each = seed % 2 == 0;
    const std::uint64_t keys = seed % 2 == 0 ? 6 : 3;  // with three, each may have a runtime of each GPU
    for (std::uint64_t i = 0; i < 12; ++i) {
      const std::string name = CopyName("m" + std::to_string(i % 4), i % keys == 0 ? "" : Key(i % keys));
      models_[name] = {.weights = MiB(10 + random_.Below(20)), .activation = MiB(1 + random_.Below(4))};
      scheduler_.DescribeModel(ModelNamed(name), models_[name].weights, models_[name].activation);
      if (i % 3 != 0) continue;
      host_.model["state of " + name] = name;
      scheduler_.DeclareState(StateNamed("state of " + name), ModelNamed(name), host_.bytes);
    }
    const auto devices = 1 + static_cast<std::uint32_t>(random_.Below(2));
    for (GpuIndex i = 0; i < devices * 3; ++i) {
      scheduler_.AddRuntime(i, MiB(60), i / 3);
      runtimes_.emplace_back();
      Start(i, {false, ""});
    }
  }
  void Run(int steps) {
    for (int i = 0; i < steps; ++i) {
      now_ += Duration(random_.Below(2'000'000));
      if (random_.Below(3) == 0) Arrive();
      if (random_.Below(200) == 0) Kill(static_cast<GpuIndex>(random_.Below(runtimes_.size())));
      if (random_.Below(100) == 0) scheduler_.GiveBack(now_, milliseconds(20));
      Work();
    }
  }
  // A decision is made only when something has happened, or when the last decision has said that another one is due.
  void Drain() {
    Decide();
    for (int i = 0; i < 40000 && !open_.empty(); ++i) {
      now_ += milliseconds(1);
      const bool happened = Happen();
      if (!happened && NothingIsUnderWay()) {
        ASSERT_NE(due_, Time::max()) << open_.size() << " requests wait for an event that will not come";
        now_ = std::max(now_, due_);
      }
      if (happened || now_ >= due_) Decide();
    }
    EXPECT_TRUE(open_.empty()) << open_.size() << " requests wait for ever";
  }
  std::uint64_t served = 0;
  std::uint64_t advanced = 0;  // runs with state
  [[nodiscard]] const SchedulerCounts& counts() const { return scheduler_.counts(); }

 private:
  struct Runtime {
    std::shared_ptr<FakeWorker> worker;
    Serves serves;
    std::optional<Serves> starting;
  };
  static std::string Key(std::uint64_t i) { return "tenant/t" + std::to_string(i); }

  void Arrive() {
    NodeRequest request;
    auto model = models_.begin();
    std::advance(model, random_.Below(models_.size()));
    request.id = {1, next_++};
    request.model = ModelNamed(model->first);
    request.function = FunctionNamed(model->first);
    if (const auto state = "state of " + model->first; host_.model.contains(state) && random_.Below(2) == 0) {
      request.state = StateNamed(state);
      request.function = FunctionNamed(state);
    }
    request.deadline = now_ + milliseconds(random_.Below(100));
    if (scheduler_.Submit(request, now_).accepted) open_.insert(request.id);
  }
  void Start(GpuIndex gpu, const Serves& serves) {
    auto& runtime = runtimes_[gpu];
    const auto source = [this](const Dispatch& dispatch) {
      return sources_.at(dispatch.request).lock().get();
    };
    runtime.worker = std::make_shared<FakeWorker>(gpu, MiB(60), Bytes(), models_, source, &host_);
    runtime.serves = serves;
    runtime.starting.reset();
    WorkerReady ready = runtime.worker->Ready();
    ready.assigned = serves.assigned;
    ready.key = serves.key;
    Handle(scheduler_.Apply(ready, now_));
  }
  // The assignment that was under way fails: the next worker serves no key.
  void Kill(GpuIndex gpu) {
    if (runtimes_[gpu].worker != nullptr) {
      for (const auto& [state, runs] : runtimes_[gpu].worker->states())
        if (scheduler_.states().Find(StateNamed(state))->CurrentAt(gpu)) truth_[state] = host_.images[state];
    }
    runtimes_[gpu].worker = nullptr;
    runtimes_[gpu].starting = Serves{false, ""};
    Handle(scheduler_.Apply(WorkerLost{gpu, "killed"}, now_));
  }
  void Work() {
    (void)Happen();
    Decide();
  }
  [[nodiscard]] bool NothingIsUnderWay() const {
    return std::ranges::all_of(runtimes_, [](const Runtime& runtime) {
      return !runtime.starting && (runtime.worker == nullptr || runtime.worker->idle());
    });
  }
  // What has happened at some workers since; whether anything has.
  [[nodiscard]] bool Happen() {
    bool any = false;
    for (GpuIndex gpu = 0; gpu < runtimes_.size(); ++gpu) {
      auto& runtime = runtimes_[gpu];
      if (runtime.starting && random_.Below(3) == 0) {
        Start(gpu, Serves(*runtime.starting));
        any = true;
      }
      if (runtime.worker == nullptr || random_.Below(2) == 0) continue;
      any = any || !runtime.worker->idle();
      const auto out = runtime.worker->Step(milliseconds(1 + random_.Below(5)), absl::OkStatus());
      EXPECT_FALSE(runtime.worker->overbooked());
      EXPECT_EQ(runtime.worker->broken_promises(), 0u);
      SeeStates(*runtime.worker, out);
      for (const auto& done : out.evicted) Handle(scheduler_.Apply(done, now_));
      for (const auto& done : out.swapped) Handle(scheduler_.Apply(done, now_));
      for (const auto& done : out.ran) Handle(scheduler_.Apply(done, now_));
    }
    return any;
  }
  void Decide() {
    scheduler_.Check();
    const Decision decision = scheduler_.Decide(now_);
    due_ = decision.due;
    for (const Dispatch& dispatch : decision.dispatches) {
      auto& runtime = runtimes_[dispatch.gpu];
      ASSERT_NE(runtime.worker, nullptr) << "the request was dispatched to a worker that is not there";
      EXPECT_TRUE(runtime.serves.assigned);
      EXPECT_EQ(runtime.serves.key, dispatch.model->key) << "the request is on a runtime of another key";
      if (dispatch.source == SwapSource::kPeer) {
        EXPECT_EQ(runtimes_[dispatch.peer].serves.key, runtime.serves.key)
            << "the source is a runtime of another key";
        EXPECT_NE(dispatch.peer / 3, dispatch.gpu / 3) << "a copy within one GPU";
        sources_[dispatch.request] = runtimes_[dispatch.peer].worker;
      }
      states_of_[dispatch.request] = dispatch.state.text();
      runtime.worker->Order(dispatch);
    }
    for (const Eviction& departure : decision.departures)
      runtimes_[departure.gpu].worker->OrderEviction(departure.model);
    for (const Assignment& order : decision.assignments) {
      auto& runtime = runtimes_[order.gpu];
      ASSERT_NE(runtime.worker, nullptr);
      EXPECT_TRUE(runtime.worker->idle()) << "a worker that works is taken away";
      EXPECT_TRUE(runtime.worker->states().empty()) << "a state is lost with its worker";
      EXPECT_EQ(order.fresh, runtime.serves.assigned) << "a worker that has served a key is replaced";
      runtime.worker = nullptr;
      runtime.starting = Serves{order.assigned, order.key};
    }
    scheduler_.Check();
  }
  // A successful run found the state that its predecessor left.
  void SeeStates(const FakeWorker& worker, const FakeWorker::Outcomes& out) {
    for (const RunDone& done : out.ran) {
      const std::string& state = states_of_.at(done.request);
      if (state.empty() || done.end != RunEnd::kRan) continue;
      EXPECT_EQ(worker.states().at(state), ++truth_[state]);
      ++advanced;
    }
  }
  void Handle(const Consequences& effects) {
    for (const Finished& finished : effects.finished) {
      EXPECT_EQ(open_.erase(finished.id), 1u);
      served += finished.kind == FinishKind::kServed ? 1 : 0;
    }
    for (const Eviction& eviction : effects.evictions)
      runtimes_[eviction.gpu].worker->OrderEviction(eviction.model);
  }

  Random random_;
  SwapScheduler scheduler_;
  std::map<std::string, FakeModel> models_;
  std::vector<Runtime> runtimes_;
  std::set<RequestId> open_;
  FakeStates host_{.bytes = MiB(3), .write_back_each = true, .model = {}, .images = {}};
  std::map<std::string, std::uint64_t> truth_;  // runs of each state that count
  std::map<RequestId, std::string> states_of_;
  std::map<RequestId, std::weak_ptr<FakeWorker>> sources_;
  std::uint64_t next_ = 1;
  Time now_{};
  Time due_ = Time::max();  // of the last decision
};

TEST(RuntimesProperty, EveryRequestEndsOnARuntimeOfItsKey) {
  std::uint64_t served = 0, assigned = 0, taken = 0, given_back = 0, from_peers = 0, advanced = 0, seed = 0;
  for (const auto& ordering : OrderingPolicies()) {
    for (const auto& gpu : GpuPolicies()) {
      PolicyNames names;
      names.ordering = ordering.name;
      names.gpu = gpu.name;
      for (int round = 0; round < 2; ++round) {
        SCOPED_TRACE("seed " + std::to_string(++seed) + ", " + names.ordering + ", " + names.gpu);
        RandomWorld world(seed, names);
        world.Run(test::Draws(1500));
        world.Drain();
        served += world.served;
        assigned += world.counts().assigned;
        taken += world.counts().taken;
        given_back += world.counts().given_back;
        from_peers += world.counts().peer_swaps;
        advanced += world.advanced;
        if (testing::Test::HasFailure()) return;
      }
    }
  }
  EXPECT_GT(served, test::Draws(10000u));
  EXPECT_GT(assigned, test::Draws(200u));
  EXPECT_GT(taken, test::Draws(1000u));
  EXPECT_GT(given_back, test::Draws(50u));
  EXPECT_GT(from_peers, test::Draws(50u));
  EXPECT_GT(advanced, test::Draws(1000u));
}

}  // namespace
}  // namespace troupe::node::isolation_test
