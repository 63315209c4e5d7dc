#include "transport/arena_server.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "transport/arena_wire.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::transport {
namespace {

constexpr Duration kPatience = std::chrono::seconds(5);

}  // namespace

struct ArenaServer::Peer {
  UnixConnection connection;
  Time until;
};

ArenaServer::ArenaServer(UnixAcceptor acceptor, UniqueFd wake)
    : acceptor_(std::move(acceptor)), wake_(std::move(wake)), thread_([this] { Serve(); }) {}

absl::StatusOr<std::unique_ptr<ArenaServer>> ArenaServer::Start(const std::string& socket_path,
                                                                std::shared_ptr<SocketRefusals> refusals) {
  TROUPE_ASSIGN_OR_RETURN(UnixAcceptor acceptor, UnixAcceptor::Listen(socket_path, std::move(refusals)));
  UniqueFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return ErrnoStatus(errno, "making the wake-up of an arena server");
  return std::unique_ptr<ArenaServer>(new ArenaServer(std::move(acceptor), std::move(wake)));
}

ArenaServer::~ArenaServer() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof(one));
  thread_.join();
}

absl::Status ArenaServer::Add(std::shared_ptr<Arena> arena) {
  const std::uint64_t id = arena->id();
  const int descriptor = arena->fd();
  return Show(id, {std::move(arena), descriptor});
}

absl::Status ArenaServer::Add(std::uint64_t id, UniqueFd descriptor) {
  auto keeps = std::make_shared<const UniqueFd>(std::move(descriptor));
  const int shown = keeps->get();
  return Show(id, {std::move(keeps), shown});
}

absl::Status ArenaServer::Show(std::uint64_t id, Shown shown) {
  const std::lock_guard lock(mutex_);
  if (arenas_.size() >= kArenas) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the server at ", path(), " hands out ", kArenas, " arenas already"));
  }
  arenas_.emplace(id, std::move(shown));
  return absl::OkStatus();
}

void ArenaServer::Remove(std::uint64_t arena) {
  const std::lock_guard lock(mutex_);
  arenas_.erase(arena);
}

void ArenaServer::Serve() {
  std::vector<Peer> peers;
  while (Step(peers)) {
  }
}

// One round of poll. False when the server is to stop.
bool ArenaServer::Step(std::vector<Peer>& peers) {
  Time now = SteadyNow();
  std::vector<pollfd> entries{{wake_.get(), POLLIN, 0}, {acceptor_.fd(now), POLLIN, 0}};
  Time next = std::min(now + std::chrono::hours(1), acceptor_.wakes(now));
  for (const Peer& peer : peers) {
    entries.push_back({peer.connection.fd(), POLLIN, 0});
    next = std::min(next, peer.until);
  }
  if (poll(entries.data(), entries.size(), PollMillis(next)) < 0 && errno != EINTR) return false;
  if (entries[0].revents != 0) return false;
  now = SteadyNow();
  std::vector<Peer> stay;
  for (std::size_t i = 0; i < peers.size(); ++i)
    if (Hear(peers[i], entries[i + 2].revents != 0, now)) stay.push_back(std::move(peers[i]));
  peers = std::move(stay);
  if (entries[1].revents != 0) Accept(peers, now);
  return true;
}

void ArenaServer::Accept(std::vector<Peer>& peers, Time now) {
  std::optional<UnixConnection> connection = acceptor_.Accept(now);
  if (!connection) return;
  if (peers.size() >= kPeers) {
    acceptor_.refusals().Count(SocketRefusal::kCrowdedOut);
    peers.erase(std::ranges::min_element(peers, {}, &Peer::until));
  }
  peers.push_back(Peer{*std::move(connection), now + kPatience});
}

// False when the peer has left, or is to be dropped.
bool ArenaServer::Hear(Peer& peer, bool ready, Time now) {
  if (!ready) {
    if (peer.until > now) return true;
    acceptor_.refusals().Count(SocketRefusal::kSilent);
    return false;
  }
  absl::StatusOr<SocketMessage> request = peer.connection.Receive(Duration::zero());
  if (absl::IsUnavailable(request.status())) return false;
  if (!request.ok() || !Answer(peer.connection, *request)) {
    acceptor_.refusals().Count(SocketRefusal::kBrokenMessage);
    return false;
  }
  peer.until = now + kPatience;
  return true;
}

// False when the request makes no sense, or the peer does not take the answer.
bool ArenaServer::Answer(UnixConnection& peer, const SocketMessage& request) {
  ArenaQuestion question{};
  if (request.bytes.size() != sizeof(question) || !request.descriptors.empty()) return false;
  std::memcpy(&question, request.bytes.data(), sizeof(question));
  if (question.magic != kArenaMagic || question.version != kArenaVersion) return false;
  ArenaAnswer answer{};
  answer.magic = kArenaMagic;
  Shown found;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, arena] : arenas_) {
      answer.known[answer.count++] = id;
      if (id == question.arena) found = arena;
    }
  }
  const std::string_view bytes(reinterpret_cast<const char*>(&answer), sizeof(answer));
  return peer.Send(bytes, std::span(&found.descriptor, found.keeps ? 1 : 0), Duration::zero()).ok();
}

}  // namespace troupe::transport
