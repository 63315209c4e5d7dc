#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/digest.hpp"
#include "tests/actors/world.hpp"

namespace troupe::actors {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::string Trace(World& world) {
  std::string trace;
  for (const auto& answer : world.answers) {
    trace += std::to_string(answer.call) + ":" + std::to_string(answer.reply.code()) + ":" +
             answer.reply.node() + "/" + std::to_string(answer.reply.gpu()) + ":" +
             std::to_string(answer.took.count()) + "\n";
  }
  return trace;
}

std::vector<std::string> EventsOf(World& world, const std::string& kind) {
  proto::AdminRequest request;
  request.mutable_list_events()->set_limit(0);
  const auto reply = world.Ask(request);
  EXPECT_TRUE(reply.ok()) << reply.status();
  std::vector<std::string> messages;
  std::uint64_t last = 0;
  std::int64_t time = 0;
  for (const auto& event : reply->events()) {
    EXPECT_EQ(event.sequence(), ++last) << "the cluster's order has no gaps";
    EXPECT_EQ(event.age_ns(), 0);
    if (event.kind() != kind) continue;
    EXPECT_GE(event.unix_ns(), time);
    time = event.unix_ns();
    messages.push_back(absl::StrCat(event.member(), ": ", event.message()));
  }
  return messages;
}

TEST(Cluster, AnImportThatWaitsIsShownUntilItHasEnded) {
  World world(1);
  proto::AdminRequest deploy;
  deploy.mutable_deploy()->set_name("slow");
  deploy.mutable_deploy()->set_client("alice");
  deploy.mutable_deploy()->set_onnx_digest(world.MakeModel("slow", MiB(1)));
  world.manager_repository().HoldImports();
  caf::anon_send(world.manager(), deploy);
  world.Run(milliseconds(10));
  EXPECT_EQ(world.manager_repository().HeldClients(), std::vector<std::string>{"alice"});
  proto::AdminRequest show;
  for (const std::string& digest : {deploy.deploy().onnx_digest(), std::string()}) {
    show.mutable_show_import()->set_onnx_digest(digest);
    const auto shown = world.Ask(show);
    ASSERT_TRUE(shown.ok()) << shown.status();
    ASSERT_EQ(shown->imports_size(), 1);
    EXPECT_EQ(shown->imports(0).onnx_digest(), deploy.deploy().onnx_digest());
    EXPECT_EQ(shown->imports(0).stage(), "waiting");
  }
  show.mutable_show_import()->set_onnx_digest("unknown");
  EXPECT_TRUE(absl::IsNotFound(world.Ask(show).status()));
  world.manager_repository().FinishImports();
  show.mutable_show_import()->set_onnx_digest(deploy.deploy().onnx_digest());
  EXPECT_TRUE(absl::IsNotFound(world.Ask(show).status()));
  show.mutable_show_import()->clear_onnx_digest();
  EXPECT_EQ(world.Ask(show)->imports_size(), 0);
}

TEST(Cluster, AMemberJoinsADeploymentIsAdoptedAndARequestIsServed) {
  World world(2);
  ASSERT_TRUE(world.Deploy("resnet", MiB(100)).ok());
  world.Infer("resnet", 1);
  world.Run(seconds(1));
  ASSERT_EQ(world.answers.size(), 1u);
  const auto& reply = world.answers[0].reply;
  EXPECT_EQ(reply.code(), 0) << reply.message();
  EXPECT_FALSE(reply.hit()) << "the first request has to swap the model in";
  ASSERT_EQ(reply.outputs_size(), 1);
  EXPECT_EQ(reply.outputs(0).data().inlined(), "1");
  // A swap of 100 MiB over 6 GB/s and 10 ms of compute; only the messages' own time comes on top.
  EXPECT_GE(world.answers[0].took, milliseconds(10) + TransferTime(MiB(100), BytesPerSecond{6e9}));
  EXPECT_LT(world.answers[0].took, milliseconds(40));
}

// A gateway that was upgraded first wants more of a node than that one has.
TEST(Cluster, NodesOfAnEarlierReleaseServeTheGatewayOfALaterOne) {
  World world(2);
  ASSERT_TRUE(world.Deploy("resnet", MiB(100)).ok());
  world.Run(seconds(2));
  for (const std::string name : {"node-1", "node-2"}) {
    const auto& controller = world.node(name).controller;
    auto interface = world.system().message_types(controller);
    EXPECT_EQ(
        std::erase_if(interface, [](const auto& one) { return absl::StrContains(one, "ExportTensors"); }),
        1u);
    world.directory().Retract(name, "its daemon is asked what it knows");
    world.directory().Publish(name, caf::actor_cast<caf::strong_actor_ptr>(controller), interface);
  }
  world.Run(seconds(1));
  for (std::uint64_t call = 1; call <= 20; ++call) world.Infer("resnet", call);
  world.Run(milliseconds(2));
  world.KillNode(world.node("node-1").workers[0]->given > 0 ? "node-1" : "node-2");
  world.Run(seconds(20));
  ASSERT_EQ(world.answers.size(), 20u);
  for (const auto& answer : world.answers) EXPECT_EQ(answer.reply.code(), 0) << answer.reply.message();
}

// A manager that was upgraded first hears what a node can be asked, and asks nothing else.
TEST(Cluster, AManagerAsksANodeOfAnEarlierReleaseForWhatItKnows) {
  World world(1);
  ASSERT_TRUE(world.Deploy("resnet", MiB(100)).ok());
  const auto& controller = world.node("node-1").controller;
  proto::AdminRequest list;
  list.mutable_list_gpus();
  EXPECT_EQ(world.Ask(list)->gpus_size(), 2);
  proto::JoinRequest join;
  join.mutable_member()->set_name("node-1");
  join.mutable_member()->set_kind(proto::MEMBER_NODE);
  join.mutable_member()->set_address("node-1");
  join.mutable_member()->add_gpus()->set_state("ready");
  for (const auto& operation : world.system().message_types(controller))
    if (!absl::StrContains(operation, "DescribeNode")) join.add_operations(operation);
  bool joined = false;
  world.system().spawn([&](caf::event_based_actor* self) {
    self->request(world.manager(), caf::infinite, join, controller).then([&](const proto::JoinReply& reply) {
      joined = reply.code() == 0;
    });
  });
  world.Run(milliseconds(10));
  ASSERT_TRUE(joined);
  const auto listed = world.Ask(list);
  ASSERT_TRUE(listed.ok()) << listed.status();
  EXPECT_EQ(listed->gpus_size(), 0) << "the node was asked what it does not know";
  proto::AdminRequest kill;
  kill.mutable_kill_gpu()->set_node("node-1");
  const auto killed = world.Ask(kill);
  ASSERT_TRUE(killed.ok()) << killed.status();
  world.Run(seconds(1));
  EXPECT_EQ(world.node("node-1").workers[0]->spawns, 2u) << "what it knows comes to it";
}

TEST(Cluster, ASecondRequestFindsTheModelResident) {
  World world(1);
  ASSERT_TRUE(world.Deploy("resnet", MiB(100)).ok());
  world.Infer("resnet", 1);
  world.Run(seconds(1));
  world.Infer("resnet", 2);
  world.Run(seconds(1));
  ASSERT_EQ(world.answers.size(), 2u);
  EXPECT_TRUE(world.answers[1].reply.hit());
  EXPECT_EQ(world.answers[1].took, milliseconds(10));
}

std::string RunBurst() {
  World world(2);
  for (const char* name : {"a", "b", "c", "d"}) EXPECT_TRUE(world.Deploy(name, MiB(200)).ok());
  for (std::uint64_t i = 0; i < 200; ++i) {
    world.Infer(std::string(1, static_cast<char>('a' + i % 4)), i);
    if (i == 100) world.node("node-1").workers[0]->kill();
    world.Run(milliseconds(3));
  }
  world.Run(seconds(20));
  EXPECT_EQ(world.answers.size(), 200u);
  for (const auto& answer : world.answers) EXPECT_EQ(answer.reply.code(), 0) << answer.reply.message();
  return Trace(world);
}

TEST(Cluster, TheSameStepsGiveTheSameTrace) {
  const auto first = RunBurst();
  EXPECT_FALSE(first.empty());
  EXPECT_EQ(first, RunBurst());
}

TEST(Cluster, AKilledWorkerCostsNoRequest) {
  World world(1, 2);
  ASSERT_TRUE(world.Deploy("resnet", MiB(50)).ok());
  for (std::uint64_t i = 0; i < 20; ++i) world.Infer("resnet", i);
  world.Run(milliseconds(25));
  for (auto& worker : world.node("node-1").workers) worker->kill();
  world.Run(seconds(10));
  ASSERT_EQ(world.answers.size(), 20u);
  std::uint32_t retried = 0;
  for (const auto& answer : world.answers) {
    EXPECT_EQ(answer.reply.code(), 0) << answer.reply.message();
    EXPECT_EQ(answer.reply.outputs(0).data().inlined(), std::to_string(answer.call));
    retried += answer.reply.attempts() > 1;
  }
  EXPECT_GT(retried, 0u) << "both workers died with requests in flight";
  EXPECT_GE(world.node("node-1").workers[0]->spawns, 2u);
}

TEST(Cluster, AHungWorkerIsKilledByTheWatchdogAndReplaced) {
  World world(1, 1);
  ASSERT_TRUE(world.Deploy("resnet", MiB(50)).ok());
  auto& worker = *world.node("node-1").workers[0];
  worker.hang = true;
  world.Infer("resnet", 1, seconds(60));
  world.Run(seconds(4));
  EXPECT_TRUE(world.answers.empty());
  worker.hang = false;
  world.Run(seconds(10));
  ASSERT_EQ(world.answers.size(), 1u);
  EXPECT_EQ(world.answers[0].reply.code(), 0) << world.answers[0].reply.message();
  EXPECT_EQ(worker.spawns, 2u);
}

// The worker that stands still has an order of the model's first life; the outcome of that order must not
// count for the second life.
TEST(Cluster, AModelThatComesBackBeforeItHadLeftIsServed) {
  World world(1, 2);
  auto& worker = *world.node("node-1").workers[1];
  worker.hang = true;
  proto::AdminRequest deploy, remove;
  deploy.mutable_deploy()->set_name("resnet");
  deploy.mutable_deploy()->set_onnx_digest(world.MakeModel("resnet", MiB(50)));
  remove.mutable_remove()->mutable_key()->set_name("resnet");
  ASSERT_TRUE(world.Ask(deploy).ok()) << "the other GPU's worker is enough";
  ASSERT_TRUE(world.Ask(remove).ok());
  EXPECT_FALSE(world.Ask(deploy, milliseconds(200)).ok()) << "the copy's bytes may still be read";
  worker.hang = false;
  worker.kill();
  world.Run(seconds(3));
  world.Infer("resnet", 1);
  world.Run(seconds(1));
  ASSERT_EQ(world.answers.size(), 1u);
  EXPECT_EQ(world.answers[0].reply.code(), 0) << world.answers[0].reply.message();
}

TEST(Cluster, AGpuThatItsDriverGivesUpIsUnfitWithTheReasonAndTheOtherServes) {
  World world(1, 2);
  ASSERT_TRUE(world.Deploy("resnet", MiB(50)).ok());
  auto& worker = *world.node("node-1").workers[0];
  const auto gpu = [&] {
    proto::AdminRequest ask;
    ask.mutable_list_gpus();
    const auto reply = world.Ask(ask);
    return reply.ok() ? reply->gpus(0).gpu() : proto::GpuRecord();
  };
  EXPECT_EQ(gpu().problem(), "");
  for (std::uint64_t call = 1; call <= 20; ++call) world.Infer("resnet", call);
  worker.problem = "critical error Xid 79";
  world.Run(seconds(10));
  ASSERT_EQ(world.answers.size(), 20u);
  for (const auto& answer : world.answers) EXPECT_EQ(answer.reply.code(), 0) << answer.reply.message();
  EXPECT_EQ(gpu().state(), "unfit");
  EXPECT_EQ(gpu().problem(), "critical error Xid 79");
  EXPECT_THAT(EventsOf(world, "worker-unfit"), testing::ElementsAre(testing::HasSubstr("Xid 79")));
  EXPECT_EQ(worker.spawns, 1u) << "no new process is started for the worker";
  worker.problem.clear();
  proto::AdminRequest kill;
  kill.mutable_kill_gpu()->set_node("node-1");
  ASSERT_TRUE(world.Ask(kill).ok());
  world.Run(seconds(1));
  EXPECT_EQ(gpu().state(), "ready");
  EXPECT_EQ(gpu().problem(), "");
}

TEST(Cluster, ARequestThatKillsThreeWorkersIsGivenUp) {
  World world(1, 1);
  ASSERT_TRUE(world.Deploy("killer", MiB(50)).ok());
  auto& worker = *world.node("node-1").workers[0];
  world.Infer("killer", 1, seconds(120));
  for (int i = 0; i < 2000 && world.answers.empty(); ++i) {
    world.Run(milliseconds(10));
    if (worker.used > Bytes(0) && worker.kill) worker.kill();  // as soon as its swap has begun
  }
  ASSERT_EQ(world.answers.size(), 1u);
  EXPECT_EQ(world.answers[0].reply.code(), static_cast<int>(absl::StatusCode::kUnavailable));
  EXPECT_EQ(world.answers[0].reply.attempts(), 3u);
  world.Run(seconds(1));
  const auto given_up = EventsOf(world, "request-given-up");
  ASSERT_EQ(given_up.size(), 1u);
  EXPECT_THAT(given_up[0], testing::HasSubstr("function 'killer' lost 3 GPU workers"));
}

TEST(Cluster, AnUnknownFunctionIsNotFound) {
  World world(1);
  world.Infer("nothing", 1);
  world.Run(milliseconds(10));
  ASSERT_EQ(world.answers.size(), 1u);
  EXPECT_EQ(world.answers[0].reply.code(), static_cast<int>(absl::StatusCode::kNotFound));
}

void RemoveFunction(World& world, const std::string& name) {
  proto::AdminRequest request;
  request.mutable_remove()->mutable_key()->set_name(name);
  ASSERT_TRUE(world.Ask(request).ok());
}

std::size_t CountNotFound(const World& world) {
  return static_cast<std::size_t>(std::ranges::count_if(world.answers, [](const auto& answer) {
    return answer.reply.code() == static_cast<int>(absl::StatusCode::kNotFound);
  }));
}

TEST(Cluster, AFunctionRemovedWhileRequestsWaitAnswersThemNotFound) {
  World world(1, 1);
  ASSERT_TRUE(world.Deploy("slow", MiB(50)).ok());
  for (std::uint64_t i = 0; i < 50; ++i) world.Infer("slow", i);
  world.Run(milliseconds(30));
  RemoveFunction(world, "slow");
  world.Run(seconds(5));
  ASSERT_EQ(world.answers.size(), 50u) << "a request hangs";
  EXPECT_GT(CountNotFound(world), 20u);
}

TEST(Cluster, ARequestOfARemovedFunctionDoesNotWaitForItsTimeoutWhenItsNodeIsLost) {
  World world(1, 1);
  ASSERT_TRUE(world.Deploy("slow", MiB(50)).ok());
  for (std::uint64_t i = 0; i < 4; ++i) world.Infer("slow", i);  // all of them are at the node
  world.Run(milliseconds(5));
  RemoveFunction(world, "slow");
  world.KillNode("node-1");
  world.Run(seconds(2));
  ASSERT_EQ(world.answers.size(), 4u) << "a request waits for a function that is not there any more";
  EXPECT_GE(CountNotFound(world), 3u);
}

TEST(Cluster, RequestsWithTimeoutsSetNoTimerEach) {
  World world(0);
  const auto timers = [&] { return world.scheduler().clock().schedule().size(); };
  world.Run(seconds(1));
  const auto before = timers();
  // The second request of each round times out before all that wait, so the table sets a timer for it.
  for (int round = 0; round < 200; ++round) {
    world.Infer("absent", static_cast<std::uint64_t>(2 * round), seconds(30));
    world.Infer("absent", static_cast<std::uint64_t>(2 * round + 1), milliseconds(500));
    world.Run(seconds(1));
  }
  EXPECT_LE(timers(), before + 10) << "timers add up";
}

TEST(Cluster, AModelThatIsNotToBeDividedAndFitsNoGpuIsRefusedWithTheSizes) {
  World world(1);
  const auto status = world.Deploy("huge", GiB(2) - MiB(100), milliseconds(100), {"x"}, {},
                                   [](auto& deploy) { deploy.set_stage_memory(GiB(2).count()); });
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find("GiB"), std::string::npos) << status;
}

TEST(Cluster, ATimeoutDropsARequestWhereItWaits) {
  World world(1, 1);
  ASSERT_TRUE(world.Deploy("slow", MiB(50)).ok());
  for (std::uint64_t i = 0; i < 30; ++i) world.Infer("slow", i, milliseconds(100));
  world.Run(seconds(2));
  ASSERT_EQ(world.answers.size(), 30u);
  std::size_t expired = 0, served = 0;
  for (const auto& answer : world.answers) {
    expired += answer.reply.code() == static_cast<int>(absl::StatusCode::kDeadlineExceeded);
    served += answer.reply.code() == 0;
    EXPECT_LE(answer.took, milliseconds(125));
  }
  EXPECT_GT(expired, 10u);
  EXPECT_GT(served, 3u);
}

TEST(Cluster, ADeadNodeIsNoticedAndItsRequestsRunElsewhere) {
  World world(2, 1);
  ASSERT_TRUE(world.Deploy("resnet", MiB(50)).ok());
  world.Run(seconds(1));
  for (std::uint64_t i = 0; i < 12; ++i) world.Infer("resnet", i);
  world.Run(milliseconds(15));
  world.KillNode("node-1");
  world.Run(seconds(5));
  ASSERT_EQ(world.answers.size(), 12u);
  for (const auto& answer : world.answers) EXPECT_EQ(answer.reply.code(), 0) << answer.reply.message();
  proto::AdminRequest request;
  request.mutable_cluster_status();
  const auto status = world.Ask(request);
  ASSERT_TRUE(status.ok());
  for (const auto& entry : status->status().members())
    EXPECT_EQ(entry.member().state() == proto::MEMBER_DEAD, entry.member().name() == "node-1");
}

// What its members said meanwhile lies in its mailbox behind its own clock's message.
TEST(Cluster, AManagerThatStoodStillTakesNoMemberForDead) {
  World world(2);
  const auto members = [&] {
    proto::AdminRequest request;
    request.mutable_cluster_status();
    std::map<std::string, std::pair<proto::MemberState, std::uint64_t>> found;
    const auto reply = world.Ask(request);
    for (const auto& entry : reply->status().members())
      found[entry.member().name()] = {entry.member().state(), entry.member().epoch()};
    return found;
  };
  const auto before = members();
  for (const auto stood : {milliseconds(900), milliseconds(5000)}) {
    world.StandStill(stood);
    world.Run(seconds(1));
    EXPECT_EQ(members(), before) << stood.count() << " ms";
  }
  EXPECT_EQ(EventsOf(world, "manager-stood-still").size(), 2u);
  world.KillNode("node-1");
  world.Run(seconds(1));
  EXPECT_EQ(members().at("node-1").first, proto::MEMBER_DEAD) << "silence counts again";
}

TEST(Cluster, AManagerThatRestartsKnowsWhatItAcknowledgedAndServiceGoesOn) {
  World world(2);
  ASSERT_TRUE(world.Deploy("resnet", MiB(50)).ok());
  world.StopManager();
  world.Run(seconds(1));
  world.Infer("resnet", 1);
  world.Run(seconds(1));
  ASSERT_EQ(world.answers.size(), 1u) << "gateways and nodes serve what they know";
  EXPECT_EQ(world.answers[0].reply.code(), 0) << world.answers[0].reply.message();
  world.StartManager();
  world.Run(seconds(3));
  proto::AdminRequest request;
  request.mutable_list_functions();
  const auto functions = world.Ask(request);
  ASSERT_TRUE(functions.ok());
  ASSERT_EQ(functions->functions_size(), 1);
  EXPECT_EQ(functions->functions(0).record().key().name(), "resnet");
  EXPECT_EQ(functions->functions(0).adopted_by_size(), 2) << "nodes say what they hold when they join again";
  world.Infer("resnet", 2);
  world.Run(seconds(1));
  ASSERT_EQ(world.answers.size(), 2u);
  EXPECT_EQ(world.answers[1].reply.code(), 0) << world.answers[1].reply.message();
}

// Gateways and nodes join the new manager one after the other, under new epochs; none of these joins ends a
// request that runs.
TEST(Cluster, RequestsInFlightSurviveManagersThatRestart) {
  FakeWorkerProfile slow;
  slow.run = seconds(4);
  World world(3, 1, slow);
  for (const char* name : {"a", "b", "c"}) ASSERT_TRUE(world.Deploy(name, MiB(50)).ok());
  std::uint64_t call = 0;
  for (int i = 0; i < 2; ++i)
    for (const char* name : {"a", "b", "c"}) world.Infer(name, call++, seconds(60));
  world.Run(milliseconds(200));
  for (int restart = 0; restart < 3; ++restart) {
    world.StopManager();
    world.Run(milliseconds(300));
    world.StartManager();
    world.Run(milliseconds(900));
  }
  EXPECT_TRUE(world.answers.empty()) << "the test is of requests that outlive all of the managers";
  world.Run(seconds(50));
  ASSERT_EQ(world.answers.size(), call);
  for (const auto& answer : world.answers) {
    EXPECT_EQ(answer.reply.code(), 0) << answer.reply.message();
    EXPECT_EQ(answer.reply.attempts(), 1u) << "attempts of call " << answer.call;
  }
}

TEST(Cluster, AMemberThatJoinsAgainBeforeItsDeathIsNoticedIsStillReached) {
  World world(1);
  proto::JoinRequest join;
  join.mutable_member()->set_name("node-1");
  join.mutable_member()->set_kind(proto::MEMBER_NODE);
  join.mutable_member()->set_address("node-1");
  world.system().spawn([&, node = world.node("node-1").controller](caf::event_based_actor* self) {
    self->request(world.manager(), caf::infinite, join, node).then([](const proto::JoinReply&) {});
  });
  world.Run(seconds(1));
  proto::AdminRequest drain;
  drain.mutable_drain()->set_name("node-1");
  drain.mutable_drain()->set_drain(true);
  EXPECT_EQ(world.view()->nodes(), 1u);
  EXPECT_TRUE(world.Ask(drain).ok()) << "the manager lost it: " << world.Ask(drain).status();
  world.Run(seconds(1));
  EXPECT_EQ(world.view()->nodes(), 0u) << "a draining node takes requests";
}

TEST(Cluster, FunctionsAreListedAlsoWhenNoNodeAnswers) {
  World world(1);
  ASSERT_TRUE(world.Deploy("digits", MiB(10)).ok());
  world.KillNode("node-1");
  world.Run(seconds(2));
  proto::AdminRequest list, show;
  list.mutable_list_functions();
  show.mutable_show_function()->mutable_key()->set_name("digits");
  for (const auto& request : {list, show}) {
    const auto listed = world.Ask(request);
    ASSERT_TRUE(listed.ok()) << listed.status();
    ASSERT_EQ(listed->functions_size(), 1);
    EXPECT_EQ(listed->functions(0).record().key().name(), "digits");
  }
}

TEST(Cluster, ADeploymentIsAnsweredOnlyAfterItsCommit) {
  World world(1);
  world.store().Hold();
  auto done = std::make_shared<bool>(false);
  proto::FunctionRecord record;
  EXPECT_TRUE(absl::IsDeadlineExceeded(world.Deploy("resnet", MiB(10))));
  world.store().Release();
  world.Run(seconds(1));
  proto::AdminRequest request;
  request.mutable_list_functions();
  const auto functions = world.Ask(request);
  ASSERT_TRUE(functions.ok());
  EXPECT_EQ(functions->functions_size(), 1);
}

TEST(Cluster, AFailedCommitIsAnErrorAndChangesNothing) {
  World world(1);
  world.store().FailNext(absl::ResourceExhaustedError("disk full"));
  EXPECT_TRUE(absl::IsResourceExhausted(world.Deploy("resnet", MiB(10))));
  proto::AdminRequest request;
  request.mutable_list_functions();
  EXPECT_EQ(world.Ask(request)->functions_size(), 0);
  EXPECT_TRUE(world.Deploy("resnet", MiB(10)).ok()) << "the disk has room again";
}

TEST(Cluster, ADrainingNodeFinishesWhatItHasAndGetsNothingNew) {
  World world(2, 1);
  ASSERT_TRUE(world.Deploy("resnet", MiB(50)).ok());
  world.Run(seconds(1));
  proto::AdminRequest request;
  request.mutable_drain()->set_name("node-1");
  request.mutable_drain()->set_drain(true);
  ASSERT_TRUE(world.Ask(request).ok());
  world.Run(seconds(1));
  for (std::uint64_t i = 0; i < 10; ++i) world.Infer("resnet", i);
  world.Run(seconds(2));
  ASSERT_EQ(world.answers.size(), 10u);
  for (const auto& answer : world.answers) EXPECT_EQ(answer.reply.node(), "node-2");
}

// An operator drained a node for maintenance: no restart may bring requests back to it.
TEST(Cluster, ADrainedNodeStaysSoWhenItOrTheManagerRestarts) {
  World world(2, 1);
  ASSERT_TRUE(world.Deploy("resnet", MiB(50)).ok());
  proto::AdminRequest request;
  request.mutable_drain()->set_name("node-1");
  request.mutable_drain()->set_drain(true);
  ASSERT_TRUE(world.Ask(request).ok());
  world.StopManager();
  world.StartManager();
  world.Run(seconds(3));
  EXPECT_EQ(world.view()->nodes(), 1u) << "the drain was lost in the manager's restart";
  world.KillNode("node-1");
  world.Run(seconds(1));
  world.RestartNode("node-1", World::Kept::kNothing);
  world.Run(seconds(3));
  EXPECT_EQ(world.view()->nodes(), 1u) << "the drain was lost in the node's restart";
  request.mutable_drain()->set_drain(false);
  ASSERT_TRUE(world.Ask(request).ok());
  world.StopManager();
  world.StartManager();
  world.Run(seconds(3));
  EXPECT_EQ(world.view()->nodes(), 2u);
}

TEST(Cluster, TheLeastRecentlyUsedModelGoesWhenMemoryIsShort) {
  FakeWorkerProfile profile;
  profile.memory = MiB(500);
  World world(1, 1, profile, {}, GiB(2), [](NodeOptions& options) { options.policies.eviction = "lru"; });
  for (const char* name : {"a", "b", "c"}) ASSERT_TRUE(world.Deploy(name, MiB(200)).ok());
  std::uint64_t call = 0;
  for (const char* name : {"a", "b", "a", "c", "a", "b"}) {
    world.Infer(name, call++);
    world.Run(seconds(1));
  }
  ASSERT_EQ(world.answers.size(), 6u);
  std::vector<bool> hits;
  for (const auto& answer : world.answers) {
    EXPECT_EQ(answer.reply.code(), 0) << answer.reply.message();
    hits.push_back(answer.reply.hit());
  }
  // Model c evicts b, which was used before a; b comes back in the end.
  EXPECT_EQ(hits, (std::vector<bool>{false, false, true, false, true, false}));
  EXPECT_LE(world.node("node-1").workers[0]->used, MiB(500));
}

TEST(Cluster, AModelThatComesAfterItsRequestHasGivenUpDoesNotHoldItsPlaceForEver) {
  FakeWorkerProfile profile;
  profile.memory = MiB(500);
  World world(1, 1, profile);
  for (const char* name : {"a", "b"}) ASSERT_TRUE(world.Deploy(name, MiB(300)).ok());
  world.Infer("a", 1, milliseconds(20));  // the swap takes 50 ms
  world.Run(seconds(1));
  world.Infer("b", 2);
  world.Run(seconds(5));
  ASSERT_EQ(world.answers.size(), 2u);
  EXPECT_EQ(world.answers[0].reply.code(), static_cast<int>(absl::StatusCode::kDeadlineExceeded));
  EXPECT_EQ(world.answers[1].reply.code(), 0) << world.answers[1].reply.message();
}

TEST(Cluster, WhatHappensAtANodeIsInTheClustersEvents) {
  World world(2, 1);
  ASSERT_TRUE(world.Deploy("resnet", MiB(50)).ok());
  world.Run(seconds(1));
  EXPECT_EQ(EventsOf(world, "model-adopted").size(), 2u);
  EXPECT_EQ(EventsOf(world, "worker-ready").size(), 2u);
  const auto killed = world.scheduler().clock().now().time_since_epoch().count();
  world.node("node-2").workers[0]->kill();
  world.Run(seconds(2));
  const auto down = EventsOf(world, "worker-down");
  ASSERT_EQ(down.size(), 1u);
  EXPECT_EQ(down[0], "node-2: GPU 0, worker 1: killed by signal 9: killed");
  const auto ready = EventsOf(world, "worker-ready");
  ASSERT_EQ(ready.size(), 3u);
  EXPECT_THAT(ready[2], testing::HasSubstr("node-2: GPU 0, worker 2, back after "));
  // An event has the time at which it happened by the manager's clock, not the time at which it was told.
  proto::AdminRequest request;
  request.mutable_list_events()->set_limit(0);
  const auto reply = world.Ask(request);
  ASSERT_TRUE(reply.ok()) << reply.status();
  for (const auto& event : reply->events()) {
    if (event.kind() != "worker-down") continue;
    EXPECT_EQ(event.unix_ns(), killed);
  }
}

TEST(Cluster, WhatHappensWhileTheManagerIsAwayIsToldWhenItIsBack) {
  World world(1, 1);
  world.StopManager();
  world.Run(seconds(1));
  world.node("node-1").workers[0]->kill();
  world.Run(seconds(2));
  world.StartManager();
  world.Run(seconds(2));
  // The first manager had heard of the first start; that event went away with the manager's log.
  EXPECT_EQ(EventsOf(world, "worker-down").size(), 1u);
  EXPECT_EQ(EventsOf(world, "worker-ready").size(), 1u);
}

// A request that is planned again counts as one request, and as a hit or miss by where its model was at
// first.
TEST(Cluster, WhereAModelWasIsCountedOncePerRequest) {
  World world(1, 1);
  ASSERT_TRUE(world.Deploy("a", MiB(100)).ok());
  world.Infer("a", 1);
  world.Run(milliseconds(10));  // 10 of the 17 ms that the copy takes
  world.node("node-1").workers[0]->kill();
  world.Run(seconds(3));
  world.Infer("a", 2);
  world.Run(seconds(1));
  ASSERT_EQ(world.answers.size(), 2u);
  ASSERT_EQ(world.answers[0].reply.attempts(), 2u);
  std::map<std::string, std::uint64_t> counted;
  const auto node = world.Describe("node-1");
  for (const auto& source : node.swaps().sources()) counted[source.source()] = source.requests();
  EXPECT_EQ(counted["host"], 1u);
  EXPECT_EQ(counted["resident"], 1u);
}

TEST(Cluster, EachSwapIsAnEvent) {
  FakeWorkerProfile profile;
  profile.memory = MiB(150);
  World world(1, 1, profile);
  for (const char* name : {"a", "b"}) ASSERT_TRUE(world.Deploy(name, MiB(100)).ok());
  for (std::uint64_t i = 0; i < 6; ++i) {
    world.Infer(i % 2 == 0 ? "a" : "b", i);
    world.Run(seconds(1));
  }
  world.Run(seconds(1));
  const auto swaps = EventsOf(world, "swap");
  ASSERT_EQ(swaps.size(), 6u);
  EXPECT_EQ(swaps.size(), world.node("node-1").workers[0]->swaps);
  EXPECT_THAT(swaps[0], testing::MatchesRegex("node-1: GPU 0: 'a' from host, 100 MiB in [0-9.]+ .?s"));
  EXPECT_THAT(swaps[1],
              testing::MatchesRegex("node-1: GPU 0: 'b' from host, 100 MiB in [0-9.]+ .?s; 'a' went for it"));
}

// Two GPUs with a link between them; GPU 0 has the model and runs it for a second.
class PeerCopies : public testing::Test {
 protected:
  PeerCopies() {
    EXPECT_TRUE(world_.Deploy("resnet", MiB(100)).ok());
    world_.Infer("resnet", 0);
    world_.Run(milliseconds(200));
    EXPECT_EQ(workers_[0]->swaps, 1u);
  }
  static FakeWorkerProfile Profile() {
    FakeWorkerProfile profile;
    profile.link = {1e9};
    profile.peer_link = {2e9};
    profile.run = seconds(1);
    return profile;
  }
  // The second replica is on its way: the copy takes 52 ms, of which 20 have passed.
  void BeginCopy() {
    world_.Infer("resnet", 1);
    world_.Run(milliseconds(20));
    ASSERT_EQ(workers_[1]->peer_swaps, 1u);
    ASSERT_EQ(workers_[0]->life.pins.size(), 1u);
  }
  void ExpectAllServed(std::size_t requests) {
    ASSERT_EQ(world_.answers.size(), requests);
    for (const auto& answer : world_.answers) EXPECT_EQ(answer.reply.code(), 0) << answer.reply.message();
    for (const auto& worker : workers_) EXPECT_TRUE(worker->life.pins.empty()) << "a model was not unpinned";
  }
  [[nodiscard]] std::vector<std::string> Events(const std::string& kind) const {
    std::vector<std::string> messages;
    for (const auto& [what, message] : world_.events)
      if (what == kind) messages.push_back(message);
    return messages;
  }
  World world_{1, 2, Profile(), {}, GiB(2), [](NodeOptions& options) {
                 options.policies = *FindPreset("torpor");
                 options.topology = *node::Topology::Parse("switch:0-1,link:0-1=2GB");
               }};
  std::vector<std::shared_ptr<FakeWorkerControl>>& workers_ = world_.node("node-1").workers;
};

TEST_F(PeerCopies, TheSecondReplicaComesFromTheFirst) {
  BeginCopy();
  world_.Run(seconds(3));
  ExpectAllServed(2);
  EXPECT_EQ(workers_[0]->pinned, 1u);
  EXPECT_EQ(workers_[1]->swaps, 1u);
  EXPECT_THAT(Events("swap"), testing::ElementsAre("GPU 0: 'resnet' from host, 100 MiB in 105 ms",
                                                   "GPU 1: 'resnet' from GPU 0, 100 MiB in 52.4 ms"));
}

TEST_F(PeerCopies, ASourceGpuThatDiesInMidCopyCostsNoRequest) {
  BeginCopy();
  workers_[0]->refuse_start = true;  // the worker does not come back
  workers_[0]->kill();
  world_.Run(seconds(10));
  ExpectAllServed(2);
  EXPECT_EQ(workers_[1]->swaps, 2u);  // the model was loaded again, from the host
  EXPECT_EQ(workers_[1]->peer_swaps, 1u);
  EXPECT_THAT(Events("swap-failed"),
              testing::ElementsAre(testing::HasSubstr("GPU 1: 'resnet' from GPU 0: ")));
}

TEST_F(PeerCopies, ADestinationThatDiesInMidCopyIsUnpinnedAtItsSource) {
  BeginCopy();
  workers_[1]->refuse_start = true;
  workers_[1]->kill();
  world_.Run(milliseconds(10));
  EXPECT_TRUE(workers_[0]->life.pins.empty());
  world_.Run(seconds(10));
  ExpectAllServed(2);
}

// The model is taken off the node at every stage of a copy between GPUs.
TEST_F(PeerCopies, AModelThatIsRemovedAtAnyMomentOfItsCopyIsUnpinned) {
  bool more = true;
  std::size_t pinned = 0;
  for (std::uint64_t steps = 0; more; ++steps) {
    const std::string name = "model-" + std::to_string(steps);
    ASSERT_TRUE(world_.Deploy(name, MiB(100)).ok());
    world_.Infer(name, 2 * steps + 10);
    world_.Run(milliseconds(200));
    const auto before = workers_[0]->pinned + workers_[1]->pinned;
    world_.Infer(name, 2 * steps + 11);
    for (std::uint64_t i = 0; i < steps && more; ++i) more = world_.scheduler().try_run_once();
    proto::DisownModel disown;
    disown.set_model_digest(Sha256Hex("model " + name));
    caf::anon_send(world_.node("node-1").controller, disown);
    world_.Run(seconds(20));
    pinned += workers_[0]->pinned + workers_[1]->pinned - before;
    ASSERT_EQ(world_.answers.size(), 2 * steps + 3) << "after " << steps << " steps";
    for (const auto& worker : workers_) EXPECT_TRUE(worker->life.pins.empty()) << "after " << steps;
  }
  EXPECT_GT(pinned, 0U);
}

TEST_F(PeerCopies, ASourceThatHasLostTheModelMeansTheHost) {
  workers_[0]->used = Bytes(0);
  workers_[0]->life.resident.clear();  // the worker has dropped the model and its node does not know
  world_.Infer("resnet", 1);
  world_.Run(seconds(5));
  ASSERT_EQ(world_.answers.size(), 2u);
  EXPECT_EQ(workers_[1]->peer_swaps, 0u);
  EXPECT_EQ(workers_[1]->swaps, 1u);
  EXPECT_EQ(Events("swap-failed").size(), 1u);
}

// A run that is dispatched behind a copy waits, as the copy does, for the source's answer. A request that is
// cancelled meanwhile is cancelled as soon as its worker knows of it.
TEST_F(PeerCopies, RunsAndCancelsBehindAPinThatWasNotAnsweredAreNotLost) {
  workers_[0]->hang = true;
  for (std::uint64_t call = 1; call < 5; ++call) world_.Infer("resnet", call, seconds(100));
  world_.Run(milliseconds(5));
  EXPECT_EQ(workers_[1]->peer_swaps, 0u);
  world_.Cancel(1);
  world_.Run(milliseconds(5));
  EXPECT_EQ(workers_[1]->runs, 0u);
  world_.Run(seconds(90));  // the watchdog ends GPU 0's worker
  EXPECT_EQ(Events("swap-failed").size(), 1u);
  ASSERT_EQ(world_.answers.size(), 5u);
  for (const auto& answer : world_.answers) {
    const auto expected = answer.call == 1 ? absl::StatusCode::kCancelled : absl::StatusCode::kOk;
    EXPECT_EQ(answer.reply.code(), static_cast<int>(expected)) << answer.call << answer.reply.message();
  }
}

// Two models fill the GPU; requests for a third come now and then, and once its worker is killed in the
// middle.
TEST(Cluster, AModelWithASingleRequestPassesThroughAFullGpu) {
  FakeWorkerProfile profile;
  profile.memory = MiB(512);
  World world(1, 1, profile, {}, GiB(2),
              [](NodeOptions& options) { options.scheduler.by_layer = node::ByLayer::kIdle; });
  const auto& worker = world.node("node-1").workers[0];
  for (const char* name : {"a", "b", "cold"}) ASSERT_TRUE(world.Deploy(name, MiB(200)).ok());
  world.Run(seconds(1));
  std::uint64_t call = 0;
  const auto serve = [&](const char* name) {
    world.Infer(name, ++call);
    world.Run(seconds(1));
    ASSERT_EQ(world.answers.size(), call);
    EXPECT_EQ(world.answers.back().reply.code(), 0) << world.answers.back().reply.message();
  };
  for (const char* name : {"a", "b", "cold", "a", "b"}) serve(name);
  EXPECT_EQ(worker->by_layer, 1u);
  EXPECT_EQ(worker->swaps, 2u) << "a model was evicted for it";
  world.Infer("cold", ++call);
  world.Run(milliseconds(2));
  worker->kill();
  world.Run(seconds(10));
  ASSERT_EQ(world.answers.size(), call);
  EXPECT_EQ(world.answers.back().reply.code(), 0) << world.answers.back().reply.message();
  EXPECT_EQ(world.answers.back().reply.attempts(), 2u);
}

TEST(Cluster, ANodeHandsOverWhatItLearnedAndKnowsItAgain) {
  std::vector<proto::NodeProfiles> saved;
  const auto keep = [&](NodeOptions& options) {
    options.save_profiles = [&](proto::NodeProfiles profiles, const NodeOptions::Saved& done) {
      saved.push_back(std::move(profiles));
      done(absl::OkStatus());
    };
    if (!saved.empty()) options.profiles = saved.back();
  };
  {
    World world(1, 1, {}, {}, GiB(2), keep);
    ASSERT_TRUE(world.Deploy("resnet", MiB(100)).ok());
    world.Run(seconds(30));
    EXPECT_TRUE(saved.empty());  // the node has learned nothing yet
    world.Infer("resnet", 0);
    world.Run(seconds(1));
    world.Infer("resnet", 1);
    world.Run(seconds(100));
    ASSERT_EQ(saved.size(), 1u);  // the node has learned nothing new since
    ASSERT_EQ(saved[0].models_size(), 1);
    EXPECT_EQ(Duration(saved[0].models(0).run_ns()), milliseconds(10));
    EXPECT_TRUE(saved[0].models(0).heavy());  // its swap takes 17 ms, longer than its run of 10 ms
    world.Infer("resnet", 2);
    world.Run(milliseconds(100));
  }
  ASSERT_EQ(saved.size(), 2u);  // the node saves when it ends
  World again(1, 1, {}, {}, GiB(2), keep);
  again.Run(seconds(30));
  EXPECT_EQ(saved.size(), 2u);
}

TEST(Cluster, WhatANodeLearnedIsSavedOnceAFullDiskHasRoom) {
  bool full = true;
  int saves = 0;
  World world(1, 1, {}, {}, GiB(2), [&](NodeOptions& options) {
    options.save_profiles = [&](const proto::NodeProfiles&, const NodeOptions::Saved& done) {
      if (full) return done(absl::ResourceExhaustedError("no space left"));
      ++saves;
      done(absl::OkStatus());
    };
  });
  ASSERT_TRUE(world.Deploy("resnet", MiB(100)).ok());
  world.Infer("resnet", 0);
  world.Run(seconds(30));
  full = false;
  world.Run(seconds(30));
  EXPECT_EQ(saves, 1) << "although it has learned nothing since";
}

proto::NodeLoad LoadOf(World& world, const std::string& node) {
  world.Run(seconds(1));  // a heartbeat tells it
  proto::AdminRequest request;
  request.mutable_cluster_status();
  const auto reply = world.Ask(request);
  EXPECT_TRUE(reply.ok()) << reply.status();
  for (const auto& status : reply->status().members())
    if (status.member().name() == node) return status.load();
  ADD_FAILURE() << "there is no node '" << node << "'";
  return {};
}

TEST(Cluster, WhatAModelCostsIsMeasuredWhenItHasBeenAdopted) {
  std::vector<proto::NodeProfiles> saved;
  World world(1, 1, {}, {}, GiB(2), [&](NodeOptions& options) {
    options.measure = node::MeasureRule::kAdoption;
    options.save_profiles = [&](proto::NodeProfiles profiles, const NodeOptions::Saved& done) {
      saved.push_back(std::move(profiles));
      done(absl::OkStatus());
    };
  });
  ASSERT_TRUE(world.Deploy("resnet", MiB(100)).ok());
  ASSERT_TRUE(world.Deploy("tiny", KiB(512)).ok());
  world.Run(seconds(30));
  ASSERT_FALSE(saved.empty());
  ASSERT_EQ(saved.back().models_size(), 2);
  std::set<bool> heavy;
  for (const auto& model : saved.back().models()) {
    EXPECT_EQ(Duration(model.run_ns()), milliseconds(10));
    EXPECT_GT(Duration(model.swapped_ns()), milliseconds(10));
    heavy.insert(model.heavy());
  }
  EXPECT_EQ(heavy, (std::set<bool>{false, true}));
  EXPECT_EQ(LoadOf(world, "node-1").served(), 0u) << "a trial run counts as a request";
  EXPECT_EQ(LoadOf(world, "node-1").running(), 0u);
  world.Infer("resnet", 1);
  world.Run(seconds(1));
  ASSERT_EQ(world.answers.size(), 1u);
  EXPECT_EQ(LoadOf(world, "node-1").served(), 1u);
}

TEST(Cluster, ARequestWaitsForNoTrialThatHasNotBegun) {
  World world(1, 1, {}, {}, GiB(2),
              [](NodeOptions& options) { options.measure = node::MeasureRule::kAdoption; });
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(world.Deploy("model-" + std::to_string(i), MiB(100)).ok());
  for (std::uint64_t i = 0; i < 5; ++i) world.Infer("model-9", i);
  // The swap of another trial that was under way, the trial's own swap, and five runs of 10 ms.
  world.Run(milliseconds(100));
  ASSERT_EQ(world.answers.size(), 5u);
  for (const auto& answer : world.answers) EXPECT_EQ(answer.reply.code(), 0) << answer.reply.message();
}

// The functions whose models came onto a GPU in the events from number `from` on, in order.
std::vector<std::string> Swapped(const World& world, std::size_t from,
                                 const std::vector<std::string>& names) {
  std::vector<std::string> swapped;
  for (auto i = from; i < world.events.size(); ++i) {
    if (world.events[i].first != "swap") continue;
    for (const auto& name : names)
      if (world.events[i].second.find("'" + name + "'") != std::string::npos) swapped.push_back(name);
  }
  return swapped;
}

// Deploys the functions, and sends each more requests than the one before.
void DeployAndAsk(World& world, const std::vector<std::string>& names, Bytes weights) {
  std::uint64_t call = 0;
  for (std::size_t i = 0; i < names.size(); ++i) {
    ASSERT_TRUE(world.Deploy(names[i], weights).ok());
    for (std::size_t n = 0; n < 2 * (i + 1); ++n) {
      world.Infer(names[i], call++);
      world.Run(milliseconds(100));
    }
  }
  ASSERT_EQ(world.answers.size(), call);
}

std::set<std::string> OnGpu(World& world, int gpu) {
  std::set<std::string> names;
  const auto described = world.Describe("node-1");
  for (const auto& model : described.gpus(gpu).models())
    for (const auto& name : model.functions()) names.insert(name);
  return names;
}

TEST(Cluster, WhatADeadWorkerHeldComesToTheNewOneHotFirstUnasked) {
  World world(1, 1, {}, {}, GiB(2),
              [](NodeOptions& options) { options.refill = node::RefillRule::kHotFirst; });
  const std::vector<std::string> names = {"cold", "mild", "warm", "hot"};
  DeployAndAsk(world, names, MiB(100));
  world.Infer("cold", 100);  // the function that was used last and has the fewest requests
  world.Run(milliseconds(100));
  const auto before = world.events.size();
  world.node("node-1").workers[0]->kill();
  world.Run(seconds(3));
  EXPECT_EQ(Swapped(world, before, names), (std::vector<std::string>{"hot", "warm", "mild", "cold"}));
  EXPECT_EQ(OnGpu(world, 0), std::set<std::string>(names.begin(), names.end()));
}

TEST(Cluster, WhatADeadWorkerHeldComesToTheOtherGpusAtOnceIntoFreeRoom) {
  FakeWorkerProfile profile;
  profile.start = seconds(5);  // no new worker comes for long
  World world(1, 2, profile, {}, GiB(2),
              [](NodeOptions& options) { options.refill = node::RefillRule::kHotFirst; });
  world.Run(seconds(10));
  std::vector<std::string> names;
  for (int i = 0; i < 8; ++i) names.push_back("model-" + std::to_string(i));
  DeployAndAsk(world, names, MiB(150));
  const auto lost = OnGpu(world, 0), kept = OnGpu(world, 1);
  ASSERT_GE(lost.size(), 3u);
  ASSERT_GE(kept.size(), 1u);
  const auto before = world.events.size();
  world.node("node-1").workers[0]->kill();
  world.Run(seconds(1));
  const auto swapped = Swapped(world, before, names);
  ASSERT_GE(swapped.size(), 1u);
  ASSERT_LT(swapped.size(), lost.size()) << "not all of them fit there";
  // The models with the most requests came back, of those that were lost; no request asked for them.
  auto hottest = lost.rbegin();
  for (const auto& name : swapped) EXPECT_EQ(name, *hottest++);
  for (const auto& name : kept) EXPECT_TRUE(OnGpu(world, 1).contains(name)) << name;
  world.Run(seconds(10));
  for (const auto& name : lost)
    EXPECT_TRUE(OnGpu(world, 0).contains(name) || OnGpu(world, 1).contains(name))
        << name << " comes to the new worker";
}

void AskAll(World& world, const std::vector<std::string>& names) {
  const auto before = world.answers.size();
  for (std::size_t i = 0; i < names.size(); ++i) world.Infer(names[i], 1000 + i);
  world.Run(seconds(2));
  ASSERT_EQ(world.answers.size(), before + names.size());
  for (const auto& answer : world.answers) EXPECT_EQ(answer.reply.code(), 0) << answer.reply.message();
}

TEST(Cluster, WhatADeadWorkerHeldIsThereForTheNextOneAndIsNotBroughtAgain) {
  FakeWorkerProfile profile;
  profile.keeps = true;
  World world(1, 2, profile, {}, GiB(2), [](NodeOptions& options) {
    options.refill = node::RefillRule::kHotFirst;
    options.keep_weights = node::KeepWeights::kOn;
  });
  std::vector<std::string> names;
  for (int i = 0; i < 8; ++i) names.push_back("model-" + std::to_string(i));
  DeployAndAsk(world, names, MiB(150));
  const auto on_first = OnGpu(world, 0);
  ASSERT_GE(on_first.size(), 3u);
  const auto before = world.events.size();
  auto& worker = *world.node("node-1").workers[0];
  worker.kill();
  world.Run(seconds(5));
  EXPECT_EQ(worker.kept.taken, on_first.size());
  EXPECT_TRUE(Swapped(world, before, names).empty());
  EXPECT_EQ(OnGpu(world, 0), on_first);
  AskAll(world, names);
  EXPECT_TRUE(Swapped(world, before, names).empty());
}

TEST(Cluster, WhatADeadWorkerHasSpoiledIsFoundAndComesAgain) {
  FakeWorkerProfile profile;
  profile.keeps = true;
  profile.spoil_every = 2;
  World world(1, 1, profile, {}, GiB(2),
              [](NodeOptions& options) { options.keep_weights = node::KeepWeights::kOn; });
  const std::vector<std::string> names = {"a", "b", "c", "d"};
  DeployAndAsk(world, names, MiB(100));
  const auto before = world.events.size();
  auto& worker = *world.node("node-1").workers[0];
  worker.kill();
  world.Run(seconds(1));
  AskAll(world, names);
  EXPECT_EQ(worker.kept.found, 2u);
  EXPECT_EQ(Swapped(world, before, names).size(), 2u);
}

TEST(Cluster, WhatRanWhenAWorkerDiedIsNotBroughtToTheNextUnasked) {
  FakeWorkerProfile slow;
  slow.run = seconds(1);
  World world(1, 1, slow, {}, GiB(2),
              [](NodeOptions& options) { options.refill = node::RefillRule::kHotFirst; });
  ASSERT_TRUE(world.Deploy("poison", MiB(100)).ok());
  world.Infer("poison", 1, milliseconds(1500));
  world.Run(milliseconds(1200));
  world.Infer("poison", 2, milliseconds(500));
  world.Run(milliseconds(400));
  const auto before = world.events.size();
  world.node("node-1").workers[0]->kill();
  world.Cancel(2);
  world.Run(seconds(5));
  EXPECT_TRUE(Swapped(world, before, {"poison"}).empty());
}

TEST(Cluster, ATrialThatCostsAWorkerIsNotTriedAgain) {
  FakeWorkerProfile slow;
  slow.run = seconds(2);
  World world(1, 1, slow, {}, GiB(2),
              [](NodeOptions& options) { options.measure = node::MeasureRule::kAdoption; });
  auto& worker = *world.node("node-1").workers[0];
  ASSERT_TRUE(world.Deploy("resnet", MiB(100)).ok());
  world.Run(milliseconds(100));
  ASSERT_EQ(worker.swaps, 1u) << "the trial is under way";
  worker.kill();
  world.Run(seconds(30));
  EXPECT_EQ(worker.spawns, 2u);
  EXPECT_EQ(worker.swaps, 1u) << "a trial ran on the new worker";
  world.Infer("resnet", 1);
  world.Run(seconds(5));
  ASSERT_EQ(world.answers.size(), 1u);
  EXPECT_EQ(world.answers[0].reply.code(), 0) << world.answers[0].reply.message();
}

}  // namespace
}  // namespace troupe::actors
