#include "transport/stream_server.hpp"

#include <algorithm>
#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "transport/ip_address.hpp"
#include "transport/stream_address.hpp"

namespace troupe::transport {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {
// Daemons read tensors; the shell does not.
constexpr security::Roles kReaders = {security::Role::kManager, security::Role::kGateway,
                                      security::Role::kNode};
// Until a descriptor is free again.
constexpr Duration kWithoutDescriptors = std::chrono::milliseconds(100);
}  // namespace

absl::Status StreamServer::Listen(const std::string& bind) {
  TROUPE_ASSIGN_OR_RETURN(const auto endpoint, ToEndpoint(bind));
  error_code error;
  acceptor_.open(endpoint.protocol(), error);
  if (!error) acceptor_.set_option(asio::socket_base::reuse_address(true), error);
  if (!error) acceptor_.bind(endpoint, error);
  if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
  if (error)
    return absl::UnavailableError(
        absl::StrCat("listening at ", bind, " for readers of tensors: ", error.message()));
  address_ = ToText(acceptor_.local_endpoint(error));
  asio::co_spawn(acceptor_.get_executor(), AcceptAll(), asio::detached);
  return absl::OkStatus();
}

StreamServer::Task<void> StreamServer::AcceptAll() {
  asio::steady_timer pause(acceptor_.get_executor());
  while (acceptor_.is_open()) {
    auto [error, socket] = co_await acceptor_.async_accept(asio::as_tuple(asio::use_awaitable));
    if (error == asio::error::operation_aborted) co_return;
    if (error) {
      refusals_->Count(SocketRefusal::kNoDescriptors);
      pause.expires_after(kWithoutDescriptors);
      co_await pause.async_wait(asio::as_tuple(asio::use_awaitable));
      continue;
    }
    MakeRoom();
    error_code gone;
    const std::string name = absl::StrCat("the host at ", ToText(socket.remote_endpoint(gone)));
    peers_.push_back({std::make_shared<StreamConnection>(std::move(socket), name)});
    ++silent_;
    asio::co_spawn(acceptor_.get_executor(), Serve(std::prev(peers_.end())), asio::detached);
  }
}

// The connections that have not asked are the first to go; they remove themselves.
void StreamServer::MakeRoom() {
  if (silent_ < kSilent && peers_.size() < kPeers) return;
  const auto waits = [](const Peer& peer) { return !peer.asked && !peer.refused; };
  auto oldest = std::find_if(peers_.begin(), peers_.end(), waits);
  if (oldest == peers_.end())
    oldest = std::find_if(peers_.begin(), peers_.end(), [](const Peer& peer) { return !peer.refused; });
  if (oldest != peers_.end()) Refuse(*oldest, SocketRefusal::kCrowdedOut);
}

void StreamServer::Refuse(Peer& peer, SocketRefusal reason) {
  if (!peer.refused) refusals_->Count(reason);
  peer.refused = true;
  peer.connection->Close();
}

StreamServer::Task<void> StreamServer::Serve(Peers::iterator peer) {
  co_await ServeUntilEnd(peer);
  peer->connection->Close();
  if (!peer->asked) --silent_;
  peers_.erase(peer);
}

StreamServer::Task<void> StreamServer::ServeUntilEnd(Peers::iterator peer) {
  peer->connection->CloseAfter(kFirstAsk);
  const absl::Status greeted = co_await Greet(peer);
  if (!greeted.ok()) {
    Refuse(*peer, peer->connection->timed_out() ? SocketRefusal::kSilent : SocketRefusal::kBrokenMessage);
    co_return;
  }
  for (bool more = true; more;) more = co_await AnswerNext(peer);
}

StreamServer::Task<absl::Status> StreamServer::Greet(Peers::iterator peer) {
  StreamConnection& connection = *peer->connection;
  std::shared_ptr<const security::Snapshot> credentials;
  if (credentials_ != nullptr) credentials = credentials_->Current();
  absl::Status status = co_await connection.GreetAsServer(std::move(credentials));
  if (!status.ok() || connection.tls() == nullptr) co_return status;
  const auto identity = security::PeerIdentity(connection.tls());
  status = identity.ok() ? security::RequireRole(*identity, kReaders, "read tensors of other daemons")
                         : identity.status();
  co_return status;
}

bool StreamServer::StillTrusted(StreamConnection& connection) const {
  if (credentials_ == nullptr) return true;
  const auto current = credentials_->Current();
  if (connection.credentials() == current) return true;
  const auto shown = security::CertificateOf(connection.tls());
  return current->CheckPeer(shown.certificate.get(), shown.chain).ok();
}

// False: the connection is at its end.
StreamServer::Task<bool> StreamServer::AnswerNext(Peers::iterator peer) {
  StreamConnection& connection = *peer->connection;
  std::array<std::byte, sizeof(FetchAsk)> header{};
  const absl::Status got = co_await connection.Read(header);
  if (!got.ok()) {
    if (connection.timed_out()) Refuse(*peer, SocketRefusal::kSilent);
    co_return false;
  }
  const auto ask = ReadFetchAsk(header.data(), header.size());
  if (!ask) {
    Refuse(*peer, SocketRefusal::kBrokenMessage);
    co_return false;
  }
  // Its reader connects again, with its newest certificate if it has one.
  if (!StillTrusted(connection)) {
    strangers_.fetch_add(1);
    co_return false;
  }
  const bool knows = SameToken(ask->token, token_);
  if (!knows) strangers_.fetch_add(1);
  if (knows && !peer->asked) {
    peer->asked = true;
    --silent_;
  }
  absl::StatusOr<PinnedBytes> found =
      knows ? Find(*ask)
            : absl::NotFoundError(
                  "the reader does not know the token of this process: it was not told of the tensor");
  const std::string refusal(found.status().message().substr(0, kLongestRefusal));
  const auto data = found.ok() ? found->bytes : std::as_bytes(std::span(refusal));
  const FetchAnswer answer{kFetchMagic, static_cast<std::int32_t>(found.status().code()), ask->request,
                           data.size()};
  absl::Status sent = co_await connection.Write(std::as_bytes(std::span(&answer, 1)), kPatience);
  if (sent.ok()) sent = co_await connection.Write(data, kPatience);
  co_return sent.ok() && knows;
}

absl::StatusOr<PinnedBytes> StreamServer::Find(const FetchAsk& ask) {
  return source_(RefOf(ask));
}

void StreamServer::Stop() {
  error_code ignored;
  acceptor_.close(ignored);
  for (const Peer& peer : peers_) peer.connection->Close();
}

}  // namespace troupe::transport
