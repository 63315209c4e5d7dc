// The half of HttpConnection that moves bodies and responses.
#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/string.hpp>
#include <cstring>
#include <vector>

#include "gateway/http_connection.hpp"
#include "gateway/http_error.hpp"
#include "gateway/text.hpp"

namespace troupe::gateway {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;

namespace {
constexpr std::size_t kReadSize = 16 * 1024;
constexpr std::size_t kJoinedBody = 32 * 1024;  // a body up to this is copied behind its head: one write
constexpr std::uint64_t kDiscardedBody =
    64 * 1024;  // an unread body up to this is read over, to keep the connection
constexpr std::uint64_t kLingered =
    4 * 1024 * 1024;  // beyond, the client gets a reset and may lose the response
}  // namespace

asio::awaitable<bool> HttpConnection::Continue() {
  const auto expect = parser_->get()[http::field::expect];
  if (expect.empty() || parser_->get().version() < 11 || buffer_.size() > 0) co_return true;
  if (!boost::beast::iequals(expect, "100-continue")) co_return true;
  const std::array<asio::const_buffer, 1> line{asio::buffer("HTTP/1.1 100 Continue\r\n\r\n", 25)};
  co_return co_await WriteAll(line);
}

asio::awaitable<std::optional<HttpResponse>> HttpConnection::ReadBody() {
  Enter(State::kBody);
  if (!co_await Continue()) co_return Lost();
  if (parser_->chunked()) co_return co_await ReadChunked();
  co_return co_await ReadSized();
}

// Straight from the socket to where the protocol wants it, but for what came along with the head.
asio::awaitable<std::optional<HttpResponse>> HttpConnection::ReadSized() {
  const std::uint64_t size = unread_;
  while (unread_ > 0) {
    const auto span = exchange_->NextSpan(unread_);
    if (!span.ok()) co_return ErrorResponse(span.status());
    const std::size_t buffered = std::min(span->size(), buffer_.size());
    std::memcpy(span->data(), buffer_.data().data(), buffered);
    buffer_.consume(buffered);
    unread_ -= buffered;
    Enter(State::kBody, size - unread_);
    if (!co_await ReadExactly(span->subspan(buffered))) co_return Lost();
  }
  body_whole_ = true;
  co_return std::nullopt;
}

asio::awaitable<bool> HttpConnection::ReadExactly(std::span<std::byte> span) {
  const std::uint64_t size = parser_->content_length().value_or(0);
  while (!span.empty()) {
    const auto [error, count] = co_await socket_.async_read_some(asio::buffer(span.data(), span.size()),
                                                                 asio::as_tuple(asio::use_awaitable));
    span = span.subspan(count);
    unread_ -= count;
    if (error || state_ == State::kClosed) co_return false;
    Enter(State::kBody, size - unread_);
  }
  co_return true;
}

// The length is known at the end only, so the body is gathered first.
asio::awaitable<std::optional<HttpResponse>> HttpConnection::ReadChunked() {
  std::string gathered;
  std::array<char, kReadSize> piece;
  while (!parser_->is_done()) {
    auto& body = parser_->get().body();
    body.data = piece.data();
    body.size = piece.size();
    body.more = true;
    error_code error;
    const std::size_t used = parser_->put(buffer_.data(), error);
    buffer_.consume(used);
    const std::size_t got = piece.size() - body.size;
    if (gathered.size() + got > exchange_->body_limit().count()) {
      co_return ErrorResponse(413, Cat("the body is longer than the ", FormatBytes(exchange_->body_limit()),
                                       " that are taken here"));
    }
    if (!Take(got))
      co_return ErrorResponse(
          absl::ResourceExhaustedError("the bodies of the requests under way fill the server; try again"));
    gathered.append(piece.data(), got);
    if (error && error != http::error::need_more && error != http::error::need_buffer) {
      co_return ErrorResponse(400, Cat("broken chunked body: ", error.message()));
    }
    if (parser_->is_done() || (used > 0 && error != http::error::need_more)) continue;
    if (buffer_.size() > kReadSize)
      co_return ErrorResponse(400, "broken chunked body: a chunk's header is too long");
    if (!co_await ReadMore()) co_return Lost();
    Enter(State::kBody, gathered.size());
  }
  body_whole_ = true;
  co_return Place(gathered);
}

std::optional<HttpResponse> HttpConnection::Place(std::string_view bytes) {
  while (!bytes.empty()) {
    const auto span = exchange_->NextSpan(bytes.size());
    if (!span.ok()) return ErrorResponse(span.status());
    const std::size_t count = std::min(span->size(), bytes.size());
    std::memcpy(span->data(), bytes.data(), count);
    bytes.remove_prefix(count);
  }
  return std::nullopt;
}

void HttpConnection::FormatHead(const HttpResponse& response, std::uint64_t length, bool close) {
  head_.clear();
  Append(head_, "HTTP/1.1 ", response.code, " ", HttpReason(response.code),
         "\r\nContent-Type: ", response.content_type, "\r\nContent-Length: ", length, "\r\n",
         loop_.DateHeader(), response.headers);
  if (close) {
    head_ += "Connection: close\r\n";
  } else if (parser_->get().version() == 10) {
    head_ += "Connection: keep-alive\r\n";
  }
  head_ += "\r\n";
}

// True when the connection can take another request.
asio::awaitable<bool> HttpConnection::Write(HttpResponse response) {
  if (state_ == State::kClosed) co_return false;
  // What is left of a refused body would be taken for the next request.
  const bool readable = !timed_out_ && parser_->is_header_done();
  if (!body_whole_ && readable && !parser_->chunked() && unread_ <= kDiscardedBody) {
    std::array<std::byte, kReadSize> waste;
    const std::size_t buffered = std::min<std::uint64_t>(unread_, buffer_.size());
    buffer_.consume(buffered);
    unread_ -= buffered;
    body_whole_ = true;
    while (unread_ > 0 && body_whole_) {
      body_whole_ =
          co_await ReadExactly(std::span(waste).first(std::min<std::uint64_t>(unread_, waste.size())));
    }
  }
  const bool close = response.close || !keep_alive_ || !body_whole_ || draining_;
  const bool has_body = !parser_->is_header_done() || parser_->get().method() != http::verb::head;
  std::uint64_t length = response.body.size();
  for (const OutputBuffer& part : response.parts) length += part.bytes().size();
  FormatHead(response, length, close);
  std::vector<asio::const_buffer> buffers;
  if (has_body && response.body.size() <= kJoinedBody) head_ += response.body;
  buffers.push_back(asio::buffer(head_));
  if (has_body && response.body.size() > kJoinedBody) buffers.push_back(asio::buffer(response.body));
  if (has_body) {
    for (const OutputBuffer& part : response.parts) {
      if (!part.bytes().empty()) buffers.push_back(asio::buffer(part.bytes().data(), part.bytes().size()));
    }
  }
  Enter(State::kWriting, length);
  const bool written = co_await WriteAll(buffers);
  if (!written || !close) co_return written;
  if (!body_whole_ || buffer_.size() > 0) Enter(State::kLingering);
  co_return false;
}

asio::awaitable<bool> HttpConnection::WriteAll(std::span<const asio::const_buffer> buffers) {
  // Nearly every response fits into the socket's buffer: no need to ask the reactor.
  error_code error;
  std::size_t written = socket_.write_some(buffers, error);
  if (error && error != asio::error::would_block) co_return false;
  std::vector<asio::const_buffer> rest;
  for (const asio::const_buffer& buffer : buffers) {
    const std::size_t done = std::min(written, buffer.size());
    written -= done;
    if (done < buffer.size()) rest.push_back(buffer + done);
  }
  if (rest.empty()) co_return true;
  const auto [failed, count] = co_await asio::async_write(socket_, rest, asio::as_tuple(asio::use_awaitable));
  co_return !failed && state_ != State::kClosed;
}

// After a refusal that leaves bytes unread: closing at once would reset the connection and could destroy the
// response before the client reads it (RFC 9112, 9.6).
asio::awaitable<void> HttpConnection::Discard() {
  error_code error;
  socket_.shutdown(asio::socket_base::shutdown_send, error);
  std::array<std::byte, kReadSize> waste;
  for (std::uint64_t total = 0; total < kLingered && !error;) {
    const auto [failed, count] =
        co_await socket_.async_read_some(asio::buffer(waste), asio::as_tuple(asio::use_awaitable));
    error = failed;
    total += count;
  }
}

}  // namespace troupe::gateway
