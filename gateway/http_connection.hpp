// One client's connection: reads a request, has it answered, writes the response, again. Only http_*.cpp see
// this header.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "gateway/body_decoder.hpp"
#include "gateway/http_loop.hpp"
#include "gateway/http_message.hpp"
#include "gateway/tls_session.hpp"
#include "gateway/transfer_budget.hpp"

namespace troupe::gateway {

// [handshake ->] idle -> head -> body -> waiting -> writing -> idle ... -> closed; lingering -> closed after
// an early refusal. Owned by its loop until Run has ended; touched by the loop's thread only.
//
// Over TLS the same code reads and writes through the session (http_tls.cpp); a plain connection asks one
// pointer whether there is one.
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
  [[nodiscard]] bool waiting() const { return state_ == State::kWaiting; }
  // For a whole head of a request, since `entered`.
  [[nodiscard]] bool asking() const { return state_ == State::kIdle || state_ == State::kHead; }
  [[nodiscard]] SteadyTime entered() const { return entered_; }
  [[nodiscard]] int descriptor() { return socket_.native_handle(); }

 private:
  enum class State { kHandshake, kIdle, kHead, kBody, kWaiting, kWriting, kLingering, kClosed };
  using Parser = boost::beast::http::request_parser<boost::beast::http::buffer_body>;

  // Coroutines give bool only, and are awaited in statements of their own: GCC 12 loses its way in frames
  // that hold more.
  boost::asio::awaitable<bool> ServeOne();
  boost::asio::awaitable<bool> ReadHead();
  boost::asio::awaitable<bool> ReadMore();
  boost::asio::awaitable<bool> Answer();
  // These are false when the request ends early: then `response_` says why.
  bool CheckHead();
  bool CheckFields();
  bool CheckCoding();
  bool CheckBudgets();
  boost::asio::awaitable<bool> ReadBody();
  boost::asio::awaitable<bool> ReadSized();
  boost::asio::awaitable<bool> ReadGathered();
  bool TakeSized(std::string& gathered);
  bool TakeChunk(std::string& gathered);
  bool TakeBody(std::string_view bytes, std::string& gathered);
  bool Decode(std::string_view bytes, std::string& gathered);
  bool Place(std::string_view bytes);
  boost::asio::awaitable<bool> ReadExactly(std::span<std::byte> span);
  boost::asio::awaitable<bool> Continue();

  boost::asio::awaitable<bool> Reply();
  boost::asio::awaitable<bool> Write();
  boost::asio::awaitable<bool> WriteAll(const std::vector<boost::asio::const_buffer>* buffers);
  boost::asio::awaitable<bool> SkipBody();
  boost::asio::awaitable<bool> Discard();
  // Over TLS.
  boost::asio::awaitable<bool> Handshake();
  bool HandshakeFailed();
  boost::asio::awaitable<bool> ReadTls(std::span<std::byte> into, std::size_t* count);
  boost::asio::awaitable<bool> WriteTls(const std::vector<boost::asio::const_buffer>* buffers);
  boost::asio::awaitable<bool> AwaitTls(TlsSession::Result wanted);
  boost::asio::awaitable<bool> TakeTurn(std::size_t moved);
  std::vector<boost::asio::const_buffer> Gather(bool close);
  // Always false, for `co_return Refuse(...)`.
  bool Refuse(HttpResponse response);
  bool RefuseLost();

  bool ChargeBody(std::uint64_t held);
  bool RefuseFull(TransferBudget::Verdict verdict, std::string_view what);
  void ChargeAnswer();
  void Complete(std::uint64_t serial, MakeResponse make);
  void Resume();
  void Enter(State state, std::uint64_t transferred = 0);
  void SetDeadline(bool is_short);

  boost::asio::ip::tcp::socket socket_;
  HttpLoop& loop_;
  const bool probes_only_;                  // one beyond what the server may have
  const boost::asio::ip::address address_;  // of the client; unspecified when it has gone already
  const std::string client_name_;           // `address_` as text
  const std::string client_;                // what budgets know the client by
  std::unique_ptr<TlsSession> tls_;         // null: plain HTTP
  std::size_t turn_ = 0;                    // bytes moved over TLS since other connections had their turn
  State state_ = State::kIdle;
  SteadyTime entered_ = std::chrono::steady_clock::now();  // when `state_` began
  SteadyTime moved_ = entered_;                            // when bytes moved last
  std::uint64_t transferred_ = 0;  // bytes of the body or answer that were moved in `state_`
  SteadyTime deadline_ = SteadyTime::max();
  bool timed_out_ = false;
  bool draining_ = false;

  boost::beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  std::optional<BodyDecoder> decoder_;  // of a compressed body
  std::shared_ptr<HttpExchange> exchange_;
  std::uint64_t serial_ = 0;          // of the request under way: a reply to an earlier one is dropped
  std::uint64_t unread_ = 0;          // bytes of a sized body still to come
  std::uint64_t charged_body_ = 0;    // of the budget of bodies
  std::uint64_t charged_answer_ = 0;  // of the budget of answers
  std::uint64_t charged_handshake_ = 0;
  bool is_probe_ = false;
  bool keep_alive_ = false;
  bool body_whole_ = false;
  bool withheld_ = false;  // the client waits for "100 Continue" before it sends the body
  MakeResponse make_;
  absl::AnyInvocable<void()> waiter_;
  HttpResponse response_;
  std::string extra_headers_;  // of every answer to the request under way
  std::string head_;
};

}  // namespace troupe::gateway
