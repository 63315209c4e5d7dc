// Functions that do not share a worker, on a whole cluster over fake workers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/actors/state_world.hpp"

namespace troupe::actors {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

std::function<void(NodeOptions&)> Isolated(proto::Isolation mode, std::uint32_t runtimes = 2,
                                           Duration idle = std::chrono::minutes(10)) {
  return [=](NodeOptions& options) {
    options.isolation = {.mode = mode, .runtimes = runtimes, .idle = idle};
    options.scheduler.isolated = true;
  };
}

World::DeployWish OfTenant(const std::string& tenant) {
  return [tenant](proto::DeployRequest& wish) { wish.set_tenant(tenant); };
}

class Isolation : public testing::Test {
 protected:
  void Start(const std::function<void(NodeOptions&)>& adjust, std::size_t gpus = 1) {
    world = std::make_unique<World>(1, gpus, FakeWorkerProfile(), World::Channels(), GiB(2), adjust);
  }
  void Deploy(const std::string& name, const World::DeployWish& wish) {
    const auto status = world->Deploy(name, MiB(20), milliseconds(100), {"x"}, {}, wish);
    ASSERT_TRUE(status.ok()) << status;
  }
  auto& workers() { return world->node("node-1").workers; }
  // Every answer came, in the order of `calls`, and belongs to its request.
  void ExpectAllServed(std::size_t count) {
    ASSERT_EQ(world->answers.size(), count);
    for (const auto& answer : world->answers) {
      ASSERT_EQ(answer.reply.code(), 0) << answer.reply.message();
      EXPECT_EQ(answer.reply.outputs(0).data().inlined(), std::to_string(answer.call));
    }
  }
  // The runtimes in whose name the workers have touched a model.
  std::set<std::string> Served() {
    std::set<std::string> served;
    for (const auto& worker : workers())
      for (const auto& [runtime, digest] : worker->touched) served.insert(runtime);
    return served;
  }
  std::size_t Events(const std::string& kind) {
    return static_cast<std::size_t>(std::count_if(world->events.begin(), world->events.end(),
                                                  [&](const auto& event) { return event.first == kind; }));
  }
  static std::string Packed(const std::string& name) { return "packed-" + Sha256Hex("model " + name); }

  std::unique_ptr<World> world;
};

TEST_F(Isolation, TwoTenantsOnOneGpuHaveAWorkerEach) {
  Start(Isolated(proto::ISOLATION_TENANT));
  Deploy("a", OfTenant("acme"));
  Deploy("b", OfTenant("bolt"));
  EXPECT_THAT(Served(), IsEmpty()) << "a worker is assigned before any request";
  for (std::uint64_t i = 0; i < 10; ++i) world->Infer(i % 2 == 0 ? "a" : "b", i);
  world->Run(seconds(2));
  ExpectAllServed(10);
  for (const auto& answer : world->answers) EXPECT_EQ(answer.reply.gpu(), 0u);
  EXPECT_THAT(workers()[0]->touched, UnorderedElementsAre(std::pair("tenant/acme", Packed("a"))));
  EXPECT_THAT(workers()[1]->touched, UnorderedElementsAre(std::pair("tenant/bolt", Packed("b"))));
  EXPECT_EQ(workers()[0]->spawns, 1u) << "a warm worker was assigned, not started";
  EXPECT_EQ(world->node("node-1").repository.CopiesOf("tenant/acme"), 1u);
  EXPECT_EQ(world->node("node-1").repository.CopiesOf("tenant/bolt"), 1u);
  EXPECT_EQ(world->node("node-1").repository.CopiesOf(""), 0u);
  EXPECT_EQ(Events("runtime-assigned"), 2u);
}

TEST_F(Isolation, AModelOfTwoTenantsHasACopyForEach) {
  Start(Isolated(proto::ISOLATION_TENANT));
  Deploy("a", OfTenant("acme"));
  Deploy("b", [](proto::DeployRequest& wish) {
    wish.set_tenant("bolt");
    wish.set_onnx_digest(Sha256Hex("onnx a"));
  });
  world->Infer("a", 1);
  world->Infer("b", 2);
  world->Run(seconds(2));
  ExpectAllServed(2);
  EXPECT_THAT(Served(), UnorderedElementsAre("tenant/acme", "tenant/bolt"));
  EXPECT_EQ(world->node("node-1").repository.CopiesOf("tenant/acme"), 1u);
  EXPECT_EQ(world->node("node-1").repository.CopiesOf("tenant/bolt"), 1u);
  proto::AdminRequest remove;
  for (const char* name : {"a", "b"}) {
    remove.mutable_remove()->mutable_key()->set_name(name);
    ASSERT_TRUE(world->Ask(remove).ok());
  }
  world->Run(seconds(2));
  EXPECT_EQ(world->node("node-1").repository.host_copies(), 0u) << "a host copy outlives its function";
}

TEST_F(Isolation, AKilledWorkerOfOneTenantCostsTheOtherNothing) {
  Start(Isolated(proto::ISOLATION_TENANT));
  Deploy("a", OfTenant("acme"));
  Deploy("b", OfTenant("bolt"));
  for (std::uint64_t i = 0; i < 20; ++i) world->Infer(i % 2 == 0 ? "a" : "b", i);
  world->RunUntil([&] { return workers()[0]->runs > 0 && workers()[1]->runs > 0; }, seconds(5));
  ASSERT_EQ(workers()[0]->life.runtime, "tenant/acme");
  workers()[0]->kill();
  world->Run(seconds(10));
  ExpectAllServed(20);
  for (const auto& answer : world->answers) {
    if (answer.call % 2 == 1) {
      EXPECT_EQ(answer.reply.attempts(), 1u);
    }
  }
  EXPECT_EQ(workers()[1]->spawns, 1u);
  EXPECT_GE(workers()[0]->spawns, 2u);
}

TEST_F(Isolation, MoreTenantsThanWorkersTakeTurns) {
  Start(Isolated(proto::ISOLATION_TENANT));
  for (const char* name : {"a", "b", "c", "d"}) Deploy(name, OfTenant(absl::StrCat("t-", name)));
  for (std::uint64_t i = 0; i < 40; ++i) {
    world->Infer(std::string(1, static_cast<char>('a' + i % 4)), i);
    world->Run(milliseconds(15));
  }
  world->Run(seconds(20));
  ExpectAllServed(40);
  EXPECT_THAT(Served(), UnorderedElementsAre("tenant/t-a", "tenant/t-b", "tenant/t-c", "tenant/t-d"));
  EXPECT_GE(Events("runtime-reclaimed"), 2u);
  // A worker that changed hands was started anew for that, and the restart is not reported as a failure.
  EXPECT_EQ(workers()[0]->spawns + workers()[1]->spawns, 2 + Events("runtime-reclaimed"));
  EXPECT_EQ(Events("worker-down"), 0u);
}

TEST_F(Isolation, FunctionsOfAWorkflowShareItsWorkerAndEachIsOnItsOwnWithoutOne) {
  Start(Isolated(proto::ISOLATION_WORKFLOW, 3));
  Deploy("a", OfTenant("acme"));
  Deploy("b", OfTenant("bolt"));
  world->Infer("a", 1, seconds(10), "night");
  world->Infer("b", 2, seconds(10), "night");
  world->Infer("a", 3);
  world->Infer("b", 4, seconds(10), "day");
  world->Run(seconds(5));
  ExpectAllServed(4);
  std::set<std::pair<std::string, std::string>> touched;
  for (const auto& worker : workers()) touched.insert(worker->touched.begin(), worker->touched.end());
  EXPECT_TRUE(touched.contains({"workflow/night", Packed("a")}));
  EXPECT_TRUE(touched.contains({"workflow/night", Packed("b")}));
  EXPECT_TRUE(touched.contains({"workflow/day", Packed("b")}));
  EXPECT_TRUE(touched.contains({"function/a", Packed("a")}));
  EXPECT_FALSE(touched.contains({"workflow/day", Packed("a")}));
}

TEST_F(Isolation, AFunctionSaysForItselfWhatItWants) {
  Start(Isolated(proto::ISOLATION_TENANT, 3));
  Deploy("a", OfTenant("acme"));
  Deploy("b", [](proto::DeployRequest& wish) {
    wish.set_tenant("acme");
    wish.set_isolation(proto::ISOLATION_FUNCTION);
  });
  Deploy("c", [](proto::DeployRequest& wish) { wish.set_isolation(proto::ISOLATION_SHARED); });
  std::uint64_t call = 0;
  for (const char* name : {"a", "b", "c"}) world->Infer(name, ++call);
  world->Run(seconds(3));
  ExpectAllServed(3);
  EXPECT_THAT(Served(), UnorderedElementsAre("tenant/acme", "function/b", "shared"));
}

TEST_F(Isolation, AWorkerThatWasIdleForLongLosesItsRuntimeKey) {
  Start(Isolated(proto::ISOLATION_TENANT, 2, seconds(5)));
  Deploy("a", OfTenant("acme"));
  world->Infer("a", 1);
  world->Run(seconds(2));
  ExpectAllServed(1);
  EXPECT_EQ(workers()[0]->life.runtime, "tenant/acme");
  world->Run(seconds(5));
  EXPECT_EQ(workers()[0]->life.runtime, "");
  EXPECT_EQ(workers()[0]->spawns, 2u) << "the worker kept what it had seen of its tenant";
  EXPECT_THAT(workers()[0]->life.resident, IsEmpty());
  world->Infer("a", 2);
  world->Run(seconds(2));
  ExpectAllServed(2);
}

// Three tenants share two workers of a GPU: each time a tenant waits, the worker of another one is taken
// away.
TEST(IsolatedStates, ATenantThatHadToGoFindsItsStateAgain) {
  for (const auto write_back : {node::StateWriteBack::kRun, node::StateWriteBack::kEvict}) {
    StateWorld world(1, write_back, GiB(1), Isolated(proto::ISOLATION_TENANT));
    for (const char* name : {"a", "b", "c"})
      ASSERT_TRUE(world.DeployState(name, MiB(100), OfTenant(name)).ok());
    for (int i = 1; i <= 4; ++i)
      for (const char* name : {"a", "b", "c"}) EXPECT_EQ(world.Count(name), i) << name;
    EXPECT_THAT(world.Told("runtime-reclaimed"), testing::HasSubstr("from tenant/a, for tenant/c"));
    EXPECT_EQ(world.Told("state-lost"), "");
    // The state that each function left lies with its own copy of the model.
    std::map<std::string, std::string> held;
    for (const auto& worker : world.node("node-1").workers)
      for (const auto& [function, state] : worker->life.states) held[worker->life.runtime] += function;
    for (const auto& [runtime, functions] : held)
      EXPECT_TRUE(absl::StartsWith(functions, runtime.substr(7)))
          << runtime << " has the state of " << functions;
    if (write_back == node::StateWriteBack::kEvict) continue;
    for (auto& worker : world.node("node-1").workers) worker->kill();
    for (const char* name : {"a", "b", "c"}) EXPECT_EQ(world.Count(name), 5) << name;
    EXPECT_EQ(world.Told("state-lost"), "");
  }
}

// Two tenants have the same model, and each has so many requests that it needs both GPUs.
TEST_F(Isolation, AModelIsCopiedBetweenTheGpusOfItsTenantAndNeverFromAnothers) {
  FakeWorkerProfile profile;
  profile.peer_link = {2e9};
  profile.run = seconds(1);
  world = std::make_unique<World>(1, 2, profile, World::Channels(), GiB(2), [](NodeOptions& options) {
    Isolated(proto::ISOLATION_TENANT)(options);
    options.policies = *FindPreset("torpor");
    options.topology = *node::Topology::Parse("switch:0-1,link:0-1=2GB");
  });
  Deploy("a", OfTenant("acme"));
  Deploy("b", [](proto::DeployRequest& wish) {
    wish.set_tenant("bolt");
    wish.set_onnx_digest(Sha256Hex("onnx a"));
  });
  for (std::uint64_t i = 0; i < 12; ++i) {
    world->Infer(i % 2 == 0 ? "a" : "b", i, seconds(60));
    world->Run(milliseconds(200));
  }
  world->Run(seconds(20));
  ExpectAllServed(12);
  std::set<std::pair<std::string, std::string>> copied;
  for (const auto& worker : workers()) {
    copied.insert(worker->copied.begin(), worker->copied.end());
    EXPECT_THAT(worker->life.pins, IsEmpty());
  }
  EXPECT_THAT(copied, UnorderedElementsAre(std::pair("tenant/acme", "tenant/acme"),
                                           std::pair("tenant/bolt", "tenant/bolt")));
  EXPECT_EQ(Events("swap-failed"), 0u);
}

// Nothing can be prepared for a tenant that no worker serves: a worker that has seen its models is the
// tenant's own.
TEST_F(Isolation, PlansAreMadeForAllOfATenantWhenItGetsAWorkerAndForNewFunctionsAtOnce) {
  Start(Isolated(proto::ISOLATION_TENANT));
  for (const char* name : {"a", "b"}) Deploy(name, OfTenant("acme"));
  EXPECT_THAT(Served(), IsEmpty());
  world->Infer("a", 1);
  world->Run(seconds(2));
  ExpectAllServed(1);
  EXPECT_THAT(workers()[0]->touched, UnorderedElementsAre(std::pair("tenant/acme", Packed("a")),
                                                          std::pair("tenant/acme", Packed("b"))));
  Deploy("c", OfTenant("acme"));
  Deploy("d", OfTenant("bolt"));
  EXPECT_TRUE(workers()[0]->touched.contains({"tenant/acme", Packed("c")}))
      << "the model is not there before the first request for it";
  EXPECT_THAT(workers()[1]->touched, IsEmpty());
}

// The cost of a model is measured on a worker that serves the model's tenant already; no worker is assigned
// for the trial.
TEST_F(Isolation, AModelIsMeasuredWhereItsTenantHasAWorker) {
  Start([](NodeOptions& options) {
    Isolated(proto::ISOLATION_TENANT)(options);
    options.measure = node::MeasureRule::kAdoption;
  });
  for (const char* name : {"a", "b"}) Deploy(name, OfTenant("acme"));
  Deploy("c", OfTenant("bolt"));
  world->Run(seconds(2));
  EXPECT_THAT(Served(), IsEmpty());
  world->Infer("a", 1);
  world->Run(seconds(5));
  ExpectAllServed(1);
  EXPECT_THAT(Served(), UnorderedElementsAre("tenant/acme"));
  EXPECT_GT(workers()[0]->runs, 1u);
  EXPECT_GE(workers()[0]->swaps, 2u) << "model 'b', for which no request came, was not tried";
}

TEST_F(Isolation, AWorkerThatDiesWhileItIsAssignedDelaysItsTenantAndNoMore) {
  Start(Isolated(proto::ISOLATION_TENANT));
  Deploy("a", OfTenant("acme"));
  world->Infer("a", 1);
  world->RunUntil([&] { return Events("runtime-assigned") == 1; }, seconds(1));
  workers()[0]->kill();
  world->Run(seconds(5));
  ExpectAllServed(1);
}

}  // namespace
}  // namespace troupe::actors
