#include "gateway/http_connection.hpp"

#include <algorithm>
#include <boost/asio/use_awaitable.hpp>
#include <utility>

#include "gateway/http_error.hpp"
#include "gateway/http_head.hpp"
#include "gateway/text.hpp"
#include "security/server_certificate.hpp"

namespace troupe::gateway {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;

namespace {
constexpr std::string_view kSpeaksTls =
    "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: 59\r\nConnection: "
    "close\r\n\r\n"
    R"({"error":"this port speaks HTTPS; use https:// in the URL"})";
static_assert(kSpeaksTls.ends_with(R"(URL"})") && kSpeaksTls.size() - kSpeaksTls.find('{') == 59);

// An IPv4 client of an IPv6 socket has its IPv4 address.
asio::ip::address Plain(const asio::ip::address& address) {
  if (address.is_v6() && address.to_v6().is_v4_mapped())
    return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6());
  return address;
}

asio::ip::address ClientAddress(const asio::ip::tcp::socket& socket) {
  error_code error;
  const auto address = socket.remote_endpoint(error).address();
  return error ? asio::ip::address() : Plain(address);
}

TcpEnd EndOf(const asio::ip::tcp::endpoint& endpoint) {
  TcpEnd end;
  end.port = endpoint.port();
  const auto copy = [&end](const auto& bytes) { std::ranges::copy(bytes, end.address.begin()); };
  const auto address = Plain(endpoint.address());
  if (address.is_v4()) {
    copy(address.to_v4().to_bytes());
  } else {
    copy(address.to_v6().to_bytes());
  }
  return end;
}

// Of a client that has gone already: ends that no connection has.
TcpEnds EndsOf(const asio::ip::tcp::socket& socket) {
  error_code error;
  const auto local = socket.local_endpoint(error);
  const auto remote = error ? asio::ip::tcp::endpoint() : socket.remote_endpoint(error);
  if (error) return {};
  return {Plain(remote.address()).is_v6(), EndOf(local), EndOf(remote)};
}

// What budgets know a client by. Of an IPv6 address the first half, since one client has all of
// the rest.
std::string BudgetName(const asio::ip::address& address) {
  if (address.is_v4()) return address.to_string();
  const auto bytes = address.to_v6().to_bytes();
  return std::string(bytes.begin(), bytes.begin() + 8);
}
}  // namespace

HttpClient::HttpClient(const asio::ip::tcp::socket& socket)
    : address(ClientAddress(socket)),
      name(address.to_string()),
      user(std::make_shared<ClientUser>(EndsOf(socket))) {}

HttpConnection::HttpConnection(asio::ip::tcp::socket socket, HttpLoop& loop, bool probes_only)
    : loop_(loop),
      client_(socket),
      stream_(std::move(socket), loop.context(),
              HttpPace(loop.shared().options, probes_only, std::chrono::steady_clock::now())),
      charges_(loop.shared().budgets, BudgetName(client_.address)),
      reader_(stream_, charges_, loop.shared().options) {
  if (const auto& certificate = loop.shared().options.certificate)
    stream_.BeginTls(certificate->Current()->context.get());
}

asio::awaitable<void> HttpConnection::Run() {
  const auto self = shared_from_this();
  bool go_on = true;
  if (stream_.tls() != nullptr) go_on = co_await Greet();
  while (go_on) go_on = co_await ServeOne();
  if (stream_.pace().state() == HttpState::kLingering) co_await stream_.Discard();
  Close();
}

void HttpConnection::Close() {
  if (stream_.pace().closed()) return;
  stream_.Close();
  Resume();
}

void HttpConnection::Drain() {
  draining_ = true;
  if (stream_.pace().state() == HttpState::kIdle && !reader_.has_more()) Close();
}

void HttpConnection::CheckDeadline(SteadyTime now) {
  HttpPace& pace = stream_.pace();
  const HttpState state = pace.state();
  if (charges_.IsShort(state, now)) pace.Shorten();
  if (!pace.IsLate(now)) return;
  const bool greets = state == HttpState::kHandshake;
  if (greets) loop_.shared().refused_tls.Count(TlsRefusal::kSlow, client_.name, "it took too long", now);
  if (!pace.timed_out() && !greets && state != HttpState::kIdle && state != HttpState::kLingering)
    loop_.shared().slow.fetch_add(1);
  // A client that sent half of a request is told so once; a silent client, or a client that does not read, is
  // not told.
  if (pace.timed_out() || (state != HttpState::kHead && state != HttpState::kBody)) return Close();
  pace.GiveUp();
  stream_.Cancel();
}

// The handshake of TLS.
asio::awaitable<bool> HttpConnection::Greet() {
  HttpShared& shared = loop_.shared();
  const auto now = std::chrono::steady_clock::now();
  if (!charges_.BeginHandshake(now)) {
    shared.refused_tls.Count(TlsRefusal::kTooMany, client_.name, "too many handshakes are under way", now);
    co_return false;
  }
  const bool greeted = co_await stream_.Handshake();
  Forget();
  if (greeted) {
    shared.handshakes_done.fetch_add(1, std::memory_order_relaxed);
  } else {
    GreetFailed();
  }
  co_return greeted;
}

void HttpConnection::GreetFailed() {
  // Its end was counted where it was decided, if it was ours.
  if (stream_.pace().closed()) return;
  const TlsSession& tls = *stream_.tls();
  if (tls.is_plain()) {
    stream_.WritePlain(kSpeaksTls);
    // The request that lies unread would make a reset of the end, and the client would lose the line.
    stream_.Enter(HttpState::kLingering);
  }
  loop_.shared().refused_tls.Count(
      tls.is_plain() ? TlsRefusal::kPlainHttp : TlsRefusal::kFailed, client_.name,
      tls.is_plain() ? "it did not begin with TLS; this port speaks HTTPS only" : tls.Failure(),
      std::chrono::steady_clock::now());
}

// True when the connection can take another request.
asio::awaitable<bool> HttpConnection::ServeOne() {
  reader_.Begin();
  ++serial_;
  bool go_on = !draining_ || reader_.has_more();
  if (go_on) go_on = co_await reader_.ReadHead();
  if (go_on) {
    go_on = co_await Answer();
  } else if (reader_.refused()) {
    response_ = reader_.TakeRefusal();
    if (response_.code != 408) loop_.shared().broken.fetch_add(1);
    co_await Write(false);
  }
  Forget();
  co_return go_on;
}

void HttpConnection::Forget() {
  exchange_.reset();
  writer_.SetHeaders({});
  make_ = nullptr;
  response_ = HttpResponse();
  charges_.ReturnAll();
}

bool HttpConnection::Refuse(HttpResponse response) {
  response_ = std::move(response);
  return false;
}

bool HttpConnection::CheckHead(bool is_probe) {
  if (stream_.pace().probes_only() && !is_probe) {
    HttpResponse full = ErrorResponse(absl::ResourceExhaustedError(
        absl::string_view(kTooManyConnections.data(), kTooManyConnections.size())));
    full.close = true;
    return Refuse(std::move(full));
  }
  std::optional<HttpResponse> refusal = CheckFields(reader_.request());
  if (!refusal) refusal = exchange_->Early();
  if (!refusal) refusal = reader_.CheckBody(exchange_->body_limit());
  if (!refusal && !is_probe) refusal = charges_.Look(reader_.has_body());
  return !refusal || Refuse(std::move(*refusal));
}

// True when the connection can take another request.
asio::awaitable<bool> HttpConnection::Answer() {
  HttpShared& shared = loop_.shared();
  shared.requests.fetch_add(1, std::memory_order_relaxed);
  HttpRequestHead head = ViewOf(reader_.request(), client_.name, client_.address.is_loopback());
  head.user = client_.user;
  const bool keep_alive = reader_.request().keep_alive() && !draining_;
  const bool is_probe = shared.handler.IsProbe(head);
  writer_.SetHeaders(shared.handler.Headers(head));
  exchange_ = shared.handler.Begin(head);
  bool served = CheckHead(is_probe);
  if (served && !reader_.body_whole()) {
    served = co_await reader_.ReadBody(exchange_.get());
    if (!served) response_ = reader_.TakeRefusal();
  }
  if (served) co_await Reply();
  if (stream_.pace().closed()) co_return false;
  const bool go_on = co_await Write(keep_alive);
  co_return go_on;
}

// False when the client went away before the reply.
asio::awaitable<bool> HttpConnection::Reply() {
  stream_.Enter(HttpState::kWaiting);
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
  if (!make_ && !stream_.pace().closed()) {
    co_await asio::async_initiate<const asio::use_awaitable_t<>&, void()>(
        [this](auto handler) {
          waiter_ = [handler = std::move(handler)]() mutable { std::move(handler)(); };
        },
        asio::use_awaitable);
  }
  if (stream_.pace().closed()) {
    if (!make_) exchange_->Abandon();
    co_return false;
  }
  response_ = make_();
  if (auto refusal = charges_.HoldAnswer(LengthOf(response_), std::chrono::steady_clock::now()))
    response_ = std::move(*refusal);
  co_return true;
}

void HttpConnection::Complete(std::uint64_t serial, MakeResponse make) {
  if (serial != serial_ || !waiting()) return;
  make_ = std::move(make);
  Resume();
}

void HttpConnection::Resume() {
  if (!waiter_) return;
  // Not inside the caller's stack: the caller may be the service in the middle of something else.
  asio::post(loop_.context(),
             [self = shared_from_this(), waiter = std::exchange(waiter_, nullptr)]() mutable { waiter(); });
}

// Writes `response_`. True when the connection can take another request.
asio::awaitable<bool> HttpConnection::Write(bool keep_alive) {
  if (stream_.pace().closed()) co_return false;
  if (!response_.close && reader_.MaySkipBody()) co_await reader_.SkipBody();
  HttpForm form;
  form.version = reader_.request().version();
  form.head_only = reader_.has_head() && reader_.request().method() == http::verb::head;
  form.close = response_.close || !keep_alive || !reader_.body_whole() || draining_;
  const HttpStream::Buffers buffers = writer_.Gather(response_, form, loop_.DateHeader());
  stream_.Enter(HttpState::kWriting);
  const bool written = co_await stream_.Write(&buffers);
  if (!written || !form.close) co_return written;
  if (!reader_.body_whole() || reader_.has_more() || !reader_.has_head())
    stream_.Enter(HttpState::kLingering);
  co_return false;
}

}  // namespace troupe::gateway
