// STREAM CONNECTION: one TCP connection between two StreamEndpoints, with TLS where daemons have
// certificates. Only stream_*.cpp see this header.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "base/units.hpp"
#include "security/credentials.hpp"

namespace troupe::transport {

// On its loop's thread only. One read and one write at a time. A failed read or write closes it; what was
// waiting then ends with Unavailable.
class StreamConnection : public std::enable_shared_from_this<StreamConnection> {
 public:
  using Socket = boost::asio::ip::tcp::socket;
  template <class T>
  using Task = boost::asio::awaitable<T>;

  // `peer`: "the host at ip:port", for errors.
  StreamConnection(Socket socket, std::string peer);

  Task<absl::Status> Dial(const boost::asio::ip::tcp::endpoint& address);
  // TLS from here on. Unauthenticated, with the reason, when the peer's certificate, or ours there, is refused.
  Task<absl::Status> GreetAsServer(std::shared_ptr<const security::Snapshot> credentials);
  Task<absl::Status> GreetAsClient(std::shared_ptr<const security::Snapshot> credentials,
                                   const std::string& host);

  // All of `bytes`.
  Task<absl::Status> Read(std::span<std::byte> bytes);
  // Each MiB of it within `patience`.
  Task<absl::Status> Write(std::span<const std::byte> bytes, Duration patience);

  // Closes it when the time has passed, unless it is told otherwise before.
  void CloseAfter(Duration time);
  void KeepOpen();
  void Close();
  // Calls `ended` when the peer ends a connection on which nothing happens, or says something unasked; not
  // after Wake.
  void Sleep(std::function<void()> ended);
  void Wake();

  // Its time had passed.
  [[nodiscard]] bool timed_out() const { return timed_out_; }
  [[nodiscard]] const std::string& peer() const { return peer_; }
  // With which it was greeted; null without TLS.
  [[nodiscard]] const std::shared_ptr<const security::Snapshot>& credentials() const { return credentials_; }
  // Null without TLS.
  [[nodiscard]] SSL* tls() { return tls_ ? tls_->stream.native_handle() : nullptr; }

 private:
  struct Tls {
    // Owns a reference of its own to the credentials' context.
    Tls(Socket& socket, SSL_CTX* shared);
    boost::asio::ssl::context context;
    boost::asio::ssl::stream<Socket&> stream;
  };
  Task<absl::Status> Greet(boost::asio::ssl::stream_base::handshake_type side);
  // What a failed operation means; the connection is closed.
  absl::Status Failed(const boost::system::error_code& error, const char* doing);

  Socket socket_;
  const std::string peer_;
  std::shared_ptr<const security::Snapshot> credentials_;
  std::optional<Tls> tls_;
  boost::asio::steady_timer deadline_;
  bool timed_out_ = false;
  bool closed_ = false;
  bool asleep_ = false;
};

}  // namespace troupe::transport
