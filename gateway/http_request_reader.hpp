// HTTP REQUEST READER: reads one request after the other from a connection, each with its bounds: the length
// of its head, the length of its body, what the body takes of memory. Only http_*.cpp see this header.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "gateway/body_decoder.hpp"
#include "gateway/http_charges.hpp"
#include "gateway/http_message.hpp"
#include "gateway/http_stream.hpp"

namespace troupe::gateway {

// Begin -> ReadHead -> CheckBody -> ReadBody -> Begin ..., on the connection's thread. When a step is false,
// the connection has ended, or `refused` says that the request is answered by TakeRefusal.
class HttpRequestReader {
 public:
  using Request = boost::beast::http::request<boost::beast::http::buffer_body>;

  // All outlive the reader.
  HttpRequestReader(HttpStream& stream, HttpCharges& charges, const HttpServerOptions& options)
      : stream_(stream), charges_(charges), options_(options) {}

  void Begin();
  boost::asio::awaitable<bool> ReadHead();
  // Whether a body of this length and coding can be taken, of at most `limit` bytes.
  [[nodiscard]] std::optional<HttpResponse> CheckBody(Bytes limit);
  boost::asio::awaitable<bool> ReadBody(HttpExchange* exchange);
  // Reads over the rest of a body that nothing takes, and that would be taken for the next request.
  boost::asio::awaitable<bool> SkipBody();
  // Whether such a rest can be read over, and is short enough for it.
  [[nodiscard]] bool MaySkipBody() const;

  // Valid when the head has been read.
  [[nodiscard]] const Request& request() const { return parser_->get(); }
  [[nodiscard]] bool has_head() const { return parser_->is_header_done(); }
  [[nodiscard]] bool body_whole() const { return body_whole_; }
  [[nodiscard]] bool has_body() const { return unread_ > 0; }  // of a length that the head says
  // Bytes of the next request, or of what is not read of this one, are there already.
  [[nodiscard]] bool has_more() const { return buffer_.size() > 0; }
  [[nodiscard]] bool refused() const { return refusal_.has_value(); }
  [[nodiscard]] HttpResponse TakeRefusal() { return *std::exchange(refusal_, std::nullopt); }

 private:
  using Parser = boost::beast::http::request_parser<boost::beast::http::buffer_body>;

  bool TakeHead();
  std::span<std::byte> Room();
  boost::asio::awaitable<bool> ReadSized(HttpExchange* exchange);
  boost::asio::awaitable<bool> ReadGathered(HttpExchange* exchange);
  boost::asio::awaitable<bool> Continue();
  bool TakeSized(Bytes limit, std::string& gathered);
  bool TakeChunk(Bytes limit, std::string& gathered);
  bool TakeBody(std::string_view bytes, Bytes limit, std::string& gathered);
  bool Decode(std::string_view bytes, Bytes limit, std::string& gathered);
  bool Place(std::string_view bytes, HttpExchange& exchange);
  bool HoldBody(std::uint64_t held);
  void MovedSized(std::size_t count);
  // Always false, for `co_return Refuse(...)`.
  bool Refuse(HttpResponse response);
  bool RefuseLost();

  HttpStream& stream_;
  HttpCharges& charges_;
  const HttpServerOptions& options_;
  boost::beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  std::optional<BodyDecoder> decoder_;  // of a compressed body
  std::uint64_t unread_ = 0;            // bytes of a sized body still to come
  bool body_whole_ = false;
  bool withheld_ = false;  // the client waits for "100 Continue" before it sends the body
  std::optional<HttpResponse> refusal_;
};

}  // namespace troupe::gateway
