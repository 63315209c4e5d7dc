// The half of HttpConnection that moves bodies and responses.
#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
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
constexpr std::size_t kPiece = 64 * 1024;       // a body is charged piece by piece, before the piece is read
constexpr std::size_t kJoinedBody = 32 * 1024;  // a body up to this is copied behind its head: one write
constexpr std::uint64_t kDiscardedBody =
    64 * 1024;  // an unread body up to this is read over, to keep the connection
constexpr std::uint64_t kLingered =
    4 * 1024 * 1024;  // beyond, the client gets a reset and may lose the response
}  // namespace

asio::awaitable<bool> HttpConnection::Continue() {
  if (!withheld_) co_return true;
  withheld_ = false;
  const std::vector<asio::const_buffer> line(1, asio::buffer("HTTP/1.1 100 Continue\r\n\r\n", 25));
  const bool written = co_await WriteAll(&line);
  co_return written;
}

asio::awaitable<bool> HttpConnection::ReadBody() {
  Enter(State::kBody);
  bool whole = co_await Continue();
  if (!whole) co_return RefuseLost();
  if (parser_->chunked() || decoder_) {
    whole = co_await ReadGathered();
  } else {
    whole = co_await ReadSized();
  }
  co_return whole;
}

// Straight from the socket to where the protocol wants it, but for what came along with the head.
asio::awaitable<bool> HttpConnection::ReadSized() {
  const std::uint64_t size = unread_;
  while (unread_ > 0) {
    const auto span = exchange_->NextSpan(unread_);
    if (!span.ok()) co_return Refuse(ErrorResponse(span.status()));
    for (std::span<std::byte> rest = *span; !rest.empty();) {
      const auto piece = rest.first(std::min(rest.size(), kPiece));
      rest = rest.subspan(piece.size());
      if (!ChargeBody(size - unread_ + piece.size())) co_return false;
      const std::size_t buffered = std::min(piece.size(), buffer_.size());
      std::memcpy(piece.data(), buffer_.data().data(), buffered);
      buffer_.consume(buffered);
      unread_ -= buffered;
      Enter(State::kBody, size - unread_);
      const bool read = co_await ReadExactly(piece.subspan(buffered));
      if (!read) co_return RefuseLost();
    }
  }
  body_whole_ = true;
  co_return true;
}

asio::awaitable<bool> HttpConnection::ReadExactly(std::span<std::byte> span) {
  const std::uint64_t size = parser_->content_length().value_or(0);
  while (!span.empty()) {
    std::size_t count = 0;
    bool read = false;
    if (tls_) {
      read = co_await ReadTls(span, &count);
    } else {
      const auto [error, some] = co_await socket_.async_read_some(asio::buffer(span.data(), span.size()),
                                                                  asio::as_tuple(asio::use_awaitable));
      count = some;
      read = !error && state_ != State::kClosed;
    }
    span = span.subspan(count);
    unread_ -= count;
    if (!read) co_return false;
    Enter(State::kBody, size - unread_);
  }
  co_return true;
}

// The length is known at the end only, so the body is gathered first: of chunks, or decompressed.
asio::awaitable<bool> HttpConnection::ReadGathered() {
  const std::uint64_t size = unread_;
  std::string gathered;
  std::uint64_t arrived = 0;
  while (true) {
    const std::size_t before = buffer_.size();
    const bool sound = parser_->chunked() ? TakeChunk(gathered) : TakeSized(gathered);
    if (!sound) co_return false;
    arrived += before - buffer_.size();
    if (parser_->chunked() ? parser_->is_done() : unread_ == 0) break;
    Enter(State::kBody, parser_->chunked() ? arrived : size - unread_);
    const bool more = co_await ReadMore();
    if (!more) co_return RefuseLost();
  }
  body_whole_ = true;
  if (decoder_)
    if (absl::Status status = decoder_->CheckEnd(); !status.ok()) co_return Refuse(ErrorResponse(status));
  co_return Place(gathered);
}

bool HttpConnection::TakeSized(std::string& gathered) {
  const std::size_t count = std::min<std::uint64_t>(unread_, buffer_.size());
  const std::string piece(static_cast<const char*>(buffer_.data().data()), count);
  buffer_.consume(count);
  unread_ -= count;
  return TakeBody(piece, gathered);
}

// Takes what can be taken from the buffer.
bool HttpConnection::TakeChunk(std::string& gathered) {
  std::array<char, kReadSize> piece;
  while (!parser_->is_done() && buffer_.size() > 0) {
    auto& body = parser_->get().body();
    body.data = piece.data();
    body.size = piece.size();
    body.more = true;
    error_code error;
    const std::size_t used = parser_->put(buffer_.data(), error);
    buffer_.consume(used);
    if (!TakeBody({piece.data(), piece.size() - body.size}, gathered)) return false;
    if (error && error != http::error::need_more && error != http::error::need_buffer) {
      return Refuse(ErrorResponse(400, Cat("broken chunked body: ", error.message())));
    }
    if (used == 0) break;
  }
  if (buffer_.size() <= kReadSize || parser_->is_done()) return true;
  return Refuse(ErrorResponse(400, "broken chunked body: a chunk's header is too long"));
}

// What is appended is charged first.
bool HttpConnection::TakeBody(std::string_view bytes, std::string& gathered) {
  if (decoder_) return Decode(bytes, gathered);
  if (gathered.size() + bytes.size() > exchange_->body_limit().count()) {
    return Refuse(ErrorResponse(413, Cat("the body is longer than the ", FormatBytes(exchange_->body_limit()),
                                         " that are taken here")));
  }
  if (!ChargeBody(gathered.size() + bytes.size())) return false;
  gathered.append(bytes);
  return true;
}

bool HttpConnection::Decode(std::string_view bytes, std::string& gathered) {
  std::vector<std::byte> piece(kPiece);
  decoder_->Feed(bytes);
  while (true) {
    const auto count = decoder_->Decode(piece);
    if (absl::IsOutOfRange(count.status())) return Refuse(ErrorResponse(413, Message(count.status())));
    if (!count.ok()) return Refuse(ErrorResponse(count.status()));
    if (*count == 0) return true;
    if (gathered.size() + *count > exchange_->body_limit().count()) {
      return Refuse(ErrorResponse(413, Cat("the body is, decompressed, longer than the ",
                                           FormatBytes(exchange_->body_limit()), " that are taken here")));
    }
    if (!ChargeBody(gathered.size() + *count)) return false;
    gathered.append(reinterpret_cast<const char*>(piece.data()), *count);
  }
}

bool HttpConnection::Place(std::string_view bytes) {
  while (!bytes.empty()) {
    const auto span = exchange_->NextSpan(bytes.size());
    if (!span.ok()) return Refuse(ErrorResponse(span.status()));
    const std::size_t count = std::min(span->size(), bytes.size());
    std::memcpy(span->data(), bytes.data(), count);
    bytes.remove_prefix(count);
  }
  return true;
}

// What of `response_` goes out, behind its head.
std::vector<asio::const_buffer> HttpConnection::Gather(bool close) {
  std::uint64_t length = response_.body.size();
  for (const OutputBuffer& part : response_.parts) length += part.bytes().size();
  head_.clear();
  Append(head_, "HTTP/1.1 ", response_.code, " ", HttpReason(response_.code), "\r\n");
  if (response_.code != 204)
    Append(head_, "Content-Type: ", response_.content_type, "\r\nContent-Length: ", length, "\r\n");
  Append(head_, loop_.DateHeader(), response_.headers, extra_headers_);
  if (close) {
    head_ += "Connection: close\r\n";
  } else if (parser_->get().version() == 10) {
    head_ += "Connection: keep-alive\r\n";
  }
  head_ += "\r\n";
  Enter(State::kWriting);
  std::vector<asio::const_buffer> buffers;
  if (parser_->is_header_done() && parser_->get().method() == http::verb::head) {
    buffers.push_back(asio::buffer(head_));
    return buffers;
  }
  const bool joined = response_.body.size() <= kJoinedBody;
  if (joined) head_ += response_.body;
  buffers.push_back(asio::buffer(head_));
  if (!joined) buffers.push_back(asio::buffer(response_.body));
  for (const OutputBuffer& part : response_.parts) {
    if (!part.bytes().empty()) buffers.push_back(asio::buffer(part.bytes().data(), part.bytes().size()));
  }
  return buffers;
}

// Writes `response_`. True when the connection can take another request.
asio::awaitable<bool> HttpConnection::Write() {
  if (state_ == State::kClosed) co_return false;
  const bool readable =
      !timed_out_ && !withheld_ && !response_.close && parser_->is_header_done() && !parser_->chunked();
  if (!body_whole_ && readable && unread_ <= kDiscardedBody) body_whole_ = co_await SkipBody();
  const bool close = response_.close || !keep_alive_ || !body_whole_ || draining_;
  const std::vector<asio::const_buffer> buffers = Gather(close);
  const bool written = co_await WriteAll(&buffers);
  if (!written || !close) co_return written;
  if (!body_whole_ || buffer_.size() > 0 || !parser_->is_header_done()) Enter(State::kLingering);
  co_return false;
}

// What is left of a refused body would be taken for the next request.
asio::awaitable<bool> HttpConnection::SkipBody() {
  std::vector<std::byte> waste(kReadSize);
  const std::size_t buffered = std::min<std::uint64_t>(unread_, buffer_.size());
  buffer_.consume(buffered);
  unread_ -= buffered;
  while (unread_ > 0) {
    const bool read =
        co_await ReadExactly(std::span(waste).first(std::min<std::uint64_t>(unread_, waste.size())));
    if (!read) co_return false;
  }
  co_return true;
}

asio::awaitable<bool> HttpConnection::WriteAll(const std::vector<asio::const_buffer>* buffers) {
  if (tls_) {
    const bool all = co_await WriteTls(buffers);
    co_return all;
  }
  // Nearly every response fits into the socket's buffer: no need to ask the reactor.
  error_code error;
  std::size_t written = socket_.write_some(*buffers, error);
  if (error && error != asio::error::would_block) co_return false;
  std::vector<asio::const_buffer> rest;
  for (const asio::const_buffer& buffer : *buffers) {
    const std::size_t done = std::min(written, buffer.size());
    written -= done;
    if (done < buffer.size()) rest.push_back(buffer + done);
  }
  if (rest.empty()) co_return true;
  // The body is sent in small pieces, so that a slow client can be told from a client that does not read.
  std::uint64_t moved = transferred_ + written;
  for (asio::const_buffer& buffer : rest) {
    while (buffer.size() > 0) {
      const auto [failed, count] =
          co_await socket_.async_write_some(buffer, asio::as_tuple(asio::use_awaitable));
      if (failed || state_ == State::kClosed) co_return false;
      buffer += count;
      moved += count;
      Enter(state_, moved);
    }
  }
  co_return true;
}

// After a refusal that leaves bytes unread: closing at once would reset the connection and could destroy the
// response before the client reads it (RFC 9112, 9.6).
asio::awaitable<bool> HttpConnection::Discard() {
  error_code error;
  if (tls_) tls_->End();
  socket_.shutdown(asio::socket_base::shutdown_send, error);
  std::vector<std::byte> waste(kReadSize);
  for (std::uint64_t total = 0; total < kLingered && !error;) {
    const auto [failed, count] =
        co_await socket_.async_read_some(asio::buffer(waste), asio::as_tuple(asio::use_awaitable));
    error = failed;
    total += count;
  }
  co_return true;
}

}  // namespace troupe::gateway
