// How the manager's autoscaler gives functions parts of GPUs by their load: through commits that fail, lost nodes and its own
// restart. Each test is a table of events and what the cluster does about them.
#include "tests/unit/cluster/cluster_fixture.hpp"

namespace troupe::cluster::scaling_test {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

ClusterSettings Patient(ScalingEffect effect = ScalingEffect::kCarriedOut,
                        const std::string& policy = "troupe", const std::string& owning = "always") {
  ClusterSettings settings;
  settings.replicas = 2;
  settings.collect_every = std::chrono::hours(1000);
  settings.membership.suspect_after = minutes(30);
  settings.membership.dead_after = minutes(60);
  settings.scaling = {.policy = policy, .forecast = "last", .owning = owning, .effect = effect};
  return settings;
}

ClusterSettings WithDeadline(Duration deadline) {
  auto settings = Patient();
  settings.default_slo.set_deadline_ns(deadline.count());
  return settings;
}

class ScaledCluster : public ClusterTest {
 protected:
  // Function "f" has a copy on node "n1", which has one GPU; gateway "g1" takes its requests.
  explicit ScaledCluster(const ClusterSettings& settings = Patient()) : ClusterTest(settings) {
    Begin();
    Stored();
    JoinGateway("g1", 7);
    Stored();
    AddNode("n1");
    Deploy("f", 2);
    Stored();
    Adopted();
    Pulse();
  }
  void AddNode(const std::string& name) {
    JoinNode(name, ++asks_);
    Stored();
    Pulse();
    Adopted();
    epochs_[name] = ++joined_;
  }
  Lines Update(const std::string& setting, std::uint32_t value, bool automatic = false) {
    AdminAsked asked{.ask = 40};
    auto& update = *asked.request.mutable_update_function();
    update.mutable_key()->set_name("f");
    if (setting == "quota_request") update.mutable_sharing()->set_quota_request(value);
    if (setting == "quota_limit") update.mutable_sharing()->set_quota_limit(value);
    if (setting == "sm_partition") update.mutable_sharing()->set_sm_partition(value);
    if (setting == "min_instances") update.mutable_sharing()->set_min_instances(value);
    if (setting == "target_utilisation") update.mutable_sharing()->set_target_utilisation(value);
    if (setting == "max_instances") update.mutable_sharing()->set_max_instances(value);
    if (automatic) update.mutable_sharing()->add_automatic(setting);
    update.add_settings(setting);
    auto lines = On(std::move(asked));
    Stored();
    return lines;
  }
  void LeaveToManager() { Update("quota_request", 0, true); }

  struct Profiled {
    std::uint32_t sms = 0;
    double per_second = 0;
    Duration run{};
  };
  void Profile(const std::vector<Profiled>& points) {
    AdminAsked asked{.ask = 70};
    asked.request.mutable_import_profile()->mutable_key()->set_name("f");
    auto& profile = *asked.request.mutable_import_profile()->mutable_profile();
    profile.set_model_digest(FunctionOf("f").model_digest());
    profile.set_gpu_kind("virtual");
    for (const Profiled& point : points) {
      auto& row = *profile.add_rows();
      row.set_sm_partition(point.sms);
      row.set_quota_limit(100);
      row.set_batch(1);
      row.set_throughput(point.per_second);
      row.set_run_ns(point.run.count());
    }
    On(std::move(asked));
    Stored();
  }

  struct Told {
    std::uint64_t arrived = 0, waiting = 0, served = 0;
    Duration gpu_time{};
    std::uint64_t late = 0;  // of those that arrived, all of which have ended
    Duration swapping{};
  };
  void Tell(const std::string& member, std::uint64_t epoch, const Told& told) {
    ++heartbeats_;
    TellAgain(member, epoch, told);
  }
  void TellAgain(const std::string& member, std::uint64_t epoch, const Told& told) {
    HeartbeatHeard heard{.ask = 1};
    heard.heartbeat.set_name(member);
    heard.heartbeat.set_epoch(epoch);
    heard.heartbeat.set_sequence(heartbeats_);
    auto& demand = *heard.heartbeat.add_function_demand();
    demand.mutable_key()->set_name("f");
    demand.mutable_key()->set_version("1");
    demand.set_arrived(told.arrived);
    demand.set_waiting(told.waiting);
    demand.set_served(told.served);
    demand.set_gpu_ns(told.gpu_time.count());
    demand.set_ended(told.arrived);
    demand.set_late(told.late);
    demand.set_swap_ns(told.swapping.count());
    On(std::move(heard));
  }
  // A second with so many requests, each of which has all SMs of a GPU for so long.
  Lines Second(std::uint64_t requests, Duration run = milliseconds(20), Duration swapping = {}) {
    Tell("g1", 1, {.arrived = requests, .swapping = swapping});
    Tell("n1", epochs_["n1"], {.served = requests, .gpu_time = static_cast<Duration::rep>(requests) * run});
    auto lines = Pulse(seconds(1));
    Stored();
    return lines;
  }
  void Seconds(int count, std::uint64_t requests, Duration run = milliseconds(20)) {
    for (int i = 0; i < count; ++i) Second(requests, run);
  }
  proto::AdminReply Show() {
    AdminAsked asked{.ask = 99};
    asked.request.mutable_show_scaling()->mutable_key()->set_name("f");
    On(std::move(asked));
    return reply_;
  }
  // "n1/0: 100 % x 30 %", of the SMs and of the time.
  std::vector<std::string> Owned() {
    std::vector<std::string> owned;
    const auto shown = Show();
    for (const auto& place : shown.scaling().places())
      owned.push_back(
          absl::StrCat(place.node(), "/", place.gpu(), ": ", place.sms(), " % x ", place.quota(), " %"));
    return owned;
  }
  std::vector<std::string> Actions() {
    std::vector<std::string> actions;
    const auto shown = Show();
    for (const auto& decision : shown.scaling().decisions()) actions.push_back(decision.action());
    return actions;
  }

  std::map<std::string, std::uint64_t> epochs_;

 private:
  std::uint64_t joined_ = 1;
  Ask asks_ = 1;
  std::uint64_t heartbeats_ = 0;
};

TEST_F(ScaledCluster, AFunctionThatDoesNotLeaveItToTheManagerIsNotScaled) {
  EXPECT_EQ(Show().code(), static_cast<int>(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(reply_.message(), HasSubstr("troupe function update f --quota-request auto"));
  Seconds(3, 40);
  LeaveToManager();
  EXPECT_EQ(Show().code(), 0);
  EXPECT_THAT(Owned(), IsEmpty()) << "what was told before does not count";
}

TEST_F(ScaledCluster, TimeOfAGpuFollowsTheLoadUpAtOnceAndDownAfterAWhile) {
  LeaveToManager();
  Second(0);
  EXPECT_THAT(Second(14), Contains("store f/1 revision"));
  // Nothing is known of its runs: 50/s on a whole GPU are assumed, and 14/s at 70 % of that take 40 % of it.
  EXPECT_THAT(Owned(), ElementsAre("n1/0: 100 % x 40 %"));
  EXPECT_THAT(Show().scaling().basis(), HasSubstr("observed"));
  Second(28);
  EXPECT_THAT(Owned(), ElementsAre("n1/0: 100 % x 80 %"));
  EXPECT_THAT(Actions(), ElementsAre("add", "resize"));
  Seconds(14, 7);
  EXPECT_THAT(Owned(), ElementsAre("n1/0: 100 % x 80 %")) << "less is needed for a while only";
  Seconds(3, 7);
  EXPECT_THAT(Owned(), ElementsAre("n1/0: 100 % x 20 %"));
}

TEST_F(ScaledCluster, WhatIsObservedCorrectsWhatIsAssumed) {
  LeaveToManager();
  Second(0);
  // Runs take 2 ms, so that a GPU serves ten times as many as was assumed.
  Seconds(60, 100, milliseconds(2));
  EXPECT_THAT(Owned(), ElementsAre("n1/0: 100 % x 30 %"));
  EXPECT_NEAR(Show().scaling().capacity(), 150, 15);
  EXPECT_NEAR(Show().scaling().busy(), 0.67, 0.05);
}

TEST_F(ScaledCluster, AProfileThatIsTenTimesTooFastIsCorrectedWithinAMinute) {
  Profile({{.sms = 100, .per_second = 500, .run = milliseconds(2)}});
  LeaveToManager();
  Second(0);
  Second(28);
  EXPECT_THAT(Owned(), ElementsAre("n1/0: 100 % x 10 %"));
  EXPECT_EQ(Show().scaling().basis(), "by its profile");
  // Runs take 20 ms.
  Seconds(60, 28);
  EXPECT_THAT(Owned(), ElementsAre("n1/0: 100 % x 80 %"));
  EXPECT_THAT(Show().scaling().basis(), HasSubstr("by its profile, of which 10 % is observed"));
}

// Runs on 24 % of the SMs are as fast as on more, and on 12 % they take half of the deadline at most.
class ScaledShares : public ScaledCluster {
 protected:
  ScaledShares() : ScaledCluster(WithDeadline(milliseconds(1))) {
    Profile({{.sms = 6, .per_second = 20, .run = microseconds(800)},
             {.sms = 12, .per_second = 40, .run = microseconds(400)},
             {.sms = 24, .per_second = 71, .run = microseconds(200)},
             {.sms = 100, .per_second = 72, .run = microseconds(200)}});
    Pulse(minutes(1));  // a manager that has just begun waits for the kinds of GPUs before it obeys profiles
    LeaveToManager();
    Second(0);
  }
  // What requests on each share take of a whole GPU, by the profile.
  static constexpr Duration kOn12 = microseconds(3000), kOn24 = microseconds(3380),
                            kOn100 = microseconds(13889);
};

TEST_F(ScaledShares, AShareThatIsLeftToTheManagerFollowsTheLoad) {
  Update("sm_partition", 0, true);
  Seconds(2, 10, kOn12);
  EXPECT_THAT(Owned(), ElementsAre("n1/0: 12 % x 40 %")) << "16/s for 10/s at 70 %";
  Second(40, kOn12);
  EXPECT_THAT(Owned(), ElementsAre("n1/0: 24 % x 90 %")) << "the instance that runs grows";
  Seconds(2, 40, kOn24);
  EXPECT_THAT(Actions(), ElementsAre("add", "resize"));
  Seconds(20, 10, kOn24);
  EXPECT_THAT(Owned(), ElementsAre("n1/0: 12 % x 40 %"));
}

TEST_F(ScaledShares, ADeclaredShareStays) {
  Update("sm_partition", 100);
  Seconds(2, 10, kOn100);
  EXPECT_THAT(Owned(), ElementsAre("n1/0: 100 % x 20 %"));
}

TEST_F(ScaledShares, WithoutRunsInTimeTheShareIsTheOneThatServesAsManyAsTheBest) {
  Profile({{.sms = 12, .per_second = 40, .run = milliseconds(4)},
           {.sms = 24, .per_second = 71, .run = milliseconds(2)},
           {.sms = 100, .per_second = 72, .run = milliseconds(2)}});
  Update("sm_partition", 0, true);
  Seconds(2, 10, kOn24);
  EXPECT_THAT(Owned(), ElementsAre("n1/0: 24 % x 30 %"));
}

TEST_F(ScaledCluster, InstancesHaveTheFunctionsPartOfTheSmsAndStayWithinItsLimits) {
  Update("sm_partition", 50);
  LeaveToManager();
  Second(0);
  Seconds(2, 35);
  // 50/s are wanted, and half of the SMs serve 25/s.
  EXPECT_THAT(Owned(), ElementsAre("n1/0: 50 % x 100 %", "n1/0: 50 % x 100 %"));
  Update("max_instances", 1);
  Update("quota_limit", 60);
  Second(35);
  EXPECT_THAT(Owned(), ElementsAre("n1/0: 50 % x 60 %"));
  Update("sm_partition", 25);
  Second(35);
  EXPECT_THAT(Owned(), ElementsAre("n1/0: 25 % x 60 %"));
}

TEST_F(ScaledCluster, ANewNodeWithACopyTakesWhatTheOthersHaveNoRoomFor) {
  LeaveToManager();
  Second(0);
  Second(70);
  EXPECT_THAT(Owned(), ElementsAre("n1/0: 100 % x 100 %"));
  EXPECT_THAT(Actions(), Contains("no-room"));
  AddNode("n2");
  Second(70);
  EXPECT_THAT(Owned(), ElementsAre("n1/0: 100 % x 100 %", "n2/0: 100 % x 100 %"));
  On(MemberLost{"n2"});
  Pulse(milliseconds(50));
  Stored();
  Second(70);
  EXPECT_THAT(Owned(), ElementsAre("n1/0: 100 % x 100 %")) << "its node is gone";
}

TEST_F(ScaledCluster, NodesWithRoomGetACopyWhenThoseThatHaveOneAreFull) {
  for (const char* name : {"n2", "n3", "n4"}) AddNode(name);  // two of them have a copy of "f"
  LeaveToManager();
  Second(0);
  Second(70);
  EXPECT_THAT(Owned(), SizeIs(2));
  EXPECT_THAT(Actions(), Not(Contains("no-room")));
  // 100/s at 70 % want 143/s, and two GPUs serve 100: one node more is enough.
  Second(100);
  EXPECT_THAT(Pulse(milliseconds(50)), Contains(HasSubstr("adopt f")));
  Adopted();
  Second(100);
  EXPECT_THAT(Owned(), SizeIs(3));
  EXPECT_THAT(Pulse(milliseconds(50)), Not(Contains(HasSubstr("adopt f"))));
  // All GPUs are full: a copy more would serve nothing.
  Second(400);
  Pulse(milliseconds(50));
  Adopted();
  Second(400);
  EXPECT_THAT(Owned(), SizeIs(4));
  EXPECT_THAT(Second(400), Not(Contains(HasSubstr("adopt f"))));
}

TEST_F(ScaledCluster, WithoutRequestsForLongItIsBoundLateAndTheNextRequestNeedsNoDecision) {
  LeaveToManager();
  Second(0);
  Second(14);
  EXPECT_THAT(Owned(), SizeIs(1));
  Seconds(590, 0);
  EXPECT_THAT(Owned(), ElementsAre("n1/0: 100 % x 10 %")) << "the smallest part";
  Seconds(15, 0);
  EXPECT_THAT(Owned(), IsEmpty());
  EXPECT_THAT(Actions(), Contains("bind-late"));
  Seconds(60, 0);
  EXPECT_THAT(Owned(), IsEmpty());
  Second(14);
  EXPECT_THAT(Owned(), ElementsAre("n1/0: 100 % x 40 %"));
}

TEST_F(ScaledCluster, RequestsThatWaitAtTheGatewayAreCaughtUpWith) {
  LeaveToManager();
  Second(0);
  Tell("g1", 1, {.arrived = 7, .waiting = 13});
  Pulse(seconds(1));
  Stored();
  EXPECT_THAT(Owned(), ElementsAre("n1/0: 100 % x 60 %"));
  EXPECT_EQ(Show().scaling().waiting(), 13u);
}

TEST_F(ScaledCluster, WhileRequestsWaitTheNextLookIsSooner) {
  LeaveToManager();
  Second(0);
  Tell("g1", 1, {.arrived = 4});
  EXPECT_THAT(Pulse(milliseconds(250)), Not(Contains(HasSubstr("store"))));
  Tell("g1", 1, {.arrived = 4, .waiting = 3});
  EXPECT_THAT(Pulse(milliseconds(50)), Contains("store f/1 revision"));
  Stored();
  // 8 in 0.3 s and 3 that wait are 30/s.
  EXPECT_THAT(Owned(), ElementsAre("n1/0: 100 % x 90 %"));
  Tell("g1", 1, {.waiting = 40});
  EXPECT_THAT(Pulse(milliseconds(200)), Not(Contains(HasSubstr("store"))));
  EXPECT_THAT(Pulse(milliseconds(50)), Contains("store f/1 revision"));
}

TEST_F(ScaledCluster, WhenMoreComeThanItsInstancesServeTheNextLookIsSooner) {
  LeaveToManager();
  Second(0);
  Second(14);
  ASSERT_THAT(Owned(), ElementsAre("n1/0: 100 % x 40 %"));
  Tell("g1", 1, {.arrived = 5});
  EXPECT_THAT(Pulse(milliseconds(250)), Not(Contains(HasSubstr("store"))))
      << "20/s are what 40 % of the time serve";
  Tell("g1", 1, {.arrived = 4});
  EXPECT_THAT(Pulse(milliseconds(50)), Contains("store f/1 revision"));
}

TEST_F(ScaledCluster, WhatCouldNotBeStoredIsDecidedAgain) {
  LeaveToManager();
  Second(0);
  Tell("g1", 1, {.arrived = 14});
  Pulse(seconds(1));
  Stored(absl::ResourceExhaustedError("the disk is full"));
  EXPECT_THAT(Owned(), IsEmpty());
  EXPECT_THAT(Pulse(milliseconds(50)), Not(Contains(HasSubstr("store"))))
      << "the store is left alone for a second";
  Second(14);
  EXPECT_THAT(Owned(), ElementsAre("n1/0: 100 % x 40 %"));
}

TEST_F(ScaledCluster, ADeclaredRequestTakesThePlaceOfTheDecisionsAndBack) {
  LeaveToManager();
  Second(0);
  Second(28);
  Update("quota_request", 20);
  Pulse();
  Stored();
  EXPECT_EQ(Show().code(), static_cast<int>(absl::StatusCode::kFailedPrecondition));
  LeaveToManager();
  EXPECT_THAT(Owned(), ElementsAre("n1/0: 100 % x 20 %"))
      << "what it owns stays until its load says otherwise";
  Update("quota_request", 0);
  Pulse();
  Stored();
  LeaveToManager();
  EXPECT_THAT(Owned(), IsEmpty());
}

// Two instances of half of the SMs: what it owned stays until its load was too small for a while.
TEST_F(ScaledCluster, AfterAManagersRestartItOwnsWhatItDidAndFollowsItsLoadAgain) {
  CatalogueRecords records;
  records.cluster = "c";
  auto function = FunctionOf("f");
  function.mutable_key()->set_version("1");
  function.mutable_sharing()->set_sm_partition(50);
  function.mutable_sharing()->add_automatic("quota_request");
  function.mutable_sharing()->set_quota_request(90);
  for (const std::uint32_t bottom : {0, 50}) {
    auto& place = *function.add_places();
    place.set_node("n1");
    place.set_bottom(bottom);
    place.set_quota(90);
    place.set_sms(50);
  }
  records.functions.push_back(function);
  Begin(std::move(records));
  Stored();
  JoinGateway("g1", 7);
  Stored();
  Pulse();
  const std::vector<std::string> owned = {"n1/0: 50 % x 90 %", "n1/0: 50 % x 90 %"};
  EXPECT_EQ(Owned(), owned) << "its node has not come back yet";
  JoinNode("n1", 5);
  Stored();
  Adopted();
  epochs_["n1"] = 2;
  // 31/s at 70 % need 44/s, and half of the SMs serve 25/s.
  for (int i = 0; i < 5; ++i) EXPECT_THAT(Second(31), Not(Contains(HasSubstr("store f/1")))) << i;
  EXPECT_EQ(Owned(), owned);
  // No request comes any more.
  for (int i = 0; i < 10; ++i) EXPECT_THAT(Second(0), Not(Contains(HasSubstr("store f/1")))) << i;
  EXPECT_EQ(Owned(), owned);
  Seconds(10, 0);
  EXPECT_THAT(Owned(), ElementsAre("n1/0: 50 % x 10 %"));
}

TEST_F(ScaledCluster, AMinimumIsThereWithoutAnyLoad) {
  LeaveToManager();
  Update("sm_partition", 50);
  Update("min_instances", 2);
  EXPECT_EQ(reply_.code(), 0) << reply_.message();
  Second(0);
  Second(0);
  EXPECT_THAT(Owned(), ElementsAre("n1/0: 50 % x 10 %", "n1/0: 50 % x 10 %"));
  Seconds(700, 0);
  EXPECT_THAT(Owned(), SizeIs(2));
  Update("max_instances", 1);
  EXPECT_THAT(reply_.message(), HasSubstr("min_instances is 2 and max_instances 1"));
  Update("min_instances", 0);
  Seconds(700, 0);
  EXPECT_THAT(Owned(), IsEmpty());
}

TEST_F(ScaledCluster, InstancesAreAsBusyAsIsDeclared) {
  LeaveToManager();
  Update("target_utilisation", 35);
  Second(0);
  Second(14);
  EXPECT_THAT(Owned(), ElementsAre("n1/0: 100 % x 80 %")) << "twice as much as at 70 %";
  Update("quota_request", 30);
  EXPECT_THAT(reply_.message(), HasSubstr("target_utilisation is of functions that follow their load"));
}

TEST_F(ScaledCluster, ALimitBelowWhatItHasNowIsNoContradiction) {
  LeaveToManager();
  Second(0);
  Second(35);
  EXPECT_THAT(Owned(), ElementsAre("n1/0: 100 % x 100 %"));
  Update("max_instances", 1);
  Update("quota_limit", 60);
  EXPECT_EQ(reply_.code(), 0) << reply_.message();
  Second(35);
  EXPECT_THAT(Owned(), ElementsAre("n1/0: 100 % x 60 %"));
}

TEST_F(ScaledCluster, AnotherModelUnderItsNameBeginsAnew) {
  LeaveToManager();
  Second(0);
  Seconds(30, 100, milliseconds(2));
  EXPECT_GT(Show().scaling().capacity(), 100);
  RemoveFunction("f", 50);
  Stored();
  EXPECT_EQ(Show().code(), static_cast<int>(absl::StatusCode::kNotFound));
}

TEST_F(ScaledCluster, AFunctionThatRequestsTimeInNumbersTakesItsPlace) {
  LeaveToManager();
  Second(0);
  Second(35);
  EXPECT_THAT(Owned(), ElementsAre("n1/0: 100 % x 100 %"));
  AdminAsked asked{.ask = 60};
  auto& deploy = *asked.request.mutable_deploy();
  deploy.set_name("g");
  deploy.set_onnx_digest("onnx");
  deploy.mutable_sharing()->set_quota_request(70);
  On(std::move(asked));
  On(ModelImported{60, FunctionOf("g")});
  Stored();
  Adopted();
  Pulse();
  Stored();
  EXPECT_THAT(Owned(), IsEmpty()) << "all of the GPU's time was its own, and now it is not";
  Second(35);
  EXPECT_THAT(Owned(), ElementsAre("n1/0: 100 % x 30 %"));
}

TEST_F(ScaledCluster, AHeartbeatThatIsHeardTwiceCountsOnce) {
  LeaveToManager();
  Second(0);
  Tell("g1", 1, {.arrived = 14});
  TellAgain("g1", 1, {.arrived = 14});
  Pulse(seconds(1));
  Stored();
  EXPECT_THAT(Owned(), ElementsAre("n1/0: 100 % x 40 %"));
}

class CostsCompared : public ScaledCluster {
 protected:
  CostsCompared() : ScaledCluster(Patient(ScalingEffect::kCarriedOut, "troupe", "by-cost")) {
    LeaveToManager();
  }
  std::string Binding() { return Show().scaling().binding(); }
};

TEST_F(CostsCompared, AFunctionWhoseRequestsWaitForSwapsOwnsUntilItsLoadIsSmall) {
  EXPECT_THAT(Binding(), HasSubstr("no request has come"));
  Seconds(60, 30);
  EXPECT_THAT(Owned(), IsEmpty()) << "its model is always there, and its requests are in time";
  EXPECT_THAT(
      Binding(),
      HasSubstr(
          "it is bound late: owning parts of GPUs would cost 0.90 of a GPU, and binding late costs 0.60"));
  // Others drive its model out.
  for (int i = 0; i < 10; ++i) Second(30, milliseconds(20), milliseconds(900));
  EXPECT_THAT(Owned(), ElementsAre("n1/0: 100 % x 90 %"));
  EXPECT_THAT(Actions(), ElementsAre("own", "add"));
  EXPECT_THAT(Binding(), HasSubstr("it owns parts of GPUs: "));
  Seconds(40, 30);
  EXPECT_THAT(Owned(), SizeIs(1));
  Seconds(90, 1);
  EXPECT_THAT(Owned(), IsEmpty());
  EXPECT_THAT(Actions(), Contains("bind-late"));
}

TEST_F(CostsCompared, AMinimumCostsWhatItCosts) {
  Update("min_instances", 1);
  Second(0);
  Seconds(200, 1);
  EXPECT_THAT(Owned(), ElementsAre("n1/0: 100 % x 10 %"));
}

TEST_F(CostsCompared, LateRequestsCountByTheirSlo) {
  for (int i = 0; i < 10; ++i) {
    // Each second one of 30 is late, of which the SLO allows two of a hundred.
    Tell("g1", 1, {.arrived = 30, .late = 1});
    Tell("n1", epochs_["n1"], {.served = 30, .gpu_time = milliseconds(600)});
    Pulse(seconds(1));
    Stored();
  }
  EXPECT_THAT(Owned(), SizeIs(1));
  EXPECT_THAT(Show().scaling().binding(), HasSubstr("it owns"));
}

class NeverOwned : public ScaledCluster {
 protected:
  NeverOwned() : ScaledCluster(Patient(ScalingEffect::kCarriedOut, "troupe", "never")) {}
};

TEST_F(NeverOwned, WhatWasOwnedIsGivenBack) {
  Update("quota_request", 40);
  Pulse();
  Stored();
  LeaveToManager();
  EXPECT_THAT(Owned(), SizeIs(1));
  Second(0);
  for (int i = 0; i < 5; ++i) Second(30, milliseconds(20), seconds(10));
  EXPECT_THAT(Owned(), IsEmpty());
  EXPECT_THAT(Show().scaling().binding(), HasSubstr("owning=never"));
}

class DryRun : public ScaledCluster {
 protected:
  DryRun() : ScaledCluster(Patient(ScalingEffect::kShown)) {}
};

TEST_F(DryRun, NothingIsStoredAndTheAdviceCanBeRead) {
  LeaveToManager();
  Second(0);
  EXPECT_THAT(Second(14), Not(Contains(HasSubstr("store"))));
  EXPECT_TRUE(Show().scaling().dry_run());
  EXPECT_THAT(Owned(), ElementsAre("n1/0: 100 % x 40 %"));
  Second(28);
  EXPECT_THAT(Owned(), ElementsAre("n1/0: 100 % x 80 %"));
  EXPECT_THAT(Actions(), ElementsAre("add", "resize"));
  Update("quota_request", 30);
  EXPECT_THAT(Pulse(), Contains("store f/1 revision")) << "what is declared is owned";
}

class FastScaler : public ScaledCluster {
 protected:
  FastScaler() : ScaledCluster(Patient(ScalingEffect::kCarriedOut, "fast-scaler")) {}
};

TEST_F(FastScaler, ItsRuleAddsInstancesAndChangesNone) {
  Update("sm_partition", 50);
  LeaveToManager();
  Second(0);
  Second(7);
  EXPECT_THAT(Owned(), ElementsAre("n1/0: 50 % x 40 %"));
  Second(14);
  EXPECT_THAT(Owned(), ElementsAre("n1/0: 50 % x 40 %", "n1/0: 50 % x 40 %"));
  EXPECT_THAT(Actions(), ElementsAre("add", "add"));
}

}  // namespace
}  // namespace troupe::cluster::scaling_test
