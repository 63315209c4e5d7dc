// What a cluster does for its developers and operators, from the request to the answer: what is stored before
// a node is asked, and what is answered when either fails. Each test is a table of events and effects.
#include "tests/unit/cluster/cluster_fixture.hpp"

namespace troupe::cluster::changes_test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;

class Changing : public ClusterTest {
 protected:
  // Node "n1" has joined.
  explicit Changing(ClusterSettings settings = Settings()) : ClusterTest(std::move(settings)) {
    Begin();
    Stored();
    JoinNode("n1");
    Stored();
  }
};

// --- inquiries ---

TEST_F(Changing, AnSloIsAddedUpOverTheGatewaysThatAnswer) {
  JoinGateway("g1", 7);
  JoinGateway("g2", 8);
  AdminAsked asked{.ask = 5};
  asked.request.mutable_show_slo();
  EXPECT_THAT(On(asked), ElementsAre("describe g1", "describe g2"));
  proto::GatewayDescription one;
  auto& slo = *one.add_functions();
  slo.mutable_function()->set_name("f");
  slo.mutable_total()->set_in_time(3);
  EXPECT_THAT(On(GatewayDescribed{1, one}), IsEmpty());
  EXPECT_THAT(On(GatewayDescribed{1, absl::UnavailableError("it is gone")}), ElementsAre("answer 5 OK"));
  EXPECT_THAT(On(GatewayDescribed{1, one}), IsEmpty()) << "an answer that comes too late changes nothing";
}

TEST_F(Changing, AnSloOfAFunctionThatDoesNotExistIsRefusedBeforeAGatewayIsAsked) {
  JoinGateway("g1", 7);
  AdminAsked asked{.ask = 5};
  asked.request.mutable_show_slo()->mutable_key()->set_name("absent");
  EXPECT_THAT(On(asked), ElementsAre("answer 5 NOT_FOUND"));
}

TEST_F(Changing, ARequestThatNoGatewayRemembersIsNotFound) {
  AdminAsked asked{.ask = 5};
  asked.request.mutable_explain_request();
  EXPECT_THAT(On(asked), ElementsAre("answer 5 OK")) << "there is no gateway, so no request was slow";
  JoinGateway("g1", 7);
  asked.request.mutable_explain_request()->set_id("r");
  EXPECT_THAT(On(asked), ElementsAre("describe g1"));
  EXPECT_THAT(On(GatewayDescribed{2, proto::GatewayDescription()}), ElementsAre("answer 5 NOT_FOUND"));
}

// --- deployments ---

TEST_F(Changing, AFunctionThatNoNodeCanServeIsTakenBack) {
  Deploy("f", 2);
  EXPECT_THAT(Stored(), ElementsAre("tell members", "adopt f at n1", "manager: function-deployed"));
  EXPECT_THAT(Adopted(absl::InvalidArgumentError("an operator is not known")),
              ElementsAre("n1: adoption-failed", "store -f/1 revision"));
  EXPECT_THAT(Stored(), ElementsAre("tell members", "answer 2 INVALID_ARGUMENT"));
}

TEST_F(Changing, AFunctionThatANodeCouldServeLaterStays) {
  Deploy("f", 2);
  Stored();
  EXPECT_THAT(Adopted(absl::ResourceExhaustedError("the region is full")),
              ElementsAre("n1: adoption-failed", "answer 2 OK"))
      << "the answer says that no node has it yet";
}

TEST_F(Changing, AFunctionThatWasRemovedMeanwhileIsNotTakenBackTwice) {
  Deploy("f", 2);
  Stored();
  EXPECT_THAT(RemoveFunction("f", 3), ElementsAre("store -f/1 revision"));
  EXPECT_THAT(Adopted(absl::InvalidArgumentError("an operator is not known")),
              ElementsAre("n1: adoption-failed"))
      << "the second removal waits for the first";
  EXPECT_THAT(Stored(), ElementsAre("tell members", "manager: function-removed", "answer 3 OK",
                                    "answer 2 INVALID_ARGUMENT"));
}

TEST_F(Changing, AnImportThatFailsStoresNothing) {
  AdminAsked asked{.ask = 2};
  asked.request.mutable_deploy()->set_name("f");
  asked.request.mutable_deploy()->set_onnx_digest("onnx");
  EXPECT_THAT(On(asked), ElementsAre("import onnx in fp32"));
  EXPECT_THAT(On(ModelImported{2, absl::InvalidArgumentError("it is not a model")}),
              ElementsAre("answer 2 INVALID_ARGUMENT"));
}

// The precision in which weights may be packed is part of the model; the others are of a run.
TEST_F(Changing, TheModelIsImportedInThePrecisionThatItsWeightsMayHave) {
  const std::pair<proto::Precision, const char*> cases[] = {{proto::PRECISION_BF16, "import onnx in bf16"},
                                                            {proto::PRECISION_FP16, "import onnx in fp32"},
                                                            {proto::PRECISION_TF32, "import onnx in fp32"}};
  Ask ask = 2;
  for (const auto& [precision, line] : cases) {
    AdminAsked asked{.ask = ask++};
    asked.request.mutable_deploy()->set_name("f");
    asked.request.mutable_deploy()->set_onnx_digest("onnx");
    asked.request.mutable_deploy()->set_precision(precision);
    EXPECT_THAT(On(asked), ElementsAre(line));
  }
}

// --- versions that share requests ---

AdminAsked CanaryOfF(Ask ask) {
  AdminAsked asked{.ask = ask, .asker = {.who = "key/dev"}};
  auto& split = *asked.request.mutable_split_function();
  split.set_name("f");
  split.mutable_canary()->set_version("2");
  split.mutable_canary()->set_percent(10);
  return asked;
}

TEST_F(Changing, SharesOfAllVersionsAreStoredTogetherAndToldOnce) {
  for (const Ask ask : {2, 3}) {
    Deploy("f", ask);
    Stored();
    Adopted();
  }
  EXPECT_THAT(On(CanaryOfF(4)), ElementsAre("store f/1 revision f/2 revision"));
  EXPECT_THAT(RemoveFunction("f", 5), IsEmpty()) << "it is judged by what the first change makes";
  EXPECT_THAT(Stored(), ElementsAre("tell members", "manager: function-split", "answer 4 OK",
                                    "answer 5 FAILED_PRECONDITION"));
}

TEST_F(Changing, SharesThatAreNotStoredAreNotThere) {
  for (const Ask ask : {2, 3}) {
    Deploy("f", ask);
    Stored();
    Adopted();
  }
  On(CanaryOfF(4));
  EXPECT_THAT(Stored(absl::UnavailableError("the disk is full")), ElementsAre("answer 4 UNAVAILABLE"));
  EXPECT_THAT(RemoveFunction("f", 5), ElementsAre("store f/1 revision f/2 revision -f/2 revision"))
      << "it has no share";
}

// They may lie on the disk all the same: what is stored next of one version alone would be beside them after a restart.
TEST_F(Changing, SharesThatMayBeStoredAreStoredAsTheyWereWithTheNextChange) {
  for (const Ask ask : {2, 3}) {
    Deploy("f", ask);
    Stored();
    Adopted();
  }
  On(CanaryOfF(4));
  Stored(absl::UnavailableError("the disk is full"));
  EXPECT_THAT(Deploy("g", 5), ElementsAre("store f/1 revision f/2 revision g/1 revision"));
  Stored(absl::UnavailableError("the disk is full"));
  EXPECT_THAT(Deploy("h", 6), ElementsAre("store f/1 revision f/2 revision h/1 revision"));
  EXPECT_EQ(written_.at("f").share_percent(), 0U);
  Stored();
  Adopted();
  EXPECT_THAT(Deploy("i", 7), ElementsAre("store i/1 revision"));
}

TEST_F(Changing, ARefusedCanaryStoresNothing) {
  EXPECT_THAT(On(CanaryOfF(2)), ElementsAre("answer 2 NOT_FOUND"));
  Deploy("f", 3);
  Stored();
  Adopted();
  EXPECT_THAT(On(CanaryOfF(4)), ElementsAre("answer 4 NOT_FOUND"));
}

// --- how functions share GPUs ---

AdminAsked UpdateOfF(Ask ask, std::uint32_t percent) {
  AdminAsked asked{.ask = ask, .asker = {.who = "key/dev"}};
  auto& update = *asked.request.mutable_update_function();
  update.mutable_key()->set_name("f");
  update.mutable_sharing()->set_quota_limit(percent);
  update.add_settings("quota_limit");
  return asked;
}

TEST_F(Changing, AnUpdateIsStoredThenToldAndNoNodeAdoptsAnythingForIt) {
  Deploy("f", 2);
  Stored();
  Adopted();
  EXPECT_THAT(On(UpdateOfF(3, 80)), ElementsAre("store f/1 revision"));
  EXPECT_THAT(Stored(), ElementsAre("tell members", "manager: function-updated", "answer 3 OK"));
  EXPECT_THAT(On(UpdateOfF(4, 80)), ElementsAre("store ")) << "it changes nothing";
  EXPECT_THAT(Stored(), Contains("answer 4 OK"));
}

TEST_F(Changing, AnUpdateThatIsNotStoredIsNotThere) {
  Deploy("f", 2);
  Stored();
  Adopted();
  On(UpdateOfF(3, 80));
  EXPECT_THAT(Stored(absl::UnavailableError("the disk is full")), ElementsAre("answer 3 UNAVAILABLE"));
  EXPECT_THAT(On(UpdateOfF(4, 80)), ElementsAre("store f/1 revision"))
      << "there is still something to change";
}

TEST_F(Changing, ARefusedUpdateStoresNothing) {
  EXPECT_THAT(On(UpdateOfF(2, 80)), ElementsAre("answer 2 NOT_FOUND"));
  Deploy("f", 3);
  Stored();
  Adopted();
  EXPECT_THAT(On(UpdateOfF(4, 101)), ElementsAre("answer 4 INVALID_ARGUMENT"));
}

TEST_F(Changing, ADeploymentWithSettingsThatNoModelAllowsIsNotImported) {
  AdminAsked asked{.ask = 2};
  asked.request.mutable_deploy()->set_name("f");
  asked.request.mutable_deploy()->mutable_sharing()->set_quota_limit(101);
  EXPECT_THAT(On(asked), ElementsAre("answer 2 INVALID_ARGUMENT"));
}

// --- homes of states ---

TEST_F(Changing, AHomeIsStoredBeforeItsNodeIsAsked) {
  Deploy("f", 2, State::kKept);
  const auto digest = FunctionOf("f").model_digest();
  EXPECT_THAT(Stored(),
              ElementsAre("tell members", "store state-home/" + digest, "manager: function-deployed"));
  EXPECT_THAT(Stored(), ElementsAre("adopt f at n1"));
  EXPECT_THAT(Adopted(), ElementsAre("n1: model-adopted", "answer 2 OK"));
}

TEST_F(Changing, AHomeThatIsNotStoredIsChosenAnew) {
  Deploy("f", 2, State::kKept);
  const auto digest = FunctionOf("f").model_digest();
  Stored();
  EXPECT_THAT(Stored(absl::UnavailableError("the disk is full")), ElementsAre("answer 2 OK"))
      << "the answer says that no node has it yet";
  EXPECT_THAT(Pulse(), ElementsAre("tell members", "store state-home/" + digest));
  EXPECT_THAT(Stored(), IsEmpty()) << "the node is not asked again at once";
  Lines lines;
  for (int i = 0; i < 100 && lines.empty(); ++i) {
    Hears("n1", 1);
    lines = Pulse();
  }
  EXPECT_THAT(lines, ElementsAre("adopt f at n1")) << "the node is asked again after a while";
}

TEST_F(Changing, ANodeThatIsLostBeforeItsHomeIsStoredIsNotAsked) {
  Deploy("f", 2, State::kKept);
  Stored();
  On(MemberLost{"n1"});
  EXPECT_THAT(Stored(), ElementsAre("answer 2 OK")) << "the answer says that no node has it yet";
}

// --- drains ---

TEST_F(Changing, ADrainThatIsNotStoredIsUndone) {
  AdminAsked drain{.ask = 5};
  drain.request.mutable_drain()->set_name("n1");
  drain.request.mutable_drain()->set_drain(true);
  EXPECT_THAT(On(drain), ElementsAre("n1: member-draining", "tell members", "store drained/n1"));
  EXPECT_THAT(Stored(absl::UnavailableError("the disk is full")),
              ElementsAre("n1: member-alive", "tell members", "answer 5 UNAVAILABLE"))
      << "the node takes requests again, and is not asked to do anything";
}

// --- questions that nodes answer ---

TEST_F(Changing, AListOfGpusIsAnsweredWhenEachNodeHasAnsweredOrCannot) {
  JoinNode("n2");
  Stored();
  AdminAsked asked{.ask = 5};
  asked.request.mutable_list_gpus();
  EXPECT_THAT(On(asked), ElementsAre("describe n1", "describe n2"));
  EXPECT_THAT(On(NodeDescribed{1, proto::NodeDescription()}), IsEmpty());
  EXPECT_THAT(On(NodeDescribed{1, absl::UnavailableError("it is gone")}), ElementsAre("answer 5 OK"));
}

// --- the audit of joins ---

class JoiningAudited : public Changing {
 protected:
  static ClusterSettings WithAudit() {
    auto settings = Settings();
    settings.audited = true;
    return settings;
  }
  JoiningAudited() : Changing(WithAudit()) {}
};

TEST_F(JoiningAudited, AJoinIsAnsweredBehindItsEntry) {
  JoinNode("n2", 7);
  EXPECT_THAT(Stored(), ElementsAre("n2: member-joined", "tell members", "audit member.join member/n2 OK"));
  EXPECT_THAT(Written(), ElementsAre("joined 7 epoch 2"));
}

TEST_F(JoiningAudited, ACanaryIsOneChangeWithItsVersionsInTheEntry) {
  EXPECT_THAT(On(CanaryOfF(2)), ElementsAre("audit function.canary key/dev begun"));
  EXPECT_THAT(Written(), ElementsAre("audit function.canary key/dev NOT_FOUND"));
  EXPECT_THAT(Written(), ElementsAre("answer 2 NOT_FOUND"));
}

TEST_F(JoiningAudited, AnUpdateIsOneChangeOfTheAudit) {
  EXPECT_THAT(On(UpdateOfF(2, 80)), ElementsAre("audit function.update key/dev begun"));
  EXPECT_THAT(Written(), ElementsAre("audit function.update key/dev NOT_FOUND"));
  EXPECT_THAT(Written(), ElementsAre("answer 2 NOT_FOUND"));
}

TEST(AuditEntryOfAnUpdate, SaysWhatWasWishedThenWhatTheVersionHas) {
  auto request = UpdateOfF(1, 0).request;
  request.mutable_update_function()->mutable_sharing()->set_sm_partition(24);
  request.mutable_update_function()->add_settings("sm_partition");
  auto entry = *ChangeOf(request);
  EXPECT_EQ(entry.what, "function 'f' with sm_partition 24%, quota_limit none");
  proto::AdminReply reply;
  auto& record = *reply.add_functions()->mutable_record();
  record = FunctionOf("f");
  record.mutable_key()->set_version("3");
  record.mutable_sharing()->set_sm_partition(24);
  record.mutable_sharing()->set_max_instances(4);
  SetOutcome(reply, entry);
  EXPECT_EQ(entry.what, "function 'f' version 3: sm_partition 24%, max_instances 4");
}

TEST(AuditEntryOfShares, SaysWhatTheVersionsHaveByNow) {
  proto::AdminReply reply;
  for (const char* version : {"1", "2"}) {
    auto& record = *reply.add_functions()->mutable_record();
    record = FunctionOf("f");
    record.mutable_key()->set_version(version);
  }
  reply.mutable_functions(0)->mutable_record()->set_share_percent(90);
  reply.mutable_functions(1)->mutable_record()->set_share_percent(10);
  auto entry = *ChangeOf(CanaryOfF(1).request);
  EXPECT_EQ(entry.what, "function 'f' version '2' with 10 %");
  SetOutcome(reply, entry);
  EXPECT_EQ(entry.what, "function 'f': version 1 gets 90 %, version 2 gets 10 %");
}

}  // namespace
}  // namespace troupe::cluster::changes_test
