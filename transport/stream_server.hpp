// The half of a stream endpoint that answers others' fetches.
#pragma once

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "base/units.hpp"
#include "security/credentials.hpp"
#include "transport/fetch_wire.hpp"
#include "transport/remote_endpoint.hpp"
#include "transport/socket_refusals.hpp"
#include "transport/stream_connection.hpp"

namespace troupe::transport {

// On its loop's thread only. A connection:
//
//   accepted -> greeted (TLS) -> asked <-> answered -> closed
//
// Bounded: at most kPeers connections, kSilent of them that have not asked yet (for one more the oldest is
// closed), each for kFirstAsk at most; one answer at a time for each, every MiB of which must be taken within
// kPatience. A reader that does not know the token is answered so and closed.
class StreamServer {
 public:
  static constexpr std::size_t kPeers = 1024;
  static constexpr std::size_t kSilent = 64;
  static constexpr Duration kFirstAsk = std::chrono::seconds(5);
  static constexpr Duration kPatience = std::chrono::seconds(30);

  // `credentials`: null without TLS.
  StreamServer(boost::asio::io_context& loop, SliceSource source,
               std::shared_ptr<security::Credentials> credentials, std::shared_ptr<SocketRefusals> refusals,
               const EndpointToken& token)
      : acceptor_(loop),
        source_(std::move(source)),
        credentials_(std::move(credentials)),
        refusals_(std::move(refusals)),
        token_(token) {}

  // Before the loop runs.
  absl::Status Listen(const std::string& bind);
  [[nodiscard]] const std::string& address() const { return address_; }
  [[nodiscard]] std::uint64_t strangers() const { return strangers_.load(); }
  void Stop();

 private:
  template <class T>
  using Task = StreamConnection::Task<T>;
  struct Peer {
    std::shared_ptr<StreamConnection> connection;
    bool asked = false;    // something that makes sense, with the right token
    bool refused = false;  // and counted
  };
  using Peers = std::list<Peer>;

  Task<void> AcceptAll();
  Task<void> Serve(Peers::iterator peer);
  Task<void> ServeUntilEnd(Peers::iterator peer);
  Task<absl::Status> Greet(Peers::iterator peer);
  Task<bool> AnswerNext(Peers::iterator peer);
  // False: its certificate was revoked since the connection was made.
  [[nodiscard]] bool StillTrusted(StreamConnection& connection) const;
  absl::StatusOr<PinnedBytes> Find(const FetchAsk& ask);
  void MakeRoom();
  void Refuse(Peer& peer, SocketRefusal reason);

  boost::asio::ip::tcp::acceptor acceptor_;
  const SliceSource source_;
  const std::shared_ptr<security::Credentials> credentials_;
  const std::shared_ptr<SocketRefusals> refusals_;
  const EndpointToken token_;
  std::atomic<std::uint64_t> strangers_{0};
  std::string address_;
  Peers peers_;             // oldest first
  std::size_t silent_ = 0;  // of them, that have not asked
};

}  // namespace troupe::transport
