// Which role may send which message. Every registered message stands in the table of rights, or in the list
// here of those that never leave a process.
#include "actors/peers/message_rights.hpp"

#include <gmock/gmock.h>
#include <google/protobuf/message.h>
#include <gtest/gtest.h>

#include <caf/all.hpp>
#include <set>
#include <string>

#include "actors/interfaces/cluster_manager.hpp"
#include "actors/interfaces/executor.hpp"
#include "actors/interfaces/message_types.hpp"

namespace troupe::actors {
namespace {

using security::Role;
using testing::AllOf;
using testing::HasSubstr;

const std::set<std::string> kWithinOneProcess = {
    "FetchModel",  "MemberJoined",  "DescribeMember", "MemberReport",    "ExecutorReport",
    "WorkerOrder", "WorkerOutcome", "KillWorker",     "WorkerListening", "WorkerReady",
    "WorkerDied",  "WorkerAnswer",  "AssignWorker",   "PlaceModel",      "DropModel",
    "HostModel",   "PullImage",     "PulledImage",    "SendImageCopy",   "Continue",
    "Job",         "Tick",          "PeerUp",         "PeerLost"};
// These messages travel with handles of actors beside them.
const std::set<std::string> kNeverAlone = {"JoinRequest", "RouterHello"};

TEST(MessageRights, EveryMessageThatIsRegisteredHasARow) {
  for (const auto& message : ListedMessages()) {
    const auto name = message->GetDescriptor()->name();
    const bool crosses = !kWithinOneProcess.contains(name) && !kNeverAlone.contains(name);
    EXPECT_EQ(CheckMessage(message->GetTypeName(), kEveryRole, true).ok(), crosses)
        << name << ": give it a row in actors/peers/message_rights.cpp, or list it here";
  }
}

// The names of interfaces as CAF writes them:
// "caf::replies_to<troupe.proto.Heartbeat>::with<troupe.proto.HeartbeatReply>".
template <class Handle>
void ExpectRows(caf::actor_system& system) {
  for (const auto& operation : system.message_types<Handle>()) {
    const auto begin = operation.find('<') + 1;
    std::string types = operation.substr(begin, operation.find('>') - begin);
    for (std::size_t at = 0; (at = types.find(',', at)) != std::string::npos;) types.replace(at, 1, "+");
    std::string name = types.substr(types.find("proto.") + 6);
    if (kWithinOneProcess.contains(name)) continue;
    EXPECT_TRUE(CheckMessage(types, kEveryRole, true).ok()) << operation;
  }
}

TEST(MessageRights, EveryOperationOfAnInterfaceHasARow) {
  caf::actor_system_config config;
  RegisterMessageTypes(config);
  caf::actor_system system(config);
  ExpectRows<ClusterManagerActor>(system);
  ExpectRows<NodeControllerActor>(system);
  ExpectRows<RouterActor>(system);
  ExpectRows<FrontActor>(system);
  ExpectRows<WorkflowRunActor>(system);
  ExpectRows<CreditSinkActor>(system);
}

TEST(MessageRights, NoRoleHasNoRight) {
  for (const auto& message : ListedMessages())
    EXPECT_FALSE(CheckMessage(message->GetTypeName(), {}, true).ok()) << message->GetTypeName();
}

Peer Holder(security::Roles roles, const std::string& name) {
  return CertifiedPeer({roles, name, "1f"}, "10.0.0.9:5000");
}

TEST(MessageRights, AReaderReadsAndChangesNothing) {
  const std::set<std::string> reads = {
      "list_functions",  "show_function", "cluster_status", "list_events",  "list_gpus",   "list_workflows",
      "show_workflow",   "list_runs",     "show_run",       "list_keys",    "show_import", "show_slo",
      "explain_request", "read_workflow", "list_usage",     "show_profile", "show_scaling"};
  const auto* cases = proto::AdminRequest::descriptor()->FindOneofByName("request");
  for (int i = 0; i < cases->field_count(); ++i) {
    proto::AdminRequest request;
    request.GetReflection()->MutableMessage(&request, cases->field(i));
    const auto name = cases->field(i)->name();
    EXPECT_TRUE(CheckAdmin(request, Holder({Role::kAdmin}, "ann")).ok()) << name;
    const auto reader = CheckAdmin(request, Holder({Role::kReader}, "bob"));
    EXPECT_EQ(reader.ok(), reads.contains(name)) << name;
    if (!reader.ok()) {
      EXPECT_THAT(std::string(reader.message()),
                  AllOf(HasSubstr("'bob' (reader, serial 1f)"), HasSubstr("troupe ca issue --role admin")));
    }
    EXPECT_FALSE(CheckAdmin(request, Holder({Role::kNode, Role::kManager}, "n")).ok()) << name;
    EXPECT_FALSE(CheckAdmin(request, Peer()).ok()) << name;
  }
  EXPECT_FALSE(CheckAdmin(proto::AdminRequest(), Holder({Role::kAdmin}, "ann")).ok());
}

TEST(MessageRights, AGatewayAsksWhatItsClientsMayAsk) {
  proto::AdminRequest request;
  request.mutable_deploy();
  EXPECT_TRUE(CheckAdmin(request, Holder({Role::kGateway}, "g")).ok());
  for (const auto set : {+[](proto::AdminRequest& r) { r.mutable_kill_gpu(); },
                         +[](proto::AdminRequest& r) { r.mutable_drain(); },
                         +[](proto::AdminRequest& r) { r.mutable_inject_fault(); },
                         +[](proto::AdminRequest& r) { r.mutable_create_key(); },
                         +[](proto::AdminRequest& r) { r.mutable_revoke_key(); }}) {
    set(request);
    EXPECT_FALSE(CheckAdmin(request, Holder({Role::kGateway}, "g")).ok()) << request.ShortDebugString();
  }
}

TEST(MessageRights, AMemberIsWhatItsCertificateSays) {
  const auto node = Holder({Role::kNode}, "rack-3");
  EXPECT_TRUE(CheckMember(node, "rack-3", proto::MEMBER_NODE).ok());
  EXPECT_THAT(std::string(CheckMember(node, "rack-4", proto::MEMBER_NODE).message()),
              AllOf(HasSubstr("'rack-3' (node, serial 1f) at 10.0.0.9:5000"), HasSubstr("--name rack-3")));
  EXPECT_THAT(std::string(CheckMember(node, "rack-3", proto::MEMBER_GATEWAY).message()),
              AllOf(HasSubstr("join as a gateway"), HasSubstr("--role gateway")));
  EXPECT_FALSE(CheckMember(Holder({Role::kAdmin}, "rack-3"), "rack-3", proto::MEMBER_NODE).ok());
  EXPECT_FALSE(CheckMember(node, "rack-3-gateway", proto::MEMBER_NODE).ok());
  const auto both = Holder({Role::kNode, Role::kGateway}, "rack-3");
  EXPECT_TRUE(CheckMember(both, "rack-3-gateway", proto::MEMBER_GATEWAY).ok());
  EXPECT_TRUE(CheckMember(UnaskedPeer("10.0.0.9:5000"), "any", proto::MEMBER_NODE).ok());
}

TEST(MessageRights, WhatIsOfferedIsOfferedByTheRightRole) {
  caf::actor_system_config config;
  RegisterMessageTypes(config);
  caf::actor_system system(config);
  const auto manager = system.message_types<ClusterManagerActor>();
  const auto node = system.message_types<NodeControllerActor>();
  const auto front = system.message_types<FrontActor>();
  EXPECT_TRUE(CheckInterface(manager, Holder({Role::kManager}, "m")).ok());
  EXPECT_TRUE(CheckInterface(node, Holder({Role::kNode}, "n")).ok());
  EXPECT_TRUE(CheckInterface(front, Holder({Role::kGateway}, "g")).ok());
  const auto other = Holder({Role::kAdmin, Role::kReader}, "x");
  for (const auto& interface : {manager, node, front}) EXPECT_FALSE(CheckInterface(interface, other).ok());
  EXPECT_FALSE(CheckInterface(manager, Holder({Role::kNode, Role::kGateway}, "n")).ok());
}

TEST(PeerIdentities, AProcessIsOneHolderAtATime) {
  const auto node = *caf::make_node_id(7, std::string(40, 'a'));
  const auto own = *caf::make_node_id(8, std::string(40, 'a'));
  const auto identities = std::make_shared<PeerIdentities>(own);
  const auto ann = std::make_shared<const Peer>(Holder({Role::kAdmin}, "ann"));
  {
    auto entry = PeerIdentities::Enter(identities, node, ann);
    ASSERT_TRUE(entry.ok());
    const auto bob =
        PeerIdentities::Enter(identities, node, std::make_shared<const Peer>(Holder({Role::kReader}, "bob")));
    EXPECT_TRUE(absl::IsPermissionDenied(bob.status()));
    EXPECT_THAT(std::string(bob.status().message()),
                AllOf(HasSubstr("'bob' (reader"), HasSubstr("'ann' (admin")));
    // The certificate was renewed, and the peer connects again before the old connection has ended.
    const auto renewed = PeerIdentities::Enter(
        identities, node,
        std::make_shared<const Peer>(CertifiedPeer({{Role::kAdmin}, "ann", "2e"}, "10.0.0.9:5001")));
    EXPECT_TRUE(renewed.ok());
  }
  EXPECT_TRUE(PeerIdentities::Enter(identities, node, std::make_shared<const Peer>(UnaskedPeer("x"))).ok());
  EXPECT_FALSE(PeerIdentities::Enter(identities, own, ann).ok());
}

TEST(PeerIdentities, ASenderIsWhoItsConnectionIs) {
  caf::actor_system_config config;
  caf::actor_system system(config);
  const auto identities = std::make_shared<PeerIdentities>(system.node());
  EXPECT_EQ(identities->Of(nullptr)->roles, kEveryRole);
  caf::scoped_actor self(system);
  EXPECT_EQ(identities->Of(caf::actor_cast<caf::strong_actor_ptr>(caf::actor(self)))->roles, kEveryRole);
  EXPECT_EQ(CallerName(Holder({Role::kAdmin}, "ann")), "certificate/ann");
  EXPECT_EQ(CallerName(*PeerOf(nullptr, nullptr)), "");
  // In the identity table of another process this actor is remote, and its process is not connected.
  const auto others = std::make_shared<PeerIdentities>(*caf::make_node_id(8, std::string(40, 'a')));
  const auto sender = caf::actor_cast<caf::strong_actor_ptr>(caf::actor(self));
  EXPECT_TRUE(others->Of(sender)->roles.empty());
  auto entry = PeerIdentities::Enter(others, system.node(),
                                     std::make_shared<const Peer>(Holder({Role::kReader}, "bob")));
  EXPECT_EQ(others->Of(sender)->name, "bob");
}

}  // namespace
}  // namespace troupe::actors
