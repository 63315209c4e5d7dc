#include "gateway/http_connection.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/string.hpp>

#include "gateway/http_error.hpp"
#include "gateway/text.hpp"
#include "security/server_certificate.hpp"

namespace troupe::gateway {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;

namespace {
constexpr std::size_t kReadSize = 16 * 1024;
constexpr std::string_view kBodies = "the bodies of the requests under way";
constexpr std::string_view kAnswers = "the answers that wait to be read";
// An answer up to this is not charged: a connection may hold as much anyway.
constexpr std::uint64_t kSmallAnswer = 64 * 1024;

// An IPv4 client of an IPv6 socket has its IPv4 address.
asio::ip::address ClientAddress(const asio::ip::tcp::socket& socket) {
  error_code error;
  const auto address = socket.remote_endpoint(error).address();
  if (error) return {};
  if (address.is_v6() && address.to_v6().is_v4_mapped())
    return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6());
  return address;
}

// What budgets know a client by. Of an IPv6 address the first half, since one client has all of
// the rest.
std::string BudgetName(const asio::ip::address& address) {
  if (address.is_v4()) return address.to_string();
  const auto bytes = address.to_v6().to_bytes();
  return std::string(bytes.begin(), bytes.begin() + 8);
}
// A line that begins with a space goes on with the one before it (obs-fold); two servers could read it
// differently. Beast would join the two.
bool IsFolded(std::string_view head) {
  for (auto end = head.find('\n'); end != std::string_view::npos; end = head.find('\n', end + 1))
    if (end + 1 < head.size() && (head[end + 1] == ' ' || head[end + 1] == '\t')) return true;
  return false;
}
}  // namespace

HttpConnection::HttpConnection(asio::ip::tcp::socket socket, HttpLoop& loop, bool probes_only)
    : socket_(std::move(socket)),
      loop_(loop),
      probes_only_(probes_only),
      address_(ClientAddress(socket_)),
      client_name_(address_.to_string()),
      client_(BudgetName(address_)) {
  error_code ignored;
  socket_.non_blocking(true, ignored);
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  socket_.set_option(asio::socket_base::keep_alive(true), ignored);
  if (loop_.shared().options.certificate == nullptr) return;
  tls_ = std::make_unique<TlsSession>(loop_.shared().options.certificate->Current()->context.get(),
                                      socket_.native_handle());
}

asio::awaitable<void> HttpConnection::Run() {
  const auto self = shared_from_this();
  bool go_on = true;
  if (tls_) go_on = co_await Handshake();
  while (go_on) go_on = co_await ServeOne();
  if (state_ == State::kLingering) co_await Discard();
  Close();
}

void HttpConnection::Close() {
  if (state_ == State::kClosed) return;
  if (tls_) tls_->End();
  Enter(State::kClosed);
  error_code ignored;
  socket_.close(ignored);
  Resume();
}

void HttpConnection::Drain() {
  draining_ = true;
  if (state_ == State::kIdle && buffer_.size() == 0) Close();
}

void HttpConnection::Enter(State state, std::uint64_t transferred) {
  moved_ = std::chrono::steady_clock::now();
  if (state != state_) entered_ = moved_;
  state_ = state;
  transferred_ = transferred;
  SetDeadline(false);
}

void HttpConnection::SetDeadline(bool is_short) {
  const HttpServerOptions& options = loop_.shared().options;
  Duration allowed = is_short ? options.short_transfer_timeout : options.transfer_timeout;
  if (state_ == State::kIdle) allowed = options.idle_timeout;
  if (state_ == State::kHead) allowed = options.head_timeout;
  if (state_ == State::kHandshake && !is_short) allowed = options.handshake_timeout;
  if (probes_only_) allowed = std::min<Duration>(allowed, std::chrono::seconds(1));
  if (state_ == State::kLingering) allowed = std::chrono::seconds(1);
  // Bytes that moved fast buy no time to stand still in.
  const auto still = moved_ + std::chrono::duration_cast<SteadyTime::duration>(allowed);
  if (options.slowest.value > 0) allowed += TransferTime(Bytes(transferred_), options.slowest);
  deadline_ = state_ == State::kWaiting || state_ == State::kClosed
                  ? SteadyTime::max()
                  : std::min(still, entered_ + std::chrono::duration_cast<SteadyTime::duration>(allowed));
}

void HttpConnection::CheckDeadline(SteadyTime now) {
  const HttpShared& shared = loop_.shared();
  if ((state_ == State::kBody && shared.bodies.IsShort(now)) ||
      (state_ == State::kWriting && shared.answers.IsShort(now)) ||
      (state_ == State::kHandshake && shared.handshakes.IsShort(now)))
    SetDeadline(true);
  if (now < deadline_) return;
  const bool refused = state_ == State::kHandshake;
  if (refused) loop_.shared().refused_tls.Count(TlsRefusal::kSlow, client_name_, "it took too long", now);
  if (!timed_out_ && !refused && state_ != State::kIdle && state_ != State::kLingering)
    loop_.shared().slow.fetch_add(1);
  // A client that sent half of a request is told so once; a silent client, or a client that does not read, is
  // not told.
  if (timed_out_ || (state_ != State::kHead && state_ != State::kBody)) return Close();
  timed_out_ = true;
  error_code ignored;
  socket_.cancel(ignored);
}

asio::awaitable<bool> HttpConnection::ServeOne() {
  parser_.emplace();
  parser_->header_limit(static_cast<std::uint32_t>(loop_.shared().options.max_head.count()));
  parser_->body_limit(boost::none);
  parser_->eager(false);
  keep_alive_ = false;
  body_whole_ = true;
  unread_ = 0;
  ++serial_;
  bool go_on = co_await ReadHead();
  if (go_on) go_on = co_await Answer();
  Forget();
  co_return go_on;
}

void HttpConnection::Forget() {
  exchange_.reset();
  decoder_.reset();
  extra_headers_.clear();
  make_ = nullptr;
  response_ = HttpResponse();
  loop_.shared().bodies.Return(client_, std::exchange(charged_body_, 0));
  loop_.shared().answers.Return(client_, std::exchange(charged_answer_, 0));
  loop_.shared().handshakes.Return(client_, std::exchange(charged_handshake_, 0));
}

// True when a head was read; false after an end or an error, which has been answered then.
asio::awaitable<bool> HttpConnection::ReadHead() {
  Enter(buffer_.size() > 0 ? State::kHead : State::kIdle);
  while (true) {
    bool refused = false;
    if (buffer_.size() > 0) {
      if (state_ == State::kIdle) Enter(State::kHead);
      error_code error;
      const auto bytes = buffer_.data();
      const std::size_t used = parser_->put(bytes, error);
      const bool done = parser_->is_header_done();
      const bool folded = done && IsFolded({static_cast<const char*>(bytes.data()), used});
      buffer_.consume(used);
      if (done && !folded) co_return true;
      if (folded) {
        refused = !Refuse(ErrorResponse(400, "a header goes on in a second line, which RFC 9112 forbids"));
        response_.close = true;
        body_whole_ = false;  // what follows is not read
      } else if (error == http::error::header_limit ||
                 buffer_.size() > loop_.shared().options.max_head.count()) {
        refused = !Refuse(ErrorResponse(
            431, Cat("the request's head is longer than ", FormatBytes(loop_.shared().options.max_head))));
      } else if (error && error != http::error::need_more) {
        refused = !Refuse(ErrorResponse(400, Cat("no HTTP/1.1 request: ", error.message())));
      }
      if (refused) loop_.shared().broken.fetch_add(1);
    }
    if (draining_ && state_ == State::kIdle) co_return false;
    if (!refused) {
      const bool more = co_await ReadMore();
      if (more) continue;
      if (!timed_out_) co_return false;
      RefuseLost();
    }
    co_await Write();
    co_return false;
  }
}

asio::awaitable<bool> HttpConnection::ReadMore() {
  if (tls_) {
    const auto room = buffer_.prepare(kReadSize);
    std::size_t got = 0;
    const bool read = co_await ReadTls({static_cast<std::byte*>(room.data()), room.size()}, &got);
    buffer_.commit(got);
    co_return read;
  }
  const auto [error, count] =
      co_await socket_.async_read_some(buffer_.prepare(kReadSize), asio::as_tuple(asio::use_awaitable));
  buffer_.commit(count);
  co_return !error && state_ != State::kClosed;
}

bool HttpConnection::Refuse(HttpResponse response) {
  response_ = std::move(response);
  return false;
}

bool HttpConnection::RefuseLost() {
  Refuse(timed_out_ ? ErrorResponse(408, "the request did not arrive in time")
                    : ErrorResponse(400, "the connection ended before the request did"));
  response_.close = true;
  return false;
}

bool HttpConnection::CheckHead() {
  if (probes_only_ && !is_probe_) {
    response_ = ErrorResponse(absl::ResourceExhaustedError(
        absl::string_view(kTooManyConnections.data(), kTooManyConnections.size())));
    response_.close = true;
    return false;
  }
  if (!CheckFields()) return false;
  if (std::optional<HttpResponse> early = exchange_->Early()) return Refuse(std::move(*early));
  if (unread_ > exchange_->body_limit().count()) {
    return Refuse(ErrorResponse(413, Cat("a body of ", unread_, " bytes is longer than the ",
                                         FormatBytes(exchange_->body_limit()), " that are taken here")));
  }
  return CheckCoding() && CheckBudgets();
}

// What two servers could read differently, or must not be there twice.
bool HttpConnection::CheckFields() {
  const auto& request = parser_->get();
  if (request.version() != 10 && request.version() != 11) {
    return Refuse(ErrorResponse(400, "HTTP/1.0 or HTTP/1.1 expected"));
  }
  const auto hosts = request.count(http::field::host);
  if (hosts > 1 || (hosts == 0 && request.version() == 11)) {
    return Refuse(
        ErrorResponse(400, Cat("an HTTP/1.1 request has exactly one Host header, and this one has ", hosts)));
  }
  for (const auto field : {http::field::authorization, http::field::content_encoding, http::field::origin}) {
    if (request.count(field) < 2) continue;
    return Refuse(ErrorResponse(400, Cat("the request has more than one header ", http::to_string(field))));
  }
  for (const char* field : {"Inference-Header-Content-Length", "Idempotency-Key"}) {
    if (request.count(field) < 2) continue;
    return Refuse(ErrorResponse(400, Cat("the request has more than one header ", field)));
  }
  // Another server on the way might read such a body otherwise, and take a part of it for the next request.
  const auto coding = request.find(http::field::transfer_encoding);
  if (coding != request.end() &&
      (request.version() != 11 || request.count(http::field::transfer_encoding) > 1 ||
       !boost::beast::iequals(coding->value(), "chunked"))) {
    response_ = ErrorResponse(501, "Transfer-Encoding may be 'chunked' and nothing else, once, in HTTP/1.1");
    response_.close = true;
    return false;
  }
  return true;
}

bool HttpConnection::CheckCoding() {
  const auto field = parser_->get()[http::field::content_encoding];
  const auto coding = ParseBodyCoding({field.data(), field.size()});
  if (!coding) {
    Refuse(
        ErrorResponse(415, Cat("Content-Encoding may be one of ", kBodyCodings, ", or be left out; found '",
                               std::string_view(field.data(), field.size()), "'")));
    response_.headers = Cat("Accept-Encoding: ", kBodyCodings, "\r\n");
    return false;
  }
  if (*coding != BodyCoding::kIdentity && !body_whole_) decoder_.emplace(*coding);
  return true;
}

bool HttpConnection::CheckBudgets() {
  // A request whose answer could not be kept for its client is not computed.
  if (is_probe_) return true;
  if (const auto verdict = loop_.shared().answers.Look(client_); verdict != TransferBudget::Verdict::kTaken)
    return RefuseFull(verdict, kAnswers);
  if (unread_ == 0) return true;
  const auto verdict = loop_.shared().bodies.Look(client_);
  return verdict == TransferBudget::Verdict::kTaken || RefuseFull(verdict, kBodies);
}

// `held` bytes of the body are in memory, or will be after the next read.
bool HttpConnection::ChargeBody(std::uint64_t held) {
  if (held <= charged_body_) return true;
  const std::uint64_t more = held - charged_body_;
  const auto verdict = loop_.shared().bodies.Take(client_, more, std::chrono::steady_clock::now());
  if (verdict != TransferBudget::Verdict::kTaken) return RefuseFull(verdict, kBodies);
  charged_body_ = held;
  return true;
}

bool HttpConnection::RefuseFull(TransferBudget::Verdict verdict, std::string_view what) {
  const bool is_client = verdict == TransferBudget::Verdict::kClientFull;
  return Refuse(ErrorResponse(absl::ResourceExhaustedError(Cat(
      what, is_client ? " of this client's address" : "", " fill the server's memory for them; try again"))));
}

// What waits for its reader is charged before a byte of it is sent: an answer that does not fit can still be
// refused.
void HttpConnection::ChargeAnswer() {
  std::uint64_t length = response_.body.size();
  for (const OutputBuffer& part : response_.parts) length += part.bytes().size();
  if (length <= kSmallAnswer) return;
  const auto verdict = loop_.shared().answers.Take(client_, length, std::chrono::steady_clock::now());
  if (verdict == TransferBudget::Verdict::kTaken) {
    charged_answer_ = length;
  } else {
    RefuseFull(verdict, kAnswers);
  }
}

// True when the connection can take another request.
asio::awaitable<bool> HttpConnection::Answer() {
  loop_.shared().requests.fetch_add(1, std::memory_order_relaxed);
  const auto& request = parser_->get();
  const auto view = [](boost::beast::string_view text) { return std::string_view(text.data(), text.size()); };
  const HttpRequestHead head{view(request.method_string()),
                             view(request.target()),
                             view(request["Inference-Header-Content-Length"]),
                             view(request["Idempotency-Key"]),
                             view(request[http::field::authorization]),
                             client_name_,
                             address_.is_loopback(),
                             view(request[http::field::origin]),
                             view(request[http::field::access_control_request_method])};
  keep_alive_ = request.keep_alive() && !draining_;
  unread_ = parser_->content_length().value_or(0);
  withheld_ = request.version() == 11 && buffer_.size() == 0 &&
              boost::beast::iequals(request[http::field::expect], "100-continue");
  body_whole_ = unread_ == 0 && !parser_->chunked();
  is_probe_ = loop_.shared().handler.IsProbe(head);
  extra_headers_ = loop_.shared().handler.Headers(head);
  exchange_ = loop_.shared().handler.Begin(head);
  bool served = CheckHead();
  if (served && !body_whole_) served = co_await ReadBody();
  if (served) co_await Reply();
  if (state_ == State::kClosed) co_return false;
  const bool go_on = co_await Write();
  co_return go_on;
}

// False when the client went away before the reply.
asio::awaitable<bool> HttpConnection::Reply() {
  Enter(State::kWaiting);
  exchange_->Finish([weak = weak_from_this(), gate = loop_.gate(), serial = serial_,
                     thread = std::this_thread::get_id()](MakeResponse make) mutable {
    if (std::this_thread::get_id() == thread) {
      if (const auto self = weak.lock()) self->Complete(serial, std::move(make));
      return;
    }
    gate->Post([weak = std::move(weak), serial, make = std::move(make)]() mutable {
      if (const auto self = weak.lock()) self->Complete(serial, std::move(make));
    });
  });
  if (!make_ && state_ != State::kClosed) {
    co_await asio::async_initiate<const asio::use_awaitable_t<>&, void()>(
        [this](auto handler) {
          waiter_ = [handler = std::move(handler)]() mutable { std::move(handler)(); };
        },
        asio::use_awaitable);
  }
  if (state_ == State::kClosed) {
    if (!make_) exchange_->Abandon();
    co_return false;
  }
  response_ = make_();
  ChargeAnswer();
  co_return true;
}

void HttpConnection::Complete(std::uint64_t serial, MakeResponse make) {
  if (serial != serial_ || state_ != State::kWaiting) return;
  make_ = std::move(make);
  Resume();
}

void HttpConnection::Resume() {
  if (!waiter_) return;
  // Not inside the caller's stack: the caller may be the service in the middle of something else.
  asio::post(loop_.context(),
             [self = shared_from_this(), waiter = std::exchange(waiter_, nullptr)]() mutable { waiter(); });
}

}  // namespace troupe::gateway
