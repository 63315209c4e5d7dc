// One client's connection: has a request read, has it answered, writes the response, again. Only http_*.cpp
// see this header.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "gateway/http_charges.hpp"
#include "gateway/http_loop.hpp"
#include "gateway/http_message.hpp"
#include "gateway/http_request_reader.hpp"
#include "gateway/http_response_writer.hpp"
#include "gateway/http_stream.hpp"

namespace troupe::gateway {

// Of the client at the other end of a connection.
struct HttpClient {
  explicit HttpClient(const boost::asio::ip::tcp::socket& socket);
  boost::asio::ip::address address;  // unspecified when the client has gone already
  std::string name;                  // `address` as text
  std::shared_ptr<ClientUser> user;
};

// The life of a connection, in the states of HttpState. Owned by its loop until Run has ended; touched by the
// loop's thread only.
class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  using SteadyTime = std::chrono::steady_clock::time_point;

  HttpConnection(boost::asio::ip::tcp::socket socket, HttpLoop& loop, bool probes_only);

  boost::asio::awaitable<void> Run();

  // Ends the connection: a pending read or write fails, a request that waits is abandoned.
  void Close();
  // Gives up what the request under way holds.
  void Forget();
  // No further request after the one under way.
  void Drain();
  // Gives up what takes too long.
  void CheckDeadline(SteadyTime now);
  // While a reply is awaited the socket is not read: the loop looks whether the client is still connected.
  [[nodiscard]] bool waiting() const { return stream_.pace().state() == HttpState::kWaiting; }
  // For a whole head of a request, since `entered`.
  [[nodiscard]] bool asking() const {
    return stream_.pace().state() == HttpState::kIdle || stream_.pace().state() == HttpState::kHead;
  }
  [[nodiscard]] SteadyTime entered() const { return stream_.pace().entered(); }
  [[nodiscard]] int descriptor() { return stream_.descriptor(); }

 private:
  boost::asio::awaitable<bool> Greet();
  void GreetFailed();
  boost::asio::awaitable<bool> ServeOne();
  boost::asio::awaitable<bool> Answer();
  // False when the head alone decides the answer, which is in `response_` then.
  bool CheckHead(bool is_probe);
  boost::asio::awaitable<bool> Reply();
  void Complete(std::uint64_t serial, MakeResponse make);
  void Resume();
  boost::asio::awaitable<bool> Write(bool keep_alive);
  // Always false, for `return Refuse(...)`.
  bool Refuse(HttpResponse response);

  HttpLoop& loop_;
  const HttpClient client_;
  HttpStream stream_;
  HttpCharges charges_;
  HttpRequestReader reader_;
  HttpResponseWriter writer_;
  bool draining_ = false;
  std::shared_ptr<HttpExchange> exchange_;
  std::uint64_t serial_ = 0;  // of the request under way: a reply to an earlier one is dropped
  MakeResponse make_;
  absl::AnyInvocable<void()> waiter_;
  HttpResponse response_;
};

}  // namespace troupe::gateway
