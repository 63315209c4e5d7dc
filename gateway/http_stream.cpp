#include "gateway/http_stream.hpp"

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <utility>

namespace troupe::gateway {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {
constexpr std::size_t kWaste = 16 * 1024;
// Beyond, the client gets a reset and may lose the response.
constexpr std::uint64_t kLingered = 4 * 1024 * 1024;
}  // namespace

HttpStream::HttpStream(asio::ip::tcp::socket socket, asio::io_context& context, const HttpPace& pace)
    : socket_(std::move(socket)), context_(context), pace_(pace) {
  error_code ignored;
  socket_.non_blocking(true, ignored);
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  socket_.set_option(asio::socket_base::keep_alive(true), ignored);
}

asio::awaitable<bool> HttpStream::Read(std::span<std::byte> into, std::size_t* count) {
  if (tls_) {
    const bool read = co_await ReadTls(into, count);
    co_return read;
  }
  const auto [error, some] = co_await socket_.async_read_some(asio::buffer(into.data(), into.size()),
                                                              asio::as_tuple(asio::use_awaitable));
  *count = some;
  co_return !error && !pace_.closed();
}

asio::awaitable<bool> HttpStream::Write(const Buffers* buffers) {
  if (tls_) {
    const bool all = co_await WriteTls(buffers);
    co_return all;
  }
  // Nearly every response fits into the socket's buffer: no need to ask the reactor.
  error_code error;
  std::size_t written = socket_.write_some(*buffers, error);
  if (error && error != asio::error::would_block) co_return false;
  Buffers rest;
  for (const asio::const_buffer& buffer : *buffers) {
    const std::size_t done = std::min(written, buffer.size());
    written -= done;
    if (done < buffer.size()) rest.push_back(buffer + done);
  }
  if (rest.empty()) co_return true;
  // The body is sent in small pieces, so that a slow client can be told from a client that does not read.
  std::uint64_t moved = pace_.transferred() + written;
  for (asio::const_buffer& buffer : rest) {
    while (buffer.size() > 0) {
      const auto [failed, count] =
          co_await socket_.async_write_some(buffer, asio::as_tuple(asio::use_awaitable));
      if (failed || pace_.closed()) co_return false;
      buffer += count;
      moved += count;
      Enter(pace_.state(), moved);
    }
  }
  co_return true;
}

asio::awaitable<bool> HttpStream::Discard() {
  error_code error;
  if (tls_) tls_->End();
  socket_.shutdown(asio::socket_base::shutdown_send, error);
  std::vector<std::byte> waste(kWaste);
  for (std::uint64_t total = 0; total < kLingered && !error;) {
    const auto [failed, count] =
        co_await socket_.async_read_some(asio::buffer(waste), asio::as_tuple(asio::use_awaitable));
    error = failed;
    total += count;
  }
  co_return true;
}

void HttpStream::WritePlain(std::string_view bytes) {
  error_code ignored;
  socket_.write_some(asio::buffer(bytes.data(), bytes.size()), ignored);
}

void HttpStream::Cancel() {
  error_code ignored;
  socket_.cancel(ignored);
}

void HttpStream::Close() {
  if (tls_) tls_->End();
  Enter(HttpState::kClosed);
  error_code ignored;
  socket_.close(ignored);
}

}  // namespace troupe::gateway
