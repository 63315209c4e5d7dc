// What an unknown peer may send to an actor port: each frame is judged before anything is allocated for it.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <caf/all.hpp>
#include <caf/io/all.hpp>
#include <string>
#include <thread>
#include <vector>

#include "actors/interfaces/interface.hpp"
#include "actors/interfaces/message_types.hpp"
#include "actors/peers/frame_guard.hpp"
#include "actors/peers/local_socket.hpp"
#include "actors/peers/message_rights.hpp"
#include "actors/peers/network_peer_directory.hpp"
#include "proto/request.pb.h"
#include "tests/certificates.hpp"
#include "transport/memory_file.hpp"

namespace troupe::actors {
namespace {

enum : unsigned char {
  kServer = 0,
  kClient = 1,
  kDirect = 2,
  kRouted = 3,
  kMonitor = 4,
  kDown = 5,
  kBeat = 6
};

std::string Header(unsigned char kind, std::uint32_t length) {
  std::string header(32, '\0');
  header[0] = static_cast<char>(kind);
  for (int i = 0; i < 4; ++i)
    header[4 + static_cast<std::size_t>(i)] = static_cast<char>(length >> (24 - 8 * i));
  return header;
}
std::string Frame(unsigned char kind, std::string payload) {
  return Header(kind, static_cast<std::uint32_t>(payload.size())) + payload;
}
// Two processes: this one and a peer.
caf::node_id Node(std::uint32_t process) {
  return *caf::make_node_id(process, std::string(40, 'a'));
}
const caf::node_id kOwn = Node(1);
template <class... Parts>
std::string Written(const Parts&... parts) {
  std::vector<char> bytes;
  caf::binary_serializer sink(nullptr, bytes);
  EXPECT_FALSE(sink(parts...));
  return {bytes.begin(), bytes.end()};
}
const std::string kPeerNode = Written(Node(2));

// A message that holds only the names of its types, as CAF writes them.
std::string Message(const std::string& types, const std::string& content = "") {
  return std::string(3, '\0') + static_cast<char>(types.size() + 4) + "@<>+" + types + content;
}
std::string Direct(const std::string& types, const std::string& content = "") {
  return Frame(kDirect, Message(types, content));
}
const std::string kAny = "troupe.proto.InferReply";

absl::Status See(FrameGuard::Side side, const std::string& bytes, std::size_t piece,
                 security::Roles roles = kEveryRole) {
  FrameGuard guard(side, roles, kOwn);
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    const auto text = bytes.substr(at, piece);
    if (auto status = guard.See(text); !status.ok()) return status;
  }
  return absl::OkStatus();
}
std::string With(std::string frame, std::size_t at, char byte) {
  frame[at] = byte;
  return frame;
}

TEST(FrameGuard, TakesWhatAPeerSendsInAnyPieces) {
  const auto hello = Frame(kClient, kPeerNode);
  const auto rest = Direct(kAny, std::string(5000, 'm')) + Header(kBeat, 0) +
                    Frame(kMonitor, Written(Node(2), kOwn)) + Frame(kDown, Written(Node(2), kOwn) + "why");
  for (const std::size_t piece : {1, 3, 32, 33, 100'000}) {
    EXPECT_EQ(See(FrameGuard::Side::kAccepted, hello + hello + rest, piece), absl::OkStatus()) << piece;
    EXPECT_EQ(See(FrameGuard::Side::kDialled, Frame(kServer, kPeerNode + "interface") + rest, piece),
              absl::OkStatus());
  }
}

TEST(FrameGuard, RefusesEveryHeaderThatClaimsTooMuchOrTooLittle) {
  const auto hello = Frame(kClient, kPeerNode);
  for (const unsigned char kind : {kDirect, kMonitor, kDown, kBeat})
    EXPECT_FALSE(See(FrameGuard::Side::kAccepted, hello + Header(kind, 0xffff'ffff), 32).ok()) << int{kind};
  for (const unsigned char kind : {kDirect, kMonitor, kDown})
    EXPECT_FALSE(See(FrameGuard::Side::kAccepted, hello + Header(kind, 0), 32).ok()) << int{kind};
  EXPECT_TRUE(See(FrameGuard::Side::kAccepted, hello + Header(kDirect, FrameLimits::kMessage), 32).ok());
  EXPECT_FALSE(See(FrameGuard::Side::kAccepted, hello + Header(kDirect, FrameLimits::kMessage + 1), 32).ok());
  for (const std::uint32_t length : {0u, FrameLimits::kClientHandshake + 1, 0xffff'ffffu})
    EXPECT_FALSE(See(FrameGuard::Side::kAccepted, Header(kClient, length), 32).ok()) << length;
  for (const std::uint32_t length : {0u, FrameLimits::kServerHandshake + 1, 0xffff'ffffu})
    EXPECT_FALSE(See(FrameGuard::Side::kDialled, Header(kServer, length), 32).ok()) << length;
}

TEST(FrameGuard, RefusesWhatTroupeNeverSends) {
  const auto hello = Frame(kClient, kPeerNode);
  const auto message = Direct(kAny);
  using Side = FrameGuard::Side;
  ASSERT_TRUE(See(Side::kAccepted, hello + message, 32).ok());
  EXPECT_FALSE(See(Side::kAccepted, message, 32).ok()) << "a message before the handshake";
  EXPECT_FALSE(See(Side::kAccepted, Frame(kServer, kPeerNode), 32).ok()) << "the other side's handshake";
  EXPECT_FALSE(See(Side::kDialled, hello, 32).ok()) << "the other side's handshake";
  EXPECT_FALSE(See(Side::kAccepted, Frame(kClient, "node"), 32).ok()) << "the frame names no process";
  EXPECT_FALSE(See(Side::kAccepted, Frame(kClient, kPeerNode + "x"), 32).ok())
      << "the frame has more than a process id";
  EXPECT_FALSE(See(Side::kAccepted, hello + Frame(kClient, Written(Node(3))), 32).ok())
      << "the frame names another process";
  EXPECT_FALSE(See(Side::kAccepted, hello + hello + hello, 32).ok()) << "a third handshake";
  EXPECT_FALSE(See(Side::kAccepted, hello + Frame(kRouted, Message(kAny)), 32).ok());
  EXPECT_FALSE(See(Side::kAccepted, hello + Frame(7, "m"), 32).ok());
}

// CAF would take the frame for one of the other process, or forward it to that process.
TEST(FrameGuard, FramesOfActorsEndsAreOfTheTwoProcessesAlone) {
  const auto hello = Frame(kClient, kPeerNode);
  for (const auto kind : {kMonitor, kDown}) {
    for (const auto& route : {Written(Node(3), kOwn), Written(Node(2), Node(3)), Written(kOwn, Node(2)),
                              kPeerNode, std::string("x")})
      for (const std::size_t piece : {1, 1000})
        EXPECT_FALSE(See(FrameGuard::Side::kAccepted, hello + Frame(kind, route), piece).ok());
  }
}

TEST(FrameGuard, MessagesAreOfKnownTypesForNumberedActors) {
  const auto hello = Frame(kClient, kPeerNode);
  const auto refused = [&](const std::string& frame) {
    return !See(FrameGuard::Side::kAccepted, hello + frame, 1).ok() &&
           !See(FrameGuard::Side::kAccepted, hello + frame, 1000).ok();
  };
  EXPECT_FALSE(refused(Direct(kAny)));
  EXPECT_TRUE(refused(Direct("troupe.proto.Tick"))) << "the message is for use within one process only";
  EXPECT_TRUE(refused(Direct("troupe.proto.InferReply+troupe.proto.InferReply")));
  EXPECT_TRUE(refused(Direct("@exit"))) << "the frame would end the actor";
  EXPECT_TRUE(refused(Direct("@atom+@strong_actor_ptr"))) << "the frame would link the actor";
  EXPECT_TRUE(refused(Direct("")));
  EXPECT_TRUE(refused(Frame(kDirect, std::string(3, '\0') + "\3@<>")));
  EXPECT_TRUE(refused(Frame(kDirect, "\1" + Message(kAny)))) << "the frame would be forwarded";
  EXPECT_TRUE(refused(With(Direct(kAny), 32 + 1, 1))) << "a number in place of the names";
  EXPECT_TRUE(refused(Frame(kDirect, Message(kAny).substr(0, 12)))) << "the payload ends within the names";
  EXPECT_TRUE(refused(Frame(kDirect, std::string(3, '\0') + "\xff\xff\xff\xff\xff" + std::string(600, '+'))));
  EXPECT_TRUE(refused(Frame(kDirect, std::string(3, '\0') + "\xff\x07" + std::string(1100, '+'))));
  constexpr std::size_t kFlags = 3;
  EXPECT_TRUE(refused(With(Direct(kAny), kFlags, 1))) << "the frame addresses an actor by name";
  EXPECT_FALSE(refused(With(Direct("@atom+@atom+@str"), kFlags, 1))) << "CAF asks a new peer in this way";
  EXPECT_TRUE(refused(Direct("@atom+@atom+@str")));
  EXPECT_TRUE(refused(With(Direct("@atom+@str+@message+@strset"), kFlags, 1)))
      << "the frame would spawn an actor";
}

TEST(FrameGuard, APeersRolesDecideWhatItMaySend) {
  using security::Role;
  const auto hello = Frame(kClient, kPeerNode);
  const auto sees = [&](const std::string& frame, security::Roles roles) {
    return See(FrameGuard::Side::kAccepted, hello + frame, 100, roles);
  };
  EXPECT_TRUE(sees(Direct("troupe.proto.AdoptModel"), {Role::kManager}).ok());
  for (const auto role : {Role::kGateway, Role::kNode, Role::kAdmin, Role::kReader})
    EXPECT_TRUE(absl::IsPermissionDenied(sees(Direct("troupe.proto.AdoptModel"), {role})));
  // An actor that is asked for administration asks back about the sender.
  const auto ask = Direct("troupe.proto.AdminRequest");
  EXPECT_FALSE(sees(ask, kEveryRole).ok()) << "the ask names no sender";
  EXPECT_TRUE(sees(With(ask, 23, 9), {Role::kReader}).ok());
  EXPECT_TRUE(absl::IsPermissionDenied(sees(With(ask, 23, 9), {Role::kNode})));
}

TEST(FrameGuard, SaysWhenTheOtherEndSpeaksTls) {
  for (const auto& record : {std::string("\x16\x03\x01", 3), std::string("\x15\x03\x03\0\2\2\x46", 7)})
    EXPECT_NE(See(FrameGuard::Side::kDialled, record, 100).message().find("--tls-dir"),
              absl::string_view::npos);
}

using Echo = Interface<Asks<proto::InferRequest, proto::InferReply>>;
Echo::behavior_type BeEcho() {
  return {[](proto::InferRequest& request) {
    proto::InferReply reply;
    *reply.mutable_outputs() = std::move(*request.mutable_inputs());
    return reply;
  }};
}

// An actor system with a middleman; two of them in one process are two nodes.
struct System {
  explicit System(std::shared_ptr<security::Credentials> credentials = nullptr)
      : actors(Configure(config)), directory(actors, pool, std::move(credentials)) {}
  ~System() { directory.Clear(); }
  static caf::actor_system_config& Configure(caf::actor_system_config& config) {
    RegisterMessageTypes(config);
    config.load<caf::io::middleman>();
    config.set("scheduler.max-threads", static_cast<std::size_t>(2));
    return config;
  }
  caf::actor_system_config config;
  caf::actor_system actors;
  WorkPool pool{2};
  NetworkPeerDirectory directory;
};

struct Server : System {
  explicit Server(const std::string& host = "127.0.0.1",
                  std::shared_ptr<security::Credentials> credentials = nullptr)
      : System(std::move(credentials)), echo(actors.spawn(BeEcho)) {
    auto listening =
        directory.Listen(caf::actor_cast<caf::strong_actor_ptr>(echo), actors.message_types<Echo>(), host, 0);
    EXPECT_TRUE(listening.ok()) << listening.status();
    port = listening.value_or(0);
  }
  ~Server() { caf::anon_send_exit(echo, caf::exit_reason::user_shutdown); }
  Echo echo;
  std::uint16_t port = 0;
};

transport::UniqueFd Connect(std::uint16_t port) {
  auto fd = DialLocal("127.0.0.1", port);
  EXPECT_TRUE(fd.ok()) << fd.status();
  if (!fd.ok()) return {};
  EXPECT_EQ(fcntl(fd->get(), F_SETFL, 0), 0);  // these tests use blocking reads
  return *std::move(fd);
}
// Reads until the other end closes.
void ReadToTheEnd(const transport::UniqueFd& fd) {
  std::vector<char> buffer(4096);
  while (recv(fd.get(), buffer.data(), buffer.size(), 0) > 0) {
  }
}

TEST(GuardedConnection, AStrangersFrameClosesItsConnectionAndIsCounted) {
  Server server;
  for (const auto& said : {Header(kClient, 0xffff'ffff), Header(kClient, 0), Header(kDirect, 10)}) {
    const auto stranger = Connect(server.port);
    ASSERT_EQ(send(stranger.get(), said.data(), said.size(), MSG_NOSIGNAL), ssize_t{32});
    ReadToTheEnd(stranger);
  }
  EXPECT_EQ(server.directory.accepted().refused().at("broken_frame"), 3u);
}

TEST(GuardedConnection, AnotherUserOfTheMachineIsRefusedAndCounted) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can act as another user";
  Server server;
  const pid_t child = fork();
  if (child == 0) {
    if (setresuid(65534, 65534, 65534) != 0) _exit(1);
    auto line = DialLocal("127.0.0.1", server.port);
    if (!line.ok() || fcntl(line->get(), F_SETFL, 0) != 0) _exit(2);
    // A server that took the connection would say its handshake at once.
    char byte = 0;
    _exit(recv(line->get(), &byte, 1, 0) <= 0 ? 0 : 3);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0);
  EXPECT_EQ(server.directory.accepted().refused().at("other_user"), 1u);
  EXPECT_NE(server.directory.accepted().last_refusal().find("user 65534"), std::string::npos);
}

TEST(GuardedConnection, ConnectionsWithoutAHandshakeAreFewAndShort) {
  Server server;
  auto& accepted = server.directory.accepted();
  std::vector<transport::UniqueFd> idle;
  for (std::size_t i = 0; i <= PeerConnections::kUnfinished; ++i) idle.push_back(Connect(server.port));
  ReadToTheEnd(idle.front());  // the server closes the oldest one to make room
  EXPECT_EQ(accepted.refused().at("crowded_out"), 1u);
  accepted.Sweep(Time::max());
  for (const auto& one : idle) ReadToTheEnd(one);
  EXPECT_GE(accepted.refused().at("slow_handshake"), PeerConnections::kUnfinished);
}

// Null when the peer was not announced before the other end refused `patience` connections.
Echo Find(System& client, const std::string& host, std::uint16_t port) {
  caf::scoped_actor self(client.actors);
  const auto watcher = caf::actor_cast<PeerWatcherActor>(caf::actor(self));
  client.directory.Watch(host + ":" + std::to_string(port), client.actors.message_types<Echo>(), watcher);
  Echo echo;
  bool found = false;
  while (!found && client.directory.accepted().refused().empty()) {
    self->receive(
        [&](const proto::PeerUp&, const caf::strong_actor_ptr& peer) {
          echo = caf::actor_cast<Echo>(peer);
          found = true;
        },
        caf::after(std::chrono::milliseconds(20)) >> [] {});
  }
  client.directory.Forget(host + ":" + std::to_string(port), watcher);
  return echo;
}

// A message of 8 MiB is gathered in several steps.
void ExpectEchoes(System& client, const Echo& echo) {
  caf::scoped_actor self(client.actors);
  for (const std::size_t size : {std::size_t{8} << 20, std::size_t{64}, std::size_t{300} << 10}) {
    proto::InferRequest request;
    std::string bytes(size, '\0');
    for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 2654435761u >> 13);
    request.add_inputs()->mutable_data()->set_inlined(bytes);
    self->request(echo, caf::infinite, std::move(request))
        .receive(
            [&](const proto::InferReply& reply) { EXPECT_TRUE(reply.outputs(0).data().inlined() == bytes); },
            [&](const caf::error& error) { ADD_FAILURE() << client.actors.render(error); });
  }
}

TEST(GuardedConnection, LargeAndSmallMessagesArriveWhole) {
  Server server;
  System client;
  const auto echo = Find(client, "127.0.0.1", server.port);
  ASSERT_TRUE(echo);
  ExpectEchoes(client, echo);
}

// An actor of type Echo: a gateway answers what an admin asks.
class TlsConnection : public ::testing::Test {
 protected:
  void SetUp() override {
    if (host_.empty()) GTEST_SKIP() << "this machine has no address that is not loopback";
  }
  std::shared_ptr<security::Credentials> Gateway() {
    return authority_.Make("front", {security::Role::kGateway});
  }
  std::shared_ptr<security::Credentials> Admin() { return authority_.Make("ann", {security::Role::kAdmin}); }
  // The line of the log in which `side` says why there is no connection.
  static std::string RefusalAt(System& side) {
    while (side.directory.accepted().last_refusal().empty())
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return side.directory.accepted().last_refusal();
  }

  const std::string host_ = test::AddressOfThisMachine();
  test::TestAuthority authority_;
};

TEST_F(TlsConnection, LargeAndSmallMessagesArriveWhole) {
  Server server(host_, Gateway());
  System client(Admin());
  const auto echo = Find(client, host_, server.port);
  ASSERT_TRUE(echo) << client.directory.accepted().last_refusal();
  ExpectEchoes(client, echo);
  EXPECT_TRUE(server.directory.accepted().refused().empty());
}

TEST_F(TlsConnection, TheOtherEndsRolesBoundWhatItMaySay) {
  Server server(host_, Gateway());
  System client(authority_.Make("bob", {security::Role::kReader}));
  const auto echo = Find(client, host_, server.port);
  ASSERT_TRUE(echo) << client.directory.accepted().last_refusal();
  caf::anon_send(caf::actor_cast<caf::actor>(echo), proto::InferRequest());
  const auto line = RefusalAt(server);
  EXPECT_THAT(line, testing::AllOf(testing::HasSubstr("'bob' (reader"), testing::HasSubstr("InferRequest"),
                                   testing::HasSubstr("admin")));
}

TEST_F(TlsConnection, ARevokedCertificateEndsTheConnectionThatItMade) {
  const auto gateway = Gateway();
  Server server(host_, gateway);
  System client(Admin());
  const auto echo = Find(client, host_, server.port);
  ASSERT_TRUE(echo) << client.directory.accepted().last_refusal();
  caf::scoped_actor self(client.actors);
  self->monitor(echo);
  authority_.Revoke("ann", {"front"});
  ASSERT_TRUE(*gateway->Reload());
  server.directory.CloseRefused();
  self->receive([](const caf::down_msg&) {});
  EXPECT_THAT(RefusalAt(server),
              testing::AllOf(testing::HasSubstr("'ann' (admin"), testing::HasSubstr("revoked")));
  EXPECT_FALSE(Find(client, host_, server.port));
  EXPECT_THAT(RefusalAt(client), testing::HasSubstr("our certificate is revoked there"));
}

TEST_F(TlsConnection, ARenewedCertificateIsShownByTheNextConnection) {
  const auto admin = Admin();
  const auto gateway = Gateway();
  Server server(host_, gateway);
  System client(admin);
  ASSERT_TRUE(Find(client, host_, server.port));
  const auto old = admin->Current()->identity().serial;
  const auto renewed = authority_.Issue("ann", {security::Role::kAdmin});
  ASSERT_TRUE(*admin->Reload());
  authority_.Revoke(old, {"front"});
  ASSERT_TRUE(*gateway->Reload());
  server.directory.CloseRefused();
  System again(admin);
  EXPECT_TRUE(Find(again, host_, server.port)) << again.directory.accepted().last_refusal();
}

TEST_F(TlsConnection, ARefusedPeerIsNamedWithWhatToDo) {
  using testing::HasSubstr;
  Server server(host_, Gateway());
  test::TestAuthority other;
  const auto stranger = other.Make("mallory", {security::Role::kAdmin});
  System unknown(stranger);
  EXPECT_FALSE(Find(unknown, host_, server.port));
  EXPECT_THAT(RefusalAt(unknown), testing::AllOf(HasSubstr("'front' (gateway"), HasSubstr("authority")));
  // A peer without TLS, a peer with TLS at a port without it, and a peer with a certificate for another host.
  System plain;
  EXPECT_FALSE(Find(plain, host_, server.port));
  EXPECT_THAT(RefusalAt(plain), HasSubstr("--tls-dir"));
  Server open(host_);
  System careful(Admin());
  EXPECT_FALSE(Find(careful, host_, open.port));
  EXPECT_THAT(RefusalAt(careful), HasSubstr("does not speak TLS"));
  EXPECT_THAT(RefusalAt(open), HasSubstr("--tls-dir"));
}

TEST_F(TlsConnection, AServerForAnotherHostIsRefused) {
  auto opened = security::AuthorityFolder::Open(authority_.ca());
  ASSERT_TRUE(opened
                  ->Issue({{security::Role::kGateway},
                           "far",
                           {"far.example"},
                           absl::Now() - absl::Hours(1),
                           absl::Now() + absl::Hours(1)},
                          authority_.folder("far"))
                  .ok());
  opened = absl::CancelledError();  // the directory's lock is gone
  Server server(host_, authority_.Credentials("far"));
  System client(Admin());
  EXPECT_FALSE(Find(client, host_, server.port));
  EXPECT_THAT(RefusalAt(client),
              testing::AllOf(testing::HasSubstr("'far' (gateway"), testing::HasSubstr(host_)));
}

// Silent TLS connections are few and short, like those of plain connections, and none is left when the port
// closes.
TEST_F(TlsConnection, HandshakesThatDoNotEndAreBounded) {
  std::vector<transport::UniqueFd> idle;
  {
    Server server(host_, Gateway());
    auto& accepted = server.directory.accepted();
    const auto connect = [&] {
      transport::UniqueFd line(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      sockaddr_in name{};
      name.sin_family = AF_INET;
      name.sin_port = htons(server.port);
      EXPECT_EQ(inet_pton(AF_INET, host_.c_str(), &name.sin_addr), 1);
      EXPECT_EQ(::connect(line.get(), reinterpret_cast<sockaddr*>(&name), sizeof name), 0);
      return line;
    };
    for (std::size_t i = 0; i <= PeerConnections::kUnfinished; ++i) idle.push_back(connect());
    ReadToTheEnd(idle.front());
    EXPECT_EQ(accepted.refused().at("crowded_out"), 1u);
    System client(Admin());
    EXPECT_TRUE(Find(client, host_, server.port)) << client.directory.accepted().last_refusal();
    accepted.Sweep(Time::max());
    for (const auto& one : idle) ReadToTheEnd(one);
    EXPECT_GE(accepted.refused().at("slow_handshake"), PeerConnections::kUnfinished - 1);
    idle.push_back(connect());
    EXPECT_EQ(send(idle.back().get(), "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL), 18);
    ReadToTheEnd(idle.back());
    idle.push_back(connect());
  }
  ReadToTheEnd(idle.back());
}

}  // namespace
}  // namespace troupe::actors
