#include "gateway/http_request_reader.hpp"

#include <algorithm>
#include <array>
#include <boost/beast/core/string.hpp>
#include <cstring>
#include <vector>

#include "gateway/http_error.hpp"
#include "gateway/http_head.hpp"
#include "gateway/text.hpp"

namespace troupe::gateway {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;

namespace {
constexpr std::size_t kReadSize = 16 * 1024;
constexpr std::size_t kPiece = 64 * 1024;  // a body is charged piece by piece, before the piece is read
// An unread body up to this is read over, to keep the connection.
constexpr std::uint64_t kDiscardedBody = 64 * 1024;
}  // namespace

void HttpRequestReader::Begin() {
  parser_.emplace();
  parser_->header_limit(static_cast<std::uint32_t>(options_.max_head.count()));
  parser_->body_limit(boost::none);
  parser_->eager(false);
  decoder_.reset();
  unread_ = 0;
  body_whole_ = true;
  withheld_ = false;
}

bool HttpRequestReader::Refuse(HttpResponse response) {
  refusal_ = std::move(response);
  return false;
}

bool HttpRequestReader::RefuseLost() {
  HttpResponse response = stream_.pace().timed_out()
                              ? ErrorResponse(408, "the request did not arrive in time")
                              : ErrorResponse(400, "the connection ended before the request did");
  response.close = true;
  return Refuse(std::move(response));
}

std::span<std::byte> HttpRequestReader::Room() {
  const auto room = buffer_.prepare(kReadSize);
  return {static_cast<std::byte*>(room.data()), room.size()};
}

asio::awaitable<bool> HttpRequestReader::ReadHead() {
  stream_.Enter(has_more() ? HttpState::kHead : HttpState::kIdle);
  while (true) {
    if (has_more()) {
      if (stream_.pace().state() == HttpState::kIdle) stream_.Enter(HttpState::kHead);
      if (TakeHead()) co_return true;
      if (refused()) co_return false;
    }
    std::size_t count = 0;
    const bool more = co_await stream_.Read(Room(), &count);
    buffer_.commit(count);
    if (more) continue;
    if (stream_.pace().timed_out()) RefuseLost();
    co_return false;
  }
}

// True when the head is whole; false when it is refused, or more of it has to come.
bool HttpRequestReader::TakeHead() {
  error_code error;
  const auto bytes = buffer_.data();
  const std::size_t used = parser_->put(bytes, error);
  const bool done = parser_->is_header_done();
  const bool folded = done && IsFolded({static_cast<const char*>(bytes.data()), used});
  buffer_.consume(used);
  if (folded) {
    HttpResponse response = ErrorResponse(400, "a header goes on in a second line, which RFC 9112 forbids");
    response.close = true;
    body_whole_ = false;  // what follows is not read
    return Refuse(std::move(response));
  }
  if (done) {
    const Request& request = parser_->get();
    unread_ = parser_->content_length().value_or(0);
    body_whole_ = unread_ == 0 && !parser_->chunked();
    withheld_ = request.version() == 11 && !has_more() &&
                boost::beast::iequals(request[http::field::expect], "100-continue");
    return true;
  }
  if (error == http::error::header_limit || buffer_.size() > options_.max_head.count()) {
    return Refuse(
        ErrorResponse(431, Cat("the request's head is longer than ", FormatBytes(options_.max_head))));
  }
  if (error && error != http::error::need_more) {
    return Refuse(ErrorResponse(400, Cat("no HTTP/1.1 request: ", error.message())));
  }
  return false;
}

std::optional<HttpResponse> HttpRequestReader::CheckBody(Bytes limit) {
  if (unread_ > limit.count()) {
    return ErrorResponse(413, Cat("a body of ", unread_, " bytes is longer than the ", FormatBytes(limit),
                                  " that are taken here"));
  }
  const auto field = request()[http::field::content_encoding];
  const auto coding = ParseBodyCoding({field.data(), field.size()});
  if (!coding) {
    HttpResponse refusal =
        ErrorResponse(415, Cat("Content-Encoding may be one of ", kBodyCodings, ", or be left out; found '",
                               std::string_view(field.data(), field.size()), "'"));
    refusal.headers = Cat("Accept-Encoding: ", kBodyCodings, "\r\n");
    return refusal;
  }
  if (*coding != BodyCoding::kIdentity && !body_whole_) decoder_.emplace(*coding);
  return std::nullopt;
}

bool HttpRequestReader::HoldBody(std::uint64_t held) {
  auto refusal = charges_.HoldBody(held, std::chrono::steady_clock::now());
  return !refusal || Refuse(std::move(*refusal));
}

asio::awaitable<bool> HttpRequestReader::Continue() {
  if (!withheld_) co_return true;
  withheld_ = false;
  const HttpStream::Buffers line(1, asio::buffer("HTTP/1.1 100 Continue\r\n\r\n", 25));
  const bool written = co_await stream_.Write(&line);
  co_return written;
}

asio::awaitable<bool> HttpRequestReader::ReadBody(HttpExchange* exchange) {
  stream_.Enter(HttpState::kBody);
  bool whole = co_await Continue();
  if (!whole) co_return RefuseLost();
  if (parser_->chunked() || decoder_) {
    whole = co_await ReadGathered(exchange);
  } else {
    whole = co_await ReadSized(exchange);
  }
  co_return whole;
}

// `count` bytes of a body whose length is known have moved.
void HttpRequestReader::MovedSized(std::size_t count) {
  unread_ -= count;
  stream_.Enter(HttpState::kBody, parser_->content_length().value_or(0) - unread_);
}

// Straight from the socket to where the protocol wants it, but for what came along with the head.
asio::awaitable<bool> HttpRequestReader::ReadSized(HttpExchange* exchange) {
  const std::uint64_t size = unread_;
  while (unread_ > 0) {
    const auto span = exchange->NextSpan(unread_);
    if (!span.ok()) co_return Refuse(ErrorResponse(span.status()));
    for (std::span<std::byte> rest = *span; !rest.empty();) {
      auto piece = rest.first(std::min(rest.size(), kPiece));
      rest = rest.subspan(piece.size());
      if (!HoldBody(size - unread_ + piece.size())) co_return false;
      const std::size_t buffered = std::min(piece.size(), buffer_.size());
      std::memcpy(piece.data(), buffer_.data().data(), buffered);
      buffer_.consume(buffered);
      MovedSized(buffered);
      for (piece = piece.subspan(buffered); !piece.empty();) {
        std::size_t count = 0;
        const bool read = co_await stream_.Read(piece, &count);
        piece = piece.subspan(count);
        if (!read) co_return RefuseLost();
        MovedSized(count);
      }
    }
  }
  body_whole_ = true;
  co_return true;
}

// The length is known at the end only, so the body is gathered first: of chunks, or decompressed.
asio::awaitable<bool> HttpRequestReader::ReadGathered(HttpExchange* exchange) {
  const std::uint64_t size = unread_;
  const Bytes limit = exchange->body_limit();
  std::string gathered;
  std::uint64_t arrived = 0;
  while (true) {
    const std::size_t before = buffer_.size();
    const bool sound = parser_->chunked() ? TakeChunk(limit, gathered) : TakeSized(limit, gathered);
    if (!sound) co_return false;
    arrived += before - buffer_.size();
    if (parser_->chunked() ? parser_->is_done() : unread_ == 0) break;
    stream_.Enter(HttpState::kBody, parser_->chunked() ? arrived : size - unread_);
    std::size_t count = 0;
    const bool more = co_await stream_.Read(Room(), &count);
    buffer_.commit(count);
    if (!more) co_return RefuseLost();
  }
  body_whole_ = true;
  if (decoder_)
    if (absl::Status status = decoder_->CheckEnd(); !status.ok()) co_return Refuse(ErrorResponse(status));
  co_return Place(gathered, *exchange);
}

bool HttpRequestReader::TakeSized(Bytes limit, std::string& gathered) {
  const std::size_t count = std::min<std::uint64_t>(unread_, buffer_.size());
  const std::string piece(static_cast<const char*>(buffer_.data().data()), count);
  buffer_.consume(count);
  unread_ -= count;
  return TakeBody(piece, limit, gathered);
}

// Takes what can be taken from the buffer.
bool HttpRequestReader::TakeChunk(Bytes limit, std::string& gathered) {
  std::array<char, kReadSize> piece;
  while (!parser_->is_done() && has_more()) {
    auto& body = parser_->get().body();
    body.data = piece.data();
    body.size = piece.size();
    body.more = true;
    error_code error;
    const std::size_t used = parser_->put(buffer_.data(), error);
    buffer_.consume(used);
    if (!TakeBody({piece.data(), piece.size() - body.size}, limit, gathered)) return false;
    if (error && error != http::error::need_more && error != http::error::need_buffer) {
      return Refuse(ErrorResponse(400, Cat("broken chunked body: ", error.message())));
    }
    if (used == 0) break;
  }
  if (buffer_.size() <= kReadSize || parser_->is_done()) return true;
  return Refuse(ErrorResponse(400, "broken chunked body: a chunk's header is too long"));
}

// What is appended is charged first.
bool HttpRequestReader::TakeBody(std::string_view bytes, Bytes limit, std::string& gathered) {
  if (decoder_) return Decode(bytes, limit, gathered);
  if (gathered.size() + bytes.size() > limit.count()) {
    return Refuse(
        ErrorResponse(413, Cat("the body is longer than the ", FormatBytes(limit), " that are taken here")));
  }
  if (!HoldBody(gathered.size() + bytes.size())) return false;
  gathered.append(bytes);
  return true;
}

bool HttpRequestReader::Decode(std::string_view bytes, Bytes limit, std::string& gathered) {
  std::vector<std::byte> piece(kPiece);
  decoder_->Feed(bytes);
  while (true) {
    const auto count = decoder_->Decode(piece);
    if (absl::IsOutOfRange(count.status())) return Refuse(ErrorResponse(413, Message(count.status())));
    if (!count.ok()) return Refuse(ErrorResponse(count.status()));
    if (*count == 0) return true;
    if (gathered.size() + *count > limit.count()) {
      return Refuse(ErrorResponse(413, Cat("the body is, decompressed, longer than the ", FormatBytes(limit),
                                           " that are taken here")));
    }
    if (!HoldBody(gathered.size() + *count)) return false;
    gathered.append(reinterpret_cast<const char*>(piece.data()), *count);
  }
}

bool HttpRequestReader::Place(std::string_view bytes, HttpExchange& exchange) {
  while (!bytes.empty()) {
    const auto span = exchange.NextSpan(bytes.size());
    if (!span.ok()) return Refuse(ErrorResponse(span.status()));
    const std::size_t count = std::min(span->size(), bytes.size());
    std::memcpy(span->data(), bytes.data(), count);
    bytes.remove_prefix(count);
  }
  return true;
}

bool HttpRequestReader::MaySkipBody() const {
  return !body_whole_ && !withheld_ && !stream_.pace().timed_out() && has_head() && !parser_->chunked() &&
         unread_ <= kDiscardedBody;
}

asio::awaitable<bool> HttpRequestReader::SkipBody() {
  std::vector<std::byte> waste(kReadSize);
  const std::size_t buffered = std::min<std::uint64_t>(unread_, buffer_.size());
  buffer_.consume(buffered);
  unread_ -= buffered;
  while (unread_ > 0) {
    const auto piece = std::span(waste).first(std::min<std::uint64_t>(unread_, waste.size()));
    std::size_t count = 0;
    const bool read = co_await stream_.Read(piece, &count);
    if (!read) co_return false;
    MovedSized(count);
  }
  body_whole_ = true;
  co_return true;
}

}  // namespace troupe::gateway
