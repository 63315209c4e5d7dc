// What a stranger may send to an actor port: frames are judged before anything is allocated for them.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <caf/all.hpp>
#include <caf/io/all.hpp>
#include <string>
#include <vector>

#include "actors/core/message_types.hpp"
#include "actors/interfaces/interface.hpp"
#include "actors/peers/frame_guard.hpp"
#include "actors/peers/local_socket.hpp"
#include "actors/peers/network_peer_directory.hpp"
#include "proto/request.pb.h"
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
absl::Status See(FrameGuard::Side side, const std::string& bytes, std::size_t piece) {
  FrameGuard guard(side);
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    const auto text = bytes.substr(at, piece);
    if (auto status = guard.See(text); !status.ok()) return status;
  }
  return absl::OkStatus();
}

TEST(FrameGuard, TakesWhatAPeerSendsInAnyPieces) {
  const auto hello = Frame(kClient, std::string(32, 'n'));
  const auto rest = Frame(kDirect, std::string(5000, 'm')) + Header(kBeat, 0) + Frame(kMonitor, "two nodes") +
                    Frame(kDown, "why");
  for (const std::size_t piece : {1, 3, 32, 33, 100'000}) {
    EXPECT_TRUE(See(FrameGuard::Side::kAccepted, hello + hello + rest, piece).ok()) << piece;
    EXPECT_TRUE(See(FrameGuard::Side::kDialled, Frame(kServer, "node and interface") + rest, piece).ok());
  }
}

TEST(FrameGuard, RefusesEveryHeaderThatClaimsTooMuchOrTooLittle) {
  const auto hello = Frame(kClient, std::string(32, 'n'));
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
  const auto hello = Frame(kClient, "node");
  using Side = FrameGuard::Side;
  EXPECT_FALSE(See(Side::kAccepted, Frame(kDirect, "m"), 32).ok()) << "a message before the handshake";
  EXPECT_FALSE(See(Side::kAccepted, Frame(kServer, "node"), 32).ok()) << "the other side's handshake";
  EXPECT_FALSE(See(Side::kDialled, hello, 32).ok()) << "the other side's handshake";
  EXPECT_FALSE(See(Side::kAccepted, hello + Frame(kClient, "edon"), 32).ok()) << "another node";
  EXPECT_FALSE(See(Side::kAccepted, hello + hello + hello, 32).ok()) << "a third handshake";
  EXPECT_FALSE(See(Side::kAccepted, hello + Frame(kRouted, "m"), 32).ok());
  EXPECT_FALSE(See(Side::kAccepted, hello + Frame(7, "m"), 32).ok());
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
  System() : actors(Configure(config)), directory(actors, pool) {}
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
  Server() : echo(actors.spawn(BeEcho)) {
    auto listening = directory.Listen(caf::actor_cast<caf::strong_actor_ptr>(echo),
                                      actors.message_types<Echo>(), "127.0.0.1", 0);
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
  EXPECT_EQ(fcntl(fd->get(), F_SETFL, 0), 0);  // these tests wait
  return *std::move(fd);
}
// Until the other end closes.
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
  ReadToTheEnd(idle.front());  // the oldest one makes room
  EXPECT_EQ(accepted.refused().at("crowded_out"), 1u);
  accepted.Sweep(Time::max());
  for (const auto& one : idle) ReadToTheEnd(one);
  EXPECT_GE(accepted.refused().at("slow_handshake"), PeerConnections::kUnfinished);
}

// 8 MiB are gathered in several steps.
TEST(GuardedConnection, LargeAndSmallMessagesArriveWhole) {
  Server server;
  System client;
  caf::scoped_actor self(client.actors);
  client.directory.Watch("127.0.0.1:" + std::to_string(server.port), client.actors.message_types<Echo>(),
                         caf::actor_cast<PeerWatcherActor>(caf::actor(self)));
  Echo echo;
  self->receive(
      [&](const proto::PeerUp&, const caf::strong_actor_ptr& peer) { echo = caf::actor_cast<Echo>(peer); });
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

}  // namespace
}  // namespace troupe::actors
